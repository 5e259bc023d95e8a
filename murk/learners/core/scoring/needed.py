"""Forecasts of what it takes to learn a missing coefficient: more people, larger budgets, or public covariates.

In a forecast more people answer at the next model as expected at the solution, with the mechanisms' noise, and all
equations are solved again. The number of people is quadrupled until the interval is bounded, then doubled as a margin.
With people's own spread 1/p, a release with noise variance s'^2 is worth

    (s^2 + 1/p) / (s'^2 + 1/p)

releases with noise variance s^2, which gives the budgets. Public rows are tried as a sample of rows with the people's
released second moments. docs/scores.md states how often forecasts are right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk.errors import MurkError, UserError
from murk.learners.core.coordinates import contrasts, flattened
from murk.learners.core.scoring import classes
from murk.learners.core.scoring.mechanism import ScoreMechanisms, score_mechanisms
from murk.learners.core.scoring.model import Model, Question, Response
from murk.learners.core.scoring.moments import pooled
from murk.learners.core.scoring.public import PublicSolution
from murk.learners.core.scoring.rows import Expected, Rows, mean_matrix
from murk.learners.core.scoring.settings import AnySolution, Settings
from murk.learners.core.scoring.solve import Solution
from murk.learners.core.scoring.sums import Epoch, Summary, Tally, step_of, summaries
from murk.learners.results.numbers import rounded
from murk.privacy.guarantees import Guarantee

Array = NDArray[np.float64]

MOST: Final = 256  # largest multiple of the present number of people that is forecast

_MARGIN = 2  # factor on forecasts, as half of all runs at the threshold itself would fall short
# Above every finite half-width.
_LARGEST_HALF: Final = 1e300
_ROWS = (10_000, 3_000, 1_000)
_LARGEST = {"mu": 10.0, "epsilon": 16.0, "rho": 50.0}  # larger budgets are hardly private and not advised
_SEEN = 2.0  # standard deviations from which a curvature stands out from noise


@dataclass(frozen=True)
class Need:
    """Changes that would each suffice to learn a coefficient; None for a change not known to suffice."""

    people: int | None = None  # total number of people, at these budgets
    budgets: Mapping[str, Guarantee] = field(default_factory=dict)  # level to guarantee, with the current people
    public_rows: int | None = None  # number of public covariates like the people's, with the current people and budgets
    # whether it may take far more: the curvature along this coefficient is still hidden by noise, and is taken to be
    # like that along the others
    least: bool = False
    seen: bool = True  # whether enough stood out from noise for a forecast

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, including the words."""
        return {
            "people": self.people,
            "budgets": {level: each.to_dict() for level, each in self.budgets.items()} or None,
            "public_rows": self.public_rows,
            "at_least": self.least,
            "words": self.words,
        }

    @property
    def words(self) -> str:
        """The end of a sentence that begins with "it would take".

        Examples
        --------
        >>> from murk.privacy import GaussianDP
        >>> Need(400_000, {"default": GaussianDP(2.5)}).words
        'about 400,000 people in all, or mu of about 2.5 with as many people as now'
        >>> Need(seen=False).words
        'more than can be forecast yet: hardly anything stands out from the noise so far'
        """
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
            return f"more than {_MARGIN * MOST:,} times the people"
        words = ", or ".join(options)
        return words.replace("about", "at least") if self.least else words


def _budgets_words(budgets: Mapping[str, Guarantee]) -> str:
    words = []
    for level, budget in budgets.items():
        (parameters,) = budget.to_dict().values()
        name, value = next(iter(parameters.items()))
        words.append(f"{name} of about {value:g}" + (f" ({level})" if len(budgets) > 1 else ""))
    return " and ".join(words)


