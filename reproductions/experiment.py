"""Experiments and their outcomes, as frozen data for tables, CSV files and pictures."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from murk.errors import DataWarning, UserError
from reproductions.data_file import DataFile, read_columns, read_numbers, recognized

_ERROR_CODE = "MURK-CLI-002"

Size = Literal["tiny", "reduced", "full"]
Tag = Literal["exact", "stand-in", "reduced", "unreachable"]
T = TypeVar("T")

STANDARD_ERRORS: Final = 4.0
"""Numbers agree within this many standard errors, unless a check says otherwise."""
_FEW: Final = 5
SEED: Final = 1
"""Seed of the documented figures."""


def _ignore(share: float, text: str) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings of one run of an experiment.

    Parameters
    ----------
    size
        ``"tiny"`` takes seconds and shows directions only; ``"full"`` is the paper's size.
    data
        The paper's own file, in place of a stand-in.
    tick
        Called with the share of the work that is done and a short text.
    """

    size: Size = "reduced"
    seed: int = SEED
    data: Path | None = None
    tick: Callable[[float, str], None] = _ignore

    def of(self, *, tiny: T, reduced: T, full: T) -> T:
        """Return the value for this size.

        Examples
        --------
        >>> Setting(size="tiny").of(tiny=2, reduced=20, full=200)
        2
        """
        return {"tiny": tiny, "reduced": reduced, "full": full}[self.size]

    def tag(self, reduced: bool = True) -> Tag:
        """Return ``"exact"``, or ``"reduced"`` below full size if that makes the experiment smaller."""
        return "reduced" if reduced and self.size != "full" else "exact"

    def rng(self, *key: int) -> np.random.Generator:
        """Return a generator whose draws depend only on the seed and the key."""
        return np.random.default_rng([self.seed, *key])

    def columns(self, file: DataFile) -> Mapping[str, list[str]]:
        """Return columns of the paper's own file as text.

        Raises
        ------
        UserError
            If the file cannot be read or lacks a column.
        """
        assert self.data is not None
        return read_columns(self.data, file)

    def numbers(self, file: DataFile, *, empty: bool = False) -> dict[str, NDArray[np.float64]]:
        """Return columns of the paper's own file as numbers; with ``empty``, empty cells are NaN.

        Raises
        ------
        UserError
            If the file cannot be read, lacks a column, or has a cell that is not a number.
        """
        assert self.data is not None
        return read_numbers(self.data, file, empty=empty)

    def file(self, files: Sequence[DataFile]) -> DataFile:
        """Return the known file that the given one is.

        Raises
        ------
        UserError
            If it is none of them or cannot be read.
        """
        assert self.data is not None
        return recognized(self.data, files)


