"""Base of both score estimators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.learners.core.covariates import PublicSample
from murk.learners.core.estimator import PersonEstimator
from murk.learners.core.options import chosen_noise
from murk.learners.core.scoring.engine import drift_of, merged
from murk.learners.core.scoring.estimate import ScoreEstimate
from murk.learners.core.scoring.local import LocalScores
from murk.learners.core.scoring.mechanism import ScoreMechanisms, score_mechanisms
from murk.learners.core.scoring.model import with_constant
from murk.learners.core.scoring.settings import FEWEST_KEPT, Settings
from murk.learners.estimates.drift import Drift
from murk.learners.estimates.estimate import PublicCovariates
from murk.privacy import Guarantee

Floats = NDArray[np.float64]


class Scores(PersonEstimator):
    """Base class of both estimators: features, public covariates, levels, learning, state, inference."""

    public: Any
    mechanism: str | None
    exponent: float | None
    forget: int | None

    _binary: ClassVar[bool]
    _labels: tuple[str, ...] = ()  # the classes, if there are more than two
    _half = 1.0  # a coefficient's coded unit, in the target's units

    def _prepare(self) -> None:
        if self.exponent is not None and not 0.0 <= self.exponent <= 1.0:
            raise UserError(f"exponent={self.exponent!r} is not between 0 and 1")
        if self.exponent is not None and self.exponent < 1.0 and self.public is None:
            raise UserError(
                f"exponent={self.exponent!r}: an uncentred score needs the features' distribution; give public= "
                "covariates, or leave exponent out"
            )
        if self.forget is not None and not (isinstance(self.forget, int) and self.forget >= FEWEST_KEPT):
            raise UserError(
                f"forget={self.forget!r}: give the number of newest releases to learn from, at least "
                f"{FEWEST_KEPT:,}, or None for all"
            )
        self._sample, self.public = PublicSample.of_argument(self.public, self.features)
        super()._prepare()

    def _begin(self, names: tuple[Any, ...]) -> LocalScores:
        coded, covariates = self._coded_names(names), None
        if self._sample is not None:
            covariates = PublicCovariates.of_rows(self._sample.select(names).rows)
        labels = self._labels
        settings = Settings(
            coded, self._binary and not labels, covariates, self.exponent, labels, forget=self.forget,
            line=covariates is None,
        )  # fmt: skip
        self._names, self._default = names, "default"
        engine = LocalScores(
            settings,
            {**(self.levels or {}), "default": self.budget},
            self._mechanism_for,
            chosen_noise(self.seed, self.noise),
        )
        self._fix(names, engine)
        return engine

    def _mechanism_for(self, guarantee: Guarantee) -> ScoreMechanisms:
        return score_mechanisms(self.mechanism, guarantee, len(self._names) + 1, max(len(self._labels) - 1, 1))

    def _person_mechanism(self, budget: Guarantee) -> str:
        level: str = self._engine.level(budget)
        return level

    def _learn_matrix(self, engine: Any, X: Floats, y: Floats, budget: Guarantee | Sequence[Guarantee] | None) -> None:
        engine.learn_records(X, self._clipped(y), engine.row_levels(budget, len(X)))

    def _clipped(self, y: Floats) -> Floats:
        """Return coded targets within their bounds."""
        return y

    def published(self) -> tuple[int, list[float]]:
        """Return the version at which the newest epoch began and its model, at which devices make releases."""
        published: tuple[int, list[float]] = self._require().published()
        return published

    def _in_units(self, estimate: ScoreEstimate) -> ScoreEstimate:
        """Return an estimate in the target's own units."""
        return estimate

    def estimate(self) -> ScoreEstimate:
        """Return coefficients with their intervals; half-widths are infinite for coefficients that were not learned."""
        return self._in_units(self._require().estimate())

    def merged(self, others: Sequence[Self]) -> ScoreEstimate:
        """Return the joint estimate of this learner and ``others`` of the same settings."""
        return self._in_units(merged(self._engines(others)))

    def drift(self) -> Drift:
        """Test whether the coefficients have changed, with 1% false alarms in a stream's life; takes long."""
        engine = self._require()
        drift = drift_of(engine.settings, [(engine.now, engine.mechanisms)])
        return replace(drift, changes={name: self._half * change for name, change in drift.changes.items()})

    def _linear(self, rows: Floats) -> Floats:
        """Return logits, or coded targets, of rows without the constant, (n, 1); for classes contrasts, (n, K - 1)."""
        shown = self._require().shown()
        return np.asarray(with_constant(rows) @ shown.reshape(-1, rows.shape[1] + 1).T)
