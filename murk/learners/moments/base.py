"""Common base of the public-data GLM estimators."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from murk._scratch import empty
from murk.errors import UserError
from murk.learners.core.covariates import PublicSample
from murk.learners.core.curves import LOSSES, Curve
from murk.learners.core.estimator import PersonEstimator, Record
from murk.learners.core.options import chosen_noise
from murk.learners.core.scoring.local import LocalScores
from murk.learners.core.values import frame_of
from murk.learners.estimates.estimate import Estimate
from murk.learners.estimates.line import LineEstimate
from murk.learners.moments.bounds import normal_reach
from murk.learners.moments.directed import OF_MOMENTS, Directions, check_directions, release_by_rule
from murk.learners.moments.engine import BLOCK, MomentEngine, MomentModel, merged
from murk.learners.moments.fit import Response
from murk.learners.moments.mechanism import WHOLE, calibrated
from murk.learners.moments.problem import check_size
from murk.learners.moments.protocol import FORMER_RELEASES
from murk.learners.moments.root import NoRootError
from murk.learners.moments.statistics import Statistics, balanced
from murk.privacy import ApproxDP, Guarantee
from murk.privacy.mechanisms.base import Randomizer
from murk.privacy.mechanisms.payload_limits import FORGED
from murk.privacy.noise import NoiseSource
from murk.stream.messages.codec import RejectedError
from murk.stream.task.data.containers import column_array

Floats = NDArray[np.float64]

_CHOICES = {
    "release": (None, "directions", "observed", "joint", "separate"),
    "design": ("bounded", "gaussian"),
    "covariance": ("both", "private", "pooled"),
    "solver": ("stein", "score"),
    "beyond": ("scale", "zero"),
    "inputs": ("records", "released"),
}


class PublicMoments(PersonEstimator):
    """Base class of the public-data GLM estimators."""

    public: Any
    mechanism: str | None
    calibration: str
    radius: float | None
    beyond: Literal["scale", "zero"]
    design: Literal["bounded", "gaussian"]
    people: int
    failure: float
    release: Literal["directions", "observed", "joint", "separate"] | None
    target_weight: float | None
    covariance: Literal["both", "private", "pooled"]
    solver: Literal["stein", "score"]
    repair: bool
    intercept: bool
    inputs: Literal["records", "released"]

    _curve: Curve  # mean function
    _response: Response  # meaning of coded targets

    def _prepare(self, former: str | None = None) -> None:
        """Check the arguments and initialize; ``former`` is the default release of an earlier version."""
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise UserError(
                    f"{name}={getattr(self, name)!r} is not one of {', '.join(map(repr, filter(None, choices)))}"
                )
        if self.design == "gaussian" and (self.public is None or self.radius is not None):
            raise UserError(
                "design='gaussian' computes the bound on features from public covariates: give public=, and no radius="
            )
        if self.solver == "score" and self.public is None:
            raise UserError("solver='score' solves the model's equations over public covariates: give public=")
        if self.inputs == "released" and self.features is None:
            raise UserError("inputs='released' needs features=[...]: a release does not name its numbers")
        arguments, curve = {name: getattr(self, name) for name in (*OF_MOMENTS, "public")}, self._curve.name
        if self.release == "directions":
            check_directions(arguments, curve)
        self._released = self.release or former or release_by_rule(arguments, curve)
        self._directions: Directions | None = None
        self._sample, self.public = PublicSample.of_argument(self.public, self.features)
        super()._prepare()

    def _expected(self) -> tuple[float | None, float | None]:
        # With a normal design, the bound follows from the public covariates.
        return None if self.design == "gaussian" else self.radius or 1.0, None

    def _begin(self, names: tuple[Any, ...]) -> MomentEngine | LocalScores:
        noise, coded = chosen_noise(self.seed, self.noise), self._coded_names(names)
        sample = None if self._sample is None else self._sample.select(names)
        engine: MomentEngine | LocalScores
        if self._released == "directions":
            assert sample is not None
            binary = self._curve.name in LOSSES
            self._directions = Directions(coded, sample, self._curve, self._response, binary, self.mechanism)
            self._default = "default"
            engine = self._directions.engine({**(self.levels or {}), "default": self.budget}, noise)
        else:
            engine = self._of_moments(names, coded, sample, noise)
        self._fix(names, engine)
        return engine

    def _of_moments(
        self, names: tuple[Any, ...], coded: tuple[str, ...], sample: PublicSample | None, noise: NoiseSource
    ) -> MomentEngine:
        k = len(names)
        reach = math.sqrt(k) if self.radius is None else self.radius
        if self.design == "gaussian" and sample is not None:
            moment = sample.moment[:-1, :-1]
            reach = normal_reach(moment, self.people, self.failure, published=self._released == "separate")
        if not (math.isfinite(reach) and reach > 0):
            raise UserError(f"radius={reach!r}, the bound on the features' norm, must be positive and finite")
        # Scaled so that the bound leaves 1 for each feature, as for the constant.
        self._gain = math.sqrt(k) / reach
        whole = self._released in WHOLE
        bound = math.sqrt(k + self.intercept)
        weight = self.target_weight
        if weight is None:
            weight = balanced(bound) if whole else 1.0
        units = self._gain, self._response.half, self._response.middle
        root, zero, observed = math.sqrt(2.0) if whole else 1.0, self.beyond == "zero", self._released == "observed"
        names = coded if self.intercept else coded[:-1]
        self._layout = Statistics(names, bound, weight, self.intercept, root, zero, units, observed)
        check_size(self._layout)
        public = None if sample is None else sample.coded(reach, self._gain, self.intercept)
        model = MomentModel(self._curve, self._response, public, self.covariance, self.solver, self.repair)
        return MomentEngine(self._layout, model, self._level_mechanisms(), noise=noise)

    def _mechanism_for(self, guarantee: Guarantee) -> Randomizer:
        return calibrated(guarantee, self._layout, release=self._released, kind=self.mechanism, method=self.calibration)

    # Learning

    def _person_mechanism(self, budget: Guarantee) -> Any:
        return self._calibrated(budget) if self._directions is None else self._engine.level(budget)

    def learn_one(self, x: Record, y: Any = None, budget: Any = None) -> None:
        """Randomize the record's moments once and learn from the release.

        ``budget`` replaces the learner's budget for this person. With ``inputs="released"``, ``x`` maps the names in
        ``moments`` to released integers, ``y`` is ignored, and ``budget`` is a level's name.
        """
        if self.inputs == "released":
            self._learn_released(x, budget)
        else:
            self._learn(x, self._coded_one(y), budget)

    def learn_many(self, X: Any, y: Any = None, budget: Any = None) -> None:
        """Learn from the rows of a data frame or an ``(n, k)`` array.

        ``budget`` is for all rows, or a sequence with one for each row; with ``inputs="released"``, a level's name.
        """
        if self.inputs == "released":
            self._learn_released_rows(X, budget)
        else:
            super().learn_many(X, y, budget)

    def _learn_matrix(self, engine: Any, X: Floats, y: Floats, budget: Guarantee | Sequence[Guarantee] | None) -> None:
        if self._directions is not None:
            self._directions.learn(engine, X, y, budget)
            return
        own = self._of_rows(budget, len(X))
        # Coded in blocks that fit into the processor's cache.
        for start in range(0, len(X), BLOCK):
            block = slice(start, start + BLOCK)
            engine.learn_records(self._coded(X[block]), y[block], own[block] if isinstance(own, list) else [own])

    def _coded(self, rows: Floats) -> Floats:
        coded = empty((len(rows), len(self._names) + self.intercept))
        coded[:, len(self._names) :] = 1.0
        np.multiply(rows, self._gain, out=coded[:, : len(self._names)])
        return coded

    # Releases made elsewhere

    @property
    def moments(self) -> tuple[str, ...]:
        """Names of a release's numbers, in order: ``"a*b"``, and ``"a*target"``.

        Raises UserError if the learner's releases are directions.
        """
        self._require()
        if self._directions is not None:
            raise UserError(
                "directions have no moments: give release='observed', or give the devices' releases to learn_release"
            )
        labels = self._layout.labels
        twice = next((label for place, label in enumerate(labels) if label in labels[:place]), None)
        if twice is not None:
            raise UserError(f"two of a release's numbers would be named {twice!r}: rename the features")
        return labels

    def _learn_released(self, x: Record, level: Any) -> None:
        labels = self.moments
        if set(x) != set(labels):
            raise RejectedError(
                "dimension", f"a release needs the numbers {', '.join(labels[:4])}, ... ({len(labels)} in all)"
            )
        self._learn_payloads([[x[label] for label in labels]], level)

    def _learn_released_rows(self, X: Any, level: Any) -> None:
        if not isinstance(X, np.ndarray):
            frame = frame_of(X)
            if set(frame.columns) != set(self.moments):
                raise RejectedError("dimension", f"a release needs the columns {', '.join(self.moments[:4])}, ...")
            # Column by column: released integers may exceed what floats hold.
            X = np.column_stack([column_array(frame[name].to_native()) for name in self.moments])
        self._learn_payloads(X, level)

    def _learn_payloads(self, payloads: Any, level: Any) -> None:
        engine = self._require()
        name = "default" if level is None else level
        mechanism = engine.mechanisms.get(name) if isinstance(name, str) else None
        if mechanism is None:
            raise RejectedError("level", f"{name!r} is not one of the levels: {', '.join(engine.mechanisms)}")
        table = np.asarray(payloads)
        if table.ndim != 2 or table.shape[1] != engine.dimension:
            raise RejectedError("dimension", f"numbers of shape {table.shape}, a release has {engine.dimension}")
        if table.dtype.kind not in "iu" or (
            table.size and max(-int(table.min()), int(table.max())) > mechanism.magnitude
        ):
            raise RejectedError("magnitude", f"released numbers are integers of at most {mechanism.magnitude}")
        table = table.astype(np.int64)
        if not mechanism.reach.holds_all(table):
            raise RejectedError("magnitude", FORGED)
        engine.learn_payloads(table, name)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state of a learner with the same settings.

        If the argument ``release`` was omitted, a state of joint moments, the earlier default, keeps them. Raises
        MurkError if the state is malformed or belongs to other features.
        """
        fold = state.get("fold") if isinstance(state, Mapping) else None
        of_moments = isinstance(fold, Mapping) and "moments" in fold and self.release is None and not self.n_releases
        self._load_or_go_on(state, FORMER_RELEASES if of_moments else ())

    # What was learned

    def _in_own_units(self, coded: Estimate) -> Estimate:
        scale = np.full(len(coded.names), self._gain)
        if self.intercept:
            scale[-1] = 1.0
        if isinstance(coded, LineEstimate):
            return coded.scaled(scale)
        return replace(coded, values=coded.values * scale, spread=coded.spread * scale)

    def estimate(self) -> Estimate:
        """Return the coefficients with standard errors; the note states if there is no root (see ``NoRootError``)."""
        if self._directions is not None:
            return self._directions.in_units(self._require().estimate())
        return self._in_own_units(self._require().estimate())

    def coefficients(self) -> dict[str, float]:
        """Return coefficients by feature name, the constant's as ``"intercept"``.

        Raises
        ------
        NoRootError
            If no factor turns the least-squares direction into the curve's coefficients. The error holds the direction.
            Then :meth:`estimate` scales the direction as if all ``x'w`` were near 0, and predictions use the line.
        """
        engine = self._require()
        if self._directions is None and (missing := engine.fitted().missing) is not None:
            raise NoRootError(str(missing), self.direction())
        estimate = self.estimate()
        return dict(zip(estimate.names, map(float, estimate.values), strict=True))

    def direction(self) -> dict[str, float]:
        """Return least-squares slopes by feature name, of which the coefficients are a multiple.

        For released directions these are the coefficients.
        """
        if self._directions is not None:
            return {name: value for name, value in self.coefficients().items() if name != "intercept"}
        slopes = self._require().fitted().direction[: len(self._names)] * self._gain
        return dict(zip(self._layout.names, map(float, slopes), strict=False))

    def merged(self, others: Sequence[Self]) -> Estimate:
        """Return the joint estimate of this learner and ``others`` with the same features, from their added sums."""
        for other in others:
            if not isinstance(other, PublicMoments):
                raise UserError(f"learners of moments merge with each other only, not with a {type(other).__name__}")
            if (other._directions is None) is not (self._directions is None):
                raise UserError("learners of directions and of moments cannot be merged: give both the same release=")
        if self._directions is not None:
            return self._directions.merged(self._engines(others))
        return self._in_own_units(merged([self._require(), *(other._require() for other in others)]))

    # Prediction

    def _responses(self, rows: Floats) -> Floats:
        """Return mean responses of rows; from the least-squares line if there is no root."""
        engine = self._require()
        if self._directions is not None:
            return self._directions.responses(engine, rows)
        fitted, X = engine.fitted(), self._coded(rows)
        if fitted.missing is not None:
            return np.asarray(X @ fitted.direction)
        return np.asarray(engine.model.curve.mean(X @ fitted.values))


def published(budget: Guarantee) -> dict[str, Any]:
    """Return the paper's settings, on which `as_published` of both estimators is based."""
    return {
        "release": "separate",
        "calibration": "classic" if isinstance(budget, ApproxDP) else "analytic",
        "covariance": "pooled",
        "repair": False,
        "intercept": False,
        "beyond": "zero",
    }
