"""The public settings of a task of scores, the grid of its epochs, and solutions and models that follow from releases.

An epoch's start and end are counted in releases of a chain.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np

from murk._internal.arrays import Floats
from murk.inference.estimate import PublicCovariates
from murk.inference.prediction_sets import (
    LABELS,
    REAL,
    CoverageQuery,
    PredictionSets,
    Present,
    Reply,
    Root,
    at_least_present,
)
from murk.protocols.linear_algebra import matrix_size, whitening
from murk.protocols.mean_functions import CodedCurve
from murk.protocols.scores.mechanisms import LevelMechanisms
from murk.protocols.scores.model import LARGEST_REACH, Model, Response, Rows, Sets, check_model, model_size
from murk.protocols.scores.solve.classes import FIRST_SHARES, ClassLines, ClassSolution
from murk.protocols.scores.solve.curve import Solution
from murk.protocols.scores.solve.line import next_model
from murk.protocols.scores.solve.public import CurveSolution, PublicSolution
from murk.protocols.scores.sums import Epoch, Summaries, replies_of, summaries
from murk.protocols.scores.survey.coordinates import Coordinates
from murk.protocols.scores.survey.rounds import Round, Survey

FIRST: Final = 3000  # releases of the first epoch; each later one has as many as all before it, up to the longest
REMEMBERED: Final = 8  # epochs that a learner keeps: while they double, older ones have under 1% of the releases
FEWEST_KEPT: Final = FIRST * REMEMBERED  # least releases to keep: no epoch is shorter than the first
NEVER: Final = 2**62  # end of an endless epoch


def epoch_start(version: int, longest: int = NEVER, first: int = FIRST) -> int:
    """Return the start of the current epoch: epochs double from ``first`` up to ``longest``, then stay that long."""
    if version < first:
        return 0
    doubled = _doubled(longest, first)
    if version >= doubled:
        return doubled + (version - doubled) // longest * longest
    return first << ((version // first).bit_length() - 1)


def epoch_end(version: int, longest: int = NEVER, first: int = FIRST) -> int:
    """Return the version at which the current epoch ends."""
    if version < first:
        return first
    start = epoch_start(version, longest, first)
    return start + min(start, longest)


@lru_cache(maxsize=64)
def remembered(start: int, longest: int = NEVER, first: int = FIRST) -> tuple[int, ...]:
    """Return the starts of the remembered epochs, oldest first, the newest of which begins at ``start``.

    >>> remembered(6_000), remembered(768_000)[:2], remembered(998_000, 25_000)[::7]
    ((0, 3000, 6000), (6000, 12000), (823000, 998000))
    """
    starts = [start]
    while starts[-1] > 0 and len(starts) < REMEMBERED:
        starts.append(epoch_start(starts[-1] - 1, longest, first))
    return tuple(reversed(starts))


def _doubled(longest: int, first: int) -> int:
    """Return the start of the first epoch of the longest length."""
    return first << (longest // first).bit_length()


def shown_next(count: int, longest: int = NEVER, first: int = FIRST) -> int:
    """Return the next number of releases at which predictions are updated, four times an epoch."""
    start = epoch_start(count, longest, first) or 1 << max(count.bit_length() - 1, 0)
    step = max(min(start, longest) // 4, 1)
    return min(count - (count - start) % step + step, epoch_end(count, longest, first)) if count else 1


REACH: Final = 1.3  # R in units of the typical length sqrt p: the few people beyond it count for less

MOST_REACH: Final = 2.0  # largest R without public rows, in units of sqrt p, for matrices with little noise

_NOISE = 32.0  # between `REACH` and `MOST_REACH`, R p times the noise's standard deviation in a matrix's number is this

MOST_NUMBERS: Final = 600  # largest size of a matrix asked for in a single endless epoch: larger ones are too noisy

_CHECK = 0.1  # share of people asked for a curvature with public rows, to check that people are like these


@dataclass(frozen=True)
class Settings:
    """All public values that decide what is asked and how answers are combined."""

    names: tuple[str, ...]  # coded features in order, the constant last
    binary: bool  # whether the target is binary; else it is real, in [-1, 1]
    covariates: PublicCovariates | None = None  # public covariates, if any
    exponent: float | None = None  # g; None to choose it by rule
    labels: tuple[str, ...] = ()  # the classes of a target with several
    once: bool = False  # whether all answer at the public model of version 0, in a single endless epoch
    curve: CodedCurve | None = None  # another mean function; not in the digest, as any may be fitted to the releases
    forget: int | None = None  # number of newest releases used, of each chain or of all that share models; None for all
    shared: bool = False  # whether all chains share models: epochs then count over all chains, and their sums add up
    # whether people are asked for the line (see `line`) while noise would hide the curvature of log odds; not in the
    # digest, as answers at any model count either way
    line: bool = False
    wanted: CoverageQuery | None = None  # prediction sets, if people are asked about them
    first: int = FIRST  # releases of the first epoch; those of a shuffled task are no fewer than a crowd
    survey: Survey | None = None  # the survey that precedes scores, if any
    coordinates: Coordinates | None = None  # centres and spreads of the features, if known without public covariates

    @cached_property
    def longest(self) -> int:
        """Largest number of releases in an epoch; the learner forgets whole epochs."""
        return NEVER if self.forget is None else self.forget // REMEMBERED

    def epoch_start(self, version: int) -> int:
        """Return the start of the epoch that a chain of ``version`` releases is in."""
        if self.once:
            return 0
        rounds = self._rounds
        if version < rounds[-1]:
            return rounds[bisect_right(rounds, version) - 1]
        return rounds[-1] + epoch_start(version - rounds[-1], self.longest, self.first)

    def epoch_end(self, version: int) -> int:
        """Return the end of the epoch that a chain of ``version`` releases is in."""
        if self.once:
            return NEVER
        rounds = self._rounds
        if version < rounds[-1]:
            return rounds[bisect_right(rounds, version)]
        return rounds[-1] + epoch_end(version - rounds[-1], self.longest, self.first)

    def epoch_number(self, version: int) -> int:
        """Return the number of epochs before the one that a chain of ``version`` releases is in."""
        if self.once:
            return 0
        rounds = self._rounds
        if version < rounds[-1]:
            return bisect_right(rounds, version) - 1
        scored, doubled = version - rounds[-1], _doubled(self.longest, self.first)
        before = (min(scored, doubled) // self.first).bit_length() + max(scored - doubled, 0) // self.longest
        return len(rounds) - 1 + before

    def remembered(self, count: int) -> tuple[int, ...]:
        """Return the starts of the epochs that a chain of ``count`` releases remembers, oldest first."""
        if self.once:
            return (0,)
        rounds = self._rounds
        if count < rounds[-1]:
            return rounds[: bisect_right(rounds, count)][-REMEMBERED:]
        scored = remembered(epoch_start(count - rounds[-1], self.longest, self.first), self.longest, self.first)
        return (*rounds[:-1], *(rounds[-1] + start for start in scored))[-REMEMBERED:]

    def shown_next(self, count: int) -> int:
        """Return the next number of releases at which predictions are updated."""
        end = self._rounds[-1]
        return self.epoch_end(count) if count < end else end + shown_next(count - end, self.longest, self.first)

    @property
    def _rounds(self) -> tuple[int, ...]:
        """Versions at which rounds of the survey may begin, and its end."""
        return (0,) if self.survey is None else self.survey.starts

    @property
    def bits(self) -> bool:
        """Whether anybody answers with one number in [-1, 1]."""
        return self.wanted is not None or self.survey is not None

    @property
    def matrices(self) -> bool:
        """Whether anybody is asked for a matrix: nobody is in a single epoch with many features."""
        return not self.once or matrix_size(self.features) <= MOST_NUMBERS

    @property
    def answers(self) -> int:
        """Number of classes that scores tell apart; 0 for a target without any."""
        return len(self.labels)

    @property
    def features(self) -> int:
        """Number p of coded features, including the constant."""
        return len(self.names)

    @property
    def contrasts(self) -> int:
        """Number of contrasts: K - 1 for K classes, else 1."""
        return max(self.answers - 1, 1)

    @property
    def dimension(self) -> int:
        """Length of a score."""
        return self.contrasts * self.features

    @property
    def reported(self) -> tuple[str, ...]:
        """Names of the coefficients."""
        return tuple(f"{label}:{name}" for label in self.labels for name in self.names) or self.names

    @cached_property
    def response(self) -> Response:
        """How the target enters a score."""
        return Response(self.binary, self.answers, self.curve)

    @property
    def rows(self) -> Rows | None:
        """Public covariates as rows."""
        return None if self.covariates is None else Rows.public(self.covariates)

    def reach(self, public: bool, mechanisms: LevelMechanisms) -> float:
        """Return the reach R of models: longer records have less weight, and released matrices' noise grows with R."""
        typical = math.sqrt(self.features)
        if self.labels and public:
            # For classes released matrices also determine missing targets, and must be precise.
            return REACH * typical
        if public or self.once:
            # No released matrix determines the curvature: nobody needs to count for less to make matrices precise.
            return LARGEST_REACH
        matrix: Any = mechanisms["default"].matrix
        return min(MOST_REACH * typical, max(REACH * typical, _NOISE / (self.features * math.sqrt(matrix.variance))))

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the settings: states load, and chains merge, only between equal ones."""
        parts = [repr(self.names), repr(self.binary), repr(self.exponent)]
        # Settings that came later count where they are not the default.
        parts += [repr(self.labels)] * bool(self.labels) + ["once"] * self.once
        parts += [f"forget={self.forget}"] * (self.forget is not None) + ["shared"] * self.shared
        # Learners of other budgets, whose rounds have other lengths, can be merged.
        if self.survey is not None:
            parts.append(repr((self.survey.numbers, self.survey.stated, self.survey.target)))
        parts += [f"first={self.first}"] * (self.first != FIRST) + [repr(self.wanted)] * (self.wanted is not None)
        if self.covariates is not None:
            parts += [self.covariates.points.tobytes().hex(), self.covariates.counts.tobytes().hex()]
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]

    def first_model(self, mechanisms: LevelMechanisms) -> Model:
        """Return the model of version 0: a survey's, or one at zero, where every probability is 1/2."""
        if self.survey is not None and self.coordinates is None:
            return self._survey_model(self.survey.opening())
        p = self.features
        transform, (scatter, curvature) = np.eye(p), FIRST_SHARES if self.labels else (0.0, 0.5)
        if self.covariates is not None:
            transform, scatter, curvature = whitening(self.covariates.second_moment), 0.0, _CHECK
        elif self.coordinates is not None:
            transform = self.coordinates.transform
        if not self.matrices:
            scatter = curvature = 0.0
        exponent = 1.0 if self.exponent is None else self.exponent
        reach = self.reach(self.covariates is not None, mechanisms)
        origin = np.zeros(self.dimension)
        return self._completed(Model(origin, transform, reach, exponent, scatter, curvature).rounded(), origin, [])

    def at(self, coordinates: Coordinates | None) -> Settings:
        """Return the settings with coordinates that a survey found, if any."""
        return self if coordinates is None else replace(self, coordinates=coordinates)

    def following(
        self, epochs: Sequence[Epoch], count: int, coordinates: Coordinates | None, mechanisms: LevelMechanisms
    ) -> tuple[Model, Coordinates | None]:
        """Return the model of the epoch that begins at ``count``, and the coordinates by then."""
        if self.survey is not None and coordinates is None:
            surveyed = [epoch for epoch in epochs if epoch.model.survey and epoch.tallies]
            concluded = self.survey.concluded(
                replies_of(surveyed, mechanisms, self.features)[: len(self.survey.numbers)], len(surveyed)
            )
            if isinstance(concluded, Round):
                return self._survey_model(concluded), None
            coordinates = concluded
        settings, found = self.at(coordinates), summaries(epochs, mechanisms, self.features)
        # Epochs as short as a survey's rounds say too little for a model of their own.
        if not found or count <= self._rounds[-1]:
            model = settings.first_model(mechanisms)
            if model.sets is not None and count < self._rounds[-1]:
                # Nor do they say where a prediction set ends.
                model = replace(model, sets=replace(model.sets, share=0.0))
            return model, coordinates
        return settings.next_model(found, count, mechanisms), coordinates

    def _survey_model(self, asked: Round) -> Model:
        with np.errstate(divide="ignore"):
            factors = np.where(asked.scale > 0.0, 1.0 / asked.scale, 0.0)
        size = self.features - 1
        transform, origin = np.diag(np.append(factors[:size], 1.0)), np.zeros(self.dimension)
        transform[:-1, -1] = -asked.centre[:size] * factors[:size]
        target = (float(asked.centre[-1]), min(float(asked.scale[-1]), 1.0)) if len(factors) > size else (0.0, 0.0)
        model = Model(origin, transform, 1.0, 1.0, 0.0, 0.0, asked.thresholds, *target)
        return self._completed(model.rounded(), origin, [])

    def next_model(self, found: Summaries, count: int, mechanisms: LevelMechanisms) -> Model:
        """Return the model of the epoch that begins at ``count``."""
        solution = self.solution(found)
        return self._completed(self._next_model(solution, found, count, mechanisms), solution.origin, found, solution)

    def solution(self, found: Summaries) -> AnySolution:
        """Return the solution of epochs' mean answers."""
        return solution_of(found, self.response, self.rows, self.coordinates)

    def _next_model(self, solution: AnySolution, found: Summaries, count: int, mechanisms: LevelMechanisms) -> Model:
        pair: Any = mechanisms["default"]
        if isinstance(solution, ClassLines):
            noise = pair.score.variance, pair.matrix.variance
            return solution.next_model(self.reach(False, mechanisms), noise)
        if solution.public or self.labels:
            shares = (0.0, _CHECK)
        else:
            shares = (0.05, 0.1) if self.binary else (0.0, 0.15)
        exponent = self._exponent(solution, count, mechanisms, found[-1].model)
        model = solution.next_model(self.reach(solution.public, mechanisms), exponent, shares)
        if not (self.line and self.binary and isinstance(solution, Solution)):
            return model
        people = min(self.epoch_end(count), self.forget or NEVER) - count
        return next_model(solution, found, model, max(people, 1), (pair.score.variance, pair.matrix.variance))

    # Prediction sets

    @cached_property
    def coverage(self) -> float:
        """Nominal coverage of prediction sets; 0 without any."""
        return 0.0 if self.wanted is None else self.wanted.coverage

    def sets(self, solution: AnySolution | None, found: Summaries, model: Model, answers: int) -> PredictionSets:
        """Return the prediction sets known from the answers at all models, of which ``model`` is the newest."""
        assert model.sets is not None
        basis = self.response.basis if self.binary or self.labels else None
        root = self._root(solution, found, model, model.sets.origin)
        return PredictionSets(root, model.sets.origin, basis, answers)

    def _completed(self, model: Model, origin: Floats, found: Summaries, solution: AnySolution | None = None) -> Model:
        """Return a model with its targets' units, and with a prediction and the threshold to ask about next."""
        if self.coordinates is not None and not model.survey:
            middle, width = self.coordinates.target
            model = replace(model, middle=middle, width=width)
        if self.wanted is None:
            return model
        threshold = self._root(solution, found, model, origin).next_question()
        return replace(model, sets=Sets(origin, threshold, self.wanted.share)).rounded()

    def _root(self, solution: AnySolution | None, found: Summaries, model: Model, origin: Floats) -> Root:
        scale = LABELS if self.binary or self.labels else REAL
        replies = []
        for each in found:
            asked, answer = each.model.sets, each.inside
            if asked is None or answer is None:
                continue
            # The root mean square of how far the prediction has moved: people's second moment is the identity in z.
            change = (asked.origin - origin).reshape(-1, self.features) @ model.back
            moved = scale.moved(float(np.linalg.norm(change)), asked.threshold)
            share = 0.5 + 0.5 * float(answer.mean[0])
            spread = answer.noise / 4.0, 1.0 / answer.share
            replies.append(Reply(asked.threshold, share, *spread, moved, asked.origin, answer.farthest / 2.0))
        # The share of targets present, by curvatures over scatters and by the replies.
        share, error = (1.0, math.inf) if solution is None else solution.targets
        least = max(share - _SURELY * error, at_least_present(self.coverage, replies))
        present = Present(min(max(share, least), 1.0), min(least, 1.0))
        return Root(scale, self.coverage, replies, present)

    @property
    def model_size(self) -> int:
        """Length of a published model."""
        return model_size(self.features, self.contrasts, sets=self.wanted is not None)

    def checked(self, flat: Floats) -> Model:
        """Return a published vector as a model; raise HostileModelError for one that no honest learner publishes."""
        return check_model(flat, self.features, self.contrasts, matrices=self.matrices, sets=self.wanted is not None)

    def _exponent(self, solution: AnySolution, count: int, mechanisms: LevelMechanisms, before: Model) -> float:
        """Return g by rule: 0 where the public rows' sampling error is small compared with the noise, else 1/2.

        This takes at least ``n / (p s^2)`` rows, n being the epoch's end and s^2 the noise's variance. g is 1 without
        rows, with people unlike them, with missing targets, and in at least every other epoch: centred scores hold for
        any distribution of the covariates, and check the other scores.
        """
        if self.exponent is not None:
            return self.exponent
        if self.covariates is None or not self.binary or not solution.public or solution.missing:
            return 1.0
        # If late models skipped epochs, the one before may have had an odd number, too.
        if self.epoch_number(count) % 2 == 0 or before.exponent != 1.0:
            return 1.0
        mechanism: Any = mechanisms["default"].score
        needed = min(self.epoch_end(count), self.forget or NEVER) / (self.features * mechanism.variance)
        return 0.0 if float(self.covariates.counts.sum()) >= needed else 0.5


