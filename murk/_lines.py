"""Lines and rows of text files whose length is bounded: a few bytes of a compressed file may be a line of gigabytes."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any, TextIO

MOST_ROW = 2**20
"""Longest row, in characters, that is read of any file."""


class LongRowError(ValueError):
    """A row is longer than any that is read."""

    def __init__(self) -> None:
        super().__init__(f"longer than {MOST_ROW:,} characters")


class BoundedLines:
    """Iterate over the lines of a text file.

    Parameters
    ----------
    text
        The file.

    Attributes
    ----------
    size
        Characters read since somebody set it to 0: those of the row that is being read. A row may take many lines.

    Raises
    ------
    LongRowError
        When a row has more than `MOST_ROW` characters; no more than these have been read of it.

    Examples
    --------
    >>> import io
    >>> lines = BoundedLines(io.StringIO("one\\ntwo"))
    >>> list(lines), lines.size
    (['one\\n', 'two'], 7)
    """

    def __init__(self, text: TextIO) -> None:
        self._read = text.readline
        self.size = 0

    def __iter__(self) -> BoundedLines:
        return self

    def __next__(self) -> str:
        line = self._read(MOST_ROW + 1)
        if not line:
            raise StopIteration
        self.size += len(line)
        if self.size > MOST_ROW:
            raise LongRowError
        return line


def bounded_lines(text: TextIO) -> Iterator[str]:
    """Iterate over lines that are a row each."""
    lines = BoundedLines(text)
    for line in lines:
        lines.size = 0
        yield line


def cut_lines(text: TextIO, instead: str) -> Iterator[str]:
    r"""Iterate over lines, with ``instead`` in the place of each that is longer than `MOST_ROW`.

    Examples
    --------
    >>> import io
    >>> list(cut_lines(io.StringIO("a\n" + "b" * 3_000_000 + "\nc"), "-"))
    ['a\n', '-', 'c']
    """
    while line := text.readline(MOST_ROW + 1):
        if len(line) <= MOST_ROW:
            yield line
            continue
        while line and not line.endswith(("\n", "\r")):
            line = text.readline(MOST_ROW)
        yield instead


def csv_rows(text: TextIO, **options: Any) -> Iterator[list[str]]:
    """Iterate over the rows of a CSV file, none of them longer than `MOST_ROW`; ``options`` are `csv.reader`'s.

    Raises
    ------
    LongRowError
        For a longer row.
    csv.Error
        For what is no row.
    """
    lines = BoundedLines(text)
    for cells in wide_csv(lines, **options):
        lines.size = 0
        yield cells


def wide_csv(lines: Iterator[str], **options: Any) -> Iterator[list[str]]:
    """Read rows of CSV whose cells may be as long as a row: the module's own limit is for the whole process."""
    if csv.field_size_limit() < MOST_ROW:
        csv.field_size_limit(MOST_ROW)
    return csv.reader(lines, strict=True, **options)
