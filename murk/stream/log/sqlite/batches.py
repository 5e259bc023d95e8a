"""Batches of the embedded log: messages of one append, side by side in one row.

SQLite takes as long for a row as for all that a worker does with a message of ten numbers. A row therefore holds as
many messages as fit in `BATCH_BYTES`; it knows the offset of its first, the sizes of all, and their common time.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, count, repeat

from murk.stream.log.base import Message

BATCH_BYTES = 64 * 2**10
"""What messages and sizes of a row take at most, unless it holds a single message."""

_SIZE = 4


def pack(values: Sequence[bytes]) -> Iterator[tuple[int, bytes | None, bytes]]:
    """Lay messages into rows: of each row the number of messages, their sizes and the messages.

    Sizes are unsigned little-endian numbers of four bytes; a row of one message has none.

    >>> [*pack([b"one", b"", b"three"])]
    [(3, b'\\x03\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x05\\x00\\x00\\x00', b'onethree')]
    """
    sizes = [*map(len, values)]
    ends = [*accumulate(size + _SIZE for size in sizes)]
    first, used = 0, 0
    while first < len(values):
        last = max(first + 1, bisect_right(ends, used + BATCH_BYTES))
        if last == first + 1:
            yield 1, None, values[first]
        else:
            number = last - first
            yield number, struct.pack(f"<{number}I", *sizes[first:last]), b"".join(values[first:last])
        first, used = last, ends[last - 1]


def unpack(rows: Iterable[tuple[int, int, bytes | None, bytes]]) -> list[Message]:
    """Take messages out of rows: of each the offset of its first message, their time, their sizes and the messages.

    Raises
    ------
    ValueError
        When the sizes are not those of the messages, or a row begins before the one before it ends.
    """
    # As `Message._make` does it, which is a function of Python's.
    new = tuple.__new__
    found: list[Message] = []
    end = -1
    for offset, time, sizes, value in rows:
        if offset < end:
            raise ValueError("a row begins amid another")
        if sizes is None:
            found.append(new(Message, (offset, time, value)))
            end = offset + 1
        else:
            values = _split(sizes, value)
            found += map(new, repeat(Message), zip(count(offset), repeat(time), values, strict=False))
            end = offset + len(values)
    return found


def _split(sizes: bytes, value: bytes) -> list[bytes]:
    number, odd = divmod(len(sizes), _SIZE)
    if odd or not 0 < len(sizes) <= BATCH_BYTES:
        raise ValueError("a row's sizes are no sizes")
    ends = [*accumulate(struct.unpack(f"<{number}I", sizes))]
    if ends[-1] != len(value):
        raise ValueError("a row's sizes are not those of its messages")
    return [*map(value.__getitem__, map(slice, [0, *ends], ends))]
