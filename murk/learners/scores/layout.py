"""Symmetric matrices as vectors of the same length, and the grid of epochs."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FIRST: Final = 3000
"""Releases of the first epoch; each later one has as many as all before it."""

REMEMBERED: Final = 8
"""Epochs that a learner keeps: all before them had less than 1% of its releases."""

NEVER: Final = 2**62
"""Version at which an epoch ends that never does."""


def matrix_size(features: int) -> int:
    """Numbers of a symmetric matrix."""
    return features * (features + 1) // 2


def epoch_start(version: int) -> int:
    """Version at which the epoch began in which a chain with so many releases stands.

    Examples
    --------
    >>> [epoch_start(version) for version in (0, 2_999, 3_000, 5_999, 6_000, 100_000)]
    [0, 0, 3000, 3000, 6000, 96000]
    """
    return 0 if version < FIRST else FIRST << ((version // FIRST).bit_length() - 1)


def epoch_end(version: int) -> int:
    """Version at which that epoch ends.

    Examples
    --------
    >>> [epoch_end(version) for version in (0, 2_999, 3_000, 6_000)]
    [3000, 3000, 6000, 12000]
    """
    return FIRST if version < FIRST else 2 * epoch_start(version)


def shown_next(count: int) -> int:
    """The count after this one from which predictions are by what was learned until then, four times an epoch.

    Examples
    --------
    >>> counts = [0]
    >>> while counts[-1] < 6_000:
    ...     counts.append(shown_next(counts[-1]))
    >>> counts[:9], counts[-7:]
    ([0, 1, 2, 3, 4, 5, 6, 7, 8], [2048, 2560, 3000, 3750, 4500, 5250, 6000])
    """
    start = epoch_start(count) or 1 << max(count.bit_length() - 1, 0)
    step = max(start // 4, 1)
    return min(count - (count - start) % step + step, epoch_end(count)) if count else 1


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
