"""Counts of people by the combination of their known columns, for the holder of a file."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from murk._internal.numbers import listed
from murk.producers.blocks import Block
from murk.protocols.univariate.columns import KnownColumns

if TYPE_CHECKING:
    from murk.task.task import Task

SMALLEST: Final = 20  # number of people below which a combination points at people
MOST_SMALL: Final = 0.05  # largest share of people in such combinations


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
        rows, small = sum(self._counts.values()), [n for n in self._counts.values() if n < SMALLEST]
        if sum(small) <= MOST_SMALL * rows:
            return ""
        return (
            f"known columns nearly identify people: {sum(small):,} of {rows:,} people are in {len(small):,} "
            f"combinations of {listed(self._columns)} with fewer than {SMALLEST} each, {small.count(1):,} of them "
            f"alone; at most {MOST_SMALL:.0%} of them may be. Give fewer known columns, or coarser categories"
        )