AnySolution = Solution | PublicSolution | ClassSolution | ClassLines


def solution_of(
    answers: Summaries, response: Response, rows: Rows | None, coordinates: Coordinates | None = None
) -> AnySolution:
    """Return the solution of answers over public rows, if people are like them; else by released moments alone."""
    if response.classes:
        if rows is None:
            return ClassLines(answers, response.classes, coordinates)
        return ClassSolution(answers, response.classes, rows)
    if rows is None:
        return Solution(answers, response, coordinates)
    if response.curve is not None:
        return CurveSolution(answers, response, rows)
    public = PublicSolution(answers, response, rows)
    return public if public.alike and public.useful else Solution(answers, response, unlike=True)


_SURELY: Final = 2.0  # standard errors that are subtracted from the share of targets present


NATS: Final = 20.0  # honest equations count as disagreeing with probability e^-NATS, or 2e-9, at most


def largest_square(freedom: float) -> float:
    """Return a bound that a chi-square variable of ``freedom`` degrees exceeds with probability at most e^-NATS.

    Source: Laurent and Massart, "Adaptive estimation of a quadratic functional by model selection", 2000, lemma 1.
    """
    return freedom + 2.0 * math.sqrt(freedom * NATS) + 2.0 * NATS


def disagreement(solution: AnySolution) -> float:
    """Return the factor by which disagreeing epochs widen intervals (Birge's ratio); 1 where chance explains them.

    Squared residuals, in units of their variances, are chi-square. Over public rows the factor is 1.
    """
    if isinstance(solution, ClassLines):
        # Classes share their scores' noise: the largest factor counts.
        return max((_factor(line.misfits, solution.features) for line in solution.lines), default=1.0)
    return _factor(solution.misfits, solution.features) if isinstance(solution, Solution) else 1.0


def _factor(squares: Floats, features: int) -> float:
    if len(squares) < 2:
        return 1.0
    freedom = features * (len(squares) - 1)
    together = float(np.sum(squares)) / largest_square(freedom)
    alone = float(np.max(squares)) / largest_square(features)
    return math.sqrt(max(together, alone, 1.0))
