"""The paper's real file, as whoever reproduces has it: which one it is, and its columns by name."""

from __future__ import annotations

import csv
import gzip
import hashlib
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import dropwhile, islice
from pathlib import Path
from typing import Final, TextIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from murk._lines import BoundedLines, LongRowError, bounded_lines, csv_rows
from murk.errors import UserError

T = TypeVar("T")
_SEPARATORS: Final = (",", ";", "\t")
_LISTED: Final = 14
_AT_ONCE: Final = 20_000
"""Rows whose words are in memory together."""


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file as it is distributed, also gzipped: how it is told from others, and how it is read.

    Parameters
    ----------
    name
        What it is, and where it is had.
    columns
        With a header (in any case, separated by commas, semicolons or tabs) those that are needed; else all.
    header
        Whether its first line names the columns.
    spaced
        Of one without a header: whether cells are separated by spaces and not by commas. Lines of words before the
        first of numbers are left out.
    lines
        How many lines a row takes.
    missing
        What stands in a cell for no number.
    rows
        How many the published file has; several, where there are several.
    """

    name: str
    columns: Sequence[str]
    header: bool = True
    spaced: bool = False
    lines: int = 1
    missing: str = ""
    rows: Sequence[int] = ()

    def __str__(self) -> str:
        if self.header:
            return f"{self.name} (a header with {_listed(self.columns)})"
        return f"{self.name} ({len(self.columns)} {'numbers' if self.spaced else 'columns'} a row, no header)"

    def lacks(self, path: Path) -> Sequence[str]:
        """Which of its columns a file has not; all of them where rows are of another length.

        Raises
        ------
        UserError
            If the file cannot be read.
        """
        with _opened(path) as file:
            if self.header:
                _, names = self._header(file)
                return [name for name in self.columns if name.lower() not in names]
            row = next(self._cells(file), [])
        # Words in the first cell are a header's.
        fits = len(row) == len(self.columns) and (row[0] == self.missing or math.isfinite(_number(row[0])))
        return () if fits else self.columns

    def read(self, path: Path, most: int | None = None) -> Iterator[list[str]]:
        """The cells of its columns, row by row.

        Raises
        ------
        UserError
            If the file cannot be read, lacks a column, or has rows of another length.
        """
        lacking = self.lacks(path)
        if lacking:
            raise UserError(f"{path}: no column {_listed(lacking)}; needed is {self}", code="MURK-DATA-001")
        with _opened(path) as file:
            places, rows, width = list(range(len(self.columns))), self._cells(file), len(self.columns)
            if self.header:
                separator, names = self._header(file)
                places, width = [names.index(name.lower()) for name in self.columns], len(names)
                rows = csv_rows(file, delimiter=separator)
            for number, row in enumerate(islice(rows, most), self.first_row):
                if len(row) != width:
                    raise UserError(
                        f"{path}: row {number} has {len(row)} cells, the {'header' if self.header else 'file'} {width}",
                        code="MURK-DATA-001",
                    )
                yield [row[place] for place in places]

    @property
    def first_row(self) -> int:
        """The number of its first row of data, as errors count."""
        return 2 if self.header else 1

    def _header(self, file: TextIO) -> tuple[str, list[str]]:
        """The separator by which the first line has most of the columns, and its names."""
        line, wanted = next(BoundedLines(file), ""), {name.lower() for name in self.columns}
        read = [(one, next(csv.reader([line], delimiter=one), [])) for one in _SEPARATORS]
        found = [(separator, [cell.strip().lower() for cell in cells]) for separator, cells in read]
        return max(found, key=lambda one: len(wanted & set(one[1])))

    def _cells(self, file: TextIO) -> Iterator[list[str]]:
        """Cells of a file without a header."""
        if not self.spaced:
            return csv_rows(file)
        split = map(str.split, bounded_lines(file))
        lines = dropwhile(lambda cells: not cells or math.isnan(sum(map(_number, cells))), split)
        return ([cell for line in row for cell in line] for row in _batches(filter(None, lines), self.lines))


def recognized(path: Path, files: Sequence[DataFile]) -> DataFile:
    """Which of several files one is.

    Raises
    ------
    UserError
        If it is none of them: with a list of these, and what it lacks of the nearest. Or it cannot be read.
    """
    lacking = {place: one.lacks(path) for place, one in enumerate(files)}
    for place, names in lacking.items():
        if not names:
            return files[place]
    near = min(lacking, key=lambda place: len(lacking[place]) / len(files[place].columns))
    lacks = f" (no column {_listed(lacking[near])})" if len(lacking[near]) < len(files[near].columns) else ""
    raise UserError(
        f"{path.name} is not a file that is taken here{lacks}; such are: {'; '.join(map(str, files))}",
        code="MURK-DATA-001",
    )


def read_columns(path: Path, file: DataFile | Sequence[str], most: int | None = None) -> Mapping[str, list[str]]:
    """Columns of a file, as words; of a CSV file with a header where only their names are given.

    Raises
    ------
    UserError
        If it cannot be read, lacks one of the columns, or has rows of another length.
    """
    if not isinstance(file, DataFile):
        file = DataFile(name="CSV file", columns=file)
    rows = list(file.read(path, most))
    return {name: [row[place] for row in rows] for place, name in enumerate(file.columns)}


def read_numbers(
    path: Path, file: DataFile, columns: Sequence[str] | None = None, *, empty: bool = False, most: int | None = None
) -> dict[str, NDArray[np.float64]]:
    """Columns of a file (all of them where none are named), as numbers; of words only some rows are in memory at once.

    Parameters
    ----------
    empty
        Whether cells may be empty: they are NaN, as is what the file has in place of a number.

    Raises
    ------
    UserError
        If it cannot be read, or has anything else in a column: it names the place and never the cell.
    """
    chosen = file.columns if columns is None else columns
    places = [file.columns.index(name) for name in chosen]
    parts: list[NDArray[np.float64]] = []
    first = file.first_row
    for rows in _batches(file.read(path, most), _AT_ONCE):
        words = {name: [row[place] for row in rows] for name, place in zip(chosen, places, strict=True)}
        found = as_numbers(words, empty=empty, missing=file.missing, first=first)
        parts.append(np.array(list(found.values())))
        first += len(rows)
    if not parts:
        raise UserError(f"{path.name} has no rows", code="MURK-DATA-001")
    return dict(zip(chosen, np.concatenate(parts, axis=1), strict=True))


def as_numbers(
    columns: Mapping[str, Sequence[str]], *, empty: bool = False, missing: str = "", first: int = 2
) -> dict[str, NDArray[np.float64]]:
    """Columns of words as numbers; empty cells, and those that say so, are NaN where there may be such.

    Raises
    ------
    UserError
        If there are no rows, or a cell is no finite number: it names the place and never the cell.
    """
    found = {}
    for name, words in columns.items():
        if not words:
            raise UserError("the file has a header and no rows", code="MURK-DATA-001")
        numbers = np.array([_number(word) for word in words])
        wrong = [
            place for place in np.flatnonzero(~np.isfinite(numbers)).tolist()
            if not (empty and words[place].strip() in ("", missing))
        ]  # fmt: skip
        if wrong:
            raise UserError(
                f"row {first + wrong[0]}, column {name}: no number{' and not empty' if empty else ''} "
                f"({len(wrong):,} of {len(words):,} rows)", code="MURK-DATA-001",
            )  # fmt: skip
        found[name] = numbers
    return found


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8-sig", newline="") if path.suffix == ".gz"
            else path.open(encoding="utf-8-sig", newline="")
        ) as file:  # fmt: skip
            yield file
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}: give the paper's file") from error
    except LongRowError as error:
        raise UserError(f"{path}: a row is {error}: give the paper's file") from error
    except (UnicodeDecodeError, csv.Error, EOFError, zlib.error) as error:
        raise UserError(f"{path} is no CSV file: {type(error).__name__}") from error


def _batches(rows: Iterator[T], size: int) -> Iterator[list[T]]:
    return iter(lambda: list(islice(rows, size)), [])


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names if len(names) <= _LISTED else (*names[:2], "...", names[-1]))


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan


def sha256_of(path: Path) -> str:
    """Which file it was."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
