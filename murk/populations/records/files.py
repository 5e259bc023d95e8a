"""Rows of CSV and JSON lines files, plain or gzipped, in bounded memory.

Messages name file, row and column, and never a value or header: a file without a header begins with a person's record.
Unless a table is strict, a row that it cannot read has only missing values and ends with its line, so that it does not
affect other people's records.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

from murk.errors import UserError
from murk.populations.records.tables import KEYS_LOOKED_AT, ParquetTable, index_columns
from murk.task.text_files import (
    GZIP,
    MOST_ROW,
    BoundedLines,
    LongRowError,
    bounded_lines,
    csv_rows,
    cut_lines,
    explain_row,
    is_gzipped,
    kind_of,
    open_text,
    wide_csv,
)

_ERROR_CODE = "MURK-DATA-001"

CHUNK = 2**20
ESCAPE = "surrogateescape"
WIDE = 2**14  # characters of a row beyond which only wanted values are kept
BRIEF = 2**10  # characters that are kept of a long value in such a row, followed by a digest of the whole value
NO_ROW = '""\n'  # replaces a line that is too long: neither a CSV row of several cells nor a JSON object
_HEAD = 16


@dataclass(frozen=True, slots=True)
class Survey:
    """Result of one pass over a file: its SHA-256 in hexadecimal, and the file's identity and modification time."""

    digest: str
    stamp: tuple[int, int, int, int]


def readable(path: Path) -> None:
    """Raise a UserError if a file cannot be read."""
    with _user_errors(path), path.open("rb"):
        pass


class Table(Protocol):
    """A file of records."""

    @property
    def names(self) -> Sequence[str]:
        """All columns. Without a header they are a person's record, so they must not be shown."""

    def rows(self, start: int) -> Iterator[Any]:
        """Yield the records from row ``start`` (counted from 0) on."""

    def columns(self, rows: Sequence[Any], numbers: Sequence[int], names: Sequence[str]) -> dict[str, Sequence[Any]]:
        """Transpose records, with their row numbers, into columns."""


def slices(table: Table, size: int) -> Iterator[tuple[range, list[Any]]]:
    """Yield all records, at most ``size`` at a time, with their row numbers."""
    rows, start = table.rows(0), 0
    while records := list(islice(rows, size)):
        yield range(start, start + len(records)), records
        start += len(records)


def survey(path: Path) -> Survey:
    """Hash a whole file; raise a UserError if it cannot be read, is empty, or is damaged or truncated."""
    digest = hashlib.sha256()
    with _user_errors(path), path.open("rb") as file:
        stamp = stamp_of(file)
        while chunk := file.read(CHUNK):
            digest.update(chunk)
        gzipped = is_gzipped(file)
        with gzip.GzipFile(fileobj=file) if gzipped else nullcontext(file) as content:
            head = content.read(_HEAD)
            # JSON lines begin with a person's record, which must not affect what happens to other people's records.
            records = _table_of(path) is JSONLinesTable and _has_later_object(content)
            while gzipped and content.read(CHUNK):
                pass
    if not head:
        raise UserError(f"{path} has no rows: it is empty")
    if path.suffix.lower() != ".parquet" and not records:
        _check_text(path, head, gzipped)
    return Survey(digest.hexdigest(), stamp)


def _has_later_object(content: BinaryIO | gzip.GzipFile) -> bool:
    """Return whether a line after the first one is a JSON object by its first and last character."""
    content.seek(0)
    later, opened = False, False
    while piece := content.readline(CHUNK):
        opened = opened or (later and piece.lstrip().startswith(b"{"))
        if opened and piece.rstrip().endswith(b"}"):
            return True
        if piece.endswith(b"\n"):
            later, opened = True, False
        elif not opened:
            later = False
    return False


def _check_text(path: Path, head: bytes, gzipped: bool) -> None:
    kind = kind_of(head)
    if kind is not None:
        remedy = "unpack it, or convert it to CSV"
        if kind == "a Parquet file":
            unpack = "gzipped Parquet files cannot be read. Unpack it, and " if gzipped else ""
            remedy = f"{unpack}give it a name that ends in .parquet"
        raise UserError(f"{path} is {kind}: {remedy}")
    if head.startswith(GZIP) and not gzipped:
        raise UserError(f"{path} is not a valid gzip file, or is truncated: fetch or compress it again")
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UserError(f"{path} is not UTF-8 text but UTF-16: save it as UTF-8")
    # Later errors name row and column.
    if min(head[:4]) < ord("\t"):
        if path.suffix.lower() == ".gz" and not gzipped:
            raise UserError(f"{path} is not a valid gzip file: fetch or compress it again")
        raise UserError(f"{path} is not UTF-8 text, it begins with control characters: save it as UTF-8")


