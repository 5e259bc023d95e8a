"""Rows of files: CSV and JSON lines, plain or gzipped, with memory that does not grow with the file.

Messages name file, row and column, and never what stands there: it is somebody's. Not even a header is
repeated, since a file without one begins with a person's record.

A strict table refuses a row that it cannot read. One that is not strict gives such a row without any value, and reads
on with the next line: what happens to other people's records does not depend on it.
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
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Protocol

from murk._lines import MOST_ROW, BoundedLines, LongRowError, bounded_lines, csv_rows, cut_lines, wide_csv
from murk.errors import UserError
from murk.producers.populations.records.arrow import ParquetTable
from murk.producers.populations.records.tuples import KEYS_LOOKED_AT
from murk.stream.task.data.text_files import explain_row, is_gzipped, kind_of, open_text

CHUNK = 2**20
ESCAPE = "surrogateescape"
WIDE = 2**14
"""Of a row with more characters, only what is wanted is kept."""
NO_ROW = '""\n'
"""What stands for a line that is too long to be read: no CSV row of several cells, and no JSON object."""
BRIEF = 2**10
"""Of a wanted value in such a row, no more characters than these, and a digest of all."""
_HEAD = 16


@dataclass(frozen=True, slots=True)
class Survey:
    """What one pass over a file's bytes says.

    Parameters
    ----------
    digest
        SHA-256 of the file's bytes, in hexadecimal.
    stamp
        Which file it was and when it was last written.
    """

    digest: str
    stamp: tuple[int, int, int, int]


def readable(path: Path) -> None:
    """Refuse a file that cannot be read.

    Raises
    ------
    UserError
        Saying why.
    """
    with _explained(path), path.open("rb"):
        pass


class Table(Protocol):
    """A file of records."""

    @property
    def names(self) -> Sequence[str]:
        """Its columns, wanted or not. In a file without a header they are somebody's record: they go nowhere."""

    def rows(self, start: int) -> Iterator[Any]:
        """Iterate over the records from row ``start`` (0 is the first) on."""

    def columns(self, rows: Sequence[Any], numbers: Sequence[int], names: Sequence[str]) -> dict[str, Sequence[Any]]:
        """Turn records, whose row numbers are given, into columns."""


def survey(path: Path) -> Survey:
    """Hash a file, and read it through to its end so that a truncated one is noticed before anything else.

    Raises
    ------
    UserError
        When it cannot be read, is empty, or is a damaged or truncated gzip file.
    """
    digest = hashlib.sha256()
    with _explained(path), path.open("rb") as file:
        stamp = _stamp(file)
        while chunk := file.read(CHUNK):
            digest.update(chunk)
        gzipped = is_gzipped(file)
        with gzip.GzipFile(fileobj=file) if gzipped else nullcontext(file) as content:
            head = content.read(_HEAD)
            while gzipped and content.read(CHUNK):
                pass
    if not head:
        raise UserError(f"{path} has no rows: it is empty")
    if path.suffix.lower() != ".parquet":
        _check_text(path, head, gzipped)
    return Survey(digest.hexdigest(), stamp)


def _check_text(path: Path, head: bytes, gzipped: bool) -> None:
    """Refuse a file that begins as no text does, and say what it is where that is known."""
    known = kind_of(head)
    if known is not None:
        remedy = "unpack it, or convert it to CSV"
        if known == "a Parquet file":
            remedy = "give it a name that ends in .parquet"
            if gzipped:
                remedy = f"it is compressed in itself. Unpack it, and {remedy}"
        raise UserError(f"{path} is {known}: {remedy}")
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UserError(f"{path} is not UTF-8 text but UTF-16: save it as UTF-8")
    # Of what comes later row and column are named.
    if min(head[:4]) < ord("\t"):
        if path.suffix.lower() == ".gz" and not gzipped:
            raise UserError(f"{path} is no gzip file, or is damaged: fetch or compress it again")
        raise UserError(f"{path} is not UTF-8 text, it begins with control characters: save it as UTF-8")


def changed(path: Path, stamp: tuple[int, int, int, int]) -> bool:
    """Whether the file is another one now, or was written to."""
    try:
        return _stamp(path) != stamp
    except OSError:
        return True


