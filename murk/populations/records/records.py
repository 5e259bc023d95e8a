"""Records from any source: a path, a data frame, a table, or mappings."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murk.errors import UserError
from murk.populations.records.files import Survey, Table, open_table, stamp_of, survey
from murk.populations.records.tables import KEYS_LOOKED_AT, SLICE, TupleTable, arrow, check_types
from murk.task.coding import is_absent, is_nan
from murk.task.containers import check_zone, python_values

_ERROR_CODE = "MURK-DATA-001"


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of records in memory; ``what`` is their name in messages.

    ``read(index, start, stop)`` returns a column's values as Python objects, None if missing; ``check(names)`` refuses
    unsuitable columns. ``with_keys(names)`` adds columns, if records may differ in keys.
    """

    what: str
    names: tuple[str, ...]
    size: int
    read: Callable[[int, int, int], list[Any]]
    check: Callable[[Sequence[str]], None] = lambda names: None
    with_keys: Callable[[Sequence[str]], Columns] | None = None

    def digest(self) -> str:
        """Return the SHA-256 of names and values in hexadecimal, independent of the container."""
        digest_so_far = hashlib.sha256(json.dumps(self.names).encode())
        for start in range(0, self.size, SLICE):
            stop = min(start + SLICE, self.size)
            values = [self.read(index, start, stop) for index in range(len(self.names))]
            digest_so_far.update(json.dumps(values, default=_as_json, skipkeys=True).encode())
        return digest_so_far.hexdigest()


