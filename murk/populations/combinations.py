"""Counts of people by the combination of their known columns, for the holder of a file."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from murk.producers.blocks import Block
from murk.protocols.univariate.columns import KnownColumns, identifying_words

if TYPE_CHECKING:
    from murk.task.task import Task


class CombinationSurvey:
    """Counts the people of each combination of known columns, which are sent as they are.

    Who has rows in several combinations, or windows, counts in each.
    """

    def __init__(self, task: Task) -> None:
        self._columns, self._places = task.known_columns, KnownColumns.of(task).places
        self._counts: Counter[bytes] = Counter()

    def add(self, block: Block) -> None:
        """Count the people of a block, by the combinations of their rows."""
        if self._columns:
            # Private features do not point at anybody.
            x = block.x[:, self._places]
            if block.counts is not None:
                # A person's rows are one of them.
                numbers = np.repeat(np.arange(len(block.counts), dtype=np.float64), block.counts)
                x = np.unique(np.column_stack([numbers, x]), axis=0)[:, 1:]
            rows, counts = np.unique(np.ascontiguousarray(x), axis=0, return_counts=True)
            for row, count in zip(rows, counts.tolist(), strict=True):
                self._counts[row.tobytes()] += count

    def mistake(self) -> str:
        """Return how the known columns nearly identify people, with counts and the remedy; empty if they do not."""
        words = identifying_words(list(self._counts.values()), self._columns)
        return f"{words}. Give fewer known columns, or coarser categories" if words else ""