class CSVTable:
    """A CSV file with a header: comma-separated, cells in double quotes where needed.

    Parameters
    ----------
    path
        The file, gzipped or not.
    wanted
        Columns that must be there.
    strict
        Whether a row that cannot be read is refused; otherwise all its cells are None.
    """

    def __init__(self, path: Path, wanted: Sequence[str], *, strict: bool = True) -> None:
        self.path, self.strict = path, strict
        with _explained(path), _text(path) as text:
            try:
                header = next(csv_rows(text), None)
            except (csv.Error, LongRowError) as error:
                raise UserError(f"{path}, its first line: {explain_row(error)}") from None
        if header is None:
            raise UserError(f"{path} has no rows: it is empty")
        self.names: tuple[str, ...] = tuple(header)
        self._width = len(header)
        self._places: dict[str, int] = {}
        for name in wanted:
            if header.count(name) > 1:
                raise UserError(f"{path} has {header.count(name)} columns named {name!r}: rename all but one")
            if name not in header:
                raise UserError(f"{path} has no column {name!r}. {self._hint(header)}")
            self._places[name] = header.index(name)

    def rows(self, start: int) -> Iterator[list[str]]:
        """Iterate over the rows from ``start`` on; lines without any cell are no rows.

        Where the table is not strict, a row that cannot be read is the line that it begins in, as one empty cell.
        """
        if not self.strict:
            with _explained(self.path), _text(self.path) as text:
                yield from islice(_lenient(text, self._width, self._narrow), 1 + start, None)
            return
        count = 0
        with _explained(self.path), _text(self.path) as text:
            lines = BoundedLines(text)
            reader = wide_csv(lines)
            try:
                next(reader, None)
                lines.size = 0
                for count, cells in enumerate(filter(None, reader), 1):
                    if lines.size > WIDE:
                        cells = self._narrow(cells)
                    lines.size = 0
                    if count > start:
                        yield cells
            except (csv.Error, LongRowError) as error:
                raise UserError(f"{self.path}, row {count + 1}: {explain_row(error)}") from None

    def _narrow(self, cells: list[str]) -> list[str]:
        """Of a long row, what is wanted."""
        kept = set(self._places.values())
        return [_brief(cell) if place in kept else "" for place, cell in enumerate(cells)]

    def columns(
        self, rows: Sequence[list[str]], numbers: Sequence[int], names: Sequence[str]
    ) -> dict[str, Sequence[Any]]:
        """Transpose rows into the named columns."""
        widths = list(map(len, rows))
        if widths.count(self._width) != len(widths) and not self.strict:
            nothing: list[Any] = [None] * self._width
            rows = [row if width == self._width else nothing for row, width in zip(rows, widths, strict=True)]
        elif widths.count(self._width) != len(widths):
            at = next(index for index, width in enumerate(widths) if width != self._width)
            raise UserError(
                f"{self.path}, row {numbers[at] + 1}: {widths[at]} cells, and the header has {self._width}: fix the row"
            )
        table = list(zip(*rows, strict=True))
        return {name: table[self._places[name]] for name in names}

    def _hint(self, header: Sequence[str]) -> str:
        if len(header) == 1:
            for mark, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
                if mark in header[0]:
                    return f"Its first line is separated by {word}: save it with commas"
        return "Its first line must be a header that names the task's columns, spelled as in the task"


