"""What learners of sketches and of Gram matrices are given beforehand: public settings, checked once, frozen.

What a learner of released Gram matrices is given beforehand: public settings, checked once, frozen.

What a learner of Newton steps is given beforehand: public settings, checked once, frozen.

What a learner of sketches is given beforehand: public settings, checked once, frozen.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from murk.errors import UserError
from murk.learners.sketches.surrogate import Surrogate, quadratic
from murk.stream.log.base import MAX_MESSAGE
from murk.stream.messages.codec import longest_release

Weighting = Literal["inverse-variance", "uniform"]
Kind = Literal["real", "binary"]


@dataclass(frozen=True)
class WindowSettings:
    """Everything public that decides what is made of released windows.

    Parameters
    ----------
    names
        Coded features in their fixed order, the constant last.
    feature_bound, target_bound
        C_X and C_Y.
    largest
        Largest square of a single feature (and the constant); infinite where only their length is bounded.
    kind
        ``"real"``, or ``"binary"`` with labels -1 and +1 (0: missing).
    reach
        Q of the quadratic surrogate; None for normal scores (`surrogate`).
    weighting
        Of windows: ``"inverse-variance"`` by public figures, or ``"uniform"`` (each person alike).
    window
        Most records of a window, where the task says so.
    constant
        Whether the last of the names is the constant; False: there is none.
    surrogate
        Which quadratic on [-Q, Q].

    Raises
    ------
    UserError
        Naming the value.
    """

    names: tuple[str, ...]
    feature_bound: float
    target_bound: float = 1.0
    largest: float = math.inf
    kind: Kind = "real"
    reach: float | None = None
    weighting: Weighting = "inverse-variance"
    window: int | None = None
    constant: bool = True
    surrogate: Surrogate = "minimax"

    digested: ClassVar[tuple[str, ...]]
    """Names of the settings in the order in which `digest` has them, which must never change."""
    prefix: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if self.weighting not in ("inverse-variance", "uniform"):
            raise UserError(f'weighting={self.weighting!r}; known are "inverse-variance" and "uniform"')
        if self.window is not None and self.window < 1:
            raise UserError(f"window={self.window!r}: a sketch has at least one record")
        if self.reach is not None:
            quadratic(self.reach, self.surrogate)

    @property
    def features(self) -> int:
        """Number p of coded features, the constant among them."""
        return len(self.names)

    @property
    def columns(self) -> int:
        """d = p + 1: the target comes last."""
        return self.features + 1

    @property
    def digest(self) -> str:
        """Fingerprint of all settings: states go on, and sums merge, only between equal ones."""
        parts = [*self.prefix, *(repr(getattr(self, name)) for name in self.digested)]
        parts += [] if self.constant else ["no constant"]
        parts += [] if self.surrogate == "minimax" else [self.surrogate]
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class GramSettings(WindowSettings):
    """Everything public that decides what is made of released Gram matrices."""

    digested: ClassVar[tuple[str, ...]] = (
        "names", "feature_bound", "target_bound", "largest", "kind", "reach", "weighting", "window",
    )  # fmt: skip
    prefix: ClassVar[tuple[str, ...]] = ("gram",)
    release_kind: ClassVar[str] = "gram"
    matrices: ClassVar[int] = 1
    """Matrices of a release."""

    @property
    def dimension(self) -> int:
        """Integers in a release: the upper triangles of its matrices of ``columns``."""
        return self.matrices * self.columns * (self.columns + 1) // 2

    @property
    def slope(self) -> float:
        """The slope with which the target moves over its whole range as a feature does: a scale for what is hidden."""
        return self.target_bound * math.sqrt(self.features) / self.feature_bound

    def check_message(self) -> None:
        """Refuse Gram matrices that no log would take.

        Raises
        ------
        UserError
            Naming the largest number of columns that fits.
        """
        if fits_message(self.columns, self.matrices):
            return
        most = self.columns
        while not fits_message(most, self.matrices):
            most -= 1
        what = "the Gram matrix of" if self.matrices == 1 else f"{self.matrices} Gram matrices of"
        raise UserError(
            f"{self.features:,} coded features: a release of {what} {self.columns:,} columns (they and the target) "
            f"takes {longest_release(self.release_kind, self.dimension):,} bytes, and a message of a log "
            f"{MAX_MESSAGE:,} at most: at most {most - 1:,} coded features would do (the constant is one of them, and "
            "each category but the first). Give the task fewer, or, where people release for themselves, protocol: "
            "examples"
        )


def fits_message(columns: int, matrices: int = 1) -> bool:
    """Whether a message of a log holds the Gram matrices of so many columns, and models of as many coefficients.

    Examples
    --------
    >>> fits_message(400), fits_message(500)
    (True, False)
    """
    kind = "gram" if matrices == 1 else "newton"
    return longest_release(kind, matrices * columns * (columns + 1) // 2) <= MAX_MESSAGE


@dataclass(frozen=True)
class NewtonSettings(GramSettings):
    """Everything public that decides what is made of Newton steps.

    Parameters
    ----------
    first
        Records of a window's first part.
    """

    first: int = 1

    digested: ClassVar[tuple[str, ...]] = (*GramSettings.digested, "first")
    prefix: ClassVar[tuple[str, ...]] = ("newton",)
    release_kind: ClassVar[str] = "newton"
    matrices: ClassVar[int] = 2


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