class CSVTable:
    """A comma-separated file with a header; unless ``strict``, all cells of an unreadable row are None."""

    def __init__(self, path: Path, wanted: Sequence[str], *, strict: bool = True) -> None:
        self.path, self.strict = path, strict
        with _text(path) as text:
            try:
                header = next(csv_rows(text), None)
            except (csv.Error, LongRowError) as error:
                raise UserError(f"{path}, first line: {explain_row(error)}") from None
        if header is None:
            raise UserError(f"{path} has no rows: it is empty")
        self.names: tuple[str, ...] = tuple(header)
        self._width = len(header)
        self._indices = index_columns(str(path), header, wanted, self._hint)

    def rows(self, start: int) -> Iterator[list[str]]:
        """Yield the rows from ``start`` on; unless strict, an unreadable row is given as one empty cell."""
        if not self.strict:
            with _text(self.path) as text:
                yield from islice(_lenient_rows(text, self._width, self._keep_wanted), 1 + start, None)
            return
        count = 0
        with _text(self.path) as text:
            lines = BoundedLines(text)
            reader = wide_csv(lines)
            try:
                next(reader, None)
                lines.size = 0
                for count, cells in enumerate(filter(None, reader), 1):
                    kept = self._keep_wanted(cells) if lines.size > WIDE else cells
                    lines.size = 0
                    if count > start:
                        yield kept
            except (csv.Error, LongRowError) as error:
                raise UserError(f"{self.path}, row {count + 1}: {explain_row(error)}") from None

    def _keep_wanted(self, cells: list[str]) -> list[str]:
        kept = set(self._indices.values())
        return [_shorten(cell) if index in kept else "" for index, cell in enumerate(cells)]

    def columns(
        self, rows: Sequence[list[str]], numbers: Sequence[int], names: Sequence[str]
    ) -> dict[str, Sequence[Any]]:
        """Transpose rows into the named columns."""
        even: list[list[Any]] = list(rows)
        for index in [index for index, row in enumerate(rows) if len(row) != self._width]:
            if self.strict:
                where = f"{self.path}, row {numbers[index] + 1}"
                raise UserError(f"{where}: {len(rows[index])} cells, and the header has {self._width}: fix the row")
            even[index] = [None] * self._width
        table = list(zip(*even, strict=True))
        return {name: table[self._indices[name]] for name in names}

    def _hint(self, missing: str) -> str:
        if len(self.names) == 1:
            for mark, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
                if mark in self.names[0]:
                    return f"Its first line is separated by {word}: save it with commas"
        return "Its first line must be a header that names the task's columns, spelled as in the task"


class JSONLinesTable:
    """A file with one JSON object per line; an absent key is a missing value.

    ``strict`` refuses lines that are not objects, and wanted keys that the first lines lack; otherwise these are listed
    in ``absent``.
    """

    def __init__(self, path: Path, wanted: Sequence[str], *, strict: bool = True) -> None:
        self.path, self.strict = path, strict
        self._wanted = tuple(wanted)
        seen: set[str] = set()
        for row, line in enumerate(islice(self._lines(), KEYS_LOOKED_AT)):
            keys = self._object(line, row).keys()
            seen.update(keys & set(wanted))
            seen.update(key for key in islice(keys, max(0, KEYS_LOOKED_AT - len(seen))) if len(key) <= BRIEF)
        self.names: tuple[str, ...] = tuple(sorted(seen))
        self.absent = tuple(name for name in wanted if name not in seen)
        if self.absent and seen and strict:
            raise UserError(
                f"{path} has no key {self.absent[0]!r} in its first {KEYS_LOOKED_AT} lines: "
                "spell the keys as in the task, and write null for a missing value"
            )

    def rows(self, start: int) -> Iterator[str]:
        """Yield the lines from row ``start`` on, without blank lines."""
        for row, line in enumerate(self._lines()):
            if row >= start:
                yield line if len(line) <= WIDE else self._keep_wanted(line)

    def _lines(self) -> Iterator[str]:
        row = 0
        with _text(self.path) as text:
            try:
                for line in bounded_lines(text) if self.strict else cut_lines(text, NO_ROW):
                    if not line.isspace():
                        row += 1
                        yield line
            except LongRowError as error:
                raise UserError(f"{self.path}, row {row + 1}: {error}. Write one object per line") from None

    def _keep_wanted(self, line: str) -> str:
        record = _parse_json(line)
        if not isinstance(record, dict):
            return "null"
        return json.dumps({name: _shorten(record[name]) for name in self._wanted if name in record})

    def columns(self, rows: Sequence[str], numbers: Sequence[int], names: Sequence[str]) -> dict[str, Sequence[Any]]:
        """Parse lines and return the named keys."""
        records = [self._object(line, row) for line, row in zip(rows, numbers, strict=True)]
        return {name: [record.get(name) for record in records] for name in names}

    def _object(self, line: str, row: int) -> dict[str, Any]:
        value = _parse_json(line)
        if not isinstance(value, dict):
            if not self.strict:
                return {}
            raise UserError(f"{self.path}, row {row + 1}: not a JSON object. Write one object per line")
        return value


