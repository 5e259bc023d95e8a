"""The paper's synthetic data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def classification(n: int, features: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Draw features and labels as scikit-learn's ``make_classification`` does, scaled to [-1, 1] by the extremes.

    Two classes have two clusters each, at four distinct corners of the cube {-1, 1}^p. A cluster is ``z A + corner``
    with z standard normal and its own matrix A, uniform on [-1, 1]; 1% of the labels are random. These are the
    defaults with ``n_informative=p, n_redundant=0``.

    Examples
    --------
    >>> x, y = classification(1_000, 2, np.random.default_rng(1))
    >>> x.min(axis=0).tolist(), x.max(axis=0).tolist(), y.dtype
    ([-1.0, -1.0], [1.0, 1.0], dtype('bool'))
    """
    # With two features scikit-learn takes the corners in order, so the classes lie side by side.
    corners = np.arange(4) if features == 2 else rng.choice(2**features, size=4, replace=False)
    cluster = rng.permutation(np.arange(n) % 4)
    x = rng.standard_normal((n, features))
    for number, corner in enumerate(corners):
        rows = cluster == number
        place = 2.0 * (corner >> np.arange(features) & 1) - 1.0
        x[rows] = x[rows] @ rng.uniform(-1.0, 1.0, (features, features)) + place
    y = cluster % 2 == 1
    flipped = rng.random(n) < 0.01
    y[flipped] = rng.random(int(flipped.sum())) < 0.5
    low, high = x.min(axis=0), x.max(axis=0)
    x -= low
    x *= 2.0 / (high - low)
    x -= 1.0
    # Rounding may leave the interval.
    np.clip(x, -1.0, 1.0, out=x)
    return x, y
