"""The shuffler's memory of releases: fingerprints of the ids of all that have not expired.

They are in the store, sorted; memory holds a Bloom filter of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from murk._internal.arrays import Integers, Words
from murk.stream.wire.duplicates import Filter, fingerprints


class Window:
    """Recognise the ids of releases that have not expired, with three bytes of memory for each.

    ``key`` is the key of fingerprints. ``has`` returns which of some sorted fingerprints are stored, ``stored`` all
    stored ones, and ``count`` their number. The caller stores ``given``, the new fingerprints with their times of
    expiry, and then calls `stored_all`.
    """

    def __init__(
        self,
        key: Words,
        has: Callable[[Words], Any],
        stored: Callable[[], Iterable[Words]],
        count: Callable[[], int],
    ) -> None:
        self.given: list[tuple[Words, Integers]] = []
        self._key, self._has, self._stored, self._count = key, has, stored, count
        # The fingerprints in ``given`` that were looked at, and the number of their blocks.
        self._recent: set[int] = set()
        self._looked = 0
        self._filter = Filter(stored(), count())

    def seen(self, offset: int, identifier: str, expires: int) -> bool:
        """Add a hexadecimal id; return whether it is a duplicate. The offset does not matter."""
        ids = np.frombuffer(bytes.fromhex(identifier), ">u8").astype(np.uint64)[None]
        return bool(self.add(ids, np.array([expires]))[0])

    def add(self, ids: Words, expires: Integers) -> Any:
        """Add ids (m, 2) of releases, with their times of expiry; return which ones are duplicates."""
        prints = fingerprints(self._key, ids, expires)
        if self._filter.room < len(ids):
            self._refill()
        suspect, repeated = self._filter.add(prints), np.zeros(len(ids), np.bool_)
        if suspect.any():
            suspects = np.unique(prints[suspect])
            known = self._known(suspects)
            for at in np.flatnonzero(np.isin(prints, suspects)).tolist():
                repeated[at] = int(prints[at]) in known
                known.add(int(prints[at]))
        self.given.append((prints[~repeated], expires[~repeated]))
        return repeated

    def stored_all(self) -> None:
        """Empty ``given``, whose content is stored now."""
        self.given, self._recent, self._looked = [], set(), 0

    def _known(self, prints: Words) -> set[int]:
        """Return which of some sorted fingerprints are stored or in ``given``."""
        for given, _ in self.given[self._looked :]:
            self._recent.update(given.tolist())
        self._looked = len(self.given)
        return {*prints[self._has(prints)].tolist()} | self._recent.intersection(prints.tolist())

    def _refill(self) -> None:
        """Make a new filter, without forgotten fingerprints."""
        given = [prints for prints, _ in self.given]
        self._filter = Filter(
            [*given, *self._stored()] if given else self._stored(), self._count() + sum(map(len, given))
        )
