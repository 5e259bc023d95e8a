"""How a vector is bounded and randomized, as integers that compiled kernels can branch on.

Mechanisms that do it in the same way share a code: they differ in what they are calibrated to.
"""

from typing import Final

__all__ = ["DIRECTIONS", "GAUSSIAN", "L2BALL", "LAPLACE", "PRIVUNIT", "WIDTH"]

GAUSSIAN: Final = 0
"""Quantised with a bounded l2 norm, plus Gaussian noise."""
LAPLACE: Final = 1
"""Quantised with a bounded l1 norm, plus Laplace noise."""
L2BALL: Final = 2
"""A vector of Gaussian noise or its negative, by one coin."""
PRIVUNIT: Final = 3
"""One of several vectors of Gaussian noise and their negatives, by one word."""

DIRECTIONS: Final = (L2BALL, PRIVUNIT)
"""Codes whose payloads stand for their direction alone; they take coins."""

WIDTH: Final = 2**20
"""Width of all noise in lattice steps: `murk.privacy.noise.LATTICE_WIDTH`, here so that describing a mechanism
does not load the sampler."""
