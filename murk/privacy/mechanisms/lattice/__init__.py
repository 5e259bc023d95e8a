"""The lattice that releases lie on: bounded vectors to integers, integers to payloads, and back."""

from murk.privacy.mechanisms.kernel_codes import DIRECTIONS, GAUSSIAN, L2BALL, LAPLACE, PRIVUNIT
from murk.privacy.mechanisms.lattice.kernels import (
    decode,
    decode_block,
    is_direction,
    randomize,
    randomize_block,
)
from murk.privacy.mechanisms.lattice.quantise import quantise_l1, quantise_l2

__all__ = [
    "DIRECTIONS",
    "GAUSSIAN",
    "L2BALL",
    "LAPLACE",
    "PRIVUNIT",
    "decode",
    "decode_block",
    "is_direction",
    "quantise_l1",
    "quantise_l2",
    "randomize",
    "randomize_block",
]
