"""The paper's real file, as whoever reproduces has it: columns by name, and which file it was."""

from __future__ import annotations

import csv
import gzip
import hashlib
import math
import zlib
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError


def read_columns(path: Path, names: Sequence[str], most: int | None = None) -> Mapping[str, list[str]]:
    """Columns of a CSV file with a header (also gzipped), as words.

    Raises
    ------
    UserError
        If it cannot be read, lacks one of the columns, or has rows of another length.
    """
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8", newline="") if path.suffix == ".gz"
            else path.open(encoding="utf-8", newline="")
        ) as file:  # fmt: skip
            lines = csv.reader(file, strict=True)
            header = next(lines, [])
            missing = [name for name in names if name not in header]
            if missing:
                raise UserError(
                    f"{path}: no column {', '.join(missing)}; needed are {', '.join(names)}", code="MURK-DATA-001"
                )
            places = [header.index(name) for name in names]
            columns: dict[str, list[str]] = {name: [] for name in names}
            for number, line in enumerate(islice(lines, most), 2):
                if len(line) != len(header):
                    raise UserError(
                        f"{path}: row {number} has {len(line)} cells, the header {len(header)}", code="MURK-DATA-001"
                    )
                for name, place in zip(names, places, strict=True):
                    columns[name].append(line[place])
            return columns
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}: give the paper's file as CSV with a header") from error
    except (UnicodeDecodeError, csv.Error, EOFError, zlib.error) as error:
        raise UserError(f"{path} is no CSV file with a header: {type(error).__name__}") from error


def as_numbers(columns: Mapping[str, Sequence[str]], *, empty: bool = False) -> dict[str, NDArray[np.float64]]:
    """Columns of words as numbers; empty cells are NaN where there may be such.

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
            row for row, (word, number) in enumerate(zip(words, numbers, strict=True), 2)
            if not (np.isfinite(number) or (empty and not word.strip()))
        ]  # fmt: skip
        if wrong:
            raise UserError(
                f"row {wrong[0]}, column {name}: no number{' and not empty' if empty else ''} "
                f"({len(wrong):,} of {len(words):,} rows)", code="MURK-DATA-001",
            )  # fmt: skip
        found[name] = numbers
    return found


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
