"""The estimate from rounds' sums, its intervals, signs of forged answers, and forecasts of what it takes to learn more.

A forecast adds people who answer at the next model as expected at the solution, with the mechanisms' noise, and solves
all equations again. The number of people is quadrupled until the interval is bounded, then doubled as a margin. As
answers of different people have variance 1/p, a release with noise variance s'^2 is worth ``(s^2 + 1/p) / (s'^2 +
1/p)`` releases with noise variance s^2: this gives the budgets. Forecasts for public rows assume a sample of rows with
the people's released second moments. docs/scores.md states how often forecasts are right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from operator import itemgetter
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats, Integers
from murk._internal.numbers import rounded
from murk.errors import MurkError, UserError
from murk.inference.average_effects import mean_slope
from murk.inference.estimate import Estimate, Extent, People, missing_words, surely_missing
from murk.inference.levels import quantile_of
from murk.inference.poisoning import SLACK, Influence, longest, noise_of_number
from murk.inference.stream_change import StreamChange
from murk.privacy.guarantees import Guarantee
from murk.protocols.linear_algebra import contrasts, flattened
from murk.protocols.rows import Rows
from murk.protocols.scores.feature_change import FeatureChange, feature_change, impossible
from murk.protocols.scores.mechanisms import LevelMechanisms, ScoreMechanisms, score_mechanisms
from murk.protocols.scores.model import Expected, Model, Query, Response, mean_matrix
from murk.protocols.scores.next_model import next_model
from murk.protocols.scores.settings import Settings
from murk.protocols.scores.solutions import AnySolution, disagreement
from murk.protocols.scores.solutions import solution as solution_from
from murk.protocols.scores.solve import classes
from murk.protocols.scores.solve.classes import ClassLines, ClassSolution
from murk.protocols.scores.solve.curve import Solution
from murk.protocols.scores.solve.line import ProbabilityLine
from murk.protocols.scores.solve.moments import UNEVEN, extent_of, pooled
from murk.protocols.scores.solve.public import CurveSolution, PublicSolution
from murk.protocols.scores.sums import Key, Round, Summaries, Tally, most_answers, share_of, step_of, summaries
from murk.protocols.scores.survey.coordinates import STATED_ERROR
from murk.task.privacy import MOST_LEVELS

_ERROR_CODE = "MURK-LEARN-001"

MOST: Final = 256  # largest multiple of the present number of people that is forecast

_MARGIN = 2  # factor on forecasts, as half of all runs at the threshold itself would fall short
_LARGEST_HALF: Final = 1e300  # the limit if none is given: every finite half-width is below it
_ROWS = (10_000, 3_000, 1_000)
_LARGEST = {"mu": 10.0, "epsilon": 16.0, "rho": 50.0}  # larger budgets are hardly private and not advised
_SEEN = 2.0  # standard deviations from which a curvature stands out from noise


@dataclass(frozen=True)
class Need:
    """Changes that would each suffice to learn a coefficient; None for a change not known to suffice."""

    people: int | None = None  # total number of people, at these budgets
    budgets: Mapping[str, Guarantee] = field(default_factory=dict)  # level to guarantee, with the current people
    public_rows: int | None = None  # number of public covariates, with the current people and budgets
    least: bool = False  # whether it may take far more: noise still hides the curvature along this coefficient
    seen: bool = True  # whether enough stood out from noise for a forecast
    # whether a statement of the feature's spread would suffice, where noise hides that spread; else None
    stated: bool | None = None
    told: bool = True  # whether the feature's spread is known to exceed zero
    survey: int = 0  # largest number of people in the survey that is under way; 0 if none is
    category: bool = False  # whether noise hides the share of a category, of which tasks state nothing

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, including the words."""
        return {
            "people": self.people,
            "budgets": {level: each.to_dict() for level, each in self.budgets.items()} or None,
            "public_rows": self.public_rows,
            "at_least": self.least,
            "stated": self.stated,
            "words": self.words,
        }

    @property
    def words(self) -> str:
        """The end of a sentence that begins with "it would take".

        >>> from murk.privacy import GaussianDP
        >>> Need(400_000, {"default": GaussianDP(2.5)}).words
        'about 400,000 people in all, or mu of about 2.5 with as many people as now'
        >>> Need(seen=False).words
        'more than can be forecast yet: hardly anything stands out from the noise so far'
        >>> Need(stated=True).words
        'a statement of its spread: `typical` values, tighter bounds or public rows. With it, it would be learned now'
        >>> Need().words
        'more than 500 times the people'
        """
        if self.survey:
            return f"people beyond the survey, of at most {self.survey:,}: more can be forecast after it"
        if self.category:
            return "more people of its rarer category, whose share does not stand out from the noise so far"
        if not self.told:
            return (
                "values that differ: nothing tells them from a single one. If they differ, `typical` values, tighter "
                "bounds or public rows would tell"
            )
        if self.stated is not None:
            words = "a statement of its spread: `typical` values, tighter bounds or public rows"
            return f"{words}. With it, it would be learned now" if self.stated else f"{words}, and more people"
        if not self.seen:
            return "more than can be forecast yet: hardly anything stands out from the noise so far"
        options = []
        if self.people is not None:
            options.append(f"about {self.people:,} people in all")
        if self.budgets:
            options.append(f"{_budgets_words(self.budgets)} with as many people as now")
        if self.public_rows is not None:
            options.append(f"about {self.public_rows:,} public rows like the people")
        if not options:
            # The search ended at its limit without success.
            return f"more than {_MARGIN * MOST // 100 * 100:,} times the people"
        words = ", or ".join(options)
        return words.replace("about", "at least") if self.least else words


