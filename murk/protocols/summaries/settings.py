"""Public settings of learners of released windows, checked once and frozen."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from murk.errors import UserError
from murk.protocols.options import check_choices
from murk.protocols.summaries.sums import gram_precision, sketch_precision
from murk.protocols.summaries.surrogate import Surrogate, quadratic
from murk.stream.wire.codec import MAX_MESSAGE, longest_release

if TYPE_CHECKING:
    from murk.privacy.central import GramMechanism

_ERROR_CODE = "MURK-LEARN-001"

Weighting = Literal["inverse-variance", "uniform"]
Kind = Literal["real", "binary"]

ROWS = 4096  # default number of rows of a sketch: more are more precise (docs/gaussmix.md), and cost time and memory
_BOUNDS = ("feature_bound", "target_bound")
MOST = 1000.0  # largest coefficient of a model: in coded units a larger one would mean certainty about everybody
SIGNAL = 0.1  # A person's mean square in a direction, divided by C^2 / d, for which weights balance noise and signal


@dataclass(frozen=True)
class WindowSettings:
    """Public settings that decide what is learned from released windows. Raises UserError naming an invalid value."""

    names: tuple[str, ...]  # coded features in their fixed order, the constant last
    feature_bound: float  # C_X
    target_bound: float = 1.0  # C_Y
    largest: float = math.inf  # largest square of a single feature; infinite where only their norm is bounded
    kind: Kind = "real"  # "real" or "binary", with labels -1 and +1 (0: missing)
    reach: float | None = None  # Q of the quadratic surrogate; None for normal scores (`surrogate`)
    weighting: Weighting = "inverse-variance"  # how to weight windows; "uniform": equal weights of people
    window: int | None = None  # largest number of records in a window, if the task limits it
    constant: bool = True  # whether the last of the names is the constant
    surrogate: Surrogate = "minimax"  # which quadratic on [-Q, Q]
    whole_bound: float | None = None  # bound on all released features' length, if these are only some of them

    # Names of settings in the order in which `digest` hashes them, which must never change.
    digested: ClassVar[tuple[str, ...]]
    prefix: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        check_choices(self, weighting=("inverse-variance", "uniform"))
        if self.window is not None and self.window < 1:
            raise UserError(f"window={self.window!r}: a sketch has at least one record")
        if self.reach is not None:
            quadratic(self.reach, self.surrogate)

    @property
    def features(self) -> int:
        """Number p of coded features, the constant included."""
        return len(self.names)

    @property
    def single_bound(self) -> float:
        """Bound on the size of a single feature."""
        return math.sqrt(min(self.largest, (self.whole_bound or self.feature_bound) ** 2))

    @property
    def columns(self) -> int:
        """Number of columns, p + 1; the target comes last."""
        return self.features + 1

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of integers in a release."""

    @property
    def digest(self) -> str:
        """Fingerprint of all settings: states continue, and sums merge, only if fingerprints are equal."""
        parts = [*self.prefix, *(repr(getattr(self, name)) for name in self.digested)]
        parts += [] if self.constant else ["no constant"]
        parts += [] if self.surrogate == "minimax" else [self.surrogate]
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class GramSettings(WindowSettings):
    """Public settings that decide what is learned from released Gram matrices."""

    digested: ClassVar[tuple[str, ...]] = ("names", *_BOUNDS, "largest", "kind", "reach", "weighting", "window")
    prefix = ("gram",)
    release_kind: ClassVar[str] = "gram"
    matrices: ClassVar[int] = 1  # number of matrices in a release

    @property
    def dimension(self) -> int:
        """Number of integers in a release: the upper triangles of its matrices of ``columns``."""
        return self.matrices * self.columns * (self.columns + 1) // 2

    @property
    def slope(self) -> float:
        """Slope at which a feature's range moves the target over its own range: the scale of hidden coefficients."""
        return self.target_bound * math.sqrt(self.features) / self.feature_bound

    def weight(self, mechanism: GramMechanism, records: int) -> float:
        """Return the weight of a matrix of n records."""
        if self.weighting == "uniform":
            return 1.0
        return gram_precision(records=records, noise=mechanism.scale**2, square=mechanism.feature_bound**2)

    def check_message(self) -> None:
        """Raise UserError, with the largest number of features that fits, if a release is too long for a log."""
        if fits_message(self.columns, self.matrices):
            return
        most = self.columns
        while not fits_message(most, self.matrices):
            most -= 1
        matrices = "the Gram matrix of" if self.matrices == 1 else f"{self.matrices} Gram matrices of"
        raise UserError(
            f"{self.features:,} coded features: a release of {matrices} {self.columns:,} columns (they and the target) "
            f"takes {longest_release(self.release_kind, self.dimension):,} bytes, and a message of a log may have "
            f"{MAX_MESSAGE:,}: at most {most - 1:,} coded features fit (the constant is one, and so is each category "
            "but the first). Give the task fewer, or, where people release for themselves, protocol: examples"
        )


