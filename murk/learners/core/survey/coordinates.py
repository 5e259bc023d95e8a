"""Centres and spreads of coded features, and the coordinates that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from murk._arrays import Floats


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Estimated centre m and spread s of each coded feature without the constant, in coded units.

    Models live in ``x'_j = (x_j - m_j) / s_j``.

    >>> import numpy as np
    >>> half = Coordinates(np.array([0.5]), np.array([0.25]), np.array([0.01]), np.array([0.1]))
    >>> (half.transform @ np.array([0.75, 1.0])).tolist()
    [1.0, 1.0]
    """

    centre: Floats  # m, (p - 1,)
    spread: Floats  # s, (p - 1,), positive
    centre_error: Floats  # standard errors of m, (p - 1,)
    log_spread_error: Floats  # standard errors of log s, (p - 1,); 0 where the spread is a convention, as of categories

    @cached_property
    def transform(self) -> Floats:
        """The matrix from coded features, the constant last, to x' and the constant, (p, p)."""
        matrix = np.diag(np.append(1.0 / self.spread, 1.0))
        matrix[:-1, -1] = -self.centre / self.spread
        return matrix
