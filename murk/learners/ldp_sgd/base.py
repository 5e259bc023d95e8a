"""What both LDP-SGD estimators share: features, levels, learning, state, inference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from river import base
from river.utils import dataframe

from murk.errors import MurkError, UserError
from murk.learners.engine import SGDEngine
from murk.learners.inference import Estimate, Intervals, PublicCovariates, estimate
from murk.learners.objectives import Huber, Logistic, Softmax
from murk.learners.settings import Averaging, InverseScalingStep, Settings, Weighting
from murk.learners.weights import Weights
from murk.privacy import Guarantee
from murk.privacy.mechanisms import Mechanism, calibrate
from murk.privacy.noise import NoiseSource
from murk.stream.codec import Rejected
from murk.stream.releases import GradientRelease

Record = Mapping[Any, Any]


class LDPSGD(base.Estimator):
    """What both estimators share: features, levels, learning, state, inference."""

    budget: Guarantee
    levels: Mapping[str, Guarantee] | None
    mechanism: str | None
    calibration: str
    features: Sequence[Any] | None
    weights: Weights
    clip: float | None
    second_moment: ArrayLike | None
    public: Any
    box: tuple[float, float] | None
    step: Any
    averaging: Averaging
    weighting: Weighting
    radius: float | None
    seed: int | None
    noise: NoiseSource | None

    _scale_settings: ClassVar[tuple[str, ...]] = ()

    def _prepare(self) -> None:
        """Set what is not a constructor argument; check what can be checked without a record."""
        self._engine: SGDEngine | None = None
        self._names: tuple[Any, ...] = ()
        self._mechanisms: dict[Guarantee, Mechanism] = {}
        if not isinstance(self.budget, Guarantee):
            raise UserError(
                f"budget={self.budget!r} is not a guarantee; give one such as GaussianDP(mu=1.0) or PureDP(epsilon=1.0)"
            )
        if self.features is not None:
            self._begin(tuple(self.features))

    def _objective(self) -> Logistic | Softmax | Huber:
        raise AssertionError("each estimator names its objective")

    def _extra_settings(self) -> dict[str, float]:
        return {}

    def _class_labels(self) -> tuple[object, ...]:
        return ()

    def _default_radius(self, coefficients: int) -> float:
        raise AssertionError("each estimator knows how far its coefficients may reach")

    # Start: the features are fixed once

    def _begin(self, names: tuple[Any, ...]) -> SGDEngine:
        if len(set(names)) != len(names) or "intercept" in names or not names:
            raise UserError(f"features must be distinct, at least one, and none named 'intercept': got {names!r}")
        coded = (*(str(name) for name in names), "intercept")
        covariates = None if self.public is None else self._covariates(names)
        moment = self.second_moment
        if moment is None and covariates is not None:
            moment = covariates.second_moment
        step = self.step
        if step != "noise-aware" and not isinstance(step, InverseScalingStep):
            try:
                step = InverseScalingStep(float(step.learning_rate), float(step.power))
            except AttributeError:
                raise UserError(
                    f"step={step!r} is neither 'noise-aware' nor an InverseScaling(learning_rate, power) of River"
                ) from None
        small, large = self.box or (0.0, math.inf)
        settings = Settings(
            objective=self._objective(),
            names=coded,
            weights=self.weights,
            clip=self.clip,
            step=step,
            averaging=self.averaging,
            weighting=self.weighting,
            radius=self._default_radius(len(coded)) if self.radius is None else self.radius,
            second_moment=None if moment is None else np.asarray(moment, dtype=np.float64),
            smallest_square=small,
            largest_square=large,
            **self._extra_settings(),  # type: ignore[arg-type]
        )
        self._settings = settings
        menu = {level: self._calibrated(guarantee) for level, guarantee in (self.levels or {}).items()}
        menu["default"] = self._calibrated(self.budget)
        self._default = menu["default"]
        engine = SGDEngine(
            settings,
            menu,
            seed=self.seed,
            noise=self.noise,
            covariates=covariates,
            classes=self._class_labels(),
        )
        self._names = names
        self._engine = engine
        self._getter = itemgetter(*names)
        engine.use(self._default)
        return engine

    def _calibrated(self, guarantee: Guarantee) -> Mechanism:
        found = self._mechanisms.get(guarantee)
        if found is None:
            found = calibrate(
                self.mechanism, guarantee, dimension=self._settings.dimension, radius=self._settings.bound,
                method=self.calibration,
            )  # fmt: skip
            # People may choose budgets from a continuum; a cache must not grow with them.
            if len(self._mechanisms) < 256:
                self._mechanisms[guarantee] = found
        return found

    def _covariates(self, names: tuple[Any, ...]) -> PublicCovariates:
        if isinstance(self.public, np.ndarray):
            rows = np.asarray(self.public, dtype=np.float64)
        elif isinstance(self.public, Sequence):
            rows = np.array([[float(row[name]) for name in names] for row in self.public], dtype=np.float64)
        else:
            rows = self._matrix(self.public, names)
        if rows.ndim != 2 or rows.shape[1] != len(names) or not np.all(np.isfinite(rows)) or not len(rows):
            raise UserError(
                f"public covariates need rows of {len(names)} finite numbers ({', '.join(map(str, names))}), "
                f"got shape {rows.shape}"
            )
        points, counts = np.unique(rows, axis=0, return_counts=True)
        return PublicCovariates(np.column_stack([points, np.ones(len(points))]), counts.astype(np.int64))

    # Learning

    def _fill(self, x: Record, engine: SGDEngine) -> None:
        try:
            engine.memory.features[:] = self._getter(x)
        except (KeyError, TypeError, ValueError, OverflowError):
            engine.memory.features[:] = [number(x.get(name)) for name in self._names]

    def _learn(self, x: Record, y: float, budget: Guarantee | None) -> None:
        engine = self._engine
        if engine is None:
            engine = self._begin(tuple(sorted(x)))
        engine.use(self._default if budget is None else self._calibrated(budget))
        self._fill(x, engine)
        engine.learn_record(y)

    def _learn_rows(self, X: Any, y: NDArray[np.float64], budget: Guarantee | Sequence[Guarantee] | None) -> None:
        engine = self._engine
        if engine is None:
            engine = self._begin(self._columns(X))
        rows = self._matrix(X, self._names)
        if len(rows) != len(y):
            raise UserError(f"X has {len(rows)} rows, y has {len(y)}")
        if isinstance(budget, Sequence):
            if len(budget) != len(rows):
                raise UserError(f"X has {len(rows)} rows, budget has {len(budget)}")
            engine.learn_records(rows, y, [self._calibrated(each) for each in budget])
        else:
            engine.use(self._default if budget is None else self._calibrated(budget))
            engine.learn_records(rows, y)

    def _columns(self, X: Any) -> tuple[Any, ...]:
        if isinstance(X, np.ndarray):
            return tuple(range(X.shape[1]))
        return tuple(sorted(dataframe.into_frame(X).columns))

    def _matrix(self, X: Any, names: tuple[Any, ...]) -> NDArray[np.float64]:
        if isinstance(X, np.ndarray):
            if X.ndim != 2 or X.shape[1] != len(names):
                raise UserError(f"an array of features must have shape (n, {len(names)}), got {X.shape}")
            return np.column_stack([numbers(column) for column in X.T]) if X.dtype.kind == "O" else X.astype(np.float64)
        frame = dataframe.into_frame(X)
        # Not frame[name]: a column may be named by a number, which would be taken for a row's.
        places = {name: place for place, name in enumerate(frame.columns)}
        absent = np.zeros(len(frame))
        return np.column_stack(
            [numbers(frame[:, places[name]].to_numpy()) if name in places else absent for name in names]
        )

    def learn_release(self, release: GradientRelease) -> None:
        """Learn from a gradient that was randomized elsewhere.

        Parameters
        ----------
        release
            A release at a level of this learner's menu, of the iterate of a published version.

        Raises
        ------
        Rejected
            If its level, size or magnitude does not fit, it is simulated and the learner is not seeded (or the
            other way round), or its version is unknown, too old, or not there yet.
        UserError
            If the features are not fixed yet.
        """
        engine = self._require()
        mechanism = engine.mechanisms.get(release.level)
        if mechanism is None:
            raise Rejected("level", f"{release.level!r} is not on the menu: {', '.join(engine.mechanisms)}")
        if release.simulated is not (self.seed is not None):
            raise Rejected("simulated", "a learner takes simulated releases if it is seeded, else real ones")
        if len(release.payload) != engine.dimension:
            raise Rejected("dimension", f"{len(release.payload)} numbers, the learner has {engine.dimension}")
        if max(map(abs, release.payload)) > mechanism.magnitude:
            raise Rejected("magnitude", f"a number beyond {mechanism.magnitude}, which honest noise does not reach")
        engine.admit(release)
        engine.learn_releases([release])

    # What was learned

    def _require(self) -> SGDEngine:
        if self._engine is None:
            raise UserError("the features are not known yet: give features=[...], or learn a record first")
        return self._engine

    @property
    def n_releases(self) -> int:
        """Number of releases learned from."""
        return 0 if self._engine is None else self._engine.n_releases

    @property
    def iterate(self) -> NDArray[np.float64]:
        """The newest iterate theta_t in working coordinates (whitened where a second moment was given)."""
        return self._require().iterate

    @property
    def average(self) -> NDArray[np.float64]:
        """The average bar_t of the iterates, in working coordinates."""
        return self._require().average

    def estimate(self) -> Estimate:
        """Coefficients with what their intervals need, and the method both come from."""
        return self._require().estimate()

    def coefficients(self) -> dict[str, float]:
        """Coefficients by feature name, the constant's as ``"intercept"`` (and ``"scale"``, ``"class:name"``)."""
        found = self.estimate()
        return dict(zip(found.names, map(float, found.values), strict=True))

    def confidence_intervals(self, level: float = 0.95) -> Intervals:
        """Confidence intervals by name, with their ``method`` and a ``note`` on their coverage.

        By plug-in where public covariates were given (any level), else by random scaling (0.95, 0.90, 0.80);
        see :mod:`murk.learners.inference` for both.
        """
        return self.estimate().intervals(level)

    def merged(self, others: Sequence[Self]) -> Estimate:
        """Estimate from this learner and ``others`` of the same settings, each having learned its own chain.

        Averages are weighted by each chain's sum of weights; the interval is that of several chains.
        """
        engine = self._require()
        memories = [engine.memory]
        for other in others:
            theirs = other._require()
            if theirs.settings.digest != engine.settings.digest or other._names != self._names:
                raise UserError("chains merge only between learners of the same features and settings")
            memories.append(theirs.memory)
        return estimate(engine.settings, memories, engine.covariates, engine.classes)

    def state_dict(self) -> dict[str, Any]:
        """The state as plain data (JSON), exact: :meth:`load_state_dict` goes on bit for bit."""
        names = [name if isinstance(name, str | int) else str(name) for name in self._names]
        return {"features": names, "fold": self._require().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of a learner with the same settings.

        Raises
        ------
        MurkError
            If the state is malformed or belongs to other features.
        """
        try:
            names, fold = tuple(state["features"]), state["fold"]
        except (KeyError, TypeError) as error:
            raise MurkError("the state is malformed: it needs features and fold") from error
        known = tuple(name if isinstance(name, str | int) else str(name) for name in self._names or names)
        if names != known:
            raise MurkError(f"the state is of features {names!r}, this learner has {known!r}")
        fresh = self._engine is None
        engine = self._begin(names) if fresh else self._require()
        try:
            engine.load_state_dict(fold)
        except MurkError:
            if fresh:
                self._prepare()
            raise

    # Prediction, by the average

    def _working(self) -> NDArray[np.float64]:
        engine = self._require()
        rows = engine.memory.rows[1, : engine.dimension - engine.settings.scaled]
        table: NDArray[np.float64] = rows.reshape(-1, engine.settings.features)
        transform = engine.settings.transform
        return table if transform is None else table @ transform

    def _scores(self, x: Record) -> NDArray[np.float64]:
        values = np.array([*(number(x.get(name)) for name in self._names), 1.0])
        scores: NDArray[np.float64] = self._working() @ values
        return scores

    def _scores_many(self, X: Any) -> NDArray[np.float64]:
        rows = self._matrix(X, self._names)
        scores: NDArray[np.float64] = np.column_stack([rows, np.ones(len(rows))]) @ self._working().T
        return scores

    def _unit_test_skips(self) -> set[str]:
        return set()


def number(value: Any) -> float:
    """A feature's value; what is missing or no finite number counts as 0, for everybody alike."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return found if math.isfinite(found) else 0.0


def target(value: Any) -> float:
    """A target's value; NaN, which is learned from as no gradient, where it is missing or no number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def numbers(values: Any, one: Callable[[Any], float] = number) -> NDArray[np.float64]:
    """A column of numbers. The text of a failed conversion would quote a record, so none leaves here."""
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    return np.array([one(value) for value in array], dtype=np.float64)


def series(values: Any, X: Any, name: str | None) -> Any:
    """Predictions in the kind of container that the features came in."""
    if isinstance(X, np.ndarray):
        return values
    return dataframe.to_native_series(values, name=name, like=dataframe.into_frame(X))
