"""Linear regression by scores in epochs, as a River estimator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from river import base

from murk.errors import UserError
from murk.learners.core.estimator import Record
from murk.learners.core.predictions import TargetEstimator
from murk.learners.core.scoring.estimate import ScoreEstimate
from murk.learners.core.values import stated_bounds, target, targets
from murk.learners.scores.base import Scores
from murk.privacy import GaussianDP, Guarantee, PureDP
from murk.privacy.noise import NoiseSource
from murk.stream.task.protocol import Scale


class ScoreRegressor(Scores, TargetEstimator, base.MiniBatchRegressor):
    """The line of a bounded target's mean, by scores in epochs, with intervals.

    Each person answers one question, randomized once at their budget: mostly their score ``y c(z) z``, y being coded
    to [-1, 1], sometimes a matrix of their features, which is drawn before their record is looked at. The learner keeps
    sums, and solves when it is asked; there is no step and no radius.

    Parameters
    ----------
    budget
        Guarantee of each release: ``PureDP``, ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``.
    target_bounds
        Public bounds (low, high) of the target; what lies outside is projected to them. Noise is added for the whole
        range. Required where noise is real; in a simulation (-1, 1) by default. A missing target counts as none: the
        fit is that of the people whose target is there.
    public
        Public covariates without targets: an array, a data frame, an iterable of mappings (a generator is used up) or a
        CSV file's path. With rows that are like the people's the estimate is more exact; without any, some of the
        people are asked for their features' second moments, randomized as everything is.
    levels
        Further guarantees by name, for releases made elsewhere at other levels.
    mechanism
        ``"gaussian"``, ``"laplace"``, ``"l2-ball"`` or ``"privunit"``; by default that of least variance: Gaussian
        for GDP and zCDP budgets, mostly PrivUnit for pure and (epsilon, delta) ones.
    features
        Feature names in a fixed order; required where noise is real, and in a simulation by default the sorted names of
        the first record. Features are expected within [-1, 1] or so; what is missing or no number counts as 0.
    forget
        Learn from so many of the newest releases, at least 24,000 (of seven to eight eighths of it, since an epoch at a
        time is forgotten): intervals are those of so many, and stop shrinking. By default nothing is forgotten.
    seed
        Simulate the noise from this seed. Not private: for experiments.
    noise
        Another source of noise, such as ``OpenDPNoise()``.

    Notes
    -----
    Each call of ``learn_one`` is one release of one person. ``coefficients()`` and ``confidence_intervals()`` solve
    with all that was learned, and are in the target's own units. Predictions are by the solution at the last of 1, 2,
    3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ... releases, so that predicting after each record does not solve each time.
    They are by coefficients that are held nearer to zero as long as noise rules.

    A coefficient whose interval has no end was not learned at this privacy.

    People's own budgets (``learn_one(x, y, budget)``) may be of at most 64 kinds: sums are kept for each.

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
        self.budget = budget
        self.target_bounds = target_bounds
        self.public = public
        self.levels = levels
        self.mechanism = mechanism
        self.features = features
        self.forget = forget
        self.seed = seed
        self.noise = noise
        low, high = map(float, stated_bounds("target_bounds", target_bounds, (-1.0, 1.0), seed=seed))
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise UserError(f"target_bounds={target_bounds!r} are not two finite numbers, the lower first")
        self._bounds = low, high
        self._middle, self._half = (low + high) / 2.0, (high - low) / 2.0
        self._prepare()

    def _expected(self) -> tuple[float | None, float | None]:
        return 1.0, 1.0

    def _code(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Targets by their bounds, beyond [-1, 1] where they are beyond these; NaN where missing or not finite."""
        with np.errstate(over="ignore"):
            return np.asarray((np.where(np.isfinite(y), y, np.nan) - self._middle) / self._half)

    def _held(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.clip(y, -1.0, 1.0)

    def _scale(self) -> Scale:
        return "slope"

    def learn_one(self, x: Record, y: Any, budget: Guarantee | None = None) -> None:
        """Randomize the record's answer once and learn from the result.

        ``budget`` overrides the learner's for this person.
        """
        value = target(y)
        # As `_code` has it of many.
        self._learn(x, (value - self._middle) / self._half if math.isfinite(value) else math.nan, budget)

    def learn_many(self, X: Any, y: Any, budget: Guarantee | Sequence[Guarantee] | None = None) -> None:
        """Learn from the rows of a data frame or an ``(n, k)`` array, as one by one.

        ``budget`` is everybody's, or a sequence with each row's own.
        """
        self._learn_rows(X, self._code(targets(y)), budget)

    @property
    def _half_unit(self) -> float:
        return self._half

    def _in_units(self, found: ScoreEstimate) -> ScoreEstimate:
        values = self._half * found.values
        values[-1] += self._middle
        return replace(found, values=values, spread=self._half * found.spread, unit=self._half)

    def _means(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.clip(self._middle + self._half * self._linear(rows)[:, 0], *self._bounds)

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"budget": GaussianDP(mu=1.0), "seed": 1}
        yield {"budget": PureDP(epsilon=2.0), "target_bounds": (0.0, 100.0), "seed": 1}
