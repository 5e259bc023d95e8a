"""What a learner of sketches is given beforehand: public settings, checked once, frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from murk.errors import UserError
from murk.learners.gaussmix.windows.settings import WindowSettings
from murk.stream.log.base import MAX_MESSAGE
from murk.stream.messages.codec import longest_release

ROWS = 4096
"""Rows of a sketch where nobody chose: more are better (docs/gaussmix.md) and cost time and room in proportion."""

SIGNAL = 0.1
"""Mean square in a direction against C^2 / d, at which weights balance noise and signal: low, as the directions that
matter are those of little variance."""


@dataclass(frozen=True, kw_only=True)
class SketchSettings(WindowSettings):
    """Everything public that decides what is made of sketches.

    Parameters
    ----------
    rows
        k, of every sketch.
    debiased
        False for the paper's estimate.
    """

    rows: int
    debiased: bool = True

    digested: ClassVar[tuple[str, ...]] = (
        "names", "rows", "feature_bound", "target_bound", "largest", "kind", "reach", "debiased", "weighting", "window",
    )  # fmt: skip

    @property
    def dimension(self) -> int:
        """Integers in a release: ``rows * columns``."""
        return self.rows * self.columns

    @property
    def square(self) -> float:
        """``C^2``."""
        return self.feature_bound**2 + self.target_bound**2

    @property
    def signal(self) -> float:
        """What `sketch_sums.precision` takes for a person's mean square in a direction."""
        return SIGNAL * self.square / self.columns


def largest_rows(columns: int) -> int:
    """Most rows of a sketch of so many columns (features, constant, target) that one message of a log holds.

    Examples
    --------
    >>> largest_rows(7)
    13386
    """
    rows = MAX_MESSAGE * 6 // (64 * columns)
    while rows and longest_release("sketch", rows * columns) > MAX_MESSAGE:
        rows -= 1
    return rows


def default_rows(columns: int) -> int:
    """Rows of a sketch where nobody chose: `ROWS`, or what fits in a message.

    Raises
    ------
    UserError
        If not even twice as many rows as columns fit.

    Examples
    --------
    >>> default_rows(7), default_rows(50)
    (4096, 1874)
    """
    rows = min(ROWS, largest_rows(columns))
    if rows < 2 * columns:
        raise UserError(
            f"a sketch of {columns} columns (features, constant and target) needs at least {2 * columns} rows, and a "
            f"message of a log holds {rows}: give the task fewer features"
        )
    return rows


def check_message(rows: int, columns: int) -> None:
    """Refuse sketches that no log would take.

    Raises
    ------
    UserError
        Naming the largest number of rows that fits.
    """
    if longest_release("sketch", rows * columns) > MAX_MESSAGE:
        raise UserError(
            f"a sketch of rows={rows} and {columns} columns takes {longest_release('sketch', rows * columns):,} bytes, "
            f"and a message of a log {MAX_MESSAGE:,} at most: set rows to {largest_rows(columns)} or fewer, and let "
            "several windows take the place of more rows"
        )
