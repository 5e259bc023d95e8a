"""What an experiment is, and what it finds: plain frozen data that tables, CSV files and pictures are made from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from reproductions.data_file import DataFile, read_columns, read_numbers, recognized

Size = Literal["tiny", "reduced", "full"]
Tag = Literal["exact", "stand-in", "reduced", "unreachable"]
T = TypeVar("T")

STANDARD_ERRORS: Final = 4.0
"""Figures agree when they are within so many standard errors, unless a check says otherwise."""
_FEW: Final = 5
SEED: Final = 1
"""Of the documented figures."""


def _nothing(share: float, text: str) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How an experiment is run.

    Parameters
    ----------
    size
        ``"tiny"`` takes seconds and shows directions only, ``"reduced"`` is the default, ``"full"`` the paper's own.
    seed
        Of everything that is drawn.
    data
        The paper's real file, in place of a stand-in.
    tick
        Is called with the share that is done and a few words.
    """

    size: Size = "reduced"
    seed: int = SEED
    data: Path | None = None
    tick: Callable[[float, str], None] = _nothing

    def of(self, *, tiny: T, reduced: T, full: T) -> T:
        """The value of this size.

        Examples
        --------
        >>> Setting(size="tiny").of(tiny=2, reduced=20, full=200)
        2
        """
        return {"tiny": tiny, "reduced": reduced, "full": full}[self.size]

    def tag(self, reduced: bool = True) -> Tag:
        """``"exact"`` where nothing is smaller than the paper's; ``reduced`` says whether a size below full is."""
        return "reduced" if reduced and self.size != "full" else "exact"

    def rng(self, *key: int) -> np.random.Generator:
        """A generator for a part of the experiment: the same key, the same numbers, whatever else is drawn."""
        return np.random.default_rng([self.seed, *key])

    def columns(self, file: DataFile) -> Mapping[str, list[str]]:
        """Columns of the paper's real file, as words.

        Raises
        ------
        UserError
            If it cannot be read, or lacks one of them.
        """
        assert self.data is not None
        return read_columns(self.data, file)

    def numbers(self, file: DataFile, *, empty: bool = False) -> dict[str, NDArray[np.float64]]:
        """Columns of the paper's real file, as numbers; empty cells are NaN where there may be such.

        Raises
        ------
        UserError
            If it cannot be read, lacks a column, or has anything else in one.
        """
        assert self.data is not None
        return read_numbers(self.data, file, empty=empty)

    def file(self, files: Sequence[DataFile]) -> DataFile:
        """Which of several the paper's real file is.

        Raises
        ------
        UserError
            If it is none of them, or cannot be read.
        """
        assert self.data is not None
        return recognized(self.data, files)


@dataclass(frozen=True)
class Measured:
    """A number with the standard error of its measurement; 0 where it is computed, not simulated.

    Parameters
    ----------
    value, error
        The number and its standard error.
    runs
        Of how many replications it is; 0 where that is not known. Of few the error is not printed: it hardly says
        anything.

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
        """Of replications."""
        array = np.asarray(values, dtype=np.float64)
        error = float(array.std(ddof=1) / math.sqrt(array.size)) if array.size > 1 else math.inf
        return cls(float(array.mean()), error, array.size)

    @classmethod
    def median(cls, values: Any) -> Measured:
        """Of replications: half the distance between the order statistics one standard deviation of rank apart."""
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
    """A line of an experiment's table.

    Parameters
    ----------
    what
        Setting and quantity.
    tag
        How it compares with the paper's own.
    published
        What the paper prints, quoted, or that it prints a figure only. Of a stand-in never a number: what the paper
        found was found on other data.
    as_published, corrected, default
        Found here: with the paper's settings, with its errors mended, and with what Murk does by default.
    note
        Which stand-in, what is smaller, why it cannot be had.
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
            raise ValueError(f"{self.what}: a stand-in has no published number")
        if self.tag in ("stand-in", "unreachable") and not self.note:
            raise ValueError(f"{self.what}: say which stand-in, or why it cannot be reached")


