"""Arrow tables and Parquet files, by pyarrow, which is asked for when one is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from murk.errors import UserError
from murk.producers.populations.records.tuples import SLICE, TupleTable

MOST_BATCH = 2**28
"""Most bytes of the wanted columns of `SLICE` rows."""
MOST_EXPANSION = 500
"""Most bytes that a byte of a column may unpack to, where there are many; of repeated values Parquet writes few."""


def arrow(what: str) -> Any:
    """Return the module pyarrow.

    Raises
    ------
    UserError
        Where it is not installed, saying how to install it.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise UserError(f'{what}: Parquet and Arrow need pyarrow: pip install "murk[frames]"') from error
    return pyarrow


def check_types(what: str, schema: Any, wanted: Sequence[str]) -> None:
    """Refuse columns that hold something else than numbers, texts, booleans or dates.

    Raises
    ------
    UserError
        Naming the first and its type.
    """
    types = arrow(what).types
    able = (
        types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_string, types.is_large_string,
        types.is_string_view, types.is_date, types.is_timestamp, types.is_null,
    )  # fmt: skip
    for name in wanted:
        kind = schema.field(name).type
        plain = kind.value_type if types.is_dictionary(kind) else kind
        if not any(test(plain) for test in able):
            # Without the names of a structure's fields: they are read off the file, and may be somebody's values.
            type_name = str(kind).partition("<")[0]
            raise UserError(
                f"{what}, column {name!r}: its type is {type_name}, and a record's values are numbers, texts, booleans "
                "or dates: convert it"
            )


def plain_values(column: Any) -> list[Any]:
    """Return the values of an Arrow array as Python's own, None where there is none."""
    import pyarrow

    types = pyarrow.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_timestamp(column.type):
        # Python's times have no nanoseconds.
        column = column.cast(pyarrow.timestamp("us", column.type.tz), safe=False)
    if column.null_count == 0 and (types.is_integer(column.type) or types.is_floating(column.type)):
        return list(column.to_numpy(zero_copy_only=False).tolist())  # five times as fast
    return list(column.to_pylist())


class ParquetTable(TupleTable):
    """A Parquet file, read by row groups of which only the wanted columns are decoded.

    Parameters
    ----------
    path
        The file.
    wanted
        Columns that must be there.

    Raises
    ------
    UserError
        When it is no Parquet file, or a column is missing, there twice, or of a type that no value has.
    """

    def __init__(self, path: Path, wanted: Sequence[str]) -> None:
        self.path = path
        with self._opened() as file:
            schema = file.schema_arrow
            super().__init__(str(path), schema.names, wanted)
            check_types(str(path), schema, self.wanted)
            self._check_expansion(file.metadata)
            self._sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]

    def rows(self, start: int) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows from ``start`` on; row groups before it are not read."""
        with self._opened() as file:
            first = 0
            while first < len(self._sizes) and start >= self._sizes[first]:
                start -= self._sizes[first]
                first += 1
            groups = list(range(first, len(self._sizes)))
            for batch in file.iter_batches(SLICE, row_groups=groups, columns=list(self.wanted)) if groups else ():
                if batch.nbytes > MOST_BATCH:
                    raise UserError(
                        f"{self.path}: {batch.num_rows:,} rows of the wanted columns take more than "
                        f"{MOST_BATCH // 2**20:,} MiB, which no records do: is this the right file?"
                    )
                skipped = min(start, batch.num_rows)
                start -= skipped
                columns = (plain_values(batch.column(name).slice(skipped)) for name in self.wanted)
                yield from zip(*columns, strict=True)

    def _check_expansion(self, metadata: Any) -> None:
        """Refuse a column that a few bytes of the file expand to gigabytes: its pages are unpacked as a whole."""
        for group in range(metadata.num_row_groups):
            for place in range(metadata.num_columns):
                column = metadata.row_group(group).column(place)
                unpacked, packed = column.total_uncompressed_size, column.total_compressed_size
                if unpacked > MOST_BATCH and unpacked > MOST_EXPANSION * packed:
                    raise UserError(
                        f"{self.path}, row group {group + 1}, column {place + 1}: {packed:,} bytes that unpack to "
                        f"{unpacked:,}, which no records do: write the file again"
                    )

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        module = arrow(str(self.path))
        from pyarrow.parquet import ParquetFile

        try:
            with ParquetFile(self.path) as file:
                yield file
        except module.ArrowException:
            # What the library says may quote the file.
            raise UserError(f"{self.path} is no Parquet file, or is damaged: write it again") from None
        except OSError as error:
            if error.strerror is None:
                raise UserError(f"{self.path} is a damaged Parquet file: write it again") from None
            raise UserError(f"{self.path} cannot be read ({error.strerror}): check the path") from None
