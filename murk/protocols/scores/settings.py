"""The public settings of a task of scores, the grid of its rounds, and its first model.

A round's start and end are counted in releases of a partition.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from murk._internal.arrays import Floats
from murk.privacy.mechanisms.outer_product import matrix_size
from murk.protocols.linear_algebra import whitening
from murk.protocols.rows import Rows
from murk.protocols.scores.mechanisms import LevelMechanisms
from murk.protocols.scores.model import (
    FIRST_SHARES,
    LARGEST_CLIPPING_NORM,
    CoverageQuery,
    Model,
    Response,
    SetQuery,
    check_model,
    model_size,
)
from murk.protocols.scores.survey.coordinates import Coordinates
from murk.protocols.scores.survey.rounds import Survey, SurveyRound
from murk.protocols.windows import Windows

if TYPE_CHECKING:
    from murk.inference.prediction_sets import Root
    from murk.protocols.mean_functions import CodedCurve

FIRST: Final = 3000  # releases of the first round; each later one has as many as all before it, up to the longest
REMEMBERED: Final = 8  # rounds that a learner keeps: while they double, older ones have under 1% of the releases
FEWEST_KEPT: Final = FIRST * REMEMBERED  # least releases to keep: no round is shorter than the first
WINDOW_ROUNDS: Final = 4  # newest rounds whose answers a window keeps; only the first windows have more rounds
NEVER: Final = 2**62  # end of an endless round


def round_start(version: int, longest: int = NEVER, first: int = FIRST) -> int:
    """Return the start of the current round: rounds double from ``first`` up to ``longest``, then stay that long."""
    if version < first:
        return 0
    doubled = _doubled(longest, first)
    if version >= doubled:
        return doubled + (version - doubled) // longest * longest
    return first << ((version // first).bit_length() - 1)


def round_end(version: int, longest: int = NEVER, first: int = FIRST) -> int:
    """Return the version at which the current round ends."""
    if version < first:
        return first
    start = round_start(version, longest, first)
    return start + min(start, longest)


@lru_cache(maxsize=64)
def remembered(start: int, longest: int = NEVER, first: int = FIRST) -> tuple[int, ...]:
    """Return the starts of the remembered rounds, oldest first, the newest of which begins at ``start``.

    >>> remembered(6_000), remembered(768_000)[:2], remembered(998_000, 25_000)[::7]
    ((0, 3000, 6000), (6000, 12000), (823000, 998000))
    """
    starts = [start]
    while starts[-1] > 0 and len(starts) < REMEMBERED:
        starts.append(round_start(starts[-1] - 1, longest, first))
    return tuple(reversed(starts))


def _doubled(longest: int, first: int) -> int:
    """Return the start of the first round of the longest length."""
    return first << (longest // first).bit_length()


def shown_next(count: int, longest: int = NEVER, first: int = FIRST) -> int:
    """Return the next number of releases at which predictions are updated, four times a round."""
    start = round_start(count, longest, first) or 1 << max(count.bit_length() - 1, 0)
    step = max(min(start, longest) // 4, 1)
    return min(count - (count - start) % step + step, round_end(count, longest, first)) if count else 1


REACH: Final = 1.3  # R in units of the typical length sqrt p: the few people beyond it count for less

MOST_REACH: Final = 2.0  # largest R without public rows, in units of sqrt p, for matrices with little noise

_NOISE = 32.0  # R p times the standard deviation of a matrix entry's noise, for R between `REACH` and `MOST_REACH`

MOST_NUMBERS: Final = 600  # largest size of a matrix asked for in a single endless round: larger ones are too noisy

CHECK = 0.1  # share of people asked for a curvature with public rows, to check that people are like these


@dataclass(frozen=True)
class Settings:
    """All public values that decide what is asked and how answers are combined."""

    names: tuple[str, ...]  # coded features in order, the constant last
    binary: bool  # whether the target is binary; else it is real, in [-1, 1]
    covariates: Rows | None = None  # public covariates, if any
    exponent: float | None = None  # g; None to choose it by rule
    labels: tuple[str, ...] = ()  # names of the target's classes; empty for other targets
    once: bool = False  # whether all answer at the public model of version 0, in a single endless round
    curve: CodedCurve | None = None  # another mean function; not in the digest, as any may be fitted to the releases
    forget: int | None = (
        None  # number of newest releases used, of each partition or of all that share models; None for all
    )
    shared: bool = (
        False  # whether all partitions share models: rounds then count over all partitions, and their sums add up
    )
    # Whether models determine the line (see `line`) while noise would hide the curvature of log odds; not in the
    # digest, as answers at any model are used either way.
    line: bool = False
    wanted: CoverageQuery | None = None  # prediction sets, if people are asked about them
    first: int = FIRST  # releases of the first round; in a shuffled task at least as many as a crowd
    survey: Survey | None = None  # the survey that precedes scores, if any
    coordinates: Coordinates | None = None  # centres and spreads of the features, if known without public covariates
    windows: Windows | None = None  # windows for which sums are kept besides those by round
    repeats: int = 1  # largest number of answers of one person, for which prediction sets allow
    weighed: bool = False  # whether people are weighted by their numbers of rows

    @cached_property
    def longest(self) -> int:
        """Largest number of releases in a round; the learner forgets whole rounds."""
        return NEVER if self.forget is None else self.forget // REMEMBERED

    def round_start(self, version: int) -> int:
        """Return the start of the round that a partition of ``version`` releases is in."""
        if self.once:
            return 0
        survey_rounds = self.survey_rounds
        if version < survey_rounds[-1]:
            return survey_rounds[bisect_right(survey_rounds, version) - 1]
        return survey_rounds[-1] + round_start(version - survey_rounds[-1], self.longest, self.first)

    def round_end(self, version: int) -> int:
        """Return the end of the round that a partition of ``version`` releases is in."""
        if self.once:
            return NEVER
        survey_rounds = self.survey_rounds
        if version < survey_rounds[-1]:
            return survey_rounds[bisect_right(survey_rounds, version)]
        return survey_rounds[-1] + round_end(version - survey_rounds[-1], self.longest, self.first)

    def round_number(self, version: int) -> int:
        """Return the number of rounds before the one that a partition of ``version`` releases is in."""
        if self.once:
            return 0
        survey_rounds = self.survey_rounds
        if version < survey_rounds[-1]:
            return bisect_right(survey_rounds, version) - 1
        scored, doubled = version - survey_rounds[-1], _doubled(self.longest, self.first)
        before = (min(scored, doubled) // self.first).bit_length() + max(scored - doubled, 0) // self.longest
        return len(survey_rounds) - 1 + before

    def remembered(self, count: int) -> tuple[int, ...]:
        """Return the starts of the rounds that a partition of ``count`` releases remembers, oldest first."""
        if self.once:
            return (0,)
        survey_rounds = self.survey_rounds
        if count < survey_rounds[-1]:
            return survey_rounds[: bisect_right(survey_rounds, count)][-REMEMBERED:]
        scored = remembered(round_start(count - survey_rounds[-1], self.longest, self.first), self.longest, self.first)
        return (*survey_rounds[:-1], *(survey_rounds[-1] + start for start in scored))[-REMEMBERED:]

    def shown_next(self, count: int) -> int:
        """Return the next number of releases at which predictions are updated."""
        end = self.survey_rounds[-1]
        return self.round_end(count) if count < end else end + shown_next(count - end, self.longest, self.first)

    @property
    def survey_rounds(self) -> tuple[int, ...]:
        """Versions at which rounds of the survey may begin, and its end."""
        return (0,) if self.survey is None else self.survey.starts

    @property
    def bits(self) -> bool:
        """Whether anybody answers with one number in [-1, 1]."""
        return self.wanted is not None or self.survey is not None

    @property
    def matrices(self) -> bool:
        """Whether anybody is asked for a matrix: nobody is in a single round with many features."""
        return not self.once or matrix_size(self.features) <= MOST_NUMBERS

    @property
    def answers(self) -> int:
        """Number of classes that scores distinguish; 0 for a target without classes."""
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
    def lengths(self) -> tuple[int, ...]:
        """Lengths of payloads: of scores and, where they are asked for, of matrices and of single numbers."""
        most = 3 if self.bits else 1 + self.matrices
        return (self.dimension, matrix_size(self.features), 1)[:most]

    @property
    def reported(self) -> tuple[str, ...]:
        """Names of the coefficients."""
        return tuple(f"{label}:{name}" for label in self.labels for name in self.names) or self.names

    @cached_property
    def response(self) -> Response:
        """How the target enters a score."""
        return Response(self.binary, self.answers, self.curve, self.weighed)

    @property
    def rows(self) -> Rows | None:
        """Public covariates as rows."""
        return self.covariates

    def clipping_norm(self, public: bool, mechanisms: LevelMechanisms) -> float:
        """Return the clipping norm R of models: longer records weigh less, and matrices' noise grows with R."""
        typical = math.sqrt(self.features)
        if self.labels and public:
            # For classes released matrices also determine missing targets, and must be precise.
            return REACH * typical
        if public or self.once:
            # Released matrices do not determine the curvature here and need not be precise: no record is shortened.
            return LARGEST_CLIPPING_NORM
        matrix: Any = mechanisms["default"].matrix
        return min(MOST_REACH * typical, max(REACH * typical, _NOISE / (self.features * math.sqrt(matrix.variance))))

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the settings: states load, and partitions merge, only if fingerprints are equal."""
        parts = [repr(self.names), repr(self.binary), repr(self.exponent)]
        # Most settings are left out at their defaults.
        parts += [repr(self.labels)] * bool(self.labels) + ["once"] * self.once
        if self.once and self.coordinates is not None:
            parts.append(repr((self.coordinates.centre.tolist(), self.coordinates.spread.tolist())))
        parts += [f"forget={self.forget}"] * (self.forget is not None) + ["shared"] * self.shared
        # The lengths of a survey's rounds are left out, so that learners with different budgets can be merged.
        if self.survey is not None:
            parts.append(repr((self.survey.numbers, self.survey.stated, self.survey.target)))
        parts += [f"first={self.first}"] * (self.first != FIRST) + [repr(self.wanted)] * (self.wanted is not None)
        parts += [repr(self.windows)] * (self.windows is not None)
        parts += [f"repeats={self.repeats}"] * (self.repeats > 1) + ["weighed"] * self.weighed
        if self.covariates is not None:
            parts += [self.covariates.points.tobytes().hex(), self.covariates.counts.tobytes().hex()]
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]

    def first_model(self, mechanisms: LevelMechanisms) -> Model:
        """Return the model of version 0: a survey's, or one at zero, where every probability is 1/2."""
        if self.survey is not None and self.coordinates is None:
            return self.survey_model(self.survey.opening())
        p = self.features
        transform, (scatter, curvature) = np.eye(p), FIRST_SHARES if self.labels else (0.0, 0.5)
        if self.covariates is not None:
            transform, scatter, curvature = whitening(self.covariates.second_moment), 0.0, CHECK
        elif self.coordinates is not None:
            transform = self.coordinates.transform
        if not self.matrices:
            scatter = curvature = 0.0
        exponent = 1.0 if self.exponent is None else self.exponent
        clipping_norm = self.clipping_norm(self.covariates is not None, mechanisms)
        origin = np.zeros(self.dimension)
        return self.completed(Model(origin, transform, clipping_norm, exponent, scatter, curvature).rounded(), origin)

    def at(self, coordinates: Coordinates | None) -> Settings:
        """Return the settings with coordinates that a survey found, if any."""
        return self if coordinates is None else replace(self, coordinates=coordinates)

    def survey_model(self, asked: SurveyRound) -> Model:
        """Return the model of a survey's round, by which people's queries are drawn."""
        with np.errstate(divide="ignore"):
            factors = np.where(asked.scale > 0.0, 1.0 / asked.scale, 0.0)
        size = self.features - 1
        transform, origin = np.diag(np.append(factors[:size], 1.0)), np.zeros(self.dimension)
        transform[:-1, -1] = -asked.centre[:size] * factors[:size]
        target = (float(asked.centre[-1]), min(float(asked.scale[-1]), 1.0)) if len(factors) > size else (0.0, 0.0)
        model = Model(origin, transform, 1.0, 1.0, 0.0, 0.0, asked.thresholds, *target)
        return self.completed(model.rounded(), origin)

    @cached_property
    def coverage(self) -> float:
        """Nominal coverage of prediction sets; 0 without any."""
        return 0.0 if self.wanted is None else self.wanted.coverage

    def completed(self, model: Model, origin: Floats, root: Root | None = None) -> Model:
        """Return a model with its targets' units, and with a prediction and the threshold to ask about next.

        ``root`` is the posterior of the threshold, by default without any answers.
        """
        if self.coordinates is not None and not model.survey:
            middle, width = self.coordinates.target
            model = replace(model, middle=middle, width=width)
        if self.wanted is None:
            return model
        if root is None:
            # Imported here, as devices without prediction sets do not need it.
            from murk.inference.prediction_sets import LABELS, REAL, Present, Root, at_least_present

            present = Present(1.0, min(at_least_present(self.coverage, []), 1.0))
            root = Root(LABELS if self.binary or self.labels else REAL, self.coverage, [], present)
        return replace(model, sets=SetQuery(origin, root.next_query(), self.wanted.share)).rounded()

    @property
    def model_size(self) -> int:
        """Length of a published model."""
        return model_size(self.features, self.contrasts, sets=self.wanted is not None)

    def checked(self, flat: Floats) -> Model:
        """Return a published vector as a model; raise HostileModelError for one that no honest learner publishes."""
        return check_model(flat, self.features, self.contrasts, matrices=self.matrices, sets=self.wanted is not None)
