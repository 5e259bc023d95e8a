"""Simulated sums of many people's releases, and rules of thumb for the variance of an effect.

A sum is drawn as a whole, without the lattice's rounding, at the same cost for any number of people.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.design import Records
from murk.learners.core.scoring.sums import direction_spread
from murk.learners.estimates.estimate import Estimate
from murk.stream.task.task import Task

Array = NDArray[np.float64]

VARIANCE: Final = 0.25  # assumed variance of a coded feature
_EXPLAINED: Final = 0.2  # share of the target that a model is assumed to explain
_MISFIT: Final = 2.0  # error of a logistic model's effect fitted to moments, in percentage points times sqrt(d)


def one_by_one(estimate: Callable[..., Estimate]) -> Callable[..., Iterator[Callable[[], Estimate]]]:
    """Turn a forecast for one number of people into a forecast for several numbers, each drawn independently."""

    def estimates(
        problem: Any, records: Records, counts: Sequence[int], levels: Mapping[str, float], chains: int,
        rng: np.random.Generator,
    ) -> Iterator[Callable[[], Estimate]]:  # fmt: skip
        return (partial(estimate, problem, records, people, levels, chains, rng) for people in counts)

    return estimates


def moments_variance(cross: float, squares: float, people: float) -> float:
    """Return an effect's variance from the noise variances of a release's ``x y`` and ``x x'``."""
    return (cross + squares * _EXPLAINED / VARIANCE) / (people * VARIANCE)


def vectors_variance(features: int, noise: float, people: float) -> float:
    """Return an effect's variance from the noise variance of a released vector of length 1."""
    return features * (noise + 1.0 / features) / people


def misfit_variance(task: Task) -> float:
    """Return the assumed squared error of an effect where a logistic model is fitted to moments, else 0."""
    return (_MISFIT / 50.0) ** 2 / max(task.coding.size - 1, 1) if task.target.kind == "binary" else 0.0


def released_sum(mechanism: Any, V: Array, counts: Array, rng: np.random.Generator) -> Array:
    """Draw the sum of people's decoded releases, where ``counts[i]`` people have row i of V (m, d).

    For mechanisms that release directions, the sum is taken as normal, by the central limit theorem.
    """
    people = float(counts.sum())
    across, along = direction_spread(mechanism)
    total = counts @ V + rng.normal(size=V.shape[1]) * math.sqrt(people * across)
    if along is not None:
        length = np.sqrt(np.einsum("ij,ij->i", V, V))[:, None]
        unit = V / np.where(length > 0, length, 1.0)
        values, vectors = np.linalg.eigh((unit * (along * counts)[:, None]).T @ unit - (V * counts[:, None]).T @ V)
        total = total + vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.normal(size=len(values)))
    return np.asarray(total)


def split(people: int, shares: Mapping[str, float], empty: bool = False) -> dict[str, int]:
    """Split people by shares, without losing any; empty parts are left out unless ``empty``."""
    ends = np.rint(np.cumsum(list(shares.values())) / sum(shares.values()) * people).astype(np.int64)
    sizes = np.diff(np.concatenate([[0], ends])).tolist()
    return {name: int(size) for name, size in zip(shares, sizes, strict=True) if size or empty}


def within_bounds(z: Array, feature_bound: float, target_bound: float) -> Array:
    """Return rows (m, p + 1) as an organisation adds them: features and target each scaled down to their bound."""
    rows = z.copy()
    for part, bound in ((slice(None, -1), feature_bound), (slice(-1, None), target_bound)):
        length = np.sqrt(np.square(z[:, part]).sum(axis=1))
        rows[:, part] *= np.minimum(1.0, bound / np.maximum(length, 1e-300))[:, None]
    return rows
