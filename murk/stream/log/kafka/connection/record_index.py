"""Where a batch's records stand, found in one compiled pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from murk._jit import deferred, inlined

_LONGEST = 9
"""Bytes of the longest number that is read here, of 63 bits."""


@inlined
def _varint(data: NDArray[np.uint8], position: int) -> tuple[int, int]:
    """A zigzag number of at most 63 bits, and where it ends; that is -1 where there is none."""
    found, shift = np.int64(0), np.int64(0)
    end = np.int64(-1)
    for place in range(position, min(position + _LONGEST, len(data))):
        found |= np.int64(data[place] & 0x7F) << shift
        shift += 7
        if data[place] < 0x80:
            end = np.int64(place + 1)
            break
    return int((found >> 1) ^ -(found & 1)), int(end)


@deferred
def index(data: NDArray[np.uint8], start: int, count: int) -> NDArray[np.int64]:
    """Find records of a batch that have a value, no key and no headers; none at all where it is of another form.

    Parameters
    ----------
    data
        An uncompressed batch of magic 2.
    start
        Where its first record begins.
    count
        How many there are.

    Returns
    -------
    ndarray
        ``(count, 4)``: of each record the difference of its offset and of its time from the batch's, and where its
        value begins and ends. ``(0, 4)`` for a batch that holds anything else, or ends elsewhere than its last record.

    References
    ----------
    Kafka's message format (https://kafka.apache.org/documentation/#recordbatch).
    """
    nothing = np.empty((0, 4), dtype=np.int64)
    # No record is shorter than seven bytes: a count that is made up reserves no memory.
    if count < 1 or count > len(data) // 7:
        return nothing
    found = np.empty((count, 4), dtype=np.int64)
    position = start
    for i in range(count):
        length, begin = _varint(data, position)
        if begin < 0 or begin >= len(data) or data[begin] >= 0x80:
            return nothing
        time, position = _varint(data, begin + 1)
        if position < 0:
            return nothing
        offset, position = _varint(data, position)
        if position < 0:
            return nothing
        key, position = _varint(data, position)
        if position < 0 or key >= 0:
            return nothing
        size, position = _varint(data, position)
        # One byte is left for the number of headers, which is none.
        if position < 0 or size < 0 or size >= len(data) - position:
            return nothing
        found[i, 0], found[i, 1], found[i, 2], found[i, 3] = offset, time, position, position + size
        position += size
        if data[position] != 0:
            return nothing
        position += 1
        if position - begin != length:
            return nothing
    return found if position == len(data) else nothing
