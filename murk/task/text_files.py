"""Open text files, recognising gzip by content since names may lose their endings; explain invalid CSV rows,
and bound the rows that are read."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, TextIO, cast

GZIP: Final = b"\x1f\x8b"
_CHUNK: Final = 1 << 20
# Patterns that could begin a CSV header also require a byte that no text has.
_OTHERS: Final = {
    "a ZIP archive (or a spreadsheet)": rb"PK\x03\x04",
    "a 7-Zip archive": rb"7z\xbc\xaf",
    "compressed by bzip2": rb"BZh[1-9]1AY&SY",
    "compressed by xz": rb"\xfd7zXZ\0",
    "compressed by Zstandard": rb"\x28\xb5\x2f\xfd",
    "compressed by LZ4": rb"\x04\x22\x4d\x18",
    "a Parquet file": rb"PAR1[^ -~\s]",
    "an encrypted Parquet file": rb"PARE[^ -~\s]",
    "an Arrow file": rb"ARROW1\0",
    "an Avro file": rb"Obj\x01",
    "a database of SQLite": rb"SQLite format 3\0",
}


def is_gzipped(file: IO[bytes]) -> bool:
    """Return whether a file is gzipped, and rewind it.

    Unless its name ends in ``.gz`` the whole stream must be valid, as a record could begin with the magic number.
    """
    file.seek(0)
    try:
        if file.read(len(GZIP)) != GZIP:
            return False
        if not str(getattr(file, "name", "")).lower().endswith(".gz"):
            file.seek(0)
            with gzip.GzipFile(fileobj=file) as content:
                while content.read(_CHUNK):
                    pass
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return False
    finally:
        file.seek(0)
    return True


def kind_of(head: bytes) -> str | None:
    """Return the binary format that begins with these bytes, in words, or None."""
    return next((words for words, magic in _OTHERS.items() if re.match(magic, head, re.DOTALL)), None)


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressing gzip."""
    with path.open("rb") as file:
        if is_gzipped(file):
            with gzip.GzipFile(fileobj=file) as content:
                yield cast(BinaryIO, content)
        else:
            yield file


@contextmanager
def open_text(path: Path, errors: str = "strict") -> Iterator[io.TextIOWrapper]:
    """Open a UTF-8 text file, gzipped or not, with unchanged line ends; ``errors`` is as in `open`."""
    with open_bytes(path) as content, io.TextIOWrapper(content, "utf-8-sig", errors, newline="") as text:
        yield text


def explain_row(error: csv.Error | LongRowError) -> str:
    """Return what is wrong with a row, and what to do, quoting at most single characters of the file."""
    words = str(error)
    if "field larger" in words or isinstance(error, LongRowError):
        words = f"more than {MOST_ROW:,} characters, or a quoted cell that never ends"
    elif "unexpected end" in words:
        words = "a quoted cell that never ends"
    remedy = "Put cells with commas, quotes or line ends into double quotes, and double the quotes inside"
    return f"not a CSV row ({words}). {remedy}"


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
