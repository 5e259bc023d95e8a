"""One record's example in place: its noise drawn, released and learned by one kernel, which takes one address."""

# ruff: noqa: F403, F405 -- places in two arrays, used as bare names by every kernel.

from __future__ import annotations

import numpy as np

from murk._jit import brief, jit
from murk._memory import integers_at, numbers_at, words_at
from murk.learners.in_place import LEARNED, NO_WORDS, SPARE, draw_from
from murk.learners.iwp_sgd.kernels import learn_records
from murk.learners.iwp_sgd.layout import *
from murk.privacy.noise.chacha import fresh_words

_NO_ROWS, _NO_TARGETS = np.zeros((0, LEVEL_REALS)), np.zeros(0)
_NO_WORDS = np.zeros(0, dtype=np.uint64)
_NO_LEVELS, _NO_WHOLES = np.zeros(0, dtype=np.int64), np.zeros((0, LEVEL_WHOLES), dtype=np.int64)


@jit
def take_words(whole: Array, address: int, trials: int) -> int:
    """Draw one record's secure noise, and the word of its coin, of fresh words that come into a memory at an address.

    Returns `LEARNED` where noise and coin now stand there, or what is missing.
    """
    numbers, last = whole[NUMBERS], 2 * trials + SPARE
    words_start = address + 8 * (WHOLE_HEADER + 2 * numbers)
    if not fresh_words(words_start, last + 1):
        return NO_WORDS
    words = words_at(words_start, last + 1)
    whole[COIN] = np.int64(words[last])
    size = whole[FEATURES] - 1 if whole[FORM] == LABEL else numbers
    found = draw_from(words_start, trials, whole[WHOLE_HEADER : WHOLE_HEADER + size])
    if found == LEARNED:
        for j in range(last + 1):
            words[j] = np.uint64(0)
    return found


@brief
def learn_record(address: int, y: float, trials: int) -> int:
    """Learn from the one record whose features stand in the memory at an address, and wipe what is of it.

    Secure noise is drawn here, of words for so many trials; for 0 of them noise and coin stand there already. Returns
    `LEARNED`, or what is missing, and nothing was learned: `TOO_FEW` words, which stand there for the draw to go on
    from, or `NO_WORDS` at all.
    """
    header = integers_at(address, WHOLE_HEADER)
    size, reals = sizes(header[FEATURES], header[NUMBERS], header[POLISH])
    whole, real = integers_at(address, size), numbers_at(address + 8 * size, reals)
    if trials > 0:
        found = take_words(whole, address, trials)
        if found != LEARNED:
            return found
    real[TARGET] = y
    learn_records(real, whole, _NO_ROWS, _NO_TARGETS, _NO_LEVELS, _NO_ROWS, _NO_WHOLES, _NO_WHOLES, _NO_WORDS)
    return LEARNED
