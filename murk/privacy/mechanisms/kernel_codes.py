"""How a vector is bounded and randomized, as integers that compiled kernels can branch on.

Mechanisms that do it in the same way share a code: they differ in what they are calibrated to.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["DIRECTIONS", "GAUSSIAN", "L2BALL", "LAPLACE", "NOISE_OF", "PRIVUNIT", "WIDTH"]

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

NOISE_OF: Final[Mapping[int, str]] = MappingProxyType(
    {GAUSSIAN: "gaussian", LAPLACE: "laplace", L2BALL: "gaussian", PRIVUNIT: "gaussian"}
)
"""Which of `murk.privacy.noise.distributions.NOISE_DISTRIBUTIONS` each code draws."""

WIDTH: Final = 2**20
"""Width of all noise in lattice steps: `murk.privacy.noise.LATTICE_WIDTH`, here so that describing a mechanism
does not load the sampler."""
