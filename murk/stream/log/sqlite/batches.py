"""Batches of the embedded log: messages of one append, side by side in one row.

SQLite takes as long for a row as for all that a worker does with a message of ten numbers. A row therefore holds as
many messages as fit in `BATCH_BYTES`, up to `BATCH_MESSAGES`: whoever reads one of them takes all of them out.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, count, repeat

from murk.stream.log.base import Message

BATCH_BYTES = 64 * 2**10
"""What a row takes at most, unless it holds a single message."""

BATCH_MESSAGES = 256
"""How many messages a row holds at most."""

_SIZE = 4


def pack(values: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lay messages into rows: of each row the number of messages, and what it holds.

    That is the message, where it is one; else the sizes of all, unsigned little-endian numbers of four bytes, and then
    the messages.

    >>> [*pack([b"one", b"three"])]
    [(2, b'\\x03\\x00\\x00\\x00\\x05\\x00\\x00\\x00onethree')]
    """
    sizes = [*map(len, values)]
    ends = [*accumulate(size + _SIZE for size in sizes)]
    first, used = 0, 0
    while first < len(values):
        fitting = bisect_right(ends, used + BATCH_BYTES)
        last = max(first + 1, min(fitting, first + BATCH_MESSAGES))
        number = last - first
        if number == 1:
            yield 1, values[first]
        else:
            yield number, b"".join((struct.pack(f"<{number}I", *sizes[first:last]), *values[first:last]))
        first, used = last, ends[last - 1]


def unpack(rows: Iterable[tuple[int, int, int, bytes]]) -> list[Message]:
    """Take messages out of rows: of each the offset of its first message, their time, their number, and what it holds.

    Raises
    ------
    ValueError
        When a row does not hold so many messages, or begins before the one before it ends.
    """
    # As `Message._make` does it, which is a function of Python's.
    new = tuple.__new__
    found: list[Message] = []
    end = -1
    for offset, time, number, value in rows:
        if offset < end:
            raise ValueError("a batch begins amid another")
        if number == 1:
            found.append(new(Message, (offset, time, value)))
        else:
            found += map(new, repeat(Message), zip(count(offset), repeat(time), _split(number, value), strict=False))
        end = offset + number
    return found


def _split(number: int, value: bytes) -> list[bytes]:
    if not (1 < number <= BATCH_MESSAGES and _SIZE * number <= len(value)):
        raise ValueError("a batch does not hold as many messages as it says")
    ends = [*accumulate(struct.unpack_from(f"<{number}I", value), initial=_SIZE * number)]
    if ends[-1] != len(value):
        raise ValueError("a batch is not as long as its messages")
    return [*map(value.__getitem__, map(slice, ends, ends[1:]))]
