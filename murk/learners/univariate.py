"""River estimators of a target alone, or beside known columns: shares of classes, and a mean."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
from river import base

from murk._internal.arrays import Floats
from murk._internal.wiping import track
from murk.errors import MurkError, UserError
from murk.inference.estimate import Estimate
from murk.inference.target_range import TargetRange
from murk.learners._docstrings import documented
from murk.learners._warnings import FIRST
from murk.learners.base import (
    LabelEstimator,
    PersonEstimator,
    TargetEstimator,
    check_ordered,
    several_labels,
    two_chances,
)
from murk.privacy import Guarantee
from murk.protocols.options import chosen_noise
from murk.protocols.univariate.columns import KnownColumn, KnownColumns
from murk.protocols.univariate.engine import TargetEngine, merged
from murk.protocols.univariate.settings import Settings, TargetMechanism
from murk.task.protocols.base import Scale
from murk.task.protocols.univariate import MOST_CELLS
from murk.task.values import frame_of

_ERROR_CODE = "MURK-LEARN-001"


@dataclass(kw_only=True, eq=False, repr=False)
class Univariate(PersonEstimator[TargetEngine]):
    """Base class of the estimators of a target alone, or beside known columns.

    Parameters
    ----------
    known
        Columns that the receiver knows already, and their categories: ``{"arm": ["control", "treatment"]}``. They are
        released without noise, under no guarantee, and only the target is randomized. Then every category but a
        column's first has a coefficient, and other features are ignored. A missing or undeclared category is a value of
        its own.
    missing
        Whether targets may be missing; the estimate is for people who have a target. ``False`` states that every person
        has a target, which saves the noise of a further category. A missing target then counts as the first class, or
        as the middle of the range.
    """

    missing: bool = True
    known: Mapping[Any, Sequence[Any]] | None = None
    features: Sequence[Any] | None = field(init=False, default=())

    @abstractmethod
    def _settings(self) -> Settings:
        """Return the settings of the target."""

    def _begin(self, names: tuple[Any, ...]) -> TargetEngine:
        settings = self._settings()
        guarantees = {"default": self.guarantee, **(self.levels or {})}
        family = settings.family(guarantees.values())
        self._default = "default"
        # Not a local function, which cannot be pickled.
        make = partial(settings.mechanism, family=family)
        mechanisms = {level: make(guarantee) for level, guarantee in guarantees.items()}
        engine = TargetEngine(settings, mechanisms, noise=chosen_noise(self.seed, self.noise), make=make)
        self._fix(tuple(self.known or ()), engine)
        if self.known:
            # Known columns are categories, which have no bounds to check.
            self._first_records = None
        return engine

    def _coded(self) -> tuple[KnownColumns, tuple[str, ...]]:
        """Return the known columns, and the names of their coefficients; raise UserError for too many cells."""
        columns, names = [], []
        for name, categories in (self.known or {}).items():
            check_ordered(f"known[{name!r}]", categories, "categories, as in ['control', 'treatment']")
            if len(set(categories)) < len(categories) or len(categories) < 2:
                raise UserError(f"known[{name!r}] must be at least two distinct categories, got {categories!r}")
            columns.append(KnownColumn(len(categories)))
            names += [f"{name}={each}" for each in categories[1:]] if len(categories) > 2 else [str(name)]
        known = KnownColumns(tuple(columns))
        if known.cells > MOST_CELLS:
            raise UserError(
                f"known: the columns have {known.cells:,} combinations of values (missing ones count), which would "
                f"identify people; at most {MOST_CELLS:,} are allowed: give fewer columns, or coarser categories"
            )
        return known, self._coded_names(tuple(names)) if names else ()

    def _codes_of(self, columns: Sequence[Sequence[Any]], count: int) -> Floats:
        """Return the codes of known columns' values, (m, p); zeros for missing or undeclared values."""
        parts = [np.zeros((count, 0))]
        for categories, values in zip((self.known or {}).values(), columns, strict=True):
            places = {category: place for place, category in enumerate(categories)}
            codes = KnownColumn(len(categories)).codes
            parts.append(track(codes[[places.get(value, len(categories)) for value in values]]))
        return track(np.column_stack(parts))

    def _mechanism_for(self, guarantee: Guarantee) -> TargetMechanism:
        mechanism: TargetMechanism = self._settings().mechanism(guarantee)
        return mechanism

    def _person_mechanism(self, guarantee: Guarantee) -> str:
        return self._require().level(guarantee)

    def _head(self, X: Any, y: Floats) -> tuple[Iterable[tuple[Sequence[Any], float]], Iterable[Any]]:
        # Features are ignored, so that none is undeclared.
        return (((), target) for target in y[:FIRST].tolist()), ()

    def _learn(self, x: Mapping[Any, Any], y: float, guarantee: Guarantee | None) -> None:
        if not self.known:
            super()._learn(x, y, guarantee)
            return
        own = self._default if guarantee is None else self._person_mechanism(guarantee)
        self._require().learn_record(self._row(x)[0].tolist(), y, own)

    def _rows_of(self, X: Any, y: Floats) -> Floats:
        return super()._rows_of(X, y) if self.known else np.zeros((len(y), 0))

    def _matrix(self, X: Any, names: tuple[Any, ...]) -> Floats:
        if not self.known:
            return np.zeros((len(X), 0))
        if isinstance(X, np.ndarray):
            return self._codes_of([column.tolist() for column in X.T], len(X))
        frame = frame_of(X)
        indices = {name: index for index, name in enumerate(frame.columns)}
        columns = [frame[:, indices[name]].to_list() if name in indices else [None] * len(frame) for name in self.known]
        return self._codes_of(columns, len(frame))

    def _row(self, x: Mapping[Any, Any]) -> Floats:
        return self._codes_of([[x.get(name)] for name in self.known or ()], 1)

    def merged(self, others: Sequence[Self]) -> Estimate:
        """Return the joint estimate of this learner and ``others`` of the same settings."""
        if any(other._stated_known() != self._stated_known() for other in others):  # noqa: SLF001 - another one of its class
            raise UserError("only learners with the same known columns can be merged")
        found: Estimate = self._in_units(merged(self._engines(others)))
        return found

    def _stated_known(self) -> dict[str, list[str]]:
        return {str(name): list(map(str, categories)) for name, categories in (self.known or {}).items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data (JSON), exact: a learner that loads it continues bit for bit."""
        return {**super().state_dict(), **({"known": self._stated_known()} if self.known else {})}

    def _load(self, state: Mapping[str, Any]) -> None:
        found, own = state.get("known", {}), self._stated_known()
        if found != own:
            raise MurkError(f"the state has the known columns {found!r}, but this learner has {own!r}")
        super()._load(state)

    def _scale(self) -> Scale:
        return "slope"


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class ShareClassifier(Univariate, LabelEstimator, base.MiniBatchClassifier):
    """Shares of labels, estimated from one release of each person's label; predicts the label of the largest share.

    The mechanism is the one of least variance for the number of labels and the guarantee: subset selection (randomized
    response is a special case), or Gaussian noise on a simplex. Features that are not ``known`` are ignored.

    Parameters
    ----------
    classes
        The labels. Any other label counts as missing.

    References
    ----------
    Ye, Barg. Optimal schemes for discrete distribution estimation under locally differential privacy. 2018.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from murk.learners import ShareClassifier
    >>> from murk.privacy import PureDP
    >>> labels = np.random.default_rng(1).choice(["a", "b", "c"], 20_000, p=[0.6, 0.3, 0.1])
    >>> model = ShareClassifier(guarantee=PureDP(2.0), classes=["a", "b", "c"], seed=1)
    >>> model.learn_many(np.zeros((20_000, 0)), labels)
    >>> low, high = model.confidence_intervals()["a"]
    >>> low < 0.6 < high
    True

    An experiment whose arms the receiver has assigned:

    >>> arms = np.random.default_rng(2).choice(["old", "new"], 20_000)
    >>> bought = np.random.default_rng(3).random(20_000) < np.where(arms == "new", 0.4, 0.3)
    >>> model = ShareClassifier(guarantee=PureDP(3.0), known={"arm": ["old", "new"]}, missing=False, seed=1)
    >>> model.learn_many(pd.DataFrame({"arm": arms}), bought)
    >>> bool(model.predict_proba_one({"arm": "new"})[True] > model.predict_proba_one({"arm": "old"})[True])
    True
    """

    def __post_init__(self) -> None:
        self._codes = several_labels(self.classes)
        self._prepare()

    def _settings(self) -> Settings:
        if self.known:
            known, names = self._coded()
            if len(self.classes) > 2:
                names = tuple(f"{label}:{name}" for label in self.classes for name in names)
            return Settings(names, len(self.classes), self.missing, known=known)
        return Settings(tuple(map(str, self.classes)), len(self.classes), self.missing)

    def _scale(self) -> Scale:
        return "log odds" if self.known else "slope"

    def _in_units(self, estimate: Estimate) -> Estimate:
        if self.known:
            return estimate
        # Return shares. The coded mean of a label is twice its share less 1.
        covariance = None if estimate.covariance is None else estimate.covariance / 4.0
        return replace(
            estimate, values=(estimate.values + 1.0) / 2.0, spread=estimate.spread / 2.0, covariance=covariance
        )

    def _chances(self, rows: Floats) -> Floats:
        if self.known:
            pair = self.estimate().effects()
            assert pair is not None
            points = np.column_stack([rows, np.ones(len(rows))])
            lines = pair[0].reshape(-1, points.shape[1])
            found = np.clip(points @ lines.T, 0.0, 1.0)
            if len(self.classes) == 2:
                return two_chances(found[:, 0])
            total = found.sum(axis=1, keepdims=True)
            return np.where(total > 0.0, found / np.maximum(total, 1e-300), 1.0 / len(self.classes))
        shares = np.maximum(self.estimate().values, 0.0)
        return np.asarray(np.tile(shares / shares.sum(), (len(rows), 1)))


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class MeanRegressor(Univariate, TargetEstimator, base.MiniBatchRegressor):
    """Mean of a bounded target, which each person releases once.

    The mechanism is the one of least variance over the range: for pure guarantees and large mu a random window of
    values, which contains the target's value with a higher probability; else Gaussian noise. Features that are not
    ``known`` are ignored. The interval uses the spread of people's targets, estimated from the releases.

    Parameters
    ----------
    target_bounds
        Public bounds (low, high) of the target, to which it is clipped. Required unless noise is simulated, then (-1,
        1) by default.

    References
    ----------
    Li et al. Estimating numerical distributions under local differential privacy. 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from murk.learners import MeanRegressor
    >>> from murk.privacy import PureDP
    >>> weeks = np.random.default_rng(1).uniform(0, 20, 20_000)
    >>> model = MeanRegressor(guarantee=PureDP(2.0), target_bounds=(0, 52), seed=1)
    >>> model.learn_many(np.zeros((20_000, 0)), weeks)
    >>> low, high = model.confidence_intervals()["mean"]
    >>> low < 10.0 < high
    True
    """

    def __post_init__(self) -> None:
        self._set_range()
        self._prepare()

    def _settings(self) -> Settings:
        if self.known:
            known, names = self._coded()
            return Settings(names, 0, self.missing, known=known)
        return Settings(("mean",), 0, self.missing)

    def _in_units(self, estimate: Estimate) -> Estimate:
        own: TargetRange = self._range
        if self.known:
            return own.in_units(estimate)
        covariance = None if estimate.covariance is None else estimate.covariance * own.unit**2
        return replace(
            estimate,
            values=own.middle + own.unit * estimate.values,
            spread=own.unit * estimate.spread,
            covariance=covariance,
        )

    def _means(self, rows: Floats) -> Floats:
        if self.known:
            line = self.estimate().values
            return np.asarray(np.clip(rows @ line[:-1] + line[-1], self._range.low, self._range.high))
        mean = float(np.clip(self.estimate().values[0], self._range.low, self._range.high))
        return np.full(len(rows), mean)
