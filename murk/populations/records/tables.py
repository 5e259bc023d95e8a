"""Read tables as tuples of the wanted columns, in particular Parquet files, and check types and raw values."""

from __future__ import annotations

import datetime
import decimal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from murk._internal.extras import missing_extra
from murk.errors import UserError
from murk.producers.ledger.names import is_unicode
from murk.task.containers import check_arrow_type, check_zone, python_values

_ERROR_CODE = "MURK-DATA-001"


def is_blank(value: Any) -> bool:
    """Return whether a cell is empty."""
    return value is None or (isinstance(value, str) and not value.strip())


def suspects(column: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Yield values that need a closer look, with their indices; none for columns of plain text or numbers."""
    kinds = set(map(type, column))
    if kinds == {str}:
        joined = "".join(column)
        words = joined.lower()
        if "true" not in words and "false" not in words and (joined.isascii() or is_unicode(joined)):
            return
    elif kinds <= {int, float, type(None)}:
        return
    yield from enumerate(column)


SLICE: Final = 4096  # rows that are read at a time
KEYS_LOOKED_AT: Final = 1000  # number of first records: a key that none of them has counts as misspelled
PLAIN: Final = (str, bool, int, float, decimal.Decimal, datetime.date, type(None))


def index_columns(what: str, names: Sequence[str], wanted: Sequence[str], hint: Callable[[str], str]) -> dict[str, int]:
    """Return the index of each wanted column; raise a UserError with a hint if one is missing or duplicated."""
    for name in wanted:
        count = names.count(name)
        if count > 1:
            raise UserError(f"{what} has {count} columns named {name!r}: rename all but one")
        if count == 0:
            raise UserError(f"{what} has no column {name!r}. {hint(name)}")
    return {name: names.index(name) for name in wanted}


class TupleTable(ABC):
    """Base class for tables whose rows are tuples of the wanted columns' values. ``what`` is its name in messages.

    Raises UserError if a wanted column is missing or duplicated, or of an unsuitable type.
    """

    def __init__(self, what: str, names: Sequence[str], wanted: Sequence[str]) -> None:
        self.what, self.names = what, tuple(names)
        self.wanted = tuple(dict.fromkeys(wanted))
        self._positions = {name: position for position, name in enumerate(self.wanted)}
        index_columns(what, self.names, self.wanted, self._hint)

    @abstractmethod
    def rows(self, start: int) -> Iterator[tuple[Any, ...]]:
        """Yield the records from row ``start`` (counted from 0) on."""

    def columns(
        self, rows: Sequence[tuple[Any, ...]], numbers: Sequence[int], names: Sequence[str]
    ) -> dict[str, Sequence[Any]]:
        """Transpose rows into the named columns."""
        table = list(zip(*rows, strict=True))
        return {name: table[self._positions[name]] for name in names}

    def _hint(self, name: str) -> str:
        # Columns' names are not quoted: in a transposed table they are a person's values.
        if any(name.casefold() == other.strip().casefold() for other in self.names):
            return "It has one that differs in capitals or in spaces around it: spell both alike"
        return "Spell its columns as the task does"


_MOST_METADATA = 2**31 - 1

MOST_BATCH = 2**28  # largest number of bytes of the wanted columns in `SLICE` rows
MOST_EXPANSION = 500  # largest ratio of unpacked to packed bytes of a large column


def arrow(what: str) -> Any:
    """Return the module pyarrow; raise a UserError if it is not installed."""
    try:
        import pyarrow
    except ImportError as error:
        raise missing_extra(f"{what}: Parquet and Arrow need pyarrow", "frames") from error
    return pyarrow


def check_types(what: str, schema: Any, wanted: Sequence[str]) -> None:
    """Raise a UserError for a column whose values are not numbers, text, booleans or dates."""
    types = arrow(what).types
    for name in wanted:
        kind = schema.field(name).type
        check_arrow_type(kind, f"{what}, column {name!r}")
        plain = kind.value_type if types.is_dictionary(kind) else kind
        check_zone(getattr(plain, "tz", None) if types.is_timestamp(plain) else None, f"{what}, column {name!r}")


class ParquetTable(TupleTable):
    """A Parquet file, read by row groups; only the wanted columns are decoded. See `TupleTable`."""

    def __init__(self, path: Path, wanted: Sequence[str]) -> None:
        self.path = path
        with self._opened() as file:
            schema = file.schema_arrow
            super().__init__(str(path), schema.names, wanted)
            check_types(str(path), schema, self.wanted)
            self._check_expansion(file.metadata)
            self._sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]

    def rows(self, start: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows from ``start`` on; earlier row groups are not read."""
        with self._opened() as file:
            groups = list(range(len(self._sizes)))
            while groups and start >= self._sizes[groups[0]]:
                start -= self._sizes[groups.pop(0)]
            for batch in file.iter_batches(SLICE, row_groups=groups, columns=list(self.wanted)) if groups else ():
                if batch.nbytes > MOST_BATCH:
                    raise UserError(
                        f"{self.path}: {batch.num_rows:,} rows of the wanted columns take more than "
                        f"{MOST_BATCH // 2**20:,} MiB, far more than records need: is this the right file?"
                    )
                skipped = min(start, batch.num_rows)
                start -= skipped
                named = ((name, batch.column(name).slice(skipped)) for name in self.wanted)
                columns = (python_values(values, f"{self.path}, column {name!r}") for name, values in named)
                yield from zip(*columns, strict=True)

    def _check_expansion(self, metadata: Any) -> None:
        """Refuse a column whose few bytes in the file would expand to gigabytes, since pages are unpacked whole."""
        for group in range(metadata.num_row_groups):
            for index in range(metadata.num_columns):
                column = metadata.row_group(group).column(index)
                unpacked, packed = column.total_uncompressed_size, column.total_compressed_size
                if unpacked > MOST_BATCH and unpacked > MOST_EXPANSION * packed:
                    raise UserError(
                        f"{self.path}, row group {group + 1}, column {index + 1}: {packed:,} bytes that unpack to "
                        f"{unpacked:,}, far more than records need: write the file again"
                    )

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        module = arrow(str(self.path))
        from pyarrow.parquet import ParquetFile

        try:
            # The default limits are too small for many columns or row groups.
            with ParquetFile(
                self.path, thrift_string_size_limit=_MOST_METADATA, thrift_container_size_limit=_MOST_METADATA
            ) as file:
                yield file
        except (module.ArrowNotImplementedError, module.ArrowMemoryError) as error:
            need = "more memory than there is" if isinstance(error, MemoryError) else "features that pyarrow lacks here"
            raise UserError(
                f"{self.path} needs {need}: write it with smaller row groups, another compression or without encryption"
            ) from None
        except module.ArrowException:
            # The library's message may quote the file.
            raise UserError(f"{self.path} is not a Parquet file, or is damaged: write it again") from None
        except OSError as error:
            if error.strerror is None:
                raise UserError(f"{self.path} is a damaged Parquet file: write it again") from None
            raise UserError(f"{self.path} cannot be read ({error.strerror}): check the path") from None
