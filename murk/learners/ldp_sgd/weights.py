"""Weights of a record by its features alone, and how far ``||x|| w(x)`` can reach.

The reach decides the gradient's bound and with it the noise. Over a box of features it is computed, not
assumed: the paper's Mallows weights reach sqrt 2 in general but only ``2 / sqrt(d)`` where every coded
feature is -1 or +1.
"""

from __future__ import annotations

import math
from typing import Literal

from murk.errors import UserError

Weights = Literal["norm", "mallows", "clip"]
NAMES: tuple[Weights, ...] = ("norm", "mallows", "clip")


def reach(weights: Weights, smallest_square: float = 0.0, largest_square: float = math.inf) -> float:
    """Supremum of ``||x|| w(x)`` over features with ``smallest_square <= ||x||^2 <= largest_square``.

    ``norm``: ``w = 1 / max(1, ||x||)``, so ``min(1, ||x||)``. ``mallows``: ``w = min(1, 2 / ||x||^2)``, so
    ``min(||x||, 2 / ||x||)`` (Shi et al., section 5). ``clip`` has no weight: the bound is the clip's.

    Examples
    --------
    >>> reach("mallows") == 2**0.5
    True
    >>> reach("mallows", smallest_square=9, largest_square=9)  # eight features of +-1 and the constant
    0.6666666666666666
    """
    small, large = math.sqrt(smallest_square), math.sqrt(largest_square)
    if weights == "norm":
        return min(1.0, large)
    if weights == "mallows":
        peak = math.sqrt(2.0)
        return large if large < peak else 2.0 / small if small > peak else peak
    raise UserError(f"weights={weights!r} have no reach; weights are one of {', '.join(NAMES)}")
