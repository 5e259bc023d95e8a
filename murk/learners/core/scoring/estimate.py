"""The estimate from epochs' sums, with intervals that are not normal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.learners.core.scoring.classes import ClassLines, ClassSolution
from murk.learners.core.scoring.curvature import UNEVEN
from murk.learners.core.scoring.line import ProbabilityLine
from murk.learners.core.scoring.model import Response
from murk.learners.core.scoring.moments import extent_of
from murk.learners.core.scoring.needed import Need, Outlook
from murk.learners.core.scoring.public import CurveSolution, PublicSolution
from murk.learners.core.scoring.settings import AnySolution, disagreement
from murk.learners.core.scoring.solve import Solution
from murk.learners.core.scoring.sums import Epoch, most_answers, share_of
from murk.learners.estimates.effects import mean_slope
from murk.learners.estimates.estimate import Estimate, Extent, People
from murk.learners.estimates.forgers import SLACK, Influence, longest, noise_of_number

if TYPE_CHECKING:
    from murk.learners.core.scoring.mechanism import ScoreMechanisms
    from murk.learners.core.scoring.model import Question


QUESTIONS_THAT_MOVE: tuple[Question, ...] = ("score", "curvature")
"""Scatters only choose coordinates and rows, which curvatures correct: they move an estimate less than scores do."""


@dataclass(frozen=True)
class Excess:
    """More answers to a question than its share allows."""

    question: Question  # the question
    # answers, expected: actual and expected answers, over all epochs and levels with too many
    answers: int
    expected: float

    @property
    def words(self) -> str:
        """A sentence that describes the excess."""
        return (
            f"{self.answers:,} answers are to the question {self.question!r}, but about {self.expected:,.0f} are "
            "expected by its public share: some of them are forged"
        )


def excesses(epochs: Iterable[Epoch]) -> tuple[Excess, ...]:
    """Return the questions with more answers than their shares allow."""
    totals: dict[Question, tuple[int, float]] = {}
    for epoch in epochs:
        releases: dict[str, int] = {}
        for (level, _), tally in epoch.tallies.items():
            releases[level] = releases.get(level, 0) + tally.count
        for (level, question), tally in epoch.tallies.items():
            share = share_of(epoch.model, question)
            if tally.count > most_answers(releases[level], share):
                answers, expected = totals.get(question, (0, 0.0))
                totals[question] = answers + tally.count, expected + releases[level] * share
    return tuple(Excess(question, *both) for question, both in sorted(totals.items()))


def influence_of(question: Question, epochs: Sequence[Epoch], mechanisms: Mapping[str, ScoreMechanisms]) -> float:
    """Return how many standard errors one forged answer moves a coefficient; 0 where nobody answered the question."""
    farthest, noise = 0.0, 0.0
    for level, pair in mechanisms.items():
        mechanism = pair.mechanism(question)
        spread = noise_of_number(mechanism)
        weight = 1.0 / (spread**2 + 1.0 / mechanism.dimension)
        count = sum(epoch.tallies[level, question].count for epoch in epochs if (level, question) in epoch.tallies)
        farthest = max(farthest, weight * longest(mechanism))
        noise += count * (weight * spread) ** 2
    return farthest / math.sqrt(noise) if noise > 0.0 else 0.0


@dataclass(frozen=True)
class Forgery:
    """The possible influence of forged answers, and the signs of them.

    Devices draw their question by the shares that the epoch's model publishes. Of N answers of one level at one model,
    a matrix of share s has more than ``N s + sqrt(2 t N s (1 - s)) + t / 3`` with probability at most e^-t (Bernstein),
    with t = 32 as for refusing an honest payload. Beyond that number its mean is weighted as that many answers, and
    intervals are widened by the possible effect of the excess over the expected number. Single forged answers cannot be
    identified in sums: nothing is refused, and honest answers are solved as before, bit for bit.
    """

    influence: Influence  # influence of one forged answer, whichever question it answers
    excesses: tuple[Excess, ...] = ()  # questions with more answers than their shares allow
    widened: float = 0.0  # standard errors by which intervals are widened for these

    @classmethod
    def of(cls, epochs: Sequence[Epoch], mechanisms: Mapping[str, ScoreMechanisms]) -> Forgery:
        """Return the influence and the signs of forged answers in epochs."""
        influences = [influence_of(question, epochs, mechanisms) for question in QUESTIONS_THAT_MOVE]
        exceeded = excesses(epochs)
        widened = sum(
            SLACK * (excess.answers - excess.expected) * influence_of(excess.question, epochs, mechanisms)
            for excess in exceeded
        )
        return cls(Influence(max(influences)), exceeded, widened)


METHOD = "scores"
# Standard errors from which missing targets are reported without public rows.
_SURELY = 2.0
_OF_CLASSES = (
    "slopes of the least-squares line through each class's indicator (the linear probability model); log odds and odds "
    "ratios are not learned without public covariates"
)
_COVERED = (
    "95% intervals held the truth in 95-100% on most kinds of generated tasks, 73% on the worst (docs/scores.md)",
    "how often intervals for several classes hold the truth has not been measured",
)
_BY_LINE = (
    "slopes of the least-squares line through the labels (the linear probability model): the curvature that log odds "
    "need does not stand out from the noise, and the line needs none"
)
_LINES_COVERED = (
    "95% intervals held these slopes in 93-98% on generated tasks, and the average effects of a softmax model, which "
    "differ from them where effects are strong, in 77-96% (docs/scores.md)"
)
# Confidence level at which all intervals of log odds must be bounded for average effects to follow from log odds.
_CHOSEN = 0.95
_ONCE = (
    "where the model is wrong, of the fit weighted by 1 over the length of people's whitened features; how often they "
    "hold the truth is in docs/public-glm.md"
)


@dataclass(frozen=True)
class ScoreEstimate(Estimate):
    """Coefficients with intervals that allow for the error of the estimated curvature."""

    forecasts: ClassVar[bool] = True

    solution: AnySolution | None = None  # the solution, in coded units; None before anything was learned
    unit: float = 1.0  # the target's coded unit in its own units
    outlook: Outlook | None = None  # input of the forecasts of :meth:`needs`
    forgery: Forgery | None = None  # the influence of forged answers, and signs of them
    _halves: dict[float, NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def half_widths(self, level: float = 0.95) -> NDArray[np.float64]:
        """Return half-widths of the intervals at ``level``; infinite where a coefficient was not learned."""
        if not 0 < level < 1:
            raise UserError(f"a confidence level lies between 0 and 1, got {level!r}")
        if self.solution is None:
            return np.full(len(self.names), np.inf)
        # Kept, as several parts of a report need half-widths, which take as long as the solution.
        if level not in self._halves:
            quantile = NormalDist().inv_cdf(0.5 + level / 2.0)
            self._halves[level] = self._wider(quantile) * self.solution.half_widths(quantile)
        return self.unit * self._halves[level]

    def _wider(self, quantile: float) -> float:
        """Return the factor of half-widths: 1 without signs of forged answers."""
        forged = 0.0 if self.forgery is None else self.forgery.widened
        return (1.0 + forged / quantile) * (1.0 if self.solution is None else disagreement(self.solution))

    def doubts(self) -> list[str]:
        """Return signs of forged releases, in words."""
        signs = [] if self.forgery is None else [one.words for one in self.forgery.excesses]
        factor = 1.0 if self.solution is None else disagreement(self.solution)
        if factor > 1.0:
            signs.append(
                "the epochs' answers disagree by more than chance: some of them are forged, or the coefficients have "
                f"changed. Intervals are {factor:.1f} times as wide because of it"
            )
        return signs

    def not_learned(self, level: float = 0.95) -> list[str]:
        """Return the names of the coefficients that noise hides: those without a bounded interval."""
        return self._without_end(level)

    def needs(self, level: float = 0.95, within: Mapping[str, float] | None = None) -> dict[str, Need]:
        """Return by name what it would take to learn each coefficient without a bounded interval at ``level``.

        With ``within``, return what it would take for half-widths of these sizes. Takes several times as long as the
        estimate.
        """
        if self.outlook is None:
            return {name: Need(seen=False) for name in self.names}
        limits = None if within is None else np.array([within.get(name, np.inf) for name in self.names]) / self.unit
        return self.outlook.needs(NormalDist().inv_cdf(0.5 + level / 2.0), limits)

    @cached_property
    def line(self) -> ProbabilityLine | None:
        """The least-squares line through the labels, where the answers determine it."""
        if self.outlook is None or not self.outlook.settings.line or not isinstance(self.solution, Solution):
            return None
        return ProbabilityLine.of(self.outlook.found, self.outlook.settings.response, self.solution.moments)

    def effects(self, level: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return the line's slopes and their half-widths, if it gives more precise average effects than log odds."""
        if not self.by_line or self.line is None:
            return None
        quantile = NormalDist().inv_cdf(0.5 + level / 2.0)
        return self.line.values, self._wider(quantile) * self.line.half_widths(quantile)

    @cached_property
    def by_line(self) -> bool:
        """Whether average effects of all features are taken from the line, decided by standard errors alone."""
        if self.line is None or self.covariance is None or self.people is None:
            return False
        line = np.sqrt(np.diag(self.line.covariance))[:-1]
        slope = mean_slope(self.values, self.people)[0]
        curve = slope * np.sqrt(np.diag(self.covariance))[:-1]
        if not len(line):
            return False
        return float(np.mean(np.log(line / curve))) < 0.0 or not np.isfinite(self.half_widths(_CHOSEN))[:-1].all()

    @property
    def effects_note(self) -> str:
        """The model that average effects refer to, where they do not follow from the coefficients; else empty."""
        if isinstance(self.solution, ClassLines):
            return _OF_CLASSES
        return _BY_LINE if self.by_line else ""

    def extent(self) -> Extent | None:
        """Return where people lie within public bounds, from the public rows used or from released second moments."""
        if self.outlook is None or self.solution is None:
            return None
        if self.solution.public:
            return super().extent()
        if isinstance(self.solution, ClassLines):
            return extent_of(self.solution.indicators[0], Response(True))
        return extent_of(self.outlook.found, self.outlook.settings.response)

    def missing(self) -> float:
        """Return the share of people whose target is missing; 0 unless significant."""
        if not isinstance(self.solution, Solution):
            return 0.0 if self.solution is None else self.solution.missing
        curvature = self.solution.curvature
        most = curvature.ratio + _SURELY * float(curvature.root[0, 0]) + UNEVEN
        return max(1.0 - most, 0.0)


