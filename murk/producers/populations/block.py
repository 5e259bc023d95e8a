"""Some records of a file, as producers take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

NOBODY = ""
"""The organisation of rows that name none."""


@dataclass(frozen=True, eq=False)
class Block:
    """Some records of a file, checked and coded.

    Parameters
    ----------
    source
        Digest of the source.
    rows
        int64, shape (m,): their rows, counted from 0.
    x, y
        float64, shapes (m, p) and (m,): coded features, the constant last, and coded targets.
    people
        Names of their people, or of the organisations whose records they are; None where each row is a person.
    owners
        Names of the people within organisations, where a task bounds the records of each; else None.
    levels
        The level of each; None where it is drawn at random.
    cells
        uint8, shape (m, columns): what became of each raw value (`Cell`), features first, then the target.
    clamped, missing
        Numbers of values outside their bounds and of values missing, over the block.
    next_row
        The row that the next block begins with.
    unreadable
        Number of rows that are taken for records without any value.
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
    next_row: int
    unreadable: int = field(default=0, repr=False)
    owners: Sequence[str] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.rows)
