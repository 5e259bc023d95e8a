"""What a device does to a record that may be released: its vector, and noise of the level that it chose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from murk.learners.problem import PersonProblem
    from murk.privacy.noise import NoiseSource

Key = TypeVar("Key", int, str)


def payloads_of(
    problem: PersonProblem, x: NDArray[np.float64], y: NDArray[np.float64], chains: Sequence[int],
    iterates: Mapping[int, NDArray[np.float64] | None], levels: Sequence[str], noise: NoiseSource,
    indices: NDArray[np.int64],
) -> NDArray[np.int64]:  # fmt: skip
    """Randomize coded records into the payloads of their releases: the one place where a device does so.

    Parameters
    ----------
    problem
        The task's.
    x, y
        Coded features with the constant last, (m, p), and targets, (m,).
    chains, levels
        Of each record; its gradient is taken at its chain's iterate.
    iterates
        Chain to iterate, where releases are of one.
    noise, indices
        Where noise comes from, and which draws of a simulation.

    Returns
    -------
    Payloads, int64 of shape (m, d).
    """
    vectors = np.empty((len(x), problem.dimension))
    for own, chain in _groups(chains):
        vectors[own] = problem.vectors(x[own], y[own], iterates[chain])
    payloads = np.empty(vectors.shape, dtype=np.int64)
    for own, level in _groups(levels):
        payloads[own] = problem.mechanisms[level].randomize(vectors[own], noise, indices[own])
    return payloads


def _groups(keys: Sequence[Key]) -> Iterator[tuple[slice | NDArray[np.int64], Key]]:
    """Give the places of each key; all of them as one slice, without a copy, where there is but one key."""
    distinct = set(keys)
    if len(distinct) == 1:
        yield slice(None), distinct.pop()
        return
    for key in distinct:
        yield np.array([place for place, one in enumerate(keys) if one == key], dtype=np.int64), key
