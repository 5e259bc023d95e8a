"""ChaCha20 (RFC 8439): words by counter, compiled for many blocks at once, and fresh words from a new key.

The state is 16 words of 32 bits: four constants, the key, and four words that select the block. Straight-line code in a
loop over blocks lets the compiler compute four or eight of them at a time.
"""

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Words
from murk._internal.jit import inlined, is_compiled, jit, random_words, words_at

WORDS = 8
"""Number of 64-bit words in a block."""

Halves = npt.NDArray[np.uint32]

_u32 = np.uint32
_K0, _K1, _K2, _K3 = _u32(0x61707865), _u32(0x3320646E), _u32(0x79622D32), _u32(0x6B206574)
_7, _8, _12, _16 = _u32(7), _u32(8), _u32(12), _u32(16)
_20, _24, _25 = _u32(20), _u32(24), _u32(25)
_HALF = np.uint64(32)
# Number of words of a key, and number of blocks that `expand` computes together.
_KEY = 4
_LANES = 8

_State = tuple[np.uint32, ...]  # 16 words


@inlined
def _quarter(
    a: np.uint32, b: np.uint32, c: np.uint32, d: np.uint32
) -> tuple[np.uint32, np.uint32, np.uint32, np.uint32]:
    # Each result is cast back: numba adds 32-bit integers as 64-bit ones.
    a = _u32(a + b)
    d = _u32(d ^ a)
    d = _u32((d << _16) | (d >> _16))
    c = _u32(c + d)
    b = _u32(b ^ c)
    b = _u32((b << _12) | (b >> _20))
    a = _u32(a + b)
    d = _u32(d ^ a)
    d = _u32((d << _8) | (d >> _24))
    c = _u32(c + d)
    b = _u32(b ^ c)
    b = _u32((b << _7) | (b >> _25))
    return a, b, c, d


@inlined
def _two_rounds(state: _State) -> _State:
    x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, xa, xb, xc, xd, xe, xf = state
    x0, x4, x8, xc = _quarter(x0, x4, x8, xc)
    x1, x5, x9, xd = _quarter(x1, x5, x9, xd)
    x2, x6, xa, xe = _quarter(x2, x6, xa, xe)
    x3, x7, xb, xf = _quarter(x3, x7, xb, xf)
    x0, x5, xa, xf = _quarter(x0, x5, xa, xf)
    x1, x6, xb, xc = _quarter(x1, x6, xb, xc)
    x2, x7, x8, xd = _quarter(x2, x7, x8, xd)
    x3, x4, x9, xe = _quarter(x3, x4, x9, xe)
    return x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, xa, xb, xc, xd, xe, xf


@inlined
def _word(a: np.uint32, x: np.uint32, b: np.uint32, y: np.uint32) -> np.uint64:
    return np.uint64(_u32(a + x)) | (np.uint64(_u32(b + y)) << _HALF)


@jit
def blocks(key: Halves, counters: Halves, count: int, out: Words) -> None:
    """Fill the first ``count`` columns of ``out`` (8, m): column i is block (counters[0, i], [1, i], [2, i], 0)."""
    first, second, third = counters[0], counters[1], counters[2]
    w0, w1, w2, w3, w4, w5, w6, w7 = out[0], out[1], out[2], out[3], out[4], out[5], out[6], out[7]
    k0, k1, k2, k3, k4, k5, k6, k7 = key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7]
    last = _u32(0)
    for i in range(count):
        n0, n1, n2 = first[i], second[i], third[i]
        x = _two_rounds((_K0, _K1, _K2, _K3, k0, k1, k2, k3, k4, k5, k6, k7, n0, n1, n2, last))
        x = _two_rounds(_two_rounds(_two_rounds(x)))
        x = _two_rounds(_two_rounds(_two_rounds(x)))
        x = _two_rounds(_two_rounds(_two_rounds(x)))
        w0[i] = _word(x[0], _K0, x[1], _K1)
        w1[i] = _word(x[2], _K2, x[3], _K3)
        w2[i] = _word(x[4], k0, x[5], k1)
        w3[i] = _word(x[6], k2, x[7], k3)
        w4[i] = _word(x[8], k4, x[9], k5)
        w5[i] = _word(x[10], k6, x[11], k7)
        w6[i] = _word(x[12], n0, x[13], n1)
        w7[i] = _word(x[14], n2, x[15], last)


