"""Counts of people by the combination of their known columns, for the holder of a file."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from murk.producers.blocks import Block
from murk.protocols.univariate.columns import KnownColumns, identifying_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murk.task.task import Task


class CombinationSurvey:
    """Counts the people of each combination of known columns, which are sent as they are.

    Who has rows in several combinations counts in each, once. Names are kept as hashes, 16 bytes a row.
    """

    def __init__(self, task: Task) -> None:
        self._columns, self._places = task.known_columns, KnownColumns.of(task).places
        self._numbers: dict[bytes, int] = {}  # of combinations
        self._rows: Counter[int] = Counter()
        self._people: list[NDArray[np.uint64]] = []  # pairs of a combination and a name's hash, of each block

    def add(self, block: Block) -> None:
        """Count the people of a block of rows, by the combinations of their rows."""
        if not self._columns:
            return
        # Private features do not point at anybody.
        x = np.ascontiguousarray(block.x[:, self._places])
        numbers = [self._numbers.setdefault(row.tobytes(), len(self._numbers)) for row in x]
        if block.people is None:
            self._rows.update(numbers)
            return
        hashes = [int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) for name in block.people]
        names = np.array(hashes, dtype=np.uint64)
        if block.counts is not None:
            names = np.repeat(names, block.counts)
        self._people.append(np.unique(np.array([np.array(numbers, dtype=np.uint64), names]), axis=1))

    def mistake(self) -> str:
        """Return how the known columns nearly identify people, with counts and the remedy; empty if they do not."""
        counts = self._rows
        if self._people:
            combinations = np.unique(np.hstack(self._people), axis=1)[0]
            counts = counts + Counter(combinations.tolist())
        words = identifying_words(list(counts.values()), self._columns)
        return f"{words}. Give fewer known columns, or coarser categories" if words else ""
