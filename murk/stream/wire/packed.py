"""Many messages in one piece, so that none of them becomes an object of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from murk._internal.arrays import Integers


@dataclass(frozen=True, slots=True)
class Packed:
    """Messages one after another, and where each ends.

    >>> packed = Packed.of([b"one", b"three"])
    >>> packed.data, packed.ends.tolist(), packed.values()
    (b'onethree', [3, 8], [b'one', b'three'])
    """

    data: bytes
    ends: Integers

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Self:
        """Return messages as one piece."""
        return cls(b"".join(values), np.cumsum(np.fromiter(map(len, values), np.int64, len(values))))

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def sizes(self) -> Integers:
        """The number of bytes of each message."""
        return np.diff(self.ends, prepend=0)

    def rows(self, start: int, stop: int) -> Self:
        """Return the messages from index ``start`` to before ``stop``."""
        begin, last = (int(self.ends[at - 1]) if at else 0 for at in (start, stop))
        return type(self)(self.data[begin:last], self.ends[start:stop] - begin)

    def values(self) -> list[bytes]:
        """Return the messages."""
        return [self.data[begin:end] for begin, end in pairwise([0, *self.ends.tolist()])]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Messages of a partition, in order, with their offsets and the times in seconds when the log appended them."""

    offsets: Integers
    times: Integers
    messages: Packed

    def __len__(self) -> int:
        return len(self.offsets)

    @classmethod
    def empty(cls) -> Self:
        """Return no messages."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, Packed(b"", nothing))

    def rows(self, start: int, stop: int) -> Self:
        """Return the messages from one index to before another, by default to the last one."""
        stop = min(stop, len(self))
        return type(self)(self.offsets[start:stop], self.times[start:stop], self.messages.rows(start, stop))
