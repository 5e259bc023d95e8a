"""Recognise repeated releases."""

from __future__ import annotations

from collections.abc import Sequence


class DuplicateWindow:
    """Ids at the previous ``size`` offsets of a partition.

    A release at offset ``o`` is a duplicate if a valid message with the same id is at an offset ``o'`` with ``o - size
    <= o' < o``, whether or not that message was learned. This depends on the log alone: a window rebuilt from ``o -
    size`` on gives the same answers.

    Memory is at most ``2 * size`` ids: two dictionaries take turns for ``size`` offsets each, and the older one is
    dropped.

    >>> window = DuplicateWindow(2)
    >>> [window.seen(offset, id) for offset, id in [(0, "0a"), (1, "0b"), (2, "0a"), (5, "0a")]]
    [False, False, True, False]
    """

    __slots__ = ("_block", "_last", "_newer", "_older", "size")

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"the window for duplicates must have at least 1 offset, not {size}")
        self.size = size
        self._last: tuple[int, str] | None = None
        self._block = 0
        # Keyed by bytes, not by int: the hash of an int is predictable, and senders could choose ids that collide.
        self._newer: dict[bytes, int] = {}
        self._older: dict[bytes, int] = {}

    def seen(self, offset: int, identifier: str) -> bool:
        """Add a hexadecimal id at an offset, which must grow from call to call; return whether it is a duplicate."""
        self._turn_to(offset)
        key = bytes.fromhex(identifier)
        newer = self._newer
        before = newer.get(key)
        if before is None and self._older:
            before = self._older.get(key)
        newer[key] = offset
        self._last = (offset, identifier)
        return before is not None and offset - before <= self.size

    def add_new(self, offsets: Sequence[int], identifiers: Sequence[str]) -> bool:
        """Add ids at offsets and return True if all are new and distinct; otherwise add none and return False.

        A known id need not be a duplicate.
        """
        if offsets[0] // self.size != offsets[-1] // self.size:
            return False
        self._turn_to(offsets[0])
        keys = [*map(bytes.fromhex, identifiers)]
        newer = self._newer
        if len(set(keys)) < len(keys) or not (newer.keys().isdisjoint(keys) and self._older.keys().isdisjoint(keys)):
            return False
        newer.update(zip(keys, offsets, strict=True))
        self._last = (offsets[-1], identifiers[-1])
        return True

    def _turn_to(self, offset: int) -> None:
        """Forget ids that are out of reach of an offset."""
        block = offset // self.size
        if block != self._block:
            self._older = self._newer if block == self._block + 1 else {}
            self._newer = {}
            self._block = block

    def newest(self, offset: int) -> str | None:
        """Return the id of the newest message within reach of an offset, or None."""
        if self._last is None or offset - self._last[0] > self.size:
            return None
        return self._last[1]

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)