def fits_message(columns: int, matrices: int = 1) -> bool:
    """Return whether a message of a log holds Gram matrices of ``columns``, and a model of as many coefficients."""
    kind = "gram" if matrices == 1 else "newton"
    return longest_release(kind, matrices * columns * (columns + 1) // 2) <= MAX_MESSAGE


@dataclass(frozen=True)
class NewtonSettings(GramSettings):
    """Public settings that decide what is learned from Newton steps."""

    first: int = 1  # number of records in a window's first part

    digested = (*GramSettings.digested, "first")
    prefix = ("newton",)
    release_kind = "newton"
    matrices = 2


@dataclass(frozen=True, kw_only=True)
class SketchSettings(WindowSettings):
    """Public settings that decide what is learned from sketches."""

    rows: int  # k, the number of rows of every sketch
    debiased: bool = True  # False for the paper's estimate

    digested = ("names", "rows", *_BOUNDS, "largest", "kind", "reach", "debiased", "weighting", "window")

    @property
    def dimension(self) -> int:
        """Number of integers in a release: ``rows * columns``."""
        return self.rows * self.columns

    @property
    def square(self) -> float:
        """``C^2``."""
        return self.feature_bound**2 + self.target_bound**2

    @property
    def signal(self) -> float:
        """Mean square of a person's row in a direction, as weights assume it."""
        return SIGNAL * self.square / self.columns

    def weight(self, records: int, noise: float) -> float:
        """Return the weight of a sketch of n records with this variance of its noise."""
        if self.weighting == "uniform":
            return 1.0
        return sketch_precision(rows=self.rows, records=records, noise=noise, unit=self.signal)

    def check_message(self) -> None:
        """Raise UserError, with the largest number of rows that fits, if a sketch is too long for a log."""
        check_message(self.rows, self.columns)


def largest_rows(columns: int) -> int:
    """Return the largest number of rows of a sketch of ``columns`` (with constant and target) that fits one message."""
    rows = MAX_MESSAGE * 6 // (64 * columns)
    while rows and longest_release("sketch", rows * columns) > MAX_MESSAGE:
        rows -= 1
    return rows


def default_rows(columns: int) -> int:
    """Return `ROWS`, or as many as fit in a message; raise UserError if these are below twice the number of columns.

    >>> default_rows(7), default_rows(50)
    (4096, 1874)
    """
    rows = min(ROWS, largest_rows(columns))
    if rows < 2 * columns:
        raise UserError(
            f"a sketch of {columns} columns (features, constant and target) needs at least {2 * columns} rows, but a "
            f"message of a log holds {rows}: give the task fewer features"
        )
    return rows


def check_message(rows: int, columns: int) -> None:
    """Raise UserError, with the largest number of rows that fits, if a sketch is too long for a log."""
    size = longest_release("sketch", rows * columns)
    if size > MAX_MESSAGE:
        raise UserError(
            f"a sketch of rows={rows} and {columns} columns takes {size:,} bytes, and a message of a log may have at "
            f"most {MAX_MESSAGE:,}: set rows to {largest_rows(columns)} or fewer, and release several windows in place "
            "of more rows"
        )