@dataclass(frozen=True)
class Outlook:
    """Input of forecasts."""

    # settings, solution, found: the public settings, the solution, and the epochs' mean answers that it solves
    settings: Settings
    solution: AnySolution
    found: Sequence[Summary]
    mechanisms: Mapping[str, ScoreMechanisms]  # level to mechanisms
    counts: Mapping[str, int]  # level to its number of releases

    @property
    def people(self) -> int:
        """Number of releases so far."""
        return sum(self.counts.values())

    def needs(self, quantile: float, within: Array | None = None) -> dict[str, Need]:
        """Return by name what it would take to learn each coefficient that was not learned.

        ``quantile`` is the intervals' normal quantile, and ``within`` the half-widths wanted, (p,), by default any.
        """
        names = self.settings.reported
        limits = np.full(len(names), _LARGEST_HALF) if within is None else within
        unknown = ~(self.solution.half_widths(quantile) <= limits)
        if not unknown.any():
            return {}
        visible = self._visible()
        if visible is None:
            return {name: Need(seen=False) for name, each in zip(names, unknown, strict=True) if each}
        model = self.settings.first_model(self.mechanisms)
        if not self.settings.once:
            model = self.settings.next_model(self.found, self.people, self.mechanisms)
        times = _MARGIN * self._times(model, quantile, unknown, limits)
        rows = self._rows(model, quantile, unknown, limits)
        needs = {}
        for j in np.flatnonzero(unknown).tolist():
            factor = float(times[j])
            people = None if math.isinf(factor) else rounded(factor * self.people)
            needs[names[j]] = Need(people, self._budgets(factor), int(rows[j]) or None, least=not visible[j])
        return needs

    # More people

    def _times(self, model: Model, quantile: float, unknown: NDArray[np.bool_], limits: Array) -> Array:
        """Return the multiple of people that each coefficient takes, (p,): a power of two, or infinite."""
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

    def _learned(self, model: Model, quantile: float, limits: Array, factor: int) -> NDArray[np.bool_]:
        """Return whether each coefficient is learned from ``factor`` times the people."""
        answers = [*self.found, *self._further_epochs(model, (factor - 1) * self.people)]
        try:
            halves = self.solution.refit(answers).half_widths(quantile)
        except (MurkError, np.linalg.LinAlgError):
            return np.zeros(len(self.settings.reported), dtype=bool)
        return np.asarray(halves <= limits)

    def _further_epochs(self, model: Model, people: int) -> list[Summary]:
        """Return the expected answers of more people: half of them centred, like every other epoch."""
        if model.exponent == 1.0:
            return self._epoch(model, people)
        centred = replace(model, exponent=1.0)
        return [*self._epoch(centred, people // 2), *self._epoch(model, people - people // 2)]

    def _epoch(self, model: Model, people: int) -> list[Summary]:
        """Return the mean answers of an epoch in which everybody answers as expected, with levels as so far."""
        tallies = {}
        for question, share in model.shares.items():
            mean = self._answer(model, question)
            for level, known in self.counts.items():
                count = round(people * known / self.people * share)
                if count:
                    step = step_of(self.mechanisms[level].mechanism(question))
                    tallies[level, question] = Tally(count, [round(count * value / step) for value in mean.tolist()])
        return summaries([Epoch(0, model, tallies)], self.mechanisms, self.settings.features)

    def _answer(self, model: Model, question: Question) -> Array:
        """Return one person's expected answer, in units of the release."""
        solution, response, rows = self.solution, self.settings.response, self.solution.rows
        if question == "score":
            if response.classes:
                basis = contrasts(response.classes)
                at = classes.probabilities(rows.points, solution.origin, basis)
                return self._target_share * classes.ClassScores.of(model, rows, basis).score(at)
            return self._target_share * Expected.of(model, rows, response).score(rows.points @ solution.origin)
        flat = question == "scatter" or bool(response.classes)
        matrix = mean_matrix(model, rows, Response(False) if response.classes else response, flat=flat)
        share = 1.0 if question == "scatter" else self._target_share
        return share * flattened(matrix) / (model.matrix_reach / 2.0)

    @property
    def _target_share(self) -> float:
        """Share of the people with a target."""
        solution = self.solution
        return min(solution.curvature.ratio, 1.0) if isinstance(solution, Solution) else 1.0 - solution.missing

    def _visible(self) -> NDArray[np.bool_] | None:
        """Return whether released matrices stand out from noise along each coefficient, (p,); None if along none."""
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
        # Each coefficient's direction, with the others at their most likely, in the newest coordinates.
        along = solution.newest.back.T @ solution.covariance
        along = along / np.linalg.norm(along, axis=0)
        measured = np.einsum("ij,ik,kj->j", along, matrices.measured, along)
        noise = np.sqrt(np.einsum("ij,ik,kj->j", along**2, matrices.variances, along**2))
        return np.asarray(measured > _SEEN * noise)

    # Larger budgets

    def _budgets(self, factor: float) -> dict[str, Guarantee]:
        """Return guarantees, by level, that make releases worth ``factor`` times as much; empty if one is too large."""
        if math.isinf(factor):
            return {}
        budgets = {level: self._budget(self.mechanisms[level], factor) for level in self.counts}
        known = {level: budget for level, budget in budgets.items() if budget is not None}
        return known if len(known) == len(budgets) else {}

    def _budget(self, pair: ScoreMechanisms, factor: float) -> Guarantee | None:
        score: Any = pair.score
        own = 1.0 / score.dimension
        wanted = (score.variance + own) / factor - own
        guarantee: Any = pair.guarantee
        (parameters,) = guarantee.to_dict().values()
        name, now = next(iter(parameters.items()))
        low, high = now, _LARGEST[name]

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

    # Public rows

    def _rows(self, model: Model, quantile: float, unknown: NDArray[np.bool_], limits: Array) -> NDArray[np.int64]:
        """Return the fewest public rows that suffice, (p,); 0 where none do, or there are some already."""
        fewest = np.zeros(len(unknown), dtype=np.int64)
        solution = self.solution
        if not isinstance(solution, Solution):
            return fewest
        answers = self._epoch(model, self.people // _MARGIN)
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
