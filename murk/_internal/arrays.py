"""Types of arrays in annotations."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Vector = Floats  # of shape (p,)
Matrix = Floats  # of shape (p, p)
