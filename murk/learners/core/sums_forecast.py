"""What so many people's releases add up to, drawn at once: exact but for the lattice, and cheap at any number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.scoring.sums import direction_spread

Array = NDArray[np.float64]


def released_sum(mechanism: Any, V: Array, counts: Array, rng: np.random.Generator) -> Array:
    """The sum of what is decoded of people's releases, of whom ``counts`` (m,) are given each row of V (m, d).

    Of mechanisms that release directions it is normal by the central limit theorem.
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
    """So many people by shares, none lost; without shares of nobody, unless they are asked for."""
    ends = np.rint(np.cumsum(list(shares.values())) / sum(shares.values()) * people).astype(np.int64)
    sizes = np.diff(np.concatenate([[0], ends])).tolist()
    return {name: int(size) for name, size in zip(shares, sizes, strict=True) if size or empty}


def within_bounds(z: Array, feature_bound: float, target_bound: float) -> Array:
    """Rows (m, p + 1) as an organisation adds them up: features and target each scaled down to their bound."""
    found = z.copy()
    for part, bound in ((slice(None, -1), feature_bound), (slice(-1, None), target_bound)):
        length = np.sqrt(np.square(z[:, part]).sum(axis=1))
        found[:, part] *= np.minimum(1.0, bound / np.maximum(length, 1e-300))[:, None]
    return found
