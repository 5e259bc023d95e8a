"""River estimators of a target alone: shares of classes, and a mean."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
from river import base

from murk._internal.arrays import Floats
from murk.inference.estimate import Estimate
from murk.inference.target_range import TargetRange
from murk.learners._docstrings import documented
from murk.learners._warnings import FIRST
from murk.learners.base import LabelEstimator, PersonEstimator, TargetEstimator, several_labels
from murk.privacy import GaussianDP, Guarantee, PureDP
from murk.protocols.options import chosen_noise
from murk.protocols.univariate.engine import TargetEngine, merged
from murk.protocols.univariate.settings import Settings, TargetMechanism
from murk.task.protocols.base import Scale


@dataclass(kw_only=True, eq=False, repr=False)
class Univariate(PersonEstimator[TargetEngine]):
    """Base class of the estimators of a target alone.

    Parameters
    ----------
    missing
        Whether targets may be missing; the estimate is that of people with one. ``False`` states that every person has
        a target, which saves the noise of a further category; a missing one then counts as the first class, or as the
        middle of the range.
    """

    missing: bool = True
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
        self._fix((), engine)
        return engine

    def _mechanism_for(self, guarantee: Guarantee) -> TargetMechanism:
        mechanism: TargetMechanism = self._settings().mechanism(guarantee)
        return mechanism

    def _person_mechanism(self, guarantee: Guarantee) -> str:
        return self._require().level(guarantee)

    def _head(self, X: Any, y: Floats) -> tuple[Iterable[tuple[Sequence[Any], float]], Iterable[Any]]:
        # Features are ignored, so that none is undeclared.
        return (((), target) for target in y[:FIRST].tolist()), ()

    def _rows_of(self, X: Any, y: Floats) -> Floats:
        return np.zeros((len(y), 0))

    def _matrix(self, X: Any, names: tuple[Any, ...]) -> Floats:
        return np.zeros((len(X), 0))

    def _row(self, x: Mapping[Any, Any]) -> Floats:
        return np.zeros((1, 0))

    def merged(self, others: Sequence[Self]) -> Estimate:
        """Return the joint estimate of this learner and ``others`` of the same settings."""
        found: Estimate = self._in_units(merged(self._engines(others)))
        return found

    def _scale(self) -> Scale:
        return "slope"


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class ShareClassifier(Univariate, LabelEstimator, base.MiniBatchClassifier):
    """Shares of labels, of which each person releases their own once, and predictions by the largest share.

    The mechanism is the one of least variance for the number of labels and the guarantee: subset selection, of which
    randomized response is a case, or Gaussian noise on a simplex. Features are ignored.

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
    >>> from murk.learners import ShareClassifier
    >>> from murk.privacy import PureDP
    >>> labels = np.random.default_rng(1).choice(["a", "b", "c"], 20_000, p=[0.6, 0.3, 0.1])
    >>> model = ShareClassifier(guarantee=PureDP(2.0), classes=["a", "b", "c"], seed=1)
    >>> model.learn_many(np.zeros((20_000, 0)), labels)
    >>> low, high = model.confidence_intervals()["a"]
    >>> low < 0.6 < high
    True
    """

    def __post_init__(self) -> None:
        self._codes = several_labels(self.classes)
        self._prepare()

    def _settings(self) -> Settings:
        return Settings(tuple(map(str, self.classes)), len(self.classes), self.missing)

    def _in_units(self, estimate: Estimate) -> Estimate:
        # Shares, not twice the shares less 1.
        covariance = None if estimate.covariance is None else estimate.covariance / 4.0
        return replace(
            estimate, values=(estimate.values + 1.0) / 2.0, spread=estimate.spread / 2.0, covariance=covariance
        )

    def _chances(self, rows: Floats) -> Floats:
        shares = np.maximum(self.estimate().values, 0.0)
        return np.asarray(np.tile(shares / shares.sum(), (len(rows), 1)))

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"guarantee": GaussianDP(mu=1.0), "seed": 1}
        yield {"guarantee": PureDP(epsilon=2.0), "seed": 1}


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class MeanRegressor(Univariate, TargetEstimator, base.MiniBatchRegressor):
    """Mean of a bounded target, which each person releases once.

    The mechanism is the one of least variance over the range: at pure guarantees and large mu, a random window of
    levels that more likely contains the target's; else Gaussian noise. Features are ignored. The interval uses people's
    own spread, estimated from the releases.

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
        return Settings(("mean",), 0, self.missing)

    def _in_units(self, estimate: Estimate) -> Estimate:
        own: TargetRange = self._range
        covariance = None if estimate.covariance is None else estimate.covariance * own.unit**2
        return replace(
            estimate,
            values=own.middle + own.unit * estimate.values,
            spread=own.unit * estimate.spread,
            covariance=covariance,
        )

    def _means(self, rows: Floats) -> Floats:
        mean = float(np.clip(self.estimate().values[0], self._range.low, self._range.high))
        return np.full(len(rows), mean)

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"guarantee": GaussianDP(mu=1.0), "seed": 1}
        yield {"guarantee": PureDP(epsilon=2.0), "target_bounds": (0.0, 100.0), "seed": 1}
