"""Whether a misfit is larger than chance makes it."""

from __future__ import annotations

import math
from typing import Final

UNLIKE: Final = 3.72
"""Standard deviations: one false alarm in 10,000 checks."""


def excess(square: float, free: float) -> float:
    """By how many standard deviations a sum of squares is larger than chance makes it.

    Of normal numbers it is a chi-square; the cube root of that over its degrees of freedom is nearly normal.

    Parameters
    ----------
    square
        The sum of squares, each over its variance.
    free
        Its degrees of freedom, above 0.

    Source: Wilson and Hilferty, "The distribution of chi-square", PNAS 17, 1931.

    Examples
    --------
    >>> round(excess(124.3, 100), 2)  # one chi-square of 100 degrees of freedom in 20 is larger
    1.64
    """
    spread = 2.0 / (9.0 * free)
    return float((square / free) ** (1.0 / 3.0) - 1.0 + spread) / math.sqrt(spread)