@jit
def single_block(key: Halves, counter: Halves, out: Words) -> None:
    """Compute ``blocks(key, counter, 1, out)`` with less code, for kernels that rarely need another block."""
    n0, n1, n2, last = counter[0, 0], counter[1, 0], counter[2, 0], _u32(0)
    x: _State
    x = (_K0, _K1, _K2, _K3, key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7], n0, n1, n2, last)
    for _ in range(10):
        x = _two_rounds(x)
    out[0, 0] = _word(x[0], _K0, x[1], _K1)
    out[1, 0] = _word(x[2], _K2, x[3], _K3)
    out[2, 0] = _word(x[4], key[0], x[5], key[1])
    out[3, 0] = _word(x[6], key[2], x[7], key[3])
    out[4, 0] = _word(x[8], key[4], x[9], key[5])
    out[5, 0] = _word(x[10], key[6], x[11], key[7])
    out[6, 0] = _word(x[12], n0, x[13], n1)
    out[7, 0] = _word(x[14], n2, x[15], last)


@jit
def _together(state: Halves, x: Halves) -> None:
    """Write eight blocks to ``x`` (128,) with the same word of all blocks side by side, as in ``state``.

    Each double round goes through memory; straight-line code for all twenty, as in `blocks`, compiles much slower.
    """
    for j in range(x.shape[0]):
        x[j] = state[j]
    for _ in range(10):
        for i in range(8):
            (
                x[i],
                x[i + 8],
                x[i + 16],
                x[i + 24],
                x[i + 32],
                x[i + 40],
                x[i + 48],
                x[i + 56],
                x[i + 64],
                x[i + 72],
                x[i + 80],
                x[i + 88],
                x[i + 96],
                x[i + 104],
                x[i + 112],
                x[i + 120],
            ) = _two_rounds(
                (
                    x[i],
                    x[i + 8],
                    x[i + 16],
                    x[i + 24],
                    x[i + 32],
                    x[i + 40],
                    x[i + 48],
                    x[i + 56],
                    x[i + 64],
                    x[i + 72],
                    x[i + 80],
                    x[i + 88],
                    x[i + 96],
                    x[i + 104],
                    x[i + 112],
                    x[i + 120],
                )
            )
    for j in range(x.shape[0]):
        x[j] = _u32(x[j] + state[j])


@jit
def expand(address: int, size: int) -> None:
    """Overwrite a key of four words at an address with the first ``size`` words of its blocks 0, 1, ...

    Eight blocks are computed at a time, and their 32-bit words interleaved: the first of each block, then the second.
    """
    out = words_at(address, size)
    room = np.empty(2 * _LANES * WORDS, dtype=np.uint64)
    words, state = room[: _LANES * WORDS], room[_LANES * WORDS :].view(np.uint32)
    for i in range(_LANES):
        state[i], state[8 + i], state[16 + i], state[24 + i] = _K0, _K1, _K2, _K3
        for j in range(_KEY):
            state[32 + 16 * j + i], state[40 + 16 * j + i] = _u32(out[j]), _u32(out[j] >> _HALF)
        for j in range(96, 128, 8):
            state[j + i] = _u32(0)
    for start in range(0, size, words.shape[0]):
        for i in range(_LANES):
            state[96 + i] = _u32(start // WORDS + i)
        _together(state, words.view(np.uint32))
        for j in range(min(words.shape[0], size - start)):
            out[start + j] = words[j]
    for j in range(room.shape[0]):
        room[j] = np.uint64(0)


@jit
def fresh_words(address: int, size: int) -> bool:
    """Write ``size >= 4`` single-use words to an address; return False if the operating system provides no randomness.

    The operating system provides a 256-bit key for this call alone, and ChaCha20's words overwrite it, as in Linux's
    own getrandom. There is no pool and no state that a fork, a copy or a snapshot could repeat. With
    ``NUMBA_DISABLE_JIT``, the words are the system's own.
    """
    if not is_compiled():
        return random_words(address, size)
    if not random_words(address, _KEY):
        return False
    expand(address, size)
    return True
