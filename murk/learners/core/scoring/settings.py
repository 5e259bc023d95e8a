"""What is public of a task of scores, and the models that follow from what was released."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from murk.learners.core.coordinates import whitening
from murk.learners.core.curves import CodedCurve
from murk.learners.core.scoring.any_solution import AnySolution, solution_of
from murk.learners.core.scoring.class_lines import FIRST_SHARES, ClassLines
from murk.learners.core.scoring.epoch_grid import NEVER, REMEMBERED, epoch_end, epoch_number, epoch_start, remembered
from murk.learners.core.scoring.line import next_model
from murk.learners.core.scoring.mechanism import ScoreMechanisms
from murk.learners.core.scoring.model import LARGEST_REACH, Model, Response
from murk.learners.core.scoring.rows import Rows
from murk.learners.core.scoring.solve import Solution
from murk.learners.core.scoring.sums import Summary
from murk.learners.core.symmetric import matrix_size
from murk.learners.estimates.estimate import PublicCovariates

REACH: Final = 1.3
"""R in units of the typical length sqrt p: beyond it few people are, and those count for less."""

MOST_REACH: Final = 2.0
"""The most that R is without public rows, in units of sqrt p: where the noise of matrices is small."""

# What R p times the standard deviation of a matrix's number may be, while R is between the two: in proportion to it
# the matrices' noise outgrows the curvature that they tell.
_NOISE = 32.0

MOST_NUMBERS: Final = 600
"""Most numbers of a matrix that people are asked for who answer at once: of more, too little would be said to check."""

_CHECK = 0.1
"""Share of the people asked for their curvature where there are public rows: it says whether these are like them."""


@dataclass(frozen=True)
class Settings:
    """Everything public that decides what is asked and how answers are put together.

    Parameters
    ----------
    names
        Coded features in their order, the constant last.
    binary
        Whether the target is binary; else it is real, in [-1, 1].
    covariates
        Public covariates, if there are any.
    exponent
        g, where it is not left to the rule.
    labels
        The classes, where the target is one of several.
    once
        Whether there is but one epoch, which never ends: nobody reads a model, all answer at that of version 0, which
        is public with the task.
    curve
        The mean function, where it is not the logistic one, or the line. Any may be fitted to the same releases: it
        is not part of the digest.
    forget
        The most releases that an estimate is of, the newest ones; None for all. Of a chain, or where models are shared
        of all chains.
    shared
        Whether people of all chains answer at the same models: epochs are then counted over all of them, and whole
        numbers of the same epoch add up, as if there was one chain.
    line
        Whether people are asked at one probability for everybody as long as noise would hide the curvature of log odds,
        and average effects may be those of the line through labels. What was asked at any model counts either way: it
        is not part of the digest.
    """

    names: tuple[str, ...]
    binary: bool
    covariates: PublicCovariates | None = None
    exponent: float | None = None
    labels: tuple[str, ...] = ()
    once: bool = False
    curve: CodedCurve | None = None
    forget: int | None = None
    shared: bool = False
    line: bool = False

    @cached_property
    def longest(self) -> int:
        """Most releases of an epoch: what is forgotten at once."""
        return NEVER if self.forget is None else self.forget // REMEMBERED

    def epoch_start(self, version: int) -> int:
        """Version at which the epoch began in which a chain with so many releases stands."""
        return 0 if self.once else epoch_start(version, self.longest)

    def epoch_end(self, version: int) -> int:
        """Version at which that epoch ends."""
        return NEVER if self.once else epoch_end(version, self.longest)

    def epoch_number(self, version: int) -> int:
        """How many epochs ended before that one."""
        return 0 if self.once else epoch_number(version, self.longest)

    def remembered(self, count: int) -> tuple[int, ...]:
        """Where the epochs begin that a chain with so many releases remembers, oldest first."""
        return (0,) if self.once else remembered(epoch_start(count, self.longest), self.longest)

    @property
    def matrices(self) -> bool:
        """Whether anybody is asked for a matrix: where all answer at once and features are many, nobody is."""
        return not self.once or matrix_size(self.features) <= MOST_NUMBERS

    @property
    def features(self) -> int:
        """Number p of coded features, the constant among them."""
        return len(self.names)

    @property
    def contrasts(self) -> int:
        """K - 1 of K classes, else 1."""
        return max(len(self.labels) - 1, 1)

    @property
    def dimension(self) -> int:
        """Numbers in a score."""
        return self.contrasts * self.features

    @property
    def reported(self) -> tuple[str, ...]:
        """Names of the coefficients."""
        return tuple(f"{label}:{name}" for label in self.labels for name in self.names) or self.names

    @cached_property
    def response(self) -> Response:
        """How the target enters a score."""
        return Response(self.binary, len(self.labels), self.curve)

    @property
    def rows(self) -> Rows | None:
        """Public covariates as rows."""
        return None if self.covariates is None else Rows.public(self.covariates)

    def reach(self, public: bool, mechanisms: Mapping[str, ScoreMechanisms]) -> float:
        """R, where public rows are used or not.

        People beyond it count for less, those of rare categories before all; released matrices have noise of size R.
        """
        typical = math.sqrt(self.features)
        if self.labels and public:
            # Of classes released matrices also say how many targets are missing, which needs them to be exact.
            return REACH * typical
        if public or self.once:
            # What curvature there is, the rows say: nobody needs to count for less for the sake of the matrices.
            return LARGEST_REACH
        matrix: Any = mechanisms["default"].matrix
        return min(MOST_REACH * typical, max(REACH * typical, _NOISE / (self.features * math.sqrt(matrix.variance))))

    @cached_property
    def digest(self) -> str:
        """Fingerprint of all settings: states go on, and chains merge, only between equal ones."""
        parts = [repr(self.names), repr(self.binary), repr(self.exponent)]
        if self.labels:
            parts.append(repr(self.labels))
        if self.once:
            parts.append("once")
        if self.forget is not None:
            parts.append(f"forget={self.forget}")
        if self.shared:
            parts.append("shared")
        if self.covariates is not None:
            parts += [self.covariates.points.tobytes().hex(), self.covariates.counts.tobytes().hex()]
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]

    def first_model(self, mechanisms: Mapping[str, ScoreMechanisms]) -> Model:
        """The model of version 0: at zero, where every probability is 1/2."""
        p = self.features
        transform, (scatter, curvature) = np.eye(p), FIRST_SHARES if self.labels else (0.0, 0.5)
        if self.covariates is not None:
            transform, scatter, curvature = whitening(self.covariates.second_moment), 0.0, _CHECK
        if not self.matrices:
            scatter = curvature = 0.0
        exponent = 1.0 if self.exponent is None else self.exponent
        reach = self.reach(self.covariates is not None, mechanisms)
        return Model(np.zeros(self.dimension), transform, reach, exponent, scatter, curvature).rounded()

    def next_model(self, found: Sequence[Summary], count: int, mechanisms: Mapping[str, ScoreMechanisms]) -> Model:
        """The model of the epoch that begins at ``count``."""
        solution = solution_of(found, self.response, self.rows)
        pair: Any = mechanisms["default"]
        if isinstance(solution, ClassLines):
            noise = pair.score.variance, pair.matrix.variance
            return solution.next_model(self.reach(False, mechanisms), noise)
        if solution.public or self.labels:
            shares = (0.0, _CHECK)
        else:
            shares = (0.05, 0.1) if self.binary else (0.0, 0.15)
        model = solution.next_model(
            self.reach(solution.public, mechanisms),
            self._exponent(solution, count, mechanisms, found[-1].model),
            shares,
        )
        if not (self.line and self.binary and isinstance(solution, Solution)):
            return model
        people = min(self.epoch_end(count), self.forget or NEVER) - count
        return next_model(solution, found, model, max(people, 1), (pair.score.variance, pair.matrix.variance))

    def _exponent(
        self, solution: AnySolution, count: int, mechanisms: Mapping[str, ScoreMechanisms], before: Model
    ) -> float:
        r"""g by rule: 0 where public rows are so many that their own chance is small beside the noise.

        ``m >= n mu^2 / (4 p)``, n at the end of the epoch: in terms of the noise, ``n / (p s^2)``; with fewer 1/2; 1
        where there are none, or they are not like the people's, or targets are missing. It is 1 in every other epoch
        at least: what a centred score says holds for any distribution of the covariates, and the others are held
        against it.
        """
        if self.exponent is not None:
            return self.exponent
        if self.covariates is None or not self.binary or self.epoch_number(count) % 2 == 0:
            return 1.0
        # Where models come late, and epochs are left out, the one before may have had an odd number, too.
        if before.exponent != 1.0:
            return 1.0
        if not solution.public or solution.missing:
            return 1.0
        mechanism: Any = mechanisms["default"].score
        needed = min(self.epoch_end(count), self.forget or NEVER) / (self.features * mechanism.variance)
        return 0.0 if float(self.covariates.counts.sum()) >= needed else 0.5
