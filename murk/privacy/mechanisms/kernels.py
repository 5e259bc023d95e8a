"""Blocks of vectors, one by one through the compiled lattice code (so that one kernel serves everybody)."""

import numpy as np

from murk._jit import jit
from murk.privacy.lattice import Integers, Vector, Words, decode, randomize

__all__ = ["decode_block", "randomize_block"]


@jit
def randomize_block(
    code: int,
    vectors: Vector,
    radius: float,
    spacing: float,
    steps: int,
    threshold: np.uint64,
    noise: Integers,
    coins: Words,
    out: Integers,
) -> None:
    """`murk.privacy.lattice.randomize` for every row."""
    for i in range(vectors.shape[0]):
        randomize(code, vectors[i], radius, spacing, steps, threshold, noise[i], coins[i], out[i])


@jit
def decode_block(code: int, payload: Integers, unit: float, out: Vector) -> None:
    """`murk.privacy.lattice.decode` for every row."""
    for i in range(payload.shape[0]):
        decode(code, payload[i], unit, out[i])