@dataclass(frozen=True)
class Measured:
    """A number and its standard error, which is 0 if the number is computed and not simulated.

    Parameters
    ----------
    runs
        Number of replications, 0 if not known. With fewer than five it is printed instead of the standard error.

    Examples
    --------
    >>> Measured.mean([1.0, 2.0, 3.0])
    Measured(value=2.0, error=0.5773502691896258, runs=3)
    >>> str(Measured(0.12345, 0.004))
    '0.123 ± 0.004'
    >>> str(Measured.mean([1.0, 1.5]))
    '1.25 (2 runs)'
    """

    value: float
    error: float = 0.0
    runs: int = 0

    @classmethod
    def mean(cls, values: Any) -> Measured:
        """Return the mean of replications."""
        array = np.asarray(values, dtype=np.float64)
        error = float(array.std(ddof=1) / math.sqrt(array.size)) if array.size > 1 else math.inf
        return cls(float(array.mean()), error, array.size)

    @classmethod
    def median(cls, values: Any) -> Measured:
        """Return the median of replications.

        The error is half the distance between order statistics one standard deviation of rank apart.
        """
        array = np.sort(np.asarray(values, dtype=np.float64))
        n, spread = array.size, 0.5 * math.sqrt(array.size)
        low = array[max(0, math.floor((n - 1) / 2 - spread))]
        high = array[min(n - 1, math.ceil((n - 1) / 2 + spread))]
        return cls(float(np.median(array)), float(high - low) / 2.0 if n > 1 else math.inf, n)

    def __str__(self) -> str:
        if self.error == 0.0:
            return f"{self.value:.4g}"
        if 0 < self.runs < _FEW:
            return f"{self.value:.3g} ({self.runs} run{'s' if self.runs > 1 else ''})"
        return f"{self.value:.3g} ± {self.error:.1g}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of an experiment's table.

    Parameters
    ----------
    what
        Setting and quantity.
    tag
        How data and size compare with the paper's.
    published
        What the paper prints. Never a number for a stand-in, since the paper used other data.
    as_published, corrected, default
        Results here: with the paper's settings, with its errors corrected, and with Murk's defaults.
    note
        Names the stand-in, what is smaller, or why the paper's setting is unreachable.
    """

    what: str
    tag: Tag
    published: float | str = "figure only"
    as_published: Measured | None = None
    corrected: Measured | None = None
    default: Measured | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.tag == "stand-in" and not isinstance(self.published, str):
            raise ValueError(f"{self.what}: a stand-in cannot have a published number")
        if self.tag in ("stand-in", "unreachable") and not self.note:
            raise ValueError(f"{self.what}: `note` must name the stand-in or the reason")


@dataclass(frozen=True)
class Check:
    """A claim that must hold for the page to be right.

    Parameters
    ----------
    found
        The numbers, as text.
    undecided
        Whether the claim fails only because the numbers support it by less than their error.
    """

    claim: str
    holds: bool
    found: str
    undecided: bool = False

    @classmethod
    def near(
        cls, claim: str, found: Measured, expected: float | Measured, *, within: float | None = None,
        relative: float | None = None,
    ) -> Check:  # fmt: skip
        """Check that a number is ``expected``: within an amount, a share of it, or 4 standard errors of both."""
        other = expected if isinstance(expected, Measured) else Measured(expected)
        if within is None:
            within = abs(other.value) * relative if relative is not None else 0.0
            if relative is None:
                within = STANDARD_ERRORS * math.hypot(found.error, other.error)
        holds = abs(found.value - other.value) <= within
        return cls(claim, bool(holds), f"{found}; expected {other.value:.4g} within {within:.2g}")

    @classmethod
    def less(cls, claim: str, small: Measured, large: Measured | float, *, times: float = 1.0) -> Check:
        """Check that ``times * small`` is below ``large`` by more than 4 standard errors of the difference."""
        other = large if isinstance(large, Measured) else Measured(large)
        by = "" if times == 1.0 else f" times {times:g}"
        difference = Measured(other.value - times * small.value, math.hypot(times * small.error, other.error))
        return cls._positive(claim, difference, f"{small}{by} against {other}")

    @classmethod
    def less_paired(cls, claim: str, small: Any, large: Any, *, times: float = 1.0) -> Check:
        """Check the same for two arrays ``(runs,)`` from the same draws, by the errors of their differences."""
        low, high = np.asarray(small, dtype=np.float64), np.asarray(large, dtype=np.float64)
        by = "" if times == 1.0 else f" times {times:g}"
        difference = Measured.mean(high - times * low)
        found = f"{Measured.mean(low)}{by} against {Measured.mean(high)}, differences {difference}"
        return cls._positive(claim, difference, found)

    @classmethod
    def _positive(cls, claim: str, difference: Measured, found: str) -> Check:
        holds = bool(difference.value > STANDARD_ERRORS * difference.error)
        undecided = bool(not holds and difference.value > 0.0)
        return cls(claim, holds, f"{found}: undecided" if undecided else found, undecided)


@dataclass(frozen=True, kw_only=True)
class Series:
    """A line of a panel, or a box plot of replications ``y`` without ``x``.

    Parameters
    ----------
    low, high
        A band around the line.
    colour
        Index of its colour; by default its index in the panel.
    """

    name: str
    y: Sequence[float]
    x: Sequence[float] = ()
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: Literal["line", "dashed", "points", "box"] = "line"
    colour: int | None = None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One set of axes."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    line_at: float | None = None
    """Height of a horizontal line, such as the truth or the optimum."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of an experiment: table, figure, checks, and a verdict on the paper's claims in a few sentences."""

    rows: Sequence[Row]
    panels: Sequence[Panel]
    checks: Sequence[Check]
    verdict: str

    @classmethod
    def joined(cls, parts: Sequence[Outcome]) -> Outcome:
        """Join several outcomes into one."""
        return cls(
            rows=[row for part in parts for row in part.rows],
            panels=[panel for part in parts for panel in part.panels],
            checks=[check for part in parts for check in part.checks],
            verdict=" ".join(part.verdict for part in parts),
        )

    @property
    def holds(self) -> bool:
        """Return whether every check holds."""
        return all(check.holds for check in self.checks)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or figure of a paper and the function that reproduces it.

    Parameters
    ----------
    id
        ``PAPER/NAME``, such as ``"002/fig5"``.
    module, function
        A function from a :class:`Setting` to an :class:`Outcome`, imported when it is run.
    files
        The paper's own files that ``--data`` accepts.
    also
        Identifiers of other figures that the same runs show.
    """

    id: str
    title: str
    module: str
    function: str
    files: Sequence[DataFile] = ()
    also: Sequence[str] = ()

    def run(self, setting: Setting) -> Outcome:
        """Run the experiment.

        Raises
        ------
        UserError
            If the file is not one that the experiment accepts, or a library is missing.
        """
        if setting.data is not None:
            if not self.files:
                raise UserError(f"{self.id} uses only simulated data: omit --data")
            setting.file(self.files)
        with warnings.catch_warnings():
            # The papers' targets have no public bounds.
            warnings.simplefilter("ignore", DataWarning)
            outcome: Outcome = getattr(import_module(self.module), self.function)(setting)
        return outcome


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper and its experiments; identifiers start with ``number``."""

    number: str
    protocol: str
    citation: str
    experiments: Sequence[Experiment] = field(default_factory=tuple)
