"""Exact integer noise: from the operating system, or simulated from a seed by the same sampler."""

from murk.privacy.noise.distributions import LATTICE_WIDTH
from murk.privacy.noise.kernels import Purpose
from murk.privacy.noise.sources import NoiseSource, SecureNoise, SimulatedNoise, below, coins, identifiers

__all__ = [
    "LATTICE_WIDTH",
    "NoiseSource",
    "Purpose",
    "SecureNoise",
    "SimulatedNoise",
    "below",
    "coins",
    "identifiers",
]
