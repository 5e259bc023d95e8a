"""Symmetric matrices as vectors of the same length, and the grid of epochs."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FIRST: Final = 3000
"""Releases of the first epoch; each later one has as many as all before it, or as the longest may have."""

REMEMBERED: Final = 8
"""Epochs that a learner keeps: where they double, all before them had less than 1% of its releases."""

FEWEST_KEPT: Final = FIRST * REMEMBERED
"""Fewest releases that may be kept where older ones are forgotten: epochs are no shorter than the first."""

NEVER: Final = 2**62
"""Version at which an epoch ends that never does."""


def matrix_size(features: int) -> int:
    """Numbers of a symmetric matrix."""
    return features * (features + 1) // 2


def epoch_start(version: int, longest: int = NEVER) -> int:
    """Version at which the epoch began in which a chain with so many releases stands.

    Epochs double as long as they are no longer than ``longest``; then all are that long.

    Examples
    --------
    >>> [epoch_start(version) for version in (0, 2_999, 3_000, 5_999, 6_000, 100_000)]
    [0, 0, 3000, 3000, 6000, 96000]
    >>> [epoch_start(version, 5_000) for version in (2_999, 3_000, 6_000, 10_999, 11_000, 100_000)]
    [0, 3000, 6000, 6000, 11000, 96000]
    """
    if version < FIRST:
        return 0
    doubled = _doubled(longest)
    if version >= doubled:
        return doubled + (version - doubled) // longest * longest
    return FIRST << ((version // FIRST).bit_length() - 1)


def epoch_end(version: int, longest: int = NEVER) -> int:
    """Version at which that epoch ends.

    Examples
    --------
    >>> [epoch_end(version) for version in (0, 2_999, 3_000, 6_000)]
    [3000, 3000, 6000, 12000]
    >>> [epoch_end(version, 5_000) for version in (0, 3_000, 6_000, 11_000)]
    [3000, 6000, 11000, 16000]
    """
    if version < FIRST:
        return FIRST
    start = epoch_start(version, longest)
    return start + min(start, longest)


def epoch_number(version: int, longest: int = NEVER) -> int:
    """How many epochs of the chain ended before that one.

    Examples
    --------
    >>> [epoch_number(version) for version in (0, 2_999, 3_000, 6_000, 12_000)]
    [0, 0, 1, 2, 3]
    >>> [epoch_number(version, 5_000) for version in (0, 3_000, 6_000, 11_000, 16_000)]
    [0, 1, 2, 3, 4]
    """
    doubled = _doubled(longest)
    if version >= doubled:
        return (doubled // FIRST).bit_length() + (version - doubled) // longest
    return (version // FIRST).bit_length()


@lru_cache(maxsize=64)
def remembered(start: int, longest: int = NEVER) -> tuple[int, ...]:
    """Where the epochs begin that a chain remembers whose newest one begins at ``start``, oldest first.

    Examples
    --------
    >>> remembered(6_000), remembered(768_000)[:2], remembered(998_000, 25_000)[::7]
    ((0, 3000, 6000), (6000, 12000), (823000, 998000))
    """
    starts = [start]
    while starts[-1] > 0 and len(starts) < REMEMBERED:
        starts.append(epoch_start(starts[-1] - 1, longest))
    return tuple(reversed(starts))


def _doubled(longest: int) -> int:
    """Where the first epoch begins that is not as long as all before it, for it would be longer than the longest."""
    return FIRST << (longest // FIRST).bit_length()


def shown_next(count: int, longest: int = NEVER) -> int:
    """The count after this one from which predictions are by what was learned until then, four times an epoch.

    Examples
    --------
    >>> counts = [0]
    >>> while counts[-1] < 6_000:
    ...     counts.append(shown_next(counts[-1]))
    >>> counts[:9], counts[-7:]
    ([0, 1, 2, 3, 4, 5, 6, 7, 8], [2048, 2560, 3000, 3750, 4500, 5250, 6000])
    """
    start = epoch_start(count, longest) or 1 << max(count.bit_length() - 1, 0)
    step = max(min(start, longest) // 4, 1)
    return min(count - (count - start) % step + step, epoch_end(count, longest)) if count else 1


def symmetric(flat: Array, features: int) -> Array:
    """The matrix of a vector of its upper triangle, row after row, off the diagonal times sqrt 2: norms are kept."""
    rows, columns = np.triu_indices(features)
    matrix = np.zeros((features, features))
    matrix[rows, columns] = flat / np.where(rows == columns, 1.0, math.sqrt(2.0))
    matrix[columns, rows] = matrix[rows, columns]
    return matrix


def flattened(matrix: Array) -> Array:
    """What `symmetric` makes matrices (..., p, p) of."""
    rows, columns = np.triu_indices(matrix.shape[-1])
    return np.asarray(matrix[..., rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0)))