class MemoryTable(TupleTable):
    """A table of records in memory, read in slices; ``absent`` are keys that the first records lack."""

    def __init__(self, columns: Columns, wanted: Sequence[str], *, strict: bool = True) -> None:
        if not columns.size:
            raise UserError(f"{columns.what} has no rows: give a source with at least one record")
        self.absent = tuple(name for name in dict.fromkeys(wanted) if name not in columns.names)
        if self.absent and columns.with_keys is not None and not strict:
            columns = columns.with_keys(self.absent)
        super().__init__(columns.what, columns.names, wanted)
        columns.check(self.wanted)
        self._columns = columns

    def rows(self, start: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows from ``start`` on."""
        indices = [self.names.index(name) for name in self.wanted]
        size, read = self._columns.size, self._columns.read
        for first in range(start, size, SLICE):
            stop = min(first + SLICE, size)
            yield from zip(*(read(index, first, stop) for index in indices), strict=True)


def columns_of(source: object) -> Columns:
    """Return the columns of a frame, a table or an iterable of mappings, or raise a UserError."""
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    # A frame exists only if its library was imported.
    if pandas is not None and isinstance(source, pandas.DataFrame):
        return _of_pandas(source)
    if type(source).__name__ in ("Series", "ChunkedArray"):
        raise UserError(f"a {type(source).__name__} is one column: give the frame or table of features and target")
    if polars is not None and isinstance(source, polars.LazyFrame):
        raise UserError("a LazyFrame has no rows yet: give frame.collect()")
    if polars is not None and isinstance(source, polars.DataFrame):
        return _of_polars(source)
    if hasattr(source, "__arrow_c_stream__"):
        return _of_arrow(source)
    if isinstance(source, Iterable) and not isinstance(source, Mapping | str | bytes) and not hasattr(source, "dtype"):
        return _of_mappings(source)
    raise UserError(
        f"a {type(source).__name__} holds no records: give the path of a CSV, JSON lines or Parquet file, a pandas or "
        "Polars DataFrame, an Arrow table, or an iterable of mappings"
    )


def _of_pandas(frame: Any) -> Columns:
    def read(place: int, start: int, stop: int) -> list[Any]:
        return python_values(frame.iloc[start:stop, place])

    return Columns("the DataFrame", tuple(map(str, frame.columns)), len(frame), read)


def _of_polars(frame: Any) -> Columns:
    def read(place: int, start: int, stop: int) -> list[Any]:
        column = frame.to_series(place)
        return python_values(column.slice(start, stop - start), f"the DataFrame, column {column.name!r}")

    def check(names: Sequence[str]) -> None:
        for name in names:
            check_zone(getattr(frame.schema[name], "time_zone", None), f"the DataFrame, column {name!r}")

    return Columns("the DataFrame", tuple(frame.columns), frame.height, read, check)


def _of_arrow(source: object) -> Columns:
    table = arrow("the table").table(source)

    def read(place: int, start: int, stop: int) -> list[Any]:
        column_words = f"the table, column {table.column_names[place]!r}"
        return python_values(table.column(place).slice(start, stop - start), column_words)

    def check(names: Sequence[str]) -> None:
        check_types("the table", table.schema, names)

    return Columns("the table", tuple(table.column_names), table.num_rows, read, check)


def _of_mappings(source: Iterable[object]) -> Columns:
    records: Sequence[Any] = source if isinstance(source, Sequence) else list(source)
    for row, record in enumerate(records):
        if not isinstance(record, Mapping):
            pairs = isinstance(record, tuple) and len(record) == 2 and isinstance(record[0], Mapping)
            remedy = "give ({**x, 'TARGET': y} for x, y in stream)" if pairs else "give one mapping a record"
            raise UserError(f"the records, row {row + 1}: a {type(record).__name__}, not a mapping: {remedy}")
    return _of_keys(records, list(dict.fromkeys(key for record in records[:KEYS_LOOKED_AT] for key in record)))


def _of_keys(records: Sequence[Any], keys: Sequence[Any]) -> Columns:
    def read(place: int, start: int, stop: int) -> list[Any]:
        key = keys[place]
        # As in frames, NaN and similar values mean missing.
        values = (record.get(key) for record in records[start:stop])
        return [None if is_absent(value) or is_nan(value) else value for value in values]

    def with_keys(more: Sequence[str]) -> Columns:
        return _of_keys(records, [*keys, *more])

    return Columns("the records", tuple(map(str, keys)), len(records), read, with_keys=with_keys)


def _as_json(value: Any) -> Any:
    """Return a value's representation in a digest, the same in every process (never an address)."""
    for method in ("isoformat", "tolist"):
        if hasattr(value, method):
            return getattr(value, method)()
    is_stable = type(value).__module__ in ("decimal", "uuid", "datetime", "fractions")
    return str(value) if is_stable else type(value).__name__


class Records:
    """Records of a file, or in memory (``path`` is None; changes are not detected); made by `open_records`."""

    def __init__(self, source: Path | Columns) -> None:
        self._source = source
        self.path = source if isinstance(source, Path) else None

    def survey(self) -> Survey:
        """Read all records once, for their digest; raise a UserError if a file is unreadable, empty, or damaged."""
        if isinstance(self._source, Path):
            return survey(self._source)
        return Survey(self._source.digest(), (0, 0, 0, 0))

    def table(self, wanted: Sequence[str], *, strict: bool = True) -> Table:
        """Open the records; raise a `UserError` if a wanted column is missing. ``strict`` refuses bad rows."""
        if isinstance(self._source, Path):
            return open_table(self._source, wanted, strict=strict)
        return MemoryTable(self._source, wanted, strict=strict)

    def changed(self, survey: Survey) -> bool:
        """Return whether the file was replaced or written to since a survey."""
        try:
            return self.path is not None and stamp_of(self.path) != survey.stamp
        except OSError:
            return True

    def __str__(self) -> str:
        return str(self._source) if isinstance(self._source, Path) else self._source.what


def open_records(source: object) -> Records:
    """Open records of people for `FileSource` and populations, which check their columns.

    ``source`` is the path of a CSV (``.csv``, with a header), JSON lines (``.jsonl``, ``.ndjson``) or Parquet
    (``.parquet``) file, the first two also gzipped, all read in slices; a pandas (without its index) or Polars
    DataFrame; an Arrow table, or another object with the Arrow stream interface; or an iterable of mappings from column
    to value. None, NaN in pandas and in mappings, and null in Arrow, Parquet and Polars are missing values; NaN
    elsewhere is refused when its row is read. Raises UserError for anything else, or if pyarrow is needed and missing.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [25, None], "worked": [True, False]})
    >>> list(open_records(frame).table(["worked", "age"]).rows(0))
    [(True, 25.0), (False, None)]
    """
    if isinstance(source, Records):
        return source
    return Records(Path(source) if isinstance(source, str | Path) else columns_of(source))
