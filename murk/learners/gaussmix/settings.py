"""What a learner of sketches is told beforehand: public settings, checked once, frozen."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields
from typing import Literal

from murk.errors import UserError
from murk.learners.gaussmix.surrogate import quadratic
from murk.stream.codec import longest_release
from murk.stream.log import MAX_MESSAGE

Weighting = Literal["inverse-variance", "uniform"]
Kind = Literal["real", "binary"]

ROWS = 4096
"""Rows of a sketch where nobody chose: more are better (docs/gaussmix.md) and cost time and room in proportion."""

SIGNAL = 0.1
"""Mean square in a direction against C^2 / d, at which weights balance noise and signal: low, as the directions that
matter are those of little variance."""


@dataclass(frozen=True)
class SketchSettings:
    """Everything public that decides what is made of sketches.

    Parameters
    ----------
    names
        Coded features in their fixed order, the constant last.
    rows
        k, of every sketch.
    feature_bound, target_bound
        C_X and C_Y.
    largest
        Largest square of a single feature (and the constant); infinite where only their length is bounded.
    kind
        ``"real"``, or ``"binary"`` with labels -1 and +1 (0: missing).
    reach
        Q of the quadratic surrogate; None for normal scores (`surrogate`).
    debiased
        False for the paper's estimate.
    weighting
        Of sketches: ``"inverse-variance"`` by public figures, or ``"uniform"`` (each person alike).
    window
        Most records of a sketch, where the task says so.
    """

    names: tuple[str, ...]
    rows: int
    feature_bound: float
    target_bound: float = 1.0
    largest: float = math.inf
    kind: Kind = "real"
    reach: float | None = None
    debiased: bool = True
    weighting: Weighting = "inverse-variance"
    window: int | None = None

    def __post_init__(self) -> None:
        check_public(self.weighting, self.window, self.reach)

    @property
    def features(self) -> int:
        """Number p of coded features, the constant among them."""
        return len(self.names)

    @property
    def columns(self) -> int:
        """d = p + 1: the target comes last."""
        return self.features + 1

    @property
    def square(self) -> float:
        """``C^2``."""
        return self.feature_bound**2 + self.target_bound**2

    @property
    def signal(self) -> float:
        """What `murk.learners.gaussmix.sums.precision` takes for a person's mean square in a direction."""
        return SIGNAL * self.square / self.columns

    @property
    def digest(self) -> str:
        """Fingerprint of all settings: states go on, and sums merge, only between equal ones."""
        parts = [repr(getattr(self, each.name)) for each in fields(self)]
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def check_public(weighting: object, window: int | None, reach: float | None) -> None:
    """Check what the settings of both kinds of release have.

    Raises
    ------
    UserError
        Naming the value.
    """
    if weighting not in ("inverse-variance", "uniform"):
        raise UserError(f'weighting={weighting!r}; known are "inverse-variance" and "uniform"')
    if window is not None and window < 1:
        raise UserError(f"window={window!r}: a sketch has at least one record")
    if reach is not None:
        quadratic(reach)


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
