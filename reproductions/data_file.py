"""Recognize the papers' data files and read their columns."""

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

from murk.errors import UserError
from murk.task.text_files import BoundedLines, LongRowError, bounded_lines, csv_rows

_ERROR_CODE = "MURK-CLI-002"

T = TypeVar("T")
_SEPARATORS: Final = (",", ";", "\t")
_LISTED: Final = 14
_AT_ONCE: Final = 20_000
"""Rows whose text is in memory at the same time."""


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A data file as it is distributed, plain or gzipped.

    Parameters
    ----------
    name
        The file and its source.
    columns
        The needed columns of a file with a header, separated by commas, semicolons or tabs; otherwise all columns.
    spaced
        Without a header: cells are separated by spaces, and lines of text before the first numbers are skipped.
    lines
        Lines for each row.
    missing
        Text of a missing number.
    rows
        Numbers of rows of the published versions.
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
        """Return the columns that a file lacks; all of them if its rows have another length.

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
        # Text in the first cell means a header.
        fits = len(row) == len(self.columns) and (row[0] == self.missing or math.isfinite(_number(row[0])))
        return () if fits else self.columns

    def read(self, path: Path, most: int | None = None) -> Iterator[list[str]]:
        """Yield the cells of its columns, row by row.

        Raises
        ------
        UserError
            If the file cannot be read, lacks a column, or has a row of another length.
        """
        lacking = self.lacks(path)
        if lacking:
            raise UserError(f"{path}: no column {_listed(lacking)}; give {self}", code="MURK-DATA-001")
        with _opened(path) as file:
            indices, rows, width = list(range(len(self.columns))), self._cells(file), len(self.columns)
            if self.header:
                separator, names = self._header(file)
                indices, width = [names.index(name.lower()) for name in self.columns], len(names)
                rows = csv_rows(file, delimiter=separator)
            for number, row in enumerate(islice(rows, most), self.first_row):
                if len(row) != width:
                    raise UserError(
                        f"{path}: row {number} has {len(row)} cells, the {'header' if self.header else 'file'} {width}",
                        code="MURK-DATA-001",
                    )
                yield [row[index] for index in indices]

    @property
    def first_row(self) -> int:
        """Return the number of the first row of data in error messages."""
        return 2 if self.header else 1

    def _header(self, file: TextIO) -> tuple[str, list[str]]:
        """Return the separator by which the first line has most of the columns, and the names in the line."""
        line, wanted = next(BoundedLines(file), ""), {name.lower() for name in self.columns}
        split = [(separator, next(csv.reader([line], delimiter=separator), [])) for separator in _SEPARATORS]
        headers = [(separator, [cell.strip().lower() for cell in cells]) for separator, cells in split]
        return max(headers, key=lambda header: len(wanted & set(header[1])))

    def _cells(self, file: TextIO) -> Iterator[list[str]]:
        """Yield the rows of a file without a header."""
        if not self.spaced:
            return csv_rows(file)
        split = map(str.split, bounded_lines(file))
        lines = dropwhile(lambda cells: not cells or math.isnan(sum(map(_number, cells))), split)
        return ([cell for line in row for cell in line] for row in _batches(filter(None, lines), self.lines))


def recognized(path: Path, files: Sequence[DataFile]) -> DataFile:
    """Return the known file that a path is.

    Raises
    ------
    UserError
        If it is none of them, with what it lacks of the nearest, or cannot be read.
    """
    lacking = {number: file.lacks(path) for number, file in enumerate(files)}
    for number, names in lacking.items():
        if not names:
            return files[number]
    near = min(lacking, key=lambda number: len(lacking[number]) / len(files[number].columns))
    lacks = f" (no column {_listed(lacking[near])})" if len(lacking[near]) < len(files[near].columns) else ""
    raise UserError(
        f"{path.name} is not a file that this figure accepts{lacks}; it accepts: {'; '.join(map(str, files))}",
        code="MURK-DATA-001",
    )


def read_columns(path: Path, file: DataFile | Sequence[str], most: int | None = None) -> Mapping[str, list[str]]:
    """Return columns of a file as text; column names alone mean a CSV file with a header.

    Raises
    ------
    UserError
        If the file cannot be read, lacks a column, or has a row of another length.
    """
    if not isinstance(file, DataFile):
        file = DataFile(name="CSV file", columns=file)
    rows = list(file.read(path, most))
    return {name: [row[index] for row in rows] for index, name in enumerate(file.columns)}


def read_numbers(
    path: Path, file: DataFile, columns: Sequence[str] | None = None, *, empty: bool = False, most: int | None = None
) -> dict[str, NDArray[np.float64]]:
    """Return columns of a file as numbers, by default all; with ``empty``, missing numbers are NaN.

    Raises
    ------
    UserError
        If the file cannot be read or a cell is not a number; the error names row and column, never the cell.
    """
    chosen = file.columns if columns is None else columns
    indices = [file.columns.index(name) for name in chosen]
    parts: list[NDArray[np.float64]] = []
    first = file.first_row
    for rows in _batches(file.read(path, most), _AT_ONCE):
        words = {name: [row[index] for row in rows] for name, index in zip(chosen, indices, strict=True)}
        numbers = as_numbers(words, empty=empty, missing=file.missing, first=first)
        parts.append(np.array(list(numbers.values())))
        first += len(rows)
    if not parts:
        raise UserError(f"{path.name} has no rows", code="MURK-DATA-001")
    return dict(zip(chosen, np.concatenate(parts, axis=1), strict=True))


def as_numbers(
    columns: Mapping[str, Sequence[str]], *, empty: bool = False, missing: str = "", first: int = 2
) -> dict[str, NDArray[np.float64]]:
    """Return columns of text as numbers; with ``empty``, cells that are empty or ``missing`` are NaN.

    Raises
    ------
    UserError
        If there are no rows, or a cell is not a finite number; the error names row and column, never the cell.
    """
    columns_of_numbers = {}
    for name, words in columns.items():
        if not words:
            raise UserError("the file has a header and no rows", code="MURK-DATA-001")
        numbers = np.array([_number(word) for word in words])
        wrong = [
            row for row in np.flatnonzero(~np.isfinite(numbers)).tolist()
            if not (empty and words[row].strip() in ("", missing))
        ]  # fmt: skip
        if wrong:
            raise UserError(
                f"row {first + wrong[0]}, column {name}: not a number{' and not empty' if empty else ''} "
                f"({len(wrong):,} of {len(words):,} rows)", code="MURK-DATA-001",
            )  # fmt: skip
        columns_of_numbers[name] = numbers
    return columns_of_numbers


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
        raise UserError(f"{path} is not a CSV file: {type(error).__name__}") from error


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
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
