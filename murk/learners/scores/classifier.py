"""River classifier for scores in epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from river import base

from murk.learners.core.coordinates import contrasts
from murk.learners.core.estimator import LabelEstimator, several_labels, two_chances
from murk.learners.estimates.links import class_probabilities, logistic
from murk.learners.scores.base import Scores
from murk.privacy import GaussianDP, Guarantee, PureDP
from murk.privacy.noise import NoiseSource
from murk.stream.task.protocol import Scale


class ScoreClassifier(Scores, LabelEstimator, base.MiniBatchClassifier):
    """Logistic regression, softmax, or lines through several classes, by scores in epochs, with intervals.

    Each person answers one question at the model of their epoch, randomized once at their budget: mostly their score
    ``r(y, x'a) c(z) z``, sometimes a matrix of their features, drawn before their record is read. Epochs double. The
    learner keeps sums per epoch, and solves all epochs' equations on request, without steps or a radius.

    Parameters
    ----------
    budget
        Guarantee of each release: ``PureDP``, ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``.
    classes
        The labels; of two labels, the positive one last. Any other label counts as missing, and the fit is that of
        people with a label. For more than two labels, coefficients with ``public`` are contrasts of log odds. Without
        it, each class has a least-squares line through labels of -1 and +1, whose halved slopes change the probability.
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
    exponent
        g from 0 to 1, the share of a label's probability that a score subtracts; chosen by rule if omitted. 1, the
        balanced score, is valid for any features; less needs ``public``.
    forget
        Learn from this many of the newest releases only, at least 24,000. (Whole epochs are forgotten, so at times from
        as few as seven eighths of them.) Intervals then stop shrinking. By default nothing is forgotten.
    seed
        Simulate the noise from this seed, for experiments: no privacy.
    noise
        Another source of noise, such as ``OpenDPNoise()``.

    Notes
    -----
    Each call of ``learn_one`` is one release of one person. Predictions use the solution at the last of 1, 2, 3, 4, 5,
    6, 7, 8, 10, 12, 14, 16, 20, ... releases (four times an epoch), shrunk while noise dominates. A coefficient with an
    infinite interval was not learned at this privacy. People's own budgets (``learn_one(x, y, budget)``) may take at
    most 64 different values, as sums are kept for each.

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
        self._keep(locals())
        self._codes = several_labels(classes)
        self._labels = tuple(map(str, classes)) if len(classes) > 2 else ()
        self._prepare()

    def _scale(self) -> Scale:
        if not self._labels:
            return "log odds"
        return "probability" if self.public is None else "own"

    def _chances(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        scores = self._linear(rows)
        if len(self.classes) == 2:
            return two_chances(logistic(scores[:, 0]))
        return class_probabilities(scores, contrasts(len(self.classes)))

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"budget": GaussianDP(mu=1.0), "seed": 1}
        yield {"budget": PureDP(epsilon=2.0), "seed": 1}