class JSONLinesTable:
    """A file with one JSON object a line; a key that is not there is a missing value.

    Parameters
    ----------
    path
        The file, gzipped or not.
    wanted
        Keys that must be there.
    strict
        Whether a line that is no object, and a wanted key that the first lines do not have, are refused.

    Attributes
    ----------
    absent
        Wanted keys that are in none of the first lines.
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
        for name in self.absent:
            if seen and strict:
                raise UserError(
                    f"{path} has no key {name!r} in its first {KEYS_LOOKED_AT} lines: "
                    "spell the keys as in the task, and write null for a missing value"
                )

    def rows(self, start: int) -> Iterator[str]:
        """Iterate over the lines from row ``start`` on; blank lines are no rows."""
        for row, line in enumerate(self._lines()):
            if row >= start:
                yield line if len(line) <= WIDE else self._narrow(line)

    def _lines(self) -> Iterator[str]:
        row = 0
        with _explained(self.path), _text(self.path) as text:
            try:
                for line in bounded_lines(text) if self.strict else cut_lines(text, NO_ROW):
                    if not line.isspace():
                        row += 1
                        yield line
            except LongRowError as error:
                raise UserError(f"{self.path}, row {row + 1}: {error}. Write one object a line") from None

    def _narrow(self, line: str) -> str:
        """Of a long line, what is wanted."""
        record = _parsed(line)
        if not isinstance(record, dict):
            return "null"
        return json.dumps({name: _brief(record[name]) for name in self._wanted if name in record})

    def columns(self, rows: Sequence[str], numbers: Sequence[int], names: Sequence[str]) -> dict[str, Sequence[Any]]:
        """Parse lines and take the named keys."""
        records = [self._object(line, row) for line, row in zip(rows, numbers, strict=True)]
        return {name: [record.get(name) for record in records] for name in names}

    def _object(self, line: str, row: int) -> dict[str, Any]:
        value = _parsed(line)
        if not isinstance(value, dict):
            if not self.strict:
                return {}
            raise UserError(f"{self.path}, row {row + 1}: not a JSON object. Write one object a line")
        return value


TABLES: dict[str, type[CSVTable] | type[JSONLinesTable] | type[ParquetTable]] = {
    ".csv": CSVTable,
    ".jsonl": JSONLinesTable,
    ".ndjson": JSONLinesTable,
    ".parquet": ParquetTable,
}


def open_table(path: Path, wanted: Sequence[str], *, strict: bool = True) -> Table:
    """Open a file of records by the ending of its name.

    A Parquet file has no rows that cannot be read.

    Raises
    ------
    UserError
        For another ending, or a file that lacks a wanted column.
    """
    name = path.name.lower().removesuffix(".gz")
    kind = TABLES.get(Path(name).suffix)
    if kind is None:
        raise UserError(
            f"{path}: only {', '.join(TABLES)} can be read, all but the last also gzipped. Convert the file"
        )
    if kind is ParquetTable and _begins_as_gzip(path):
        raise UserError(f"{path}: a Parquet file is compressed in itself. Unpack it")
    return ParquetTable(path, wanted) if issubclass(kind, ParquetTable) else kind(path, wanted, strict=strict)


def _begins_as_gzip(path: Path) -> bool:
    with _explained(path), path.open("rb") as file:
        return is_gzipped(file)


def _parsed(line: str) -> Any:
    """Parse a line; None where it is no JSON. The parser's error holds the line, and goes no further."""
    try:
        return json.loads(line)
    except RecursionError:
        return None
    except ValueError:
        pass
    try:
        # Python converts no integer of more than some thousand digits, in whatever column it is.
        return json.loads(line, parse_int=_integer)
    except (ValueError, RecursionError):
        return None


def _integer(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _text(path: Path) -> AbstractContextManager[io.TextIOWrapper]:
    # Bytes that are no UTF-8 come through as surrogates, so that their row and column can be named.
    return open_text(path, ESCAPE)


def _brief(value: Any) -> Any:
    """A wanted value in few bytes, as thousands of rows are in memory at once; what differed still differs."""
    if isinstance(value, list | dict):
        return type(value)()
    if not isinstance(value, str) or len(value) <= BRIEF:
        return value
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{value[:BRIEF]}...{digest}"


class _Lines:
    """Lines of a text, and those of them that a CSV reader took for the row that it reads.

    A line that is too long is one that is no row.
    """

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._lines, self._again = cut_lines(text, NO_ROW), deque[str]()
        self.taken: list[str] = []
        self.size = 0

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
        """Begin another row."""
        self.taken.clear()
        self.size = 0

    def give_back(self) -> None:
        """Let all but the first of the lines taken be read again."""
        self._again.extendleft(reversed(self.taken[1:]))


def _lenient(text: io.TextIOWrapper, width: int, narrow: Callable[[list[str]], list[str]]) -> Iterator[list[str]]:
    """Iterate over the rows of a CSV file, the header among them; one that cannot be read is one empty cell.

    Such a row is the one line that it begins in, also where several lines make a row of another width: a quote that
    somebody's value opens does not take other people's rows with it.
    """
    lines = _Lines(text)
    reader = wide_csv(lines)
    while True:
        lines.begin()
        try:
            cells = next(reader, None)
        except (csv.Error, LongRowError):
            # Not `[]`: a line without any cell is no row.
            cells = [""]
        if cells is None:
            return
        if len(lines.taken) > 1 and len(cells) != width:
            lines.give_back()
            cells = [""]
        if cells:
            yield narrow(cells) if lines.size > WIDE else cells


def _stamp(file: IO[bytes] | Path) -> tuple[int, int, int, int]:
    status = os.stat(file if isinstance(file, Path) else file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except EOFError:
        raise UserError(
            f"{path} ends in the middle of its gzip data, it is truncated: fetch or compress it again"
        ) from None
    except (gzip.BadGzipFile, zlib.error):
        raise UserError(f"{path} is no gzip file, or is damaged: fetch or compress it again") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}): check the path") from None