@dataclass(frozen=True)
class Check:
    """Something that must be so for the reproduction to be what its page says.

    Parameters
    ----------
    claim
        In words.
    holds
        Whether it is so.
    found
        The numbers.
    undecided
        Whether it does not hold because the numbers are on its side, but by less than they can be trusted.
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
        """A number is as expected: within an amount, a share of it, or else 4 standard errors (of both)."""
        other = expected if isinstance(expected, Measured) else Measured(expected)
        if within is None:
            within = abs(other.value) * relative if relative is not None else 0.0
            if relative is None:
                within = STANDARD_ERRORS * math.hypot(found.error, other.error)
        holds = abs(found.value - other.value) <= within
        return cls(claim, bool(holds), f"{found}; expected {other.value:.4g} within {within:.2g}")

    @classmethod
    def less(cls, claim: str, small: Measured, large: Measured | float, *, times: float = 1.0) -> Check:
        """A number, ``times`` itself, is below another, by more than 4 standard errors of the difference."""
        other = large if isinstance(large, Measured) else Measured(large)
        by = "" if times == 1.0 else f" times {times:g}"
        difference = Measured(other.value - times * small.value, math.hypot(times * small.error, other.error))
        return cls._positive(claim, difference, f"{small}{by} against {other}")

    @classmethod
    def less_paired(cls, claim: str, small: Any, large: Any, *, times: float = 1.0) -> Check:
        """The same of two quantities ``(runs,)`` of the same draws: by 4 standard errors of their differences."""
        one, two = np.asarray(small, dtype=np.float64), np.asarray(large, dtype=np.float64)
        by = "" if times == 1.0 else f" times {times:g}"
        difference = Measured.mean(two - times * one)
        found = f"{Measured.mean(one)}{by} against {Measured.mean(two)}, differences {difference}"
        return cls._positive(claim, difference, found)

    @classmethod
    def _positive(cls, claim: str, difference: Measured, found: str) -> Check:
        holds = bool(difference.value > STANDARD_ERRORS * difference.error)
        undecided = bool(not holds and difference.value > 0.0)
        return cls(claim, holds, f"{found}: undecided" if undecided else found, undecided)


@dataclass(frozen=True, kw_only=True)
class Series:
    """A line of a panel, or a box where ``x`` is empty (``y`` holds the replications, then).

    Parameters
    ----------
    name
        For the legend.
    x, y
        Of equal length.
    low, high
        A band around it.
    style
        ``"line"``, ``"dashed"``, ``"points"`` or ``"box"``.
    colour
        Its place among the colours, so that two series may have one; by default its place in the panel.
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
    """One set of axes, as in the paper's figure."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    line_at: float | None = None
    """A horizontal line: the truth, or the optimum."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an experiment found.

    Parameters
    ----------
    rows
        Its table.
    panels
        Its figure.
    checks
        What must be so.
    verdict
        In one or two sentences, from the numbers: whether what the paper shows is seen, and what is true beside it.
    """

    rows: Sequence[Row]
    panels: Sequence[Panel]
    checks: Sequence[Check]
    verdict: str

    @classmethod
    def joined(cls, parts: Sequence[Outcome]) -> Outcome:
        """Several as one."""
        return cls(
            rows=[row for part in parts for row in part.rows],
            panels=[panel for part in parts for panel in part.panels],
            checks=[check for part in parts for check in part.checks],
            verdict=" ".join(part.verdict for part in parts),
        )

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or figure of a paper, and the function that makes it again.

    Parameters
    ----------
    id
        ``PAPER/NAME``, such as ``"002/fig5"``.
    title
        What it shows.
    module, function
        Where it is made: a function of a :class:`Setting` that returns an :class:`Outcome`. It is imported when run.
    files
        The paper's real files, where they are to be had and are taken by ``--data``.
    also
        Other identifiers: of what the same runs show, too.
    """

    id: str
    title: str
    module: str
    function: str
    files: Sequence[DataFile] = ()
    also: Sequence[str] = ()

    def run(self, setting: Setting) -> Outcome:
        """Make it again.

        Raises
        ------
        UserError
            If the file given is not what it takes, or a library of an extra is missing.
        """
        if setting.data is not None:
            if not self.files:
                raise UserError(f"{self.id} is made from simulated data alone: leave --data out")
            setting.file(self.files)
        found: Outcome = getattr(import_module(self.module), self.function)(setting)
        return found


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper and its experiments.

    Parameters
    ----------
    number
        As identifiers begin.
    protocol
        What it is called here.
    citation
        Authors, title, year.
    """

    number: str
    protocol: str
    citation: str
    experiments: Sequence[Experiment] = field(default_factory=tuple)
