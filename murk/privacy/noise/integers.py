"""Coins, bounded integers and identifiers from uniform 64-bit words, exactly and without floats."""

import numpy as np
import numpy.typing as npt

from murk.errors import MurkError, UserError
from murk.privacy.noise.philox import Purpose
from murk.privacy.noise.sources import NoiseSource
from murk.privacy.noise.streaming import Integers, Words


def coins(words: Words, threshold: int) -> npt.NDArray[np.bool_]:
    """Return one coin for each word, true with probability exactly ``threshold / 2^64``.

    Raises `UserError` if the threshold is not in [0, 2^64].

    Examples
    --------
    >>> coins(np.array([0, 2**63], dtype=np.uint64), threshold=2**63).tolist()
    [True, False]
    """
    if not 0 <= threshold <= 2**64:
        raise UserError(f"a coin's threshold is an integer from 0 to 2^64, got {threshold}")
    if threshold == 2**64:
        return np.ones(words.shape, dtype=np.bool_)
    result: npt.NDArray[np.bool_] = words < np.uint64(threshold)
    return result


def below(words: Words, n: int) -> Integers:
    """Return integers exactly uniform on [0, n), one for each row of candidates ``words`` (m, k).

    The first candidate is taken whose low bits are below n. All k candidates of a row fail with probability below 2^-k.

    Raises `UserError` if n is not in [1, 2^63]. Raises `MurkError` if all candidates of a row fail; give more
    candidates per row.

    Examples
    --------
    >>> below(np.array([[7, 1], [2, 0]], dtype=np.uint64), n=3).tolist()
    [1, 2]
    """
    if not 1 <= n <= 2**63:
        raise UserError(f"the bound of a uniform integer is from 1 to 2^63, got {n}")
    candidates = words & np.uint64((1 << (n - 1).bit_length()) - 1)
    good = candidates < np.uint64(n)
    if not good.any(axis=1).all():
        raise MurkError(f"none of {words.shape[1]} words gave an integer below {n}; give more words a record")
    first = good.argmax(axis=1)
    chosen: Integers = candidates[np.arange(len(words)), first].astype(np.int64)
    return chosen


def identifiers(noise: NoiseSource, records: npt.ArrayLike) -> list[str]:
    """Return a random identifier for each record: 128 bits as 32 hexadecimal digits.

    Examples
    --------
    >>> from murk.privacy.noise import SecureNoise
    >>> [len(name) for name in identifiers(SecureNoise(), [0, 1])]
    [32, 32]
    """
    return [f"{high:016x}{low:016x}" for high, low in noise.words(records, 2, Purpose.IDENTIFIER).tolist()]