def _parameter(guarantee: Guarantee) -> tuple[str, float]:
    """Return name and value of a guarantee's first parameter, which measures its privacy loss."""
    (parameters,) = guarantee.to_dict().values()
    return next(iter(parameters.items()))


def _budgets_words(budgets: Mapping[str, Guarantee]) -> str:
    parameters = {level: _parameter(budget) for level, budget in budgets.items()}
    if len(budgets) > MOST_LEVELS + 1:
        # So many levels are those of a grid: only the range of budgets is stated.
        (name, least), *_, (_, most) = sorted(parameters.values(), key=itemgetter(1))
        return f"{name} of about {least:g} to {most:g}"
    level_words = {level: f" ({level})" if len(budgets) > 1 else "" for level in budgets}
    return " and ".join(f"{name} of about {value:g}{level_words[level]}" for level, (name, value) in parameters.items())


@dataclass(frozen=True)
class Outlook:
    """Inputs of forecasts."""

    settings: Settings
    solution: AnySolution
    found: Summaries  # the rounds' mean answers, whose equations the solution solves
    mechanisms: LevelMechanisms  # level to mechanisms
    counts: Mapping[str, int]  # level to its number of releases

    @property
    def releases(self) -> int:
        """Number of releases so far."""
        return sum(self.counts.values())

    def needs(self, quantile: float, within: Floats | None = None) -> dict[str, Need]:
        """Return by name what it would take to learn each coefficient that was not learned.

        ``quantile`` is the intervals' normal quantile, and ``within`` the half-widths wanted, (p,), by default any.
        """
        names = self.settings.reported
        limits = np.full(len(names), _LARGEST_HALF) if within is None else within
        unknown = ~(self.solution.half_widths(quantile) <= limits)
        if not unknown.any():
            return {}
        statements = self._statements(quantile, unknown, limits)
        unknown &= ~np.isin(names, list(statements))
        if not unknown.any():
            return statements
        targetless = isinstance(self.solution, Solution) and self.solution.targetless
        visible = None if targetless else self._visible()
        if visible is None:
            return statements | {name: Need(seen=False) for name, each in zip(names, unknown, strict=True) if each}
        model = self.settings.first_model(self.mechanisms)
        if not self.settings.once:
            model = next_model(self.settings, self.found, self.releases, self.mechanisms)
        times = _MARGIN * self._times(model, quantile, unknown, limits)
        rows = self._rows(model, quantile, unknown, limits)
        needs = statements
        for j in np.flatnonzero(unknown).tolist():
            factor = float(times[j])
            people = None if math.isinf(factor) else rounded(factor * self.releases)
            needs[names[j]] = Need(people, self._budgets(factor), int(rows[j]) or None, least=not visible[j])
        return needs

    def _statements(self, quantile: float, unknown: NDArray[np.bool_], limits: Floats) -> dict[str, Need]:
        """Return the needs of features whose spread noise hides; for numbers, solve as if the spread were stated."""
        solution, coordinates = self.solution, self.settings.coordinates
        if coordinates is None or not isinstance(solution, Solution) or not solution.moments.unseen.any():
            return {}
        if solution.targetless:
            return {}
        unseen, errors = solution.moments.unseen, coordinates.log_spread_error
        stated = replace(coordinates, log_spread_error=np.where(unseen & (errors > 0.0), STATED_ERROR, errors))
        learned = solution_from(replace(self.settings, coordinates=stated), self.found).half_widths(quantile) <= limits
        names, told = self.settings.names, solution.moments.frame.told
        return {
            names[j]: Need(stated=bool(learned[j]), told=bool(told[j])) if errors[j] > 0.0 else Need(category=True)
            for j in np.flatnonzero(unseen & unknown[:-1]).tolist()
        }

    def _times(self, model: Model, quantile: float, unknown: NDArray[np.bool_], limits: Floats) -> Floats:
        """Return the multiple of the people that each coefficient needs, (p,): a power of two, or infinite."""
        factors, factor = np.full(len(unknown), math.inf), 4
        learned = cache(partial(self._learned, model, quantile, limits))
        while factor <= MOST and np.any(np.isinf(factors[unknown])):
            new = unknown & np.isinf(factors) & learned(factor)
            if new.any():
                half = new & learned(factor // 2)
                factors[new] = factor
                factors[half] = factor // 2
            factor *= 4
        return factors

    def _learned(self, model: Model, quantile: float, limits: Floats, factor: int) -> NDArray[np.bool_]:
        """Return whether each coefficient is learned from ``factor`` times the people."""
        people = (factor - 1) * self.releases
        # Half of the added people release centred scores, as in every second round.
        centred = 0 if model.exponent == 1.0 else people // 2
        further = [*self._epoch(replace(model, exponent=1.0), centred), *self._epoch(model, people - centred)]
        try:
            halves = self.solution.refit([*self.found, *further]).half_widths(quantile)
        except (MurkError, np.linalg.LinAlgError):
            return np.zeros(len(self.settings.reported), dtype=bool)
        return np.asarray(halves <= limits)

    def _epoch(self, model: Model, people: int) -> Summaries:
        """Return the mean answers of a round in which all answer as expected, with the present shares of levels."""
        tallies: dict[Key, Tally] = {}
        for query, share in model.shares.items():
            if query == "covered":
                continue
            mean = self._answer(model, query)
            for level, known in self.counts.items():
                count = round(people * known / self.releases * share)
                if count:
                    step = step_of(self.mechanisms[level].mechanism(query))
                    tallies[level, query] = Tally(count, [round(count * value / step) for value in mean.tolist()])
        return summaries([Round(0, model, tallies)], self.mechanisms, self.settings.features)

    def _answer(self, model: Model, query: Query) -> Floats:
        """Return one person's expected answer, in units of the release."""
        solution, response, rows = self.solution, self.settings.response, self.solution.rows
        if query == "score":
            if response.classes:
                basis = contrasts(response.classes)
                at = classes.probabilities(rows.points, solution.origin, basis)
                return self._target_share * classes.ClassScores.of(model, rows, basis).score(at)
            return self._target_share * Expected.of(model, rows, response).score(rows.points @ solution.origin)
        flat = query == "scatter" or bool(response.classes)
        matrix = mean_matrix(model, rows, Response(False) if response.classes else response, flat=flat)
        share = 1.0 if query == "scatter" and not response.weighed else self._target_share
        return share * flattened(matrix) / (model.matrix_clipping_norm / 2.0)

    @property
    def _target_share(self) -> float:
        solution = self.solution
        return min(solution.ratio if isinstance(solution, ClassSolution) else solution.targets[0], 1.0)

    def _visible(self) -> NDArray[np.bool_] | None:
        """Return whether released matrices exceed their noise along each coefficient, (p,); None if along none."""
        solution, response = self.solution, self.settings.response
        if not isinstance(solution, Solution):
            return np.ones(len(self.settings.reported), dtype=bool) if solution.alike else None
        answers = [
            (each.model, answer, partial(mean_matrix, each.model, solution.rows, response, flat=flat))
            for each in self.found
            for answer, flat in ((each.scatter, True), (each.curvature, False))
        ]
        matrices = pooled(answers, solution.newest.transform)
        if matrices is None:
            return None
        weighed = matrices.expected / matrices.variances
        if float(np.sum(weighed * matrices.measured)) < _SEEN * math.sqrt(float(np.sum(weighed * matrices.expected))):
            return None
        # For each coefficient the direction in which the most likely others follow it, in the newest coordinates.
        along = solution.newest.back.T @ solution.covariance
        along = along / np.linalg.norm(along, axis=0)
        measured = np.einsum("ij,ik,kj->j", along, matrices.measured, along)
        noise = np.sqrt(np.einsum("ij,ik,kj->j", along**2, matrices.variances, along**2))
        return np.asarray(measured > _SEEN * noise)

    def _budgets(self, factor: float) -> dict[str, Guarantee]:
        """Return guarantees, by level, that make releases worth ``factor`` times as much; empty if one is too large."""
        if math.isinf(factor):
            return {}
        budgets = {level: self._budget(self.mechanisms[level], factor) for level in self.counts}
        bounded = {level: budget for level, budget in budgets.items() if budget is not None}
        return bounded if len(bounded) == len(budgets) else {}

    def _budget(self, pair: ScoreMechanisms, factor: float) -> Guarantee | None:
        score: Any = pair.score
        own = 1.0 / score.dimension
        wanted = (score.variance + own) / factor - own
        guarantee: Any = pair.guarantee
        name, low = _parameter(guarantee)
        high = _LARGEST[name]

        def enough(value: float) -> bool:
            budget = replace(guarantee, **{name: value})
            try:
                other: Any = score_mechanisms(
                    pair.kind, budget, self.settings.features, self.settings.contrasts, matrices=False
                ).score
            except UserError:
                return False
            return bool(other.variance <= wanted)

        if wanted <= 0.0 or high <= low or not enough(high):
            return None
        while high / low > 1.02:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if enough(middle) else (middle, high)
        budget: Guarantee = replace(guarantee, **{name: float(f"{high:.2g}")})
        return budget

    def _rows(self, model: Model, quantile: float, unknown: NDArray[np.bool_], limits: Floats) -> Integers:
        """Return the fewest public rows that suffice, (p,); 0 if no number does, or if rows are used already."""
        fewest = np.zeros(len(unknown), dtype=np.int64)
        solution = self.solution
        if not isinstance(solution, Solution) or self.settings.weighed:
            return fewest
        answers = self._epoch(model, self.releases // _MARGIN)
        for size in _ROWS:
            rows = Rows(solution.rows.points, solution.rows.shares, float(size))
            try:
                halves = PublicSolution(answers, self.settings.response, rows).half_widths(quantile)
            except (MurkError, np.linalg.LinAlgError):
                break
            learned = unknown & (halves <= limits)
            if not learned.any():
                break
            fewest[learned] = size
        return fewest


QUERIES_THAT_MOVE: tuple[Query, ...] = ("score", "curvature")
"""Scatters only choose coordinates and rows, which curvatures correct: they move an estimate less than scores do."""


@dataclass(frozen=True)
class Excess:
    """More answers to a query than its share allows."""

    query: Query  # the query
    # answers, expected: actual and expected answers, over all rounds and levels with too many
    answers: int
    expected: float

    @property
    def words(self) -> str:
        """A sentence that describes the excess."""
        return (
            f"{self.answers:,} answers are to the query {self.query!r}, but about {self.expected:,.0f} are "
            "expected by its public share: some of them are forged"
        )


def excesses(rounds: Iterable[Round]) -> tuple[Excess, ...]:
    """Return the queries with more answers than their shares allow."""
    totals: dict[Query, tuple[int, float]] = {}
    for round_ in rounds:
        releases: dict[str, int] = {}
        for (level, _), tally in round_.tallies.items():
            releases[level] = releases.get(level, 0) + tally.count
        for (level, query), tally in round_.tallies.items():
            share = share_of(round_.model, query)
            if tally.count > most_answers(releases[level], share):
                answers, expected = totals.get(query, (0, 0.0))
                totals[query] = answers + tally.count, expected + releases[level] * share
    return tuple(Excess(query, *both) for query, both in sorted(totals.items()))


def influence_of(query: Query, rounds: Sequence[Round], mechanisms: LevelMechanisms) -> float:
    """Return how many standard errors one forged answer moves a coefficient; 0 where nobody answered the query."""
    farthest, noise = 0.0, 0.0
    for level, pair in mechanisms.items():
        mechanism = pair.mechanism(query)
        spread = noise_of_number(mechanism)
        weight = 1.0 / (spread**2 + 1.0 / mechanism.dimension)
        count = sum(round_.tallies[level, query].count for round_ in rounds if (level, query) in round_.tallies)
        farthest = max(farthest, weight * longest(mechanism))
        noise += count * (weight * spread) ** 2
    return farthest / math.sqrt(noise) if noise > 0.0 else 0.0


@dataclass(frozen=True)
class Forgery:
    """The possible influence of forged answers, and the signs of them.

    Of N answers of one level at one model, a query of share s has more than ``N s + sqrt(2 t N s (1 - s)) + t / 3``
    with probability at most e^-t (Bernstein); t is 32, as for refusing an honest payload. If a query has more answers,
    its mean is weighted as that many answers, and intervals are widened by the possible effect of the answers beyond
    the expected number. Single forged answers cannot be identified in sums, so that none is refused. Without such an
    excess the estimate is the same, bit for bit, as without this check.
    """

    influence: Influence  # influence of one forged answer, whichever query it answers
    excesses: tuple[Excess, ...] = ()  # queries with more answers than their shares allow
    widened: float = 0.0  # standard errors by which intervals are widened because of these excesses

    @classmethod
    def of(cls, rounds: Sequence[Round], mechanisms: LevelMechanisms) -> Forgery:
        """Return how far forged answers could have moved estimates, and the signs of forgery in rounds."""
        influences = [influence_of(query, rounds, mechanisms) for query in QUERIES_THAT_MOVE]
        exceeded = excesses(rounds)
        widened = sum(
            SLACK * (excess.answers - excess.expected) * influence_of(excess.query, rounds, mechanisms)
            for excess in exceeded
            if excess.query != "covered"
        )
        return cls(Influence(max(influences)), exceeded, widened)


METHOD = "scores"
_SURELY = 2.0  # standard errors from which missing targets are reported without public rows
_UNLIKE_NORMAL = 2.0  # largest factor by which features' curvature is lower than that of normal features
_OF_CLASSES = (
    "slopes of the least-squares line through each class's indicator (the linear probability model); log odds and odds "
    "ratios are not learned without public covariates"
)
_UNMEASURED = "how often intervals for several classes hold the truth has not been measured (docs/scores.md)"
_RARE = (
    "the outcome is too rare for log odds at this privacy, which would depend on the shape of the features: average "
    "effects are learned instead"
)
_TARGETLESS = "the answers do not show that anybody has a target: all or nearly all of the targets are missing"
_ROWLESS = (
    "the answers do not show that anybody has rows: people have far fewer than the most that count, or no targets"
)
_WEIGHTED = "if the model is wrong, coefficients are those of a weighted fit"
_BY_LINE = "slopes of the least-squares line through the labels (the linear probability model): "
_NO_CURVATURE = "the curvature that log odds need does not stand out from the noise, and the line needs none"
_TOO_RARE = "the outcome is too rare for log odds"
_PRECISE = "they are more precise here than those that follow from log odds"
_LINES = "where effects are strong, the average effects of a softmax model differ from these slopes (docs/scores.md)"
# Confidence level at which all intervals of log odds must be bounded for average effects to follow from log odds.
_CHOSEN = 0.95
_ONCE = (
    "where the model is wrong, of the fit weighted by 1 over the length of people's whitened features; how often they "
    "hold the truth is in docs/scores.md"
)


@dataclass(frozen=True)
class ScoreEstimate(Estimate):
    """Coefficients with intervals that allow for the error of the estimated curvature."""

    forecasts: ClassVar[bool] = True
    noise_hides: ClassVar[bool] = True

    unit: float = 1.0  # the target's coded unit in its own units
    outlook: Outlook | None = None  # input of the forecasts of :meth:`needs`
    forgery: Forgery | None = None  # the influence of forged answers, and signs of them
    survey: int = 0  # largest number of people in the survey that is under way; 0 if none is
    # Estimated share of targets beyond the ends `cut`, and an upper bound on it, by the survey; None if none is cut
    share_cut: tuple[float, float] | None = None
    _halves: dict[float, Floats] = field(default_factory=dict, init=False, repr=False, compare=False)

    def half_widths(self, level: float = 0.95) -> Floats:
        """Return half-widths of the intervals at ``level``; infinite where a coefficient was not learned."""
        if not 0 < level < 1:
            raise UserError(f"a confidence level lies between 0 and 1, got {level!r}")
        if self.solution is None:
            return np.full(len(self.names), np.inf)
        # Cached, as several parts of a report need half-widths, which take as long as the solution.
        if level not in self._halves:
            quantile = quantile_of(level)
            self._halves[level] = self._wider(quantile) * self.solution.half_widths(quantile)
        return self.unit * self._halves[level]

    def _wider(self, quantile: float) -> float:
        """Return the factor of half-widths: 1 without signs of forged answers."""
        forged = 0.0 if self.forgery is None else self.forgery.widened
        return (1.0 + forged / quantile) * (1.0 if self.solution is None else disagreement(self.solution))

    @property
    def cut(self) -> tuple[float, float] | None:
        """Coded ends to which targets beyond them are clipped; None if these are the target's public bounds."""
        coordinates = None if self.outlook is None else self.outlook.settings.coordinates
        if coordinates is None or coordinates.target == (0.0, 1.0):
            return None
        middle, width = coordinates.target
        return middle - width, middle + width

    def doubts(self) -> list[str]:
        """Return signs of forged releases, in words: nothing that honest people in any order could cause."""
        signs = [] if self.forgery is None else [excess.words for excess in self.forgery.excesses]
        queries = () if self.outlook is None else impossible(self.outlook.found)
        return signs + [
            f"the mean answer to the query {query!r} is one that no people's records give, beyond noise: some "
            "answers are forged"
            for query in queries
        ]

    def stream_change(self) -> StreamChange | None:
        """Return how the stream contradicts a single model of a single group of people; None if it does not."""
        if self.outlook is None:
            return None
        widened, change = disagreement(self.outlook.solution), self._feature_change
        if widened == 1.0 and change is None:
            return None
        names = () if change is None else tuple(self.outlook.settings.names[index] for index in change.features)
        return StreamChange(widened, change is not None, names)

    @cached_property
    def _feature_change(self) -> FeatureChange | None:
        if self.outlook is None:
            return None
        solution, response = self.outlook.solution, self.outlook.settings.response
        contradicted = solution.moments.understated if isinstance(solution, Solution) else np.zeros(0)
        return feature_change(self.outlook.found, response, solution.rows, tuple(np.flatnonzero(contradicted).tolist()))

    def needs(self, level: float = 0.95, within: Mapping[str, float] | None = None) -> dict[str, Need]:
        """Return by name what it would take to learn each coefficient without a bounded interval at ``level``.

        ``within`` has the half-widths that are wanted, by name. A forecast takes several times as long as the estimate.
        """
        if self.outlook is None:
            return {name: Need(seen=False, survey=self.survey) for name in self.names}
        limits = None if within is None else np.array([within.get(name, np.inf) for name in self.names]) / self.unit
        return self.outlook.needs(quantile_of(level), limits)

    @property
    def solution(self) -> AnySolution | None:
        """The solution, in coded units; None before anything was learned."""
        return None if self.outlook is None else self.outlook.solution

    @cached_property
    def line(self) -> ProbabilityLine | None:
        """The least-squares line through the labels, where the answers determine it."""
        if self.outlook is None or not self.outlook.settings.line or not isinstance(self.solution, Solution):
            return None
        return ProbabilityLine.of(self.outlook.found, self.outlook.settings.response, self.solution.moments)

    def effects(self, level: float = 0.95) -> tuple[Floats, Floats] | None:
        """Return slopes and half-widths of `line`, if its average effects are more precise than those from log odds."""
        if not self.by_line or self.line is None:
            return None
        quantile = quantile_of(level)
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
        """The model that defines average effects, if they do not follow from the coefficients; else empty."""
        if isinstance(self.solution, ClassLines):
            return _OF_CLASSES
        if not self.by_line:
            return ""
        if isinstance(self.solution, Solution) and self.solution.rare:
            return _BY_LINE + _TOO_RARE
        learned = np.isfinite(self.half_widths(_CHOSEN))[:-1].all()
        return _BY_LINE + (_PRECISE if learned else _NO_CURVATURE)

    def extent(self) -> Extent | None:
        """Return the features' second moments, from the public rows used or from released matrices."""
        if self.outlook is None:
            return None
        if self.outlook.solution.public:
            return super().extent()
        if isinstance(self.solution, ClassLines):
            return extent_of(self.solution.indicators[0], Response(True))
        return extent_of(self.outlook.found, self.outlook.settings.response)

    def missing(self) -> float:
        """Return a lower bound on the share of people whose target is missing; 0 unless significant.

        Without public rows it is known from the ratio of curvatures to scatters of the same people, which does not
        depend on the features' distribution. The ratio of curvatures to those of normal features does depend on it, and
        is not used.
        """
        if not isinstance(self.solution, Solution):
            return 0.0 if self.solution is None else self.solution.missing
        if self.solution.targetless:
            # Features of any shape have at least the curvature of normal ones, divided by this factor.
            return max(1.0 - _UNLIKE_NORMAL * (self.solution.targets[0] + _SURELY * self.solution.targets[1]), 0.0)
        line = self.line
        if line is None:
            return 0.0
        share, error = line.share
        return surely_missing(1.0 - share - UNEVEN, error)


def estimate_of(
    names: tuple[str, ...], outlook: Outlook | None, partitions: int, releases: int, survey: int = 0
) -> ScoreEstimate:
    """Return a solution's estimate in coded units; ``survey`` is the size of a survey that is under way, or 0."""
    if outlook is None:
        unknown, note = np.full(len(names), np.inf), "nothing was learned yet"
        if survey:
            note += (
                f": the first people, at most {survey:,}, answer a survey of where each feature lies, and models begin "
                "after them"
            )
        zero = np.zeros(len(names))
        return ScoreEstimate(names, zero, METHOD, unknown, note, partitions, releases, survey=survey)
    solution = outlook.solution
    rows, covariance = solution.rows, solution.covariance
    people = People(rows.points, rows.shares, sampled=solution.public, doubt=solution.doubt)
    note = _note(solution, outlook.settings)
    # Whether people are like the public rows; None if there are none, or nothing checks it.
    unchecked = isinstance(solution, PublicSolution) and not solution.checked
    alike = solution.alike if not unchecked and (solution.public or not solution.alike) else None
    errors = np.sqrt(np.diag(covariance))
    counts = partitions, releases
    return ScoreEstimate(
        names, solution.values, METHOD, errors, note, *counts, covariance, people, alike, outlook=outlook
    )


def _note(solution: AnySolution, settings: Settings) -> str:
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
        note += f"; {missing_words(solution.missing)}, and the estimate is of people who have one"
    if settings.once:
        return f"{note}; {_ONCE}"
    if isinstance(solution, ClassLines):
        return f"{note}; {_WEIGHTED}; {_LINES}"
    note += f"; {_WEIGHTED}"
    if isinstance(solution, Solution) and solution.targetless:
        note += f"; {_ROWLESS if settings.weighed else _TARGETLESS}"
    elif isinstance(solution, Solution) and solution.rare:
        note += f"; {_RARE}"
    return f"{note}; {_UNMEASURED}" if isinstance(solution, ClassSolution) else note
