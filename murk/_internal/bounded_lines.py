"""Read lines and rows of bounded length: a few compressed bytes may expand to a line of gigabytes."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any, TextIO

MOST_ROW = 2**20
"""Length limit of a row, in characters."""


class LongRowError(ValueError):
    """A row exceeds `MOST_ROW`."""

    def __init__(self) -> None:
        super().__init__(f"longer than {MOST_ROW:,} characters")


class BoundedLines:
    """Iterate over the lines of a text file; raise `LongRowError` for a row longer than `MOST_ROW`.

    A row may span lines: the reader sets ``size``, the characters read of the current row, to 0 after each row.
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
    """Iterate over the lines of a text file, each of which is one row."""
    lines = BoundedLines(text)
    for line in lines:
        lines.size = 0
        yield line


def cut_lines(text: TextIO, instead: str) -> Iterator[str]:
    r"""Iterate over lines, replacing each that is longer than `MOST_ROW` by ``instead``.

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
    """Iterate over a CSV file's rows; raise `LongRowError` for a long row, and `csv.Error` for a malformed one."""
    lines = BoundedLines(text)
    for cells in wide_csv(lines, **options):
        lines.size = 0
        yield cells


def wide_csv(lines: Iterator[str], **options: Any) -> Iterator[list[str]]:
    """Read CSV rows whose cells may be as long as a row; raises the process-wide limit of `csv` if needed."""
    if csv.field_size_limit() < MOST_ROW:
        csv.field_size_limit(MOST_ROW)
    return csv.reader(lines, strict=True, **options)
