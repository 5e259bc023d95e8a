"""Linear regression by scores in epochs, as a River estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from river import base

from murk.errors import UserError
from murk.learners.estimator import Record
from murk.learners.predictions import TargetEstimator
from murk.learners.scores.base import Scores
from murk.learners.scores.estimate import ScoreEstimate
from murk.learners.values import numbers, target
from murk.privacy import GaussianDP, Guarantee, PureDP
from murk.privacy.noise import NoiseSource


class ScoreRegressor(Scores, TargetEstimator, base.MiniBatchRegressor):
    """The line of a bounded target's mean, by scores in epochs, with intervals.

    As :class:`ScoreClassifier`, for a real target: a person's score is ``y c(z) z``, y being coded to [-1, 1].

    Parameters
    ----------
    budget
        Guarantee of each release: ``PureDP``, ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``.
    target_bounds
        Public bounds (low, high) of the target; what lies outside is brought back to them. Noise is added for the whole
        range. A missing target counts as none: the fit is that of the people whose target is there.
    public, levels, mechanism, features, seed, noise
        As for :class:`ScoreClassifier`.

    Notes
    -----
    As for :class:`ScoreClassifier`. Coefficients are in the target's own units.

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
        target_bounds: tuple[float, float] = (-1.0, 1.0),
        public: Any = None,
        levels: Mapping[str, Guarantee] | None = None,
        mechanism: str | None = None,
        features: Sequence[Any] | None = None,
        seed: int | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        self.budget = budget
        self.target_bounds = target_bounds
        self.public = public
        self.levels = levels
        self.mechanism = mechanism
        self.features = features
        self.seed = seed
        self.noise = noise
        low, high = map(float, target_bounds)
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise UserError(f"target_bounds={target_bounds!r} are not two finite numbers, the lower first")
        self._bounds = low, high
        self._middle, self._half = (low + high) / 2.0, (high - low) / 2.0
        self._prepare()

    def _expected(self) -> tuple[float | None, float | None]:
        return 1.0, 1.0

    def _code(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Targets in [-1, 1]; NaN where missing or not finite."""
        held = np.clip(np.where(np.isfinite(y), y, np.nan), *self._bounds)
        return np.asarray((held - self._middle) / self._half)

    def learn_one(self, x: Record, y: Any, budget: Guarantee | None = None) -> None:
        """Randomize the record's answer once and learn from the result.

        ``budget`` overrides the learner's for this person.
        """
        self._learn(x, float(self._code(np.array([target(y)]))[0]), budget)

    def learn_many(self, X: Any, y: Any, budget: Guarantee | Sequence[Guarantee] | None = None) -> None:
        """Learn from the rows of a data frame or an ``(n, k)`` array, as one by one.

        ``budget`` is everybody's, or a sequence with each row's own.
        """
        self._learn_rows(X, self._code(numbers(y, target)), budget)

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
