"""River classifier for public-data GLM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from river import base

from murk.learners.core.curves import LOSSES, curve_of
from murk.learners.core.estimator import LabelEstimator, two_chances, two_labels
from murk.learners.moments.base import PublicMoments, published
from murk.learners.moments.fit import Response
from murk.privacy import GaussianDP, Guarantee, PureDP
from murk.privacy.noise import NoiseSource
from murk.stream.task.protocol import Scale


class PublicGLMClassifier(PublicMoments, LabelEstimator, base.MiniBatchClassifier):
    """Logistic, Poisson or boosting GLM of a binary target, from moments released once.

    Each person releases once, with noise and without seeing a model, one of two things:

    - The direction of their whitened features times the coded target. The learner solves for coefficients over public
      covariates.
    - Their second moments ``x x'`` and ``x y``, which give least-squares slopes u. Coefficients are then ``c u``, where
      public covariates give the factor c and intercept a with ``mean f(a + c x'u) = mean y`` and
      ``c mean f'(a + c x'u) = 1``.

    Parameters
    ----------
    budget
        Guarantee of each release: ``PureDP``, ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``.
    public
        Public covariates without targets: an array, a data frame, an iterable of mappings (a generator is used up) or a
        CSV file's path, read once. Beyond 20,000 rows only second moments are kept. Without any, ``x'w`` is taken as
        normal, with the mean and variance that follow from the releases.
    loss
        ``"logistic"``, ``"poisson"`` (``P(y = 1) = exp(x'w)``) or ``"boosting"`` (``z/2 + sqrt(1 + z^2/4)``).
    classes
        The two labels, the positive one last.
    levels
        Further guarantees by name, for releases made elsewhere.
    mechanism
        ``"gaussian"``, ``"laplace"``, ``"l2-ball"`` or ``"privunit"``; by default the one of least variance: Gaussian
        for GDP and zCDP budgets, mostly PrivUnit for pure and (epsilon, delta) budgets.
    calibration
        ``"analytic"``, or ``"classic"`` for the paper's (epsilon, delta) formula.
    features
        Feature names in a fixed order; required unless noise is simulated, then by default the sorted names of the
        first record.
    radius
        Public bound on the l2 norm of features without the constant; by default ``sqrt(k)``, for k of them in [-1, 1].
    beyond
        For records beyond the bound: ``"scale"`` them down to it, or release a record of zeros (``"zero"``) for them.
    design, people, failure
        ``"bounded"``: the bound is ``radius``. ``"gaussian"``: all of ``people`` normal vectors with the public
        covariance are within the bound, except with probability ``failure``.
    release
        ``"directions"``: ``y z / |z|``, z the features whitened by the public ones. ``"observed"``: ``x x'``, ``x y``
        and whether the target is present, by one mechanism. ``"joint"``: without presence; a missing target counts as
        the middle of its range. ``"separate"``: ``x x'`` and ``x y`` by a mechanism each. The default is directions if
        there are public covariates and no argument is given that applies only to moments (``calibration``, ``radius``,
        ``beyond``, ``design``, ``target_weight``, ``covariance``, ``solver``, ``repair``, ``intercept``, ``inputs``);
        else ``"observed"``, or ``"joint"`` without an intercept.
    target_weight
        Factor of the coded target in moments; by default ``sqrt 2`` times the bound on ``||x||``, at which ``x y`` has
        as little noise as if released alone.
    covariance
        ``"both"``: private and public second moments, weighted by inverse variance; ``"pooled"``: weighted by numbers
        of people; ``"private"``: private ones alone.
    solver
        ``"stein"``, the paper's; or ``"score"``, which solves ``mean x f(x'w) = E x y`` over public covariates and is
        consistent for any distribution of the features.
    repair
        Whether to raise eigenvalues of ``x x'`` to at least their noise. ``False``, as in the paper, leaves the matrix
        unchanged.
    intercept
        Whether there is an intercept. Otherwise labels count as 0 and 1, as in the paper, and most data have no root.
    inputs
        ``"records"``; or ``"released"``, where ``learn_one`` takes released integers under the names in ``moments``.
    seed, noise
        Simulate the noise from a seed (no privacy), or take it from another source, such as ``OpenDPNoise()``.

    Notes
    -----
    Directions are consistent for any features if the public ones are like the people's; moments are consistent for
    normal features and otherwise biased (docs/public-glm.md).

    References
    ----------
    Wang, Zhang, Gaboardi, Xu. Estimating Smooth GLM in Non-interactive Local Differential Privacy Model with Public
    Unlabeled Data. Algorithms 1 and 2.

    Examples
    --------
    >>> import numpy as np
    >>> from murk.learners import PublicGLMClassifier
    >>> from murk.privacy import GaussianDP
    >>> rng = np.random.default_rng(1)
    >>> X = np.clip(rng.normal(size=(60_000, 2)) / 2, -1, 1)
    >>> y = rng.random(60_000) < 1 / (1 + np.exp(-(X[:, 0] - 0.5)))
    >>> model = PublicGLMClassifier(budget=GaussianDP(mu=2.0), public=X[:2_000], features=["a", "b"], seed=1)
    >>> model.learn_many(X[2_000:], y[2_000:])
    >>> {name: round(value, 1) for name, value in model.coefficients().items()}
    {'a': 1.0, 'b': 0.0, 'intercept': -0.5}
    """

    loss: str
    classes: Sequence[Any]

    def __init__(
        self,
        *,
        budget: Guarantee,
        public: Any = None,
        loss: Literal["logistic", "poisson", "boosting"] = "logistic",
        classes: Sequence[Any] = (False, True),
        levels: Mapping[str, Guarantee] | None = None,
        mechanism: str | None = None,
        calibration: Literal["analytic", "classic"] = "analytic",
        features: Sequence[Any] | None = None,
        radius: float | None = None,
        beyond: Literal["scale", "zero"] = "scale",
        design: Literal["bounded", "gaussian"] = "bounded",
        people: int = 1_000_000,
        failure: float = 0.05,
        release: Literal["directions", "observed", "joint", "separate"] | None = None,
        target_weight: float | None = None,
        covariance: Literal["both", "private", "pooled"] = "both",
        solver: Literal["stein", "score"] = "stein",
        repair: bool = True,
        intercept: bool = True,
        inputs: Literal["records", "released"] = "records",
        seed: int | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        self._keep(locals())
        # Without a constant, labels are 0 and 1 as in the paper.
        self._codes = two_labels(classes, (-1.0 if intercept else 0.0, 1.0))
        self._curve = curve_of(loss, LOSSES, "loss")
        self._response = Response(0.0, 1.0) if intercept else Response(-1.0, 1.0)
        self._prepare()

    @classmethod
    def as_published(cls, *, budget: Guarantee, **more: Any) -> Self:
        """Return a learner with the paper's settings: separate Gaussian releases without an intercept.

        Give ``radius=`` (the paper's r) or ``design="gaussian"``. The classic calibration must be valid for half of an
        ``ApproxDP`` budget: epsilon up to 17 at delta = 1e-6.
        """
        return cls(budget=budget, **{**published(budget), **more})

    def _scale(self) -> Scale:
        return "log odds" if self.loss == "logistic" else "own"

    def _chances(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return two_chances(np.clip(self._responses(rows), 0.0, 1.0))

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"budget": GaussianDP(mu=1.0), "seed": 1}
        yield {"budget": PureDP(epsilon=2.0), "loss": "boosting", "seed": 1}


PublicDataGLM = PublicGLMClassifier  # Name until 0.3
