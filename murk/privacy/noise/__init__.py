"""Exact integer noise: from the operating system, or simulated from a seed.

Both sources draw from the same sampler; only the words differ. The compiled pieces that other kernels fuse
are in `murk.privacy.noise.kernels`.
"""

from murk.privacy.noise.distributions import LATTICE_WIDTH
from murk.privacy.noise.integers import below, coins, identifiers
from murk.privacy.noise.opendp_source import OpenDPNoise
from murk.privacy.noise.philox import Purpose
from murk.privacy.noise.sources import NoiseSource, SecureNoise, SimulatedNoise

__all__ = [
    "LATTICE_WIDTH",
    "NoiseSource",
    "OpenDPNoise",
    "Purpose",
    "SecureNoise",
    "SimulatedNoise",
    "below",
    "coins",
    "identifiers",
]
