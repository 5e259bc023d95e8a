"""River regressor for scores in epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from river import base

from murk.learners.core.estimator import TargetEstimator
from murk.learners.core.scoring.estimate import ScoreEstimate
from murk.learners.core.values import stated_range, target, targets
from murk.learners.scores.base import Scores
from murk.privacy import GaussianDP, Guarantee, PureDP
from murk.privacy.noise import NoiseSource
from murk.stream.task.protocol import Scale


class ScoreRegressor(Scores, TargetEstimator, base.MiniBatchRegressor):
    """Linear regression of a bounded target's mean, by scores in epochs, with intervals.

    Each person answers one question, randomized once at their budget: mostly their score ``y c(z) z``, y coded to [-1,
    1], sometimes a matrix of their features, drawn before their record is read. The learner keeps sums, and solves on
    request, without steps or a radius.

    Parameters
    ----------
    budget
        Guarantee of each release: ``PureDP``, ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``.
    target_bounds
        Public bounds (low, high) of the target, to which it is clipped; noise is added for the whole range. Required
        unless noise is simulated, then (-1, 1) by default. The fit is that of people with a target.
    public
        Public covariates without targets (array, frame, iterable of mappings or a CSV file's path). Rows like the
        people's make the estimate more precise; without any, some people release features' second moments instead.
    levels
        Further guarantees by name, for releases made elsewhere.
    mechanism
        ``"gaussian"``, ``"laplace"``, ``"l2-ball"`` or ``"privunit"``; by default the one of least variance: Gaussian
        for GDP and zCDP budgets, mostly PrivUnit for pure and (epsilon, delta) budgets.
    features
        Feature names in a fixed order; required unless noise is simulated, then by default the sorted names of the
        first record. Features should be within about [-1, 1]; anything but a number counts as 0.
    forget
        Learn from this many of the newest releases only, at least 24,000. (Whole epochs are forgotten, so at times from
        as few as seven eighths of them.) Intervals then stop shrinking. By default nothing is forgotten.
    seed
        Simulate the noise from this seed, for experiments: no privacy.
    noise
        Another source of noise, such as ``OpenDPNoise()``.

    Notes
    -----
    Each call of ``learn_one`` is one release of one person. Coefficients are in the target's own units. Predictions use
    the solution at the last of 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ... releases, shrunk while noise dominates.
    A coefficient with an infinite interval was not learned at this privacy. People's own budgets (``learn_one(x, y,
    budget)``) may take at most 64 different values, as sums are kept for each.

    References
    ----------
    Fieller. Some problems in interval estimation. 1954.

    Examples
    --------
    >>> import numpy as np
    >>> from murk.learners import ScoreRegressor
    >>> from murk.privacy import GaussianDP
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(-1, 1, size=(30_000, 2))
    >>> y = 20 + 10 * X[:, 0] + rng.normal(size=30_000)
    >>> model = ScoreRegressor(budget=GaussianDP(mu=2.0), target_bounds=(0, 40), features=["a", "b"], seed=1)
    >>> model.learn_many(X, y)
    >>> abs(model.coefficients()["a"] - 10) < 1
    True
    """

    exponent: float | None = None
    _binary: ClassVar[bool] = False

    def __init__(
        self,
        *,
        budget: Guarantee,
        target_bounds: tuple[float, float] | None = None,
        public: Any = None,
        levels: Mapping[str, Guarantee] | None = None,
        mechanism: str | None = None,
        features: Sequence[Any] | None = None,
        forget: int | None = None,
        seed: int | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        self._keep(locals())
        self._bounds = low, high = stated_range(target_bounds, seed=seed)
        self._middle, self._half = (low + high) / 2.0, (high - low) / 2.0
        self._prepare()

    def _expected(self) -> tuple[float | None, float | None]:
        return 1.0, 1.0

    def _coded_one(self, y: Any) -> float:
        value = target(y)
        return (value - self._middle) / self._half if math.isfinite(value) else math.nan

    def _coded_many(self, y: Any) -> NDArray[np.float64]:
        values = targets(y)
        with np.errstate(over="ignore"):
            return np.asarray((np.where(np.isfinite(values), values, np.nan) - self._middle) / self._half)

    def _clipped(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.clip(y, -1.0, 1.0)

    def _scale(self) -> Scale:
        return "slope"

    def _in_units(self, estimate: ScoreEstimate) -> ScoreEstimate:
        values = self._half * estimate.values
        values[-1] += self._middle
        return replace(estimate, values=values, spread=self._half * estimate.spread, unit=self._half)

    def _means(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.clip(self._middle + self._half * self._linear(rows)[:, 0], *self._bounds)

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"budget": GaussianDP(mu=1.0), "seed": 1}
        yield {"budget": PureDP(epsilon=2.0), "target_bounds": (0.0, 100.0), "seed": 1}
