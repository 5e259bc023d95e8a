"""Kernel that projects features onto a ball."""

import math

import numpy as np
from numpy.typing import NDArray

from murk._jit import jit

Array = NDArray[np.float64]


@jit
def confine(x: Array, reach: float, constant: bool, zero: bool) -> bool:
    """Scale features (without the constant) of a norm above ``reach`` down to it; return whether the norm was above.

    With ``zero`` such features become 0 instead. Values that are not finite count as 0.
    """
    slopes = x.shape[0] - 1 if constant else x.shape[0]
    if constant:
        x[slopes] = 1.0
    largest, square = 0.0, 0.0
    for i in range(slopes):
        if x[i] - x[i] != 0.0:
            x[i] = 0.0
        largest = max(largest, abs(x[i]))
        square += x[i] * x[i]
    if square <= reach * reach:
        return False
    square = 0.0
    # Scaled before squaring, so that 1e300 does not overflow.
    for i in range(slopes):
        square += (x[i] / largest) * (x[i] / largest)
    for i in range(slopes):
        x[i] = 0.0 if zero else x[i] / largest * (reach / math.sqrt(square))
    return True
