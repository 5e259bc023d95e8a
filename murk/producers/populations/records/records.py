"""Records from wherever they come: a path, a data frame, a table, or mappings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from murk.producers.populations.records.files import Survey, Table, changed, open_table, survey
from murk.producers.populations.records.memory import Columns, MemoryTable, columns_of


class Records(ABC):
    """Records of people that can be read again and again. Made by `open_records`.

    Attributes
    ----------
    path
        Their file; None where they are in memory.
    """

    path: Path | None

    @abstractmethod
    def survey(self) -> Survey:
        """Read all through once, for their digest.

        Raises
        ------
        UserError
            When a file cannot be read, is empty, or is damaged.
        """

    @abstractmethod
    def table(self, wanted: Sequence[str], *, strict: bool = True) -> Table:
        """Open them for reading; where that is not strict, a row that cannot be read has no value.

        Raises
        ------
        UserError
            When a wanted column is not there, or twice.
        """

    @abstractmethod
    def changed(self, survey: Survey) -> bool:
        """Whether they were changed since a survey."""

    @abstractmethod
    def __str__(self) -> str:
        """What messages call them."""


class FileRecords(Records):
    """Records of a file: CSV with a header, JSON lines, or Parquet.

    Parameters
    ----------
    path
        The file: ``.csv``, ``.jsonl`` or ``.ndjson``, each also gzipped, or ``.parquet``.
    """

    path: Path

    def __init__(self, path: Path) -> None:
        self.path = path

    def survey(self) -> Survey:
        """Hash the file."""
        return survey(self.path)

    def table(self, wanted: Sequence[str], *, strict: bool = True) -> Table:
        """Open it by the ending of its name."""
        return open_table(self.path, wanted, strict=strict)

    def changed(self, survey: Survey) -> bool:
        """Whether it is another file now, or was written to."""
        return changed(self.path, survey.stamp)

    def __str__(self) -> str:
        return str(self.path)


class MemoryRecords(Records):
    """Records in memory. Anyone who changes them while they are released from is not noticed.

    Parameters
    ----------
    columns
        Their columns.
    """

    path = None

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def survey(self) -> Survey:
        """Hash names and values."""
        return Survey(self._columns.digest(), (0, 0, 0, 0))

    def table(self, wanted: Sequence[str], *, strict: bool = True) -> Table:
        """Open them for reading."""
        return MemoryTable(self._columns, wanted, strict=strict)

    def changed(self, survey: Survey) -> bool:
        """Whether they were changed: what is in memory is trusted to stay."""
        return False

    def __str__(self) -> str:
        return self._columns.what


def open_records(source: object) -> Records:
    """Open records of people, wherever they come from.

    Parameters
    ----------
    source
        The path of a CSV (``.csv``), JSON lines (``.jsonl``, ``.ndjson``) or Parquet (``.parquet``) file; a pandas or
        Polars DataFrame; an Arrow table, or what else has the Arrow stream interface; or an iterable of mappings from
        column to value, which is kept in memory unless it is a sequence already.

    Returns
    -------
    Records
        What `FileSource` and populations read. They are opened, and their columns checked, by these.

    Raises
    ------
    UserError
        For anything else, and where pyarrow is needed and missing.

    Notes
    -----
    A file is read in slices and never held as a whole. None, NaN in pandas and in mappings, and null in Arrow, Parquet
    and Polars are missing values; NaN elsewhere is refused when its row is read. A pandas index is no column.

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