TABLES: dict[str, type[CSVTable] | type[JSONLinesTable] | type[ParquetTable]] = {
    ".csv": CSVTable,
    ".jsonl": JSONLinesTable,
    ".ndjson": JSONLinesTable,
    ".parquet": ParquetTable,
}


def open_table(path: Path, wanted: Sequence[str], *, strict: bool = True) -> Table:
    """Open a file of records by its extension; raise a UserError for an unknown one, or for a missing column."""
    kind = _table_of(path)
    if kind is None:
        raise UserError(f"{path}: only {', '.join(TABLES)} can be read, all but the last also gzipped. Convert it")
    if not issubclass(kind, ParquetTable):
        return kind(path, wanted, strict=strict)
    with _user_errors(path), path.open("rb") as file:
        if is_gzipped(file):
            raise UserError(f"{path}: gzipped Parquet files cannot be read. Unpack it")
    return ParquetTable(path, wanted)


def _table_of(path: Path) -> type[CSVTable | JSONLinesTable | ParquetTable] | None:
    return TABLES.get(Path(path.name.lower().removesuffix(".gz")).suffix)


def _parse_json(line: str) -> Any:
    """Parse a line; None if it is not JSON. The parser's error quotes the line, so it is not raised."""
    try:
        return json.loads(line)
    except RecursionError:
        return None
    except ValueError:
        pass
    try:
        # Python refuses to convert integers of more than 4300 digits.
        return json.loads(line, parse_int=_integer)
    except (ValueError, RecursionError):
        return None


def _integer(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _shorten(value: Any) -> Any:
    """Shorten a wanted value, since thousands of rows are in memory; different values stay different."""
    if isinstance(value, list | dict):
        return type(value)()
    if not isinstance(value, str) or len(value) <= BRIEF:
        return value
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{value[:BRIEF]}...{digest}"


class _Lines:
    """Lines of text for a CSV reader; ``taken`` are those of the current row. A line that is too long is replaced."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._lines, self._again = cut_lines(text, NO_ROW), deque[str]()
        self.begin()

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines)
        self.taken.append(line)
        self.size += len(line)
        if self.size > MOST_ROW:
            raise LongRowError
        return line

    def begin(self) -> None:
        self.taken: list[str] = []
        self.size = 0

    def give_back(self) -> None:
        self._again.extendleft(reversed(self.taken[1:]))


def _lenient_rows(text: io.TextIOWrapper, width: int, narrow: Callable[[list[str]], list[str]]) -> Iterator[list[str]]:
    """Yield the rows of a CSV file, including the header; an unreadable row is given as one empty cell.

    An unreadable row ends with the line in which it begins, and so does a row of several lines with a wrong number of
    cells: a quote that one person's value opens does not swallow other people's rows.
    """
    lines = _Lines(text)
    reader = wide_csv(lines)
    while True:
        lines.begin()
        try:
            cells = next(reader, None)
        except (csv.Error, LongRowError):
            # Not `[]`, which is an empty line.
            cells = [""]
        if cells is None:
            return
        if len(lines.taken) > 1 and len(cells) != width:
            lines.give_back()
            cells = [""]
        if cells:
            yield narrow(cells) if lines.size > WIDE else cells


def stamp_of(file: IO[bytes] | Path) -> tuple[int, int, int, int]:
    """Return the identity of a file and its modification time."""
    status = os.stat(file if isinstance(file, Path) else file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def _user_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except EOFError:
        raise UserError(f"{path} is truncated, in the middle of its gzip data: fetch or compress it again") from None
    except (gzip.BadGzipFile, zlib.error):
        raise UserError(f"{path} is not a valid gzip file: fetch or compress it again") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}): check the path") from None


@contextmanager
def _text(path: Path) -> Iterator[io.TextIOWrapper]:
    # Bytes that are not UTF-8 become surrogates, so that their row and column can be named.
    with _user_errors(path), open_text(path, ESCAPE) as text:
        yield text