def estimate_of(names: tuple[str, ...], outlook: Outlook | None, chains: int, releases: int) -> ScoreEstimate:
    """Return a solution's estimate, in coded units."""
    if outlook is None:
        unknown = np.full(len(names), np.inf)
        return ScoreEstimate(names, np.zeros(len(names)), METHOD, unknown, "nothing was learned yet", chains, releases)
    solution = outlook.solution
    rows, covariance = solution.rows, solution.covariance
    people = People(rows.points, rows.shares, sampled=solution.public, doubt=solution.doubt)
    note = _note(solution, outlook.settings.once)
    return ScoreEstimate(
        names, solution.values, METHOD, np.sqrt(np.diag(covariance)), note, chains, releases, covariance,
        people, _checked(solution), solution=solution, outlook=outlook,
    )  # fmt: skip


def _checked(solution: AnySolution) -> bool | None:
    """Return whether people are like the public rows; None if there are none, or nothing checks it."""
    if isinstance(solution, PublicSolution) and not solution.checked:
        return None
    return solution.alike if solution.public or not solution.alike else None


def _note(solution: AnySolution, once: bool) -> str:
    if not solution.alike and isinstance(solution, ClassSolution | CurveSolution):
        note = "none: the public covariates are not like the people's, and this model is not learned without them"
    elif isinstance(solution, ClassLines):
        note = "by released second moments; infinite where a slope was not learned at this privacy"
    elif not solution.alike:
        note = "the public covariates are not like the people's and are not used: by released second moments instead"
    elif not solution.public:
        note = "by released second moments and curvatures; infinite where a coefficient was not learned at this privacy"
    elif isinstance(solution, ClassSolution):
        note = "needs the public covariates to be like the people's, which released matrices do not contradict"
    elif isinstance(solution, PublicSolution) and not solution.checked:
        note = (
            "needs the public covariates to be like the people's and no target to be missing: with so many features "
            "nobody was asked for a matrix that would tell"
        )
    else:
        note = "public covariates pass the check that they are like the people's; intervals allow for what it misses"
    if solution.missing:
        note += f"; {solution.missing:.0%} of the targets are missing, and the estimate is of people who have one"
    if once:
        return f"{note}; {_ONCE}"
    if isinstance(solution, ClassLines):
        return f"{note}; {_LINES_COVERED}"
    return f"{note}; {_COVERED[isinstance(solution, ClassSolution)]}"
