"""Common base of the IWP-SGD estimators."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.learners.core.estimator import Record, SGDEstimator, step_setting
from murk.learners.core.options import Averaging, InverseScalingStep, Weighting
from murk.learners.core.values import number
from murk.learners.estimates.estimate import Estimate
from murk.learners.examples import layout as k
from murk.learners.examples.directions import own_variance, parts
from murk.learners.examples.engine import IWPEngine
from murk.learners.examples.evaluation import Example
from murk.learners.examples.inference import estimate
from murk.learners.examples.losses import Noise
from murk.learners.examples.outer import matrix_of
from murk.learners.examples.outer_engine import engine_of
from murk.learners.examples.protocol import FORMER_RELEASES
from murk.learners.examples.settings import POLISHED, ExampleMechanism, ExampleSettings, released, settle
from murk.privacy import Guarantee
from murk.stream.messages.releases import ExampleRelease


class IWPSGD(SGDEstimator):
    """Base class of the IWP-SGD estimators."""

    release: Literal["outer", "directions", "joint", "separate"] | None
    mechanism: Literal["gaussian", "laplace", "l2-ball", "privunit"] | None
    split: float
    calibration: Literal["analytic", "classic"]
    bound: float | None
    loss: Any
    regularization: float
    batch: int
    step: Any
    averaging: Averaging
    weighting: Weighting
    radius: float | None
    polish: bool | None
    intercept: bool
    intervals: Literal["random-scaling"] | None
    inputs: Literal["records", "released"]
    corrected: bool

    _target: ClassVar[Literal["binary", "real"]]

    def _prepare(self, former: str | None = None) -> None:
        """Check the arguments and initialize; ``former`` is the default release of an earlier version."""
        if self.inputs not in ("records", "released"):
            raise UserError(f"inputs={self.inputs!r} is not one of 'records', 'released'")
        for name in ("intercept", "corrected"):
            if not isinstance(getattr(self, name), bool):
                raise UserError(f"{name}={getattr(self, name)!r} is neither True nor False")
        if self.bound is not None and not (math.isfinite(self.bound) and self.bound > 0):
            raise UserError(f"bound={self.bound!r}, the public bound on ||x||, must be positive and finite")
        self._former = former
        # Check early whatever does not depend on the features.
        if isinstance(self.budget, Guarantee):
            self._made_settings(("feature", "intercept")).mechanism(self.budget)
        super()._prepare()

    def _made_settings(self, coded: tuple[str, ...]) -> ExampleSettings:
        return ExampleSettings(
            target=self._target,
            names=coded,
            square=float(len(coded)) if self.bound is None else self.bound**2 + 1.0,
            boxed=self.bound is None,
            release=self._released(len(coded) - 1),
            split=self.split,
            loss=self.loss,
            truncation=getattr(self, "truncation", None),
            radius=self.radius,
            calibration=self.calibration,
            regularization=self.regularization,
            batch=self.batch,
            step=step_setting(self.step),
            averaging=self.averaging,
            weighting=self.weighting,
            polish=self._polished(len(coded)),
            unit=float(getattr(self, "_bound", 1.0)),
            intercept=self.intercept,
            intervals=self.intervals,
            kind=self.mechanism,
            corrected=self.corrected,
        )

    def _released(self, coded: int) -> Any:
        budgets = (self.budget, *(self.levels or {}).values())
        guarantees = [budget for budget in budgets if isinstance(budget, Guarantee)]
        return released(self.release or self._former, self.loss, guarantees, coded)

    def _polished(self, coefficients: int) -> bool:
        by_default = coefficients <= POLISHED or self._released(coefficients - 1) == "outer"
        return by_default if self.polish is None else self.polish

    def _expected(self) -> tuple[float | None, float | None]:
        return self.bound or 1.0, getattr(self, "_bound", None)

    def _begin(self, names: tuple[Any, ...]) -> IWPEngine:
        self._settings = self._made_settings(self._coded_names(names))
        mechanisms = self._level_mechanisms()
        engine = engine_of(settle(self._settings, mechanisms), mechanisms, seed=self.seed, noise=self.noise)
        self._start(names, engine)
        return engine

    def _mechanism_for(self, guarantee: Guarantee) -> ExampleMechanism:
        return self._settings.mechanism(guarantee)

    # Learning

    def learn_one(self, x: Record, y: Any, budget: Guarantee | None = None) -> None:
        """Randomize the record once and learn from the release; or learn from a released example.

        ``budget`` replaces the learner's own for this person. A noise level outside the loss's valid region is refused
        before the record is read.
        """
        if self.inputs == "released":
            self._learn_released(x, self._released_target(x, y), budget)
        else:
            self._learn(x, self._coded_one(y), budget)

    def learn_many(self, X: Any, y: Any, budget: Guarantee | Sequence[Guarantee] | None = None) -> None:
        """Learn from the rows of a data frame or an ``(n, d)`` array of raw records.

        ``budget`` is a guarantee for all rows, or a sequence with one for each row.
        """
        if self.inputs == "released":
            raise UserError("learn_many takes raw records; give released examples to learn_one or learn_release")
        super().learn_many(X, y, budget)

    @abstractmethod
    def _released_target(self, x: Record, y: Any) -> float:
        """Return the target of a released example as a number."""

    def _learn_released(self, x: Record, y: float, budget: Guarantee | None) -> None:
        """Learn from a decoded example."""
        engine = self._engine
        if engine is None:
            engine = self._get_engine(tuple(sorted(name for name in x if name != "intercept")))
        mechanism = self._default if budget is None else self._calibrated(budget)
        if isinstance(x, Example):
            self._check_released(x, engine.settings.noise(mechanism))
        if engine.settings.outer:
            numbers = getattr(x, "matrix", None)
            if numbers is None or len(numbers) != engine.dimension:
                raise UserError("x is not an outer product of this learner's features, as `decoded` returns it")
            engine.learn_decoded(numbers[None, :], np.zeros(1), mechanism)
            return
        vector = np.array([*(number(x.get(name)) for name in self._names), 1.0])
        product, directed = self._settings.form == k.PRODUCT, self._settings.directed
        if product or directed:
            vector[-1] = number(x.get("intercept"))
        if directed:
            vector = np.append(vector, getattr(x, "missing", 0.0))
        engine.learn_decoded(vector[None, :], np.array([0.0 if product else y]), mechanism)

    def _check_released(self, x: Example, assumed: Noise) -> None:
        """Raise UserError for an example whose kind of release or noise differs from what the learner assumes."""
        settings = self._settings
        if (x.product, x.directed, x.matrix is not None) != (
            settings.form == k.PRODUCT or settings.outer, settings.directed, settings.outer
        ):  # fmt: skip
            raise UserError("x is a different kind of release from this learner's: give the learner the same `release`")
        if x.directed:
            # Its noise is a function of the direction's length and of the number of its features.
            names = set(x) - {"intercept"}
            if names != set(self._names):
                raise UserError(
                    f"x is a direction of the features {', '.join(sorted(map(str, names)))}: give the learner "
                    "exactly these"
                )
        elif not np.allclose(astuple(x.noise), astuple(assumed), rtol=1e-9, atol=0.0):
            raise UserError(
                f"x was released with other noise ({x.noise}) than this learner assumes ({assumed}): give it the "
                "budget, features and target of the release, or learn the release itself (`learn_release`)"
            )

    def decoded(self, release: ExampleRelease) -> tuple[Example, Any]:
        """Decode a release to ``(x, y)``, for River's evaluation and for learners with ``inputs="released"``.

        ``x`` has the noisy features and ``y`` the label or noisy target. In a product, ``x`` is multiplied by the label
        and has the constant as ``"intercept"``; ``y`` is the second class. In a direction, ``x`` is u and ``y`` is t.
        In an outer product, ``x`` is the noisy product of features and target, and ``x.matrix`` the whole matrix.
        """
        engine: IWPEngine = self._require()
        mechanism = engine.mechanisms[release.level]
        values = mechanism.decode(np.array([release.payload], dtype=np.int64))
        if engine.settings.outer:
            p = engine.settings.features
            x = Example(zip((*self._names, "intercept"), matrix_of(values[0], p)[:p, p].tolist(), strict=True))
            x.noise, x.matrix, x.product = engine.settings.noise(mechanism), values[0], True
            return x, self._shown(1.0)
        form, directed, target = engine.settings.form, engine.settings.directed, float(values[0, -1])
        if directed:
            values, targets = parts(form, values)
            target = float(targets[0])
        x = Example(zip(self._names, values[0].tolist(), strict=False))
        x.noise, x.product, x.directed = engine.settings.noise(mechanism), form == k.PRODUCT, directed
        if form == k.PRODUCT:
            x["intercept"] = float(values[0, -1])
        if directed:
            x.missing, p = float(values[0, -1]), engine.settings.features
            x["intercept"] = float(values[0, -2])
            own = own_variance(p, float(np.square(values[0, :p]).sum()), x.missing)
            x.noise = replace(x.noise, variance=own, constant_variance=own)
            return x, target
        return x, self._shown(1.0 if form == k.PRODUCT else target)

    @abstractmethod
    def _shown(self, target: float) -> Any:
        """Return a decoded target as River's evaluation expects it."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state of a learner with the same settings.

        If the argument ``release`` was omitted, a state from an earlier default release keeps that release. Raises
        MurkError if the state is malformed or belongs to other features.
        """
        by_default = self.release is None and not self.n_releases
        self._load_or_go_on(state, FORMER_RELEASES if by_default else ())

    # What was learned

    @property
    def unbiased_loss(self) -> float:
        """Running mean of the unbiased loss estimates (progressive validation), NaN before the first release.

        Each release is scored with the coefficients of ``predict_one`` before it is learned from.
        """
        return math.nan if self._engine is None else float(self._engine.unbiased_loss[0])

    @property
    def unbiased_loss_error(self) -> float:
        """Standard error of :attr:`unbiased_loss`."""
        return math.nan if self._engine is None else float(self._engine.unbiased_loss[1])

    @property
    def refused_updates(self) -> int:
        """Number of releases ignored as implausible or because the step was not finite."""
        return 0 if self._engine is None else int(self._engine.refused_updates)

    def linear_coefficients(self) -> tuple[dict[Any, float], float]:
        """Return the coefficients by feature, and the constant, that ``predict_one`` uses."""
        if self._engine is None:
            return {}, 0.0
        *slopes, constant = self._engine.reference.tolist()
        return dict(zip(self._names, slopes, strict=True)), constant

    def merged(self, others: Sequence[Self]) -> Estimate:
        """Return the joint estimate of this learner and ``others`` with the same settings, each of one chain."""
        return estimate([engine.snapshot() for engine in self._engines(others)])

    def _linear(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return scores of rows of features without the constant."""
        return np.asarray(np.column_stack([rows, np.ones(len(rows))]) @ self._require().reference)


def published(gamma: float) -> dict[str, Any]:
    """Return the paper's settings, on which `as_published` of both estimators is based."""
    return {
        "release": "separate",
        "step": InverseScalingStep(gamma, 0.0),
        "averaging": None,
        "weighting": "uniform",
        "regularization": 5.0,
        "batch": 128,
        "polish": False,
    }
