"""A file of records, and its blocks of checked and coded records, which a producer releases."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Block:
    """Checked and coded records of a file: m records, or those of m people.

    ``rows`` are row numbers, counted from 0, and ``positions`` their ascending places in the order of release; the next
    block begins at ``next_position``. ``x`` are coded features, the constant last, shape (m, p); ``y`` coded targets,
    shape (m,). ``people`` are people or organisations (None if each row is a person), ``owners`` the people within
    organisations, if the task bounds their records. ``levels`` is None if levels are drawn. ``cells``, shape (m,
    columns), says how each raw value was coded (`Cell`), the target last. ``clamped``, ``missing`` and ``unreadable``
    (rows coded without any value) are counts.

    If all rows of a person are one answer, ``counts`` are people's numbers of records, (m,); ``x``, ``y`` and ``cells``
    hold all their records, grouped by person, and ``rows`` holds the first row of each person. ``windows``, (m,), are
    the numbers of the budget windows to which the records belong, if the file has times.
    """

    source: str
    rows: NDArray[np.int64]
    x: NDArray[np.float64] = field(repr=False)
    y: NDArray[np.float64] = field(repr=False)
    people: Sequence[str] | None = field(repr=False)
    levels: Sequence[str] | None = field(repr=False)
    cells: NDArray[np.uint8] = field(repr=False)
    clamped: int = field(repr=False)
    missing: int = field(repr=False)
    positions: NDArray[np.int64] = field(repr=False)
    next_position: int
    unreadable: int = field(default=0, repr=False)
    owners: Sequence[str] | None = field(default=None, repr=False)
    counts: NDArray[np.int64] | None = field(default=None, repr=False)
    windows: NDArray[np.int64] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.rows)


class Source(Protocol):
    """A file of records: which file it is, and how its rows name people."""

    @property
    def digest(self) -> str:
        """Fingerprint of the file's content."""

    @property
    def people(self) -> str:
        """The column that names each row's person, or ``"row"`` if each row is a person."""
