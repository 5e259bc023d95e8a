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

    A person with rows in several combinations counts once in each. Names are kept as hashes, 16 bytes a row.
    """

    def __init__(self, task: Task) -> None:
        self._columns, self._places = task.known_columns, KnownColumns.of(task).places
        self._numbers: dict[bytes, int] = {}  # index of each combination, in the order of appearance
        self._rows: Counter[int] = Counter()
        self._people: list[NDArray[np.uint64]] = []  # of each block, the pairs of a combination and a name's hash

    def add(self, block: Block) -> None:
        """Count the people of a block of rows, by the combinations of their rows."""
        if not self._columns:
            return
        # Only known columns are sent as they are, and so may identify people.
        x = np.ascontiguousarray(block.x[:, self._places])
        numbers = [self._numbers.setdefault(row.tobytes(), len(self._numbers)) for row in x]
        if block.people is None:
            self._rows.update(numbers)
            return
        names = [int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) for name in block.people]
        rows = np.repeat(np.array(names, dtype=np.uint64), 1 if block.counts is None else block.counts)
        self._people.append(np.unique(np.array([numbers, rows], dtype=np.uint64), axis=1))

    def mistake(self) -> str:
        """Return how the known columns nearly identify people, with counts and the remedy; empty if they do not."""
        counts = self._rows
        if self._people:
            combinations = np.unique(np.hstack(self._people), axis=1)[0]
            counts = counts + Counter(combinations.tolist())
        words = identifying_words(list(counts.values()), self._columns)
        return f"{words}. Give fewer known columns, or coarser categories" if words else ""
