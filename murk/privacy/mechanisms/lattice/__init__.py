"""The lattice that releases lie on: bounded vectors to integers, integers to payloads, and back."""

from murk.privacy.mechanisms.lattice.kernels import (
    GAUSSIAN,
    L2BALL,
    LAPLACE,
    PRIVUNIT,
    decode,
    decode_block,
    is_direction,
    is_laplace,
    randomize,
    randomize_block,
)
from murk.privacy.mechanisms.lattice.quantise import quantise_l1, quantise_l2

__all__ = [
    "GAUSSIAN",
    "L2BALL",
    "LAPLACE",
    "PRIVUNIT",
    "decode",
    "decode_block",
    "is_direction",
    "is_laplace",
    "quantise_l1",
    "quantise_l2",
    "randomize",
    "randomize_block",
]
