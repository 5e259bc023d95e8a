"""Blocks of releases, with columns that are extracted once."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk.errors import MurkError

Rows = NDArray[np.int64]


class Block(list[Any]):
    """Releases of one kind, in order; never changed.

    >>> from collections import namedtuple
    >>> release = namedtuple("release", "level payload")
    >>> block = Block([release("open", [1, 2]), release("default", [3, 4]), release("open", [5, 6])])
    >>> block.rows(2).tolist()
    [[1, 2], [3, 4], [5, 6]]
    >>> {level: rows.tolist() for level, rows in block.split("level").items()}
    {'open': [[1, 2], [5, 6]], 'default': [[3, 4]]}
    """

    _split: tuple[tuple[str, ...], dict[Any, Rows]] = ((), {})

    @cached_property
    def levels(self) -> list[str]:
        """The level of each release."""
        return [release.level for release in self]

    @cached_property
    def payloads(self) -> list[list[int]]:
        """The payload of each release."""
        return [release.payload for release in self]

    @cached_property
    def _rows(self) -> Rows:
        return rows_of(self.payloads, len(self.payloads[0]))

    def rows(self, size: int) -> Rows:
        """Return the payloads as rows (m, size); raise `MurkError` if one has another length."""
        if self._rows.shape[1] != size:
            raise _wrong_length(size)
        return self._rows

    def split(self, *names: str) -> dict[Any, Rows]:
        """Return the rows by value of a field, or by tuple of values of several fields, in order of appearance.

        Raises `MurkError` if payloads of one group differ in length.
        """
        known, parts = self._split
        if known != names:
            keys: list[Any] = self.levels if names == ("level",) else list(map(attrgetter(*names), self))
            if keys and keys.count(keys[0]) == len(keys):
                parts = {keys[0]: self._rows}
            else:
                groups: dict[Any, list[list[int]]] = {}
                for key, payload in zip(keys, self.payloads, strict=True):
                    groups.setdefault(key, []).append(payload)
                parts = {key: rows_of(payloads, len(payloads[0])) for key, payloads in groups.items()}
            self._split = names, parts
        return parts


def block_of(releases: Sequence[Any]) -> Block:
    """Return releases as a block."""
    return releases if isinstance(releases, Block) else Block(releases)


def rows_of(payloads: Sequence[Sequence[int]], size: int) -> Rows:
    """Return payloads as rows (m, size), faster than `numpy.array`.

    Raises `MurkError` if a payload has another length or an entry is not a 64-bit integer.
    """
    pack = _row(size).pack
    try:
        packed = bytearray().join([pack(*payload) for payload in payloads])
    except struct.error:
        raise _wrong_length(size) from None
    return np.frombuffer(packed, dtype=np.int64).reshape(len(payloads), size)


@lru_cache(maxsize=16)
def _row(size: int) -> struct.Struct:
    return struct.Struct(f"{size}q")


def _wrong_length(size: int) -> MurkError:
    return MurkError(f"the payload of a release does not have the expected {size} integers")
