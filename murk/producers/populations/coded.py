"""What became of a file's values when they were coded, told to whoever holds the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from murk.stream.task.data.columns import Cell

if TYPE_CHECKING:
    from murk.producers.populations.file_source import Block, FileSource


class CodedSurvey:
    """Counts of the values of a source that are missing, outside their bounds, or cannot be coded.

    With real noise they decide nothing, and go nowhere but to the one who holds the file.

    Parameters
    ----------
    source
        The source.
    """

    def __init__(self, source: FileSource) -> None:
        self._source = source
        self._counts = np.zeros((len(Cell), len(source.task.coding.columns) + 1), dtype=np.int64)
        self._unreadable = 0

    def add(self, block: Block) -> None:
        """Count the values of a block."""
        for cell in Cell:
            self._counts[cell] += (block.cells == cell).sum(axis=0)
        self._unreadable += block.unreadable

    def findings(self) -> list[str]:
        """Sentences about values and rows that could not be coded, with real noise."""
        source = self._source
        if source.strict:
            return []
        names = (*source.task.coding.columns, source.task.coding.target)
        found = [
            f"{source.records}: the column {name!r} is in none of the first records, so that it is missing in them"
            for name in source.absent
        ]
        parts = []
        for cell in list(Cell)[1:]:
            columns = [
                f"{int(count):,} of {name!r}" for name, count in zip(names, self._counts[cell], strict=True) if count
            ]
            if columns:
                parts.append(f"{_WORDS[cell]}: {', '.join(columns)}")
        if self._unreadable:
            rows = "rows that cannot be read, name nobody, or have no level of the task"
            parts.append(f"{rows}: {self._unreadable:,}")
        if parts:
            found.append(
                f"{source.records}: {'; '.join(parts)}. Values outside their bounds are clamped, all others are coded "
                "as missing, since with real noise nothing that a record holds may decide what is sent. (--check reads "
                "the file, names the first of them, and sends nothing)"
            )
        return found


_WORDS = {
    Cell.CLAMPED: "values outside their bounds",
    Cell.MISSING: "missing values",
    Cell.UNDECLARED: "values that are not declared",
    Cell.NOT_A_NUMBER: "values that are no finite numbers",
    Cell.NOT_A_DATE: "values that are no dates",
}
