"""Records from any source: a path, a data frame, a table, or mappings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from murk.producers.populations.records.files import Survey, Table, changed, open_table, survey
from murk.producers.populations.records.memory import Columns, MemoryTable, columns_of


class Records(ABC):
    """Base class for records that can be read repeatedly; made by `open_records`. ``path`` is None in memory."""

    path: Path | None

    @abstractmethod
    def survey(self) -> Survey:
        """Read all records once, for their digest; raise a UserError if a file is unreadable, empty, or damaged."""

    @abstractmethod
    def table(self, wanted: Sequence[str], *, strict: bool = True) -> Table:
        """Open the records for reading; raise a UserError if a wanted column is missing or duplicated.

        Unless ``strict``, an unreadable row has only missing values.
        """

    @abstractmethod
    def changed(self, survey: Survey) -> bool:
        """Return whether the records changed since a survey."""

    @abstractmethod
    def __str__(self) -> str:
        """Return the name of the records in messages."""


class FileRecords(Records):
    """Records of a CSV file with a header, a JSON lines file (each also gzipped), or a Parquet file."""

    path: Path

    def __init__(self, path: Path) -> None:
        self.path = path

    def survey(self) -> Survey:
        """Hash the file."""
        return survey(self.path)

    def table(self, wanted: Sequence[str], *, strict: bool = True) -> Table:
        """Open the file by its extension."""
        return open_table(self.path, wanted, strict=strict)

    def changed(self, survey: Survey) -> bool:
        """Return whether the file was replaced or written to."""
        return changed(self.path, survey.stamp)

    def __str__(self) -> str:
        return str(self.path)


class MemoryRecords(Records):
    """Records in memory. Changes to them during the work are not detected."""

    path = None

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def survey(self) -> Survey:
        """Hash names and values."""
        return Survey(self._columns.digest(), (0, 0, 0, 0))

    def table(self, wanted: Sequence[str], *, strict: bool = True) -> Table:
        """Open the records for reading."""
        return MemoryTable(self._columns, wanted, strict=strict)

    def changed(self, survey: Survey) -> bool:
        """Return False: records in memory are assumed not to change."""
        return False

    def __str__(self) -> str:
        return self._columns.what


def open_records(source: object) -> Records:
    """Open records of people from any source.

    Parameters
    ----------
    source
        The path of a CSV (``.csv``), JSON lines (``.jsonl``, ``.ndjson``) or Parquet (``.parquet``) file; a pandas or
        Polars DataFrame; an Arrow table, or another object with the Arrow stream interface; or an iterable of mappings
        from column to value, which is copied unless it is a sequence.

    Returns
    -------
    Records
        Input of `FileSource` and populations, which open them and check their columns.

    Raises
    ------
    UserError
        For anything else, or if pyarrow is needed and missing.

    Notes
    -----
    A file is read in slices and never held as a whole. None, NaN in pandas and in mappings, and null in Arrow, Parquet
    and Polars are missing values; NaN elsewhere is refused when its row is read. A pandas index is not a column.

    Examples
    --------
    >>> import pandas as pd
    >>> from murk.producers import FileSource
    >>> from murk.stream import Task
    >>> task = Task.parse('''
    ... name: weeks
    ... features: [{name: age, low: 20, high: 40}]
    ... target: {name: worked, kind: binary, positive: "yes", negative: "no"}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> frame = pd.DataFrame({"age": [25, None], "worked": [True, False]})
    >>> [(block.x[:, 0].tolist(), block.y.tolist()) for block in FileSource(open_records(frame), task).blocks()]
    [([-0.5, 0.0], [1.0, 0.0])]
    """
    if isinstance(source, Records):
        return source
    return FileRecords(Path(source)) if isinstance(source, str | Path) else MemoryRecords(columns_of(source))
