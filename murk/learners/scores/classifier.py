"""Logistic regression by scores in epochs, as a River estimator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from river import base

from murk.errors import UserError
from murk.learners.core.coordinates import contrasts
from murk.learners.core.estimator import Record
from murk.learners.core.predictions import LabelEstimator, codes_of, two_chances
from murk.learners.estimates.links import class_probabilities, logistic
from murk.learners.scores.base import Scores
from murk.privacy import GaussianDP, Guarantee, PureDP
from murk.privacy.noise import NoiseSource
from murk.stream.task.protocol import Scale


class ScoreClassifier(Scores, LabelEstimator, base.MiniBatchClassifier):
    """Logistic regression, softmax, or lines through several classes, by scores in epochs, with intervals.

    Each person answers one question at the model of their epoch, randomized once at their budget: mostly their score
    ``r(y, x'a) c(z) z``, sometimes a matrix of their features, which is drawn before their record is looked at. Epochs
    double. The learner keeps sums per epoch, and solves all epochs' equations when it is asked; there is no step and no
    radius.

    Parameters
    ----------
    budget
        Guarantee of each release: ``PureDP``, ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``.
    classes
        The labels, the positive one last where there are two. Another label counts as missing: the answer is then
        that of a person who has no say, and the fit is that of the people whose label is there. Of more than two,
        coefficients are contrasts of log odds with ``public``; without it they are the least-squares line through each
        class's labels of -1 and +1, half of which changes the probability, and log odds are not learned.
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
    exponent
        g from 0 to 1: how much of a label's probability a score takes back. By default by rule; 1, the balanced score,
        is right whatever the features' distribution is. Less needs ``public``.
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
    with all that was learned. Predictions are by the solution at the last of 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16,
    20, ... releases (four times an epoch), so that predicting after each record does not solve each time, and what is
    predicted is a function of the stream alone. They are by coefficients that are held nearer to zero as long as noise
    rules.

    A coefficient whose interval has no end was not learned at this privacy.

    People's own budgets (``learn_one(x, y, budget)``) may be of at most 64 kinds: sums are kept for each.

    References
    ----------
    Fieller. Some problems in interval estimation. 1954. Asi, Feldman, Talwar. Optimal algorithms for mean estimation
    under local differential privacy. 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from murk.learners import ScoreClassifier
    >>> from murk.privacy import GaussianDP
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(-1, 1, size=(30_000, 2))
    >>> y = rng.random(30_000) < 1 / (1 + np.exp(0.5 - 2 * X[:, 0]))
    >>> model = ScoreClassifier(budget=GaussianDP(mu=2.0), features=["a", "b"], seed=1)
    >>> model.learn_many(X, y)
    >>> low, high = model.confidence_intervals(0.95)["a"]
    >>> 1.0 < low < 2.0 < high
    True
    >>> model.predict_one({"a": 0.9, "b": 0.0})
    True
    """

    _binary: ClassVar[bool] = True

    def __init__(
        self,
        *,
        budget: Guarantee,
        classes: Sequence[Any] = (False, True),
        public: Any = None,
        levels: Mapping[str, Guarantee] | None = None,
        mechanism: str | None = None,
        features: Sequence[Any] | None = None,
        exponent: float | None = None,
        forget: int | None = None,
        seed: int | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        self.budget = budget
        self.classes = classes
        self.public = public
        self.levels = levels
        self.mechanism = mechanism
        self.features = features
        self.exponent = exponent
        self.forget = forget
        self.seed = seed
        self.noise = noise
        self._codes = {label: float(place) for place, label in enumerate(classes)}
        if len(self._codes) != len(classes) or len(classes) < 2:
            raise UserError(f"classes must be at least two distinct labels, got {classes!r}")
        self._prepare()

    def _labels(self) -> tuple[str, ...]:
        return tuple(map(str, self.classes)) if len(self.classes) > 2 else ()

    def _scale(self) -> Scale:
        if not self._labels():
            return "log odds"
        return "probability" if self.public is None else "own"

    def learn_one(self, x: Record, y: Any, budget: Guarantee | None = None) -> None:
        """Randomize the record's answer once and learn from the result.

        ``budget`` overrides the learner's for this person.
        """
        try:
            code = self._codes.get(y, math.nan)
        except TypeError:  # what cannot be a key is no class
            code = math.nan
        self._learn(x, code, budget)

    def learn_many(self, X: Any, y: Any, budget: Guarantee | Sequence[Guarantee] | None = None) -> None:
        """Learn from the rows of a data frame or an ``(n, k)`` array, as one by one.

        ``budget`` is everybody's, or a sequence with each row's own.
        """
        self._learn_rows(X, codes_of(y, self._codes), budget)

    def _chances(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        scores = self._linear(rows)
        if len(self.classes) == 2:
            return two_chances(logistic(scores[:, 0]))
        return class_probabilities(scores, contrasts(len(self.classes)))

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"budget": GaussianDP(mu=1.0), "seed": 1}
        yield {"budget": PureDP(epsilon=2.0), "seed": 1}
