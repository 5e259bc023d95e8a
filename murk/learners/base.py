"""Base classes of the River estimators: features, levels, releases, state, intervals, predictions, codes of labels."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from river import base
from river.utils import dataframe

from murk._internal.arrays import Floats
from murk._internal.locks import ForkSafeLock
from murk._internal.wiping import lasting, track, wiping
from murk.errors import MurkError, UserError
from murk.inference.estimate import Estimate, Intervals
from murk.inference.target_range import TargetRange
from murk.learners._warnings import FIRST, BeyondBounds, FirstRecords
from murk.privacy import GaussianDP, Guarantee, PureDP
from murk.privacy.noise import NoiseSource
from murk.protocols.options import InverseScalingStep, chosen_noise
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import Release
from murk.stream.worker.interface import payload_lengths
from murk.task.coding import INTERCEPT, class_clash, is_absent, is_constant, is_nan
from murk.task.containers import column_array
from murk.task.values import frame_of, number, numbers, target, targets

if TYPE_CHECKING:
    from murk.protocols.engine import Engine, IterateLearner, RecordLearner
    from murk.results.result import Result
    from murk.task.protocols.base import Scale, TaskProtocol

_ERROR_CODE = "MURK-LEARN-001"

Record = Mapping[Any, Any]

_BEGINNING = ForkSafeLock()  # if two threads bring a first record, only one fixes the features


EngineType = TypeVar("EngineType", bound="Engine")
RecordEngineType = TypeVar("RecordEngineType", bound="RecordLearner")
IterateEngineType = TypeVar("IterateEngineType", bound="IterateLearner")


@dataclass(kw_only=True, eq=False, repr=False)
class StreamEstimator(base.Estimator, Generic[EngineType]):
    """Base class of River estimators. Features are fixed at construction, or by a simulation's first record."""

    guarantee: Guarantee
    levels: Mapping[str, Guarantee] | None = None
    features: Sequence[Any] | None = None
    seed: int | None = None
    noise: NoiseSource | None = None

    def _prepare(self) -> None:
        """Check the constructor's arguments, and initialize all other attributes."""
        chosen_noise(self.seed, self.noise)
        self._engine: EngineType | None = None
        self._names: tuple[Any, ...] = ()
        self._first_records: FirstRecords | None = None
        self._mechanisms: dict[Guarantee, Any] = {}
        if not isinstance(self.guarantee, Guarantee):
            raise UserError(
                f"guarantee={self.guarantee!r} is not a guarantee; give one such as GaussianDP(mu=1.0) or "
                "ApproxDP(epsilon=1.0, delta=1e-6)"
            )
        if self.features is not None:
            check_ordered("features", self.features, "names, as in features=['age', 'dose']")
            self._begin(tuple(self.features))
        elif self.seed is None and not (self.noise is not None and self.noise.simulated):
            raise UserError(
                "features= is required with real noise: give the features' names, in a fixed order, as in "
                "features=['age', 'dose']. Names from the first record may reveal its values, as encoders make names "
                "of values ('diagnosis_HIV'), and coefficients and states show them. A simulation (seed=) needs none"
            )

    @abstractmethod
    def _coded_one(self, y: Any) -> float:
        """Return the code of a label or target; NaN if it is missing."""

    @abstractmethod
    def _coded_many(self, y: Any) -> Floats:
        """Return the codes of a column of labels or targets, ``(n,)``."""

    @abstractmethod
    def _begin(self, names: tuple[Any, ...]) -> EngineType:
        """Make the engine for these features."""

    def _expected(self) -> tuple[float | None, float | None]:
        """Return the largest absolute values expected of features and of a real target; None for no limit."""
        return 1.0, None

    def _watch(self) -> None:
        """Check the first records of a simulation."""
        if self.seed is not None:
            labels = self._stated_classes() is not None
            self._first_records = FirstRecords(self._names, *self._expected(), labels=labels)

    def _surveyed(self, rows: Iterable[tuple[Sequence[Any], float]], keys: Iterable[Any]) -> None:
        with _BEGINNING:
            survey = self._first_records
            if survey is not None:  # another thread may have checked the last one
                survey.look(rows, keys)
                if not survey.left:
                    self._first_records = None

    def _head(self, X: Any, y: Floats) -> tuple[Iterable[tuple[Sequence[Any], float]], Iterable[Any]]:
        """Return the first rows as they were given, with coded targets, and the names of their features."""
        if isinstance(X, np.ndarray):
            columns, keys = [values.tolist() for values in X[:FIRST].T], self._names
        else:
            frame = frame_of(X)
            head, indices = frame.head(FIRST), {name: index for index, name in enumerate(frame.columns)}
            keys, absent = tuple(indices), [0.0] * len(head)
            columns = [
                column_array(head[:, indices[name]].to_native()).tolist() if name in indices else absent
                for name in self._names
            ]
        return zip(zip(*columns, strict=True), y.tolist(), strict=False), keys

    def _get_engine(self, names: tuple[Any, ...]) -> EngineType:
        """Return the engine, and make it for these features if there is none yet."""
        # The engine's arrays must outlive the call in which it is made.
        with _BEGINNING, lasting():
            return self._begin(names) if self._engine is None else self._engine

    @abstractmethod
    def _mechanism_for(self, guarantee: Guarantee) -> Any:
        """Return the mechanism of a guarantee."""

    def _level_mechanisms(self) -> dict[str, Any]:
        """Return mechanisms by level; ``"default"`` is the level of the learner's own guarantee."""
        mechanisms = {level: self._calibrated(guarantee) for level, guarantee in (self.levels or {}).items()}
        self._default = mechanisms["default"] = self._calibrated(self.guarantee)
        return mechanisms

    def _coded_names(self, names: tuple[Any, ...]) -> tuple[str, ...]:
        coded = tuple(map(str, names))
        if len(set(coded)) != len(coded) or any(map(is_constant, coded)):
            raise UserError(
                f"features must be names that are distinct as text; {INTERCEPT!r} and '...:{INTERCEPT}' are reserved "
                f"for the constant: got {names!r}"
            )
        if not names:
            raise UserError(
                f"a {type(self).__name__} needs at least one feature. Without any, MeanRegressor learns a mean and "
                "ShareClassifier the shares of labels"
            )
        classes = tuple(map(str, self._stated_classes() or ()))
        clash = class_clash(classes, (*coded, INTERCEPT)) if len(classes) > 2 else None
        if clash is not None:
            label, other, name = clash
            raise UserError(
                f"two coefficients would be named {f'{label}:{name}'!r}, one of the class {label!r} and one of the "
                f"class {other!r}: rename a class or a feature"
            )
        return (*coded, INTERCEPT)

    def _calibrated(self, guarantee: Guarantee) -> Any:
        mechanism = self._mechanisms.get(guarantee)
        if mechanism is None:
            mechanism = self._mechanism_for(guarantee)
            # The cache is bounded, since people may choose any number of different guarantees.
            if len(self._mechanisms) < 256:
                self._mechanisms[guarantee] = mechanism
        return mechanism

    def _columns(self, X: Any) -> tuple[Any, ...]:
        if isinstance(X, np.ndarray):
            if X.ndim != 2:
                raise UserError(f"an array of features must have the shape (n, k), got {X.shape}")
            return tuple(range(X.shape[1]))
        return tuple(sorted(frame_of(X).columns))

    def _matrix(self, X: Any, names: tuple[Any, ...]) -> Floats:
        if isinstance(X, np.ndarray):
            if X.ndim != 2 or X.shape[1] != len(names):
                raise UserError(f"an array of features must have shape (n, {len(names)}), got {X.shape}")
            if (names and X.dtype.kind not in "biuf") or isinstance(X, np.ma.MaskedArray):
                return track(np.column_stack([numbers(column) for column in X.T]))
            # Not copied, as nothing writes to it.
            return X if X.dtype == np.float64 else track(X.astype(np.float64))
        frame = frame_of(X)
        # Not frame[name]: a column named by a number would be taken for a row.
        indices = {name: index for index, name in enumerate(frame.columns)}
        absent = np.zeros(len(frame))
        if not names:
            return np.zeros((len(frame), 0))
        columns = [
            numbers(frame[:, indices[name]].to_native(), what=f"X, column {name!r}") if name in indices else absent
            for name in names
        ]
        return track(np.column_stack(columns))

    def _rows_of(self, X: Any, y: Floats) -> Floats:
        """Return the rows of a frame or an array, one for each target."""
        rows = self._matrix(X, self._names)
        if len(rows) != len(y):
            raise UserError(f"X has {len(rows)} rows, y has {len(y)}: give one target per row")
        return rows

    def learn_release(self, release: Release) -> None:
        """Learn from a release made elsewhere, of this learner's kind and at one of its levels.

        Raises RejectedError if the release does not fit, or only one of release and learner is simulated; UserError
        without features.
        """
        engine = self._require()
        if release.kind != engine.kind:
            raise RejectedError("schema", f"a release of the kind {release.kind!r}; this learner takes {engine.kind!r}")
        mechanism = engine.mechanisms.get(release.level)
        if mechanism is None:
            raise RejectedError("level", f"{release.level!r} is not one of the levels: {', '.join(engine.mechanisms)}")
        if release.simulated is not (self.seed is not None):
            raise RejectedError("simulated", "with a seed a learner takes simulated releases, without one real ones")
        integers = release.integers
        lengths = payload_lengths(engine)
        if len(integers) not in lengths:
            raise RejectedError("dimension", f"{len(integers)} numbers, not {' or '.join(map(str, lengths))}")
        if max(integers) > mechanism.magnitude or min(integers) < -mechanism.magnitude:
            raise RejectedError("magnitude", f"a number beyond {mechanism.magnitude}, which honest noise never reaches")
        engine.admit(release, 0)
        engine.learn_releases([release])

    def _fix(self, names: tuple[Any, ...], engine: EngineType) -> EngineType:
        """Store the features and the engine, which learns single records in place."""
        self._names = names
        # With one name, an itemgetter returns a value and not a tuple.
        several = len(names) > 1
        self._values_of: Callable[[Record], Sequence[Any]] = itemgetter(*names) if several else partial(_only, names)
        self._watch()
        self._engine = engine
        return engine

    def _require(self) -> EngineType:
        if self._engine is None:
            raise UserError("the features are not known yet: give features=[...], or learn a record first")
        return self._engine

    @property
    def n_releases(self) -> int:
        """Number of releases learned from."""
        return 0 if self._engine is None else int(self._engine.n_releases)

    def estimate(self) -> Estimate:
        """Return the coefficients with their intervals and the method of estimation."""
        estimate: Estimate = self._in_units(self._require().estimate())
        return estimate

    def _in_units(self, estimate: Any) -> Any:
        """Convert an estimate from coded targets to the target's units."""
        return estimate

    def coefficients(self) -> dict[str, float]:
        """Return coefficients by feature (the constant's as ``"intercept"``), for classes by ``"class:feature"``."""
        estimate = self.estimate()
        return dict(zip(estimate.names, map(float, estimate.values), strict=True))

    def confidence_intervals(self, level: float = 0.95) -> Intervals:
        """Return confidence intervals by name, with their ``method`` and a ``note`` on their coverage."""
        return self.estimate().intervals(level)

    def summary(self, task: Any = None, *, level: float = 0.95, forecast: bool = True) -> Result:
        """Return the result, which can be printed, shown in a notebook, plotted and saved.

        ``task``, or the `murk.learners.Encoder` that coded the features, adds effects in natural units.
        ``forecast=False`` skips the slow forecast of how many people would reveal coefficients that noise hides. Raises
        UserError if nothing was learned yet, or the task has other features.
        """
        from murk.results.result import summarize

        return summarize(self, self.estimate(), self._scale(), getattr(task, "task", task), level, forecast=forecast)

    def _scale(self) -> Scale:
        return "own"

    def _row(self, x: Record) -> Floats:
        """Return a record's features, (1, d)."""
        return np.array([[number(x.get(name)) for name in self._names]])

    def _repr_html_(self) -> str:
        from murk.results.result import learner_html

        return learner_html(self, repr(self))

    def _engines(self, others: Sequence[Self]) -> list[Any]:
        """Return the engines of this learner and ``others``; raise UserError if their class or settings differ."""
        engine: Any = self._require()
        engines, own_classes = [engine], self._stated_classes()
        for other in others:
            if type(other) is not type(self):
                raise UserError(
                    f"a {type(self).__name__} merges with learners of its class only, not with a {type(other).__name__}"
                )
            theirs: Any = other._require()  # noqa: SLF001
            same = theirs.settings.digest == engine.settings.digest and other._names == self._names  # noqa: SLF001
            if not same or other._stated_bounds() != self._stated_bounds() or other._stated_classes() != own_classes:  # noqa: SLF001
                raise UserError("only learners with the same features and settings can be merged")
            engines.append(theirs)
        return engines

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data (JSON), exact: a learner that loads it continues bit for bit."""
        names = [name if isinstance(name, str | int) else str(name) for name in self._names]
        classes = self._stated_classes()
        return {"features": names, "fold": self._require().state_dict()} | (
            {} if classes is None else {"classes": classes}
        )

    def _stated_classes(self) -> list[Any] | None:
        """Return the classes in their order, on which the meaning of a state depends; None without classes."""
        return None

    def _stated_bounds(self) -> list[float] | None:
        """Return the target's bounds, on which the meaning of a state depends; None if targets are not rescaled."""
        return None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state of a learner with equal settings; raise MurkError if it is malformed or has other features."""
        self._load(state)

    def _load(self, state: Mapping[str, Any]) -> None:
        try:
            names, fold = tuple(state["features"]), state["fold"]
        except (KeyError, TypeError) as error:
            raise MurkError("the state is malformed: it needs the keys 'features' and 'fold'") from error
        expected_names = tuple(name if isinstance(name, str | int) else str(name) for name in self._names or names)
        if names != expected_names:
            raise MurkError(f"the state has the features {names!r}, but this learner has {expected_names!r}")
        classes, stated = self._stated_classes(), state.get("classes")
        if stated != classes:
            raise MurkError(f"the state has the classes {stated!r}, but this learner has {classes!r}")
        stated_bounds, saved_bounds = self._stated_bounds(), state.get("target_bounds")
        if saved_bounds != stated_bounds:
            raise MurkError(f"the state has other settings: target bounds {saved_bounds!r}, not {stated_bounds!r}")
        fresh = self._engine is None
        engine = self._begin(names) if fresh else self._require()
        try:
            engine.load_state_dict(fold)
        except MurkError:
            if fresh:
                self._prepare()
            raise

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"guarantee": GaussianDP(mu=1.0), "seed": 1}
        yield {"guarantee": PureDP(epsilon=2.0), "seed": 1}

    def _unit_test_skips(self) -> set[str]:
        return set()


def _only(names: tuple[Any, ...], x: Record) -> list[Any]:
    return [x[name] for name in names]


def series(values: Any, X: Any, name: str | None) -> Any:
    """Return predictions in the same kind of container as the features ``X``."""
    if isinstance(X, np.ndarray):
        return values
    return dataframe.to_native_series(values, name=name, like=frame_of(X))


class PersonEstimator(StreamEstimator[RecordEngineType]):
    """Base class of River estimators that learn from one release of each person."""

    def _person_mechanism(self, guarantee: Guarantee) -> Any:
        """Return the mechanism that randomizes the record of a person with their own guarantee."""
        return self._calibrated(guarantee)

    def learn_one(self, x: Record, y: Any, guarantee: Guarantee | None = None) -> None:
        """Randomize the record once, at ``guarantee`` (default: the learner's own), and learn from the release."""
        self._learn(x, self._coded_one(y), guarantee)

    def learn_many(self, X: Any, y: Any, guarantee: Guarantee | Sequence[Guarantee] | None = None) -> None:
        """Learn from the rows of a data frame or an ``(n, d)`` array, at one ``guarantee`` for all rows or one each."""
        with wiping():
            self._learn_rows(X, self._coded_many(y), guarantee)

    def _learn(self, x: Record, y: float, guarantee: Guarantee | None) -> None:
        engine = self._engine
        if engine is None:
            engine = self._get_engine(tuple(sorted(x)))
        mechanism = self._default if guarantee is None else self._person_mechanism(guarantee)
        try:
            values = self._values_of(x)
        except KeyError:
            values = [x.get(name) for name in self._names]
        engine.learn_record(values, y, mechanism)
        if self._first_records is not None:
            self._surveyed([(values, y)], x)

    def _learn_rows(self, X: Any, y: Floats, guarantee: Guarantee | Sequence[Guarantee] | None) -> None:
        engine = self._engine
        if engine is None:
            engine = self._get_engine(self._columns(X))
        rows = self._rows_of(X, y)
        self._learn_matrix(engine, rows, y, self._of_rows(guarantee, len(rows)))
        if self._first_records is not None:
            self._surveyed(*self._head(X, y))

    def _of_rows(self, guarantee: Guarantee | Sequence[Guarantee] | None, count: int) -> list[Any]:
        if not isinstance(guarantee, Sequence):
            return [self._default if guarantee is None else self._person_mechanism(guarantee)]
        if len(guarantee) != count:
            raise UserError(f"X has {count} rows, guarantee has {len(guarantee)}")
        return [self._person_mechanism(each) for each in guarantee]

    def _learn_matrix(self, engine: RecordEngineType, X: Floats, y: Floats, own: list[Any]) -> None:
        """Learn from rows of features (no constant); ``own`` has one mechanism for all rows or one for each."""
        engine.learn_records(X, y, own)


class SGDEstimator(PersonEstimator[IterateEngineType]):
    """Base class of River estimators around an engine with an iterate and its average."""

    def _start(self, names: tuple[Any, ...], engine: IterateEngineType) -> IterateEngineType:
        engine.use(self._default)
        return self._fix(names, engine)

    @property
    def iterate(self) -> Floats:
        """The newest iterate theta_t in working coordinates (whitened if a second moment was given)."""
        return np.asarray(self._require().iterate)

    @property
    def average(self) -> Floats:
        """The average bar_t of the iterates, in working coordinates."""
        return np.asarray(self._require().average)


def published(protocol: TaskProtocol, target: str, guarantee: Guarantee) -> dict[str, Any]:
    """Return the settings that ``as_published: true`` gives a task, as arguments of an estimator."""
    settings = {path[-1]: value for path, value in protocol.published(target, getattr(guarantee, "kind", "")).items()}
    if "step" in settings:
        settings["step"] = InverseScalingStep(**settings["step"])
    return settings


def step_setting(step: Any) -> Any:
    """Return ``"noise-aware"`` or an `InverseScalingStep`, for ``step`` given as such or as River's scheduler."""
    if step == "noise-aware" or isinstance(step, InverseScalingStep):
        return step
    try:
        return InverseScalingStep(float(step.learning_rate), float(step.power))
    except AttributeError:
        raise UserError(
            f"step={step!r} is neither 'noise-aware' nor an InverseScaling(learning_rate, power) of River"
        ) from None


@dataclass(kw_only=True, eq=False, repr=False)
class LabelEstimator(StreamEstimator[Any]):
    """Base class of classifiers: before the first release all labels are equally likely."""

    classes: Sequence[Any] = (False, True)

    _codes: Mapping[Any, float] = field(init=False)

    def _stated_classes(self) -> list[Any] | None:
        labels = [label.item() if isinstance(label, np.generic) else label for label in self.classes]
        return [label if isinstance(label, str | int | float) else repr(label) for label in labels]

    def _coded_one(self, y: Any) -> float:
        return code_of(y, self._codes)

    def _coded_many(self, y: Any) -> Floats:
        return track(codes_of(y, self._codes))

    @abstractmethod
    def _chances(self, rows: Floats) -> Floats:
        """Return probabilities of the classes, ``(n, K)``, for rows of features without the constant, ``(n, d)``."""

    def predict_proba_one(self, x: Record, **kwargs: Any) -> dict[Any, float]:
        """Return the probability of each label; before the first release all are equal."""
        if not self.n_releases:
            return dict.fromkeys(self.classes, 1.0 / len(self.classes))
        return dict(zip(self.classes, self._chances(self._row(x))[0].tolist(), strict=True))

    def predict_proba_many(self, X: Any) -> Any:
        """Return probabilities for the rows of a data frame or an ``(n, d)`` array, one column for each label."""
        return self._labelled(self._table(X), X)

    def _labelled(self, table: NDArray[Any], X: Any) -> Any:
        """Return a table with a column for each label in the same kind of container as the features ``X``."""
        if isinstance(X, np.ndarray):
            return table
        frame = frame_of(X)
        if not frame.implementation.is_pandas_like() and len(set(map(str, self.classes))) < len(self.classes):
            raise UserError(
                f"the classes {self.classes!r} are not distinct as text, but the columns of a {type(X).__name__} have "
                "text as names: give a pandas frame or an array, or use classes that are distinct as text"
            )
        columns = {label: table[:, index] for index, label in enumerate(self.classes)}
        return dataframe.to_native_frame(columns, like=frame)

    def predict_many(self, X: Any) -> Any:
        """Return labels for the rows of a data frame or an ``(n, d)`` array."""
        labels = _labels(self.classes)[np.argmax(self._table(X), axis=1)]
        try:
            return series(labels, X, None)
        except UserError:
            raise
        except Exception as error:
            # Arrow and Polars, whose columns have one type each, raise their own errors.
            raise UserError(
                f"the classes {self.classes!r} do not fit into one column of a {type(X).__name__}: give a pandas "
                "frame or an array, or use classes of one type"
            ) from error

    def _table(self, X: Any) -> Floats:
        if not self.n_releases:
            return np.full((len(X), len(self.classes)), 1.0 / len(self.classes))
        return self._chances(self._matrix(X, self._names))


@dataclass(kw_only=True, eq=False, repr=False)
class TargetEstimator(StreamEstimator[Any]):
    """Base class of regressors: before the first release they predict the middle of the target's range."""

    target_bounds: tuple[float, float] | None = None
    target_bound: float | None = field(init=False, default=None)

    _range: TargetRange = field(init=False)
    _beyond: BeyondBounds | None = field(init=False, default=None)

    def _set_range(self, *, records: bool = True, intercept: bool = True) -> TargetRange:
        """Set the target's range, as stated or assumed by a simulation, in which targets beyond it are counted."""
        bounds, bound = self.target_bounds, self.target_bound
        target_range = TargetRange.stated(bounds, bound=bound, seed=self.seed, records=records, intercept=intercept)
        self._range = target_range
        if self.seed is not None:
            assumed = ", which a simulation assumes as their bounds" if bounds is None and bound is None else ""
            words = "count as the nearest bound. Give target_bounds=(low, high) that are public and hold them"
            self._beyond = BeyondBounds(
                target_range.low,
                target_range.high,
                f"{target_range.low:g} and {target_range.high:g}{assumed}, and {words}",
            )
        return target_range

    def _counted(self, y: Any) -> None:
        beyond = self._beyond
        if beyond is not None and beyond.warned(y):
            self._beyond = None

    def _coded_one(self, y: Any) -> float:
        if self._beyond is not None:
            self._counted(target(y))
        return self._range.code(y)

    def _coded_many(self, y: Any) -> Floats:
        if self._beyond is not None:
            self._counted(targets(y))
        return self._range.codes(y)

    def _in_units(self, estimate: Any) -> Any:
        return self._range.in_units(estimate)

    def _stated_bounds(self) -> list[float] | None:
        return [self._range.low, self._range.high] if self._range.coded else None

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data (JSON)."""
        return {**super().state_dict(), "target_bounds": self._stated_bounds()}

    def _scale(self) -> Scale:
        return "slope"

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"guarantee": GaussianDP(mu=1.0), "seed": 1}
        yield {"guarantee": PureDP(epsilon=2.0), "target_bounds": (0.0, 100.0), "seed": 1}

    @abstractmethod
    def _means(self, rows: Floats) -> Floats:
        """Return predicted targets, ``(n,)``, for rows of features without the constant, ``(n, d)``."""

    def predict_one(self, x: Record, **kwargs: Any) -> float:
        """Return the predicted target; before the first release the middle of its range."""
        if not self.n_releases:
            return self._range.middle
        return float(self._means(self._row(x))[0])

    def predict_many(self, X: Any) -> Any:
        """Return predictions for the rows of a data frame or an ``(n, d)`` array."""
        if not self.n_releases:
            return series(np.full(len(X), self._range.middle), X, None)
        return series(self._means(self._matrix(X, self._names)), X, None)


def _labels(classes: Sequence[Any]) -> NDArray[Any]:
    """Return the classes as an array that keeps their types; numpy itself would turn numbers among text into text."""
    if {type(label) for label in classes} in ({bool}, {str}, {int}, {float}):
        array = np.array(list(classes))
        if array.dtype.kind in "bUif":
            return array
    objects = np.empty(len(classes), dtype=object)
    for index, label in enumerate(classes):
        objects[index] = label
    return objects


def two_labels(classes: Sequence[Any], codes: tuple[float, float] = (0.0, 1.0)) -> dict[Any, float]:
    """Return the code of each of two classes, or raise UserError if they are not two distinct labels."""
    check_ordered("classes", classes, "labels, as in classes=['no', 'yes']")
    _check_labels(classes)
    if len(classes) != 2 or classes[0] == classes[1]:
        raise UserError(f"classes must be two distinct labels, got {classes!r}; for more use LDPSGDClassifier")
    return dict(zip(classes, codes, strict=True))


def several_labels(classes: Sequence[Any]) -> dict[Any, float]:
    """Return each class's index as its code, or raise UserError unless there are at least two distinct labels."""
    check_ordered("classes", classes, "labels, as in classes=['no', 'yes']")
    codes = {label: float(index) for index, label in enumerate(classes)}
    if len(codes) != len(classes) or len(classes) < 2:
        raise UserError(f"classes must be at least two distinct labels, got {classes!r}")
    _check_labels(classes)
    return codes


def check_ordered(name: str, values: Any, example: str) -> None:
    """Raise UserError for an argument that is no list: a text, a set, a mapping or an iterator."""
    if isinstance(values, str | bytes | Set | Mapping | Iterator):
        raise UserError(f"{name} must be a list of {example}, not a {type(values).__name__}")


def _check_labels(classes: Sequence[Any]) -> None:
    if any(is_absent(label) or is_nan(label) for label in classes):
        raise UserError(f"classes={classes!r}: None and NaN mean that a label is missing; use another label")


def two_chances(positive: Floats) -> Floats:
    """Return the probabilities of two classes from the probability of the second."""
    return np.column_stack([1.0 - positive, positive])


def code_of(label: Any, codes: Mapping[Any, float]) -> float:
    """Return a label's code, or NaN if it is not one of the classes."""
    try:
        return codes.get(label, math.nan)
    except TypeError:  # not hashable, so not a class
        return math.nan


def codes_of(labels: Any, codes: Mapping[Any, float]) -> Floats:
    """Return the codes of a column of labels, like `code_of` for each; raise UserError for several columns."""
    array = column_array(labels, "y")
    kind = array.dtype.kind
    if kind == "b":
        return np.array([codes.get(label, math.nan) for label in (False, True)])[array.astype(np.int8)]
    if kind in "iuf" and len(codes) <= 16:
        if kind == "f":
            # With shorter floats, comparison would round the labels.
            array = array.astype(np.float64, copy=False)
        coded = np.full(len(array), math.nan)
        for label, code in codes.items():
            same = _within(label, kind)
            if same is not None:
                coded[array == same] = code
        return coded
    return np.array([code_of(label, codes) for label in array.tolist()], dtype=np.float64)


def _within(label: Any, kind: str) -> int | float | None:
    """Convert a label to float (``kind`` "f") or int; return None if it is no number or would change its value."""
    if not isinstance(label, int | float | np.number | np.bool_):
        return None
    try:
        number = float(label) if kind == "f" else int(label)
    except (ValueError, OverflowError):  # infinite, NaN, or too large
        return None
    return number if number == label else None
