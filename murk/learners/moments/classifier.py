"""Binary GLMs from released moments and public covariates, as a River estimator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from river import base

from murk.learners.core.curves import LOSSES, Curve, curve_of
from murk.learners.core.estimator import Record
from murk.learners.core.predictions import LabelEstimator, codes_of, two_chances, two_labels
from murk.learners.moments.base import PublicMoments
from murk.learners.moments.fit import Response
from murk.privacy import ApproxDP, GaussianDP, Guarantee, PureDP
from murk.privacy.noise import NoiseSource
from murk.stream.task.protocol import Scale


class PublicGLMClassifier(PublicMoments, LabelEstimator, base.MiniBatchClassifier):
    """Logistic, Poisson or boosting GLM of a binary target, from moments released once.

    Each person releases, once and without seeing any model, what is said of ``release``: by default, where covariates
    are public, the direction of their whitened features with the label's sign, whose mean is solved for over the public
    ones; or the noisy second moments of their record, ``x x'`` and ``x y``. The means of these give the least-squares
    slopes u; public unlabelled covariates give the factor c and the intercept a with ``mean f(a + c x'u) = mean y`` and
    ``c mean f'(a + c x'u) = 1``; the coefficients are ``c u``.

    Parameters
    ----------
    budget
        Guarantee of each release: ``PureDP``, ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``.
    public
        Public covariates without targets: an array, a data frame, an iterable of mappings (a generator is used up)
        or a CSV file's path. Read once; at most 20,000 rows are kept, of the others their second moments. Without
        any, scores are taken as normal, of the mean and variance that the releases tell.
    loss
        ``"logistic"``, ``"poisson"`` (``P(y = 1) = exp(x'w)``) or ``"boosting"`` (``z/2 + sqrt(1 + z^2/4)``).
    classes
        The two labels, the second of which is the positive one.
    levels
        Further guarantees by name, for releases made elsewhere at other levels.
    mechanism
        ``"gaussian"``, ``"laplace"``, ``"l2-ball"`` or ``"privunit"``; by default that of least variance: Gaussian
        for GDP and zCDP budgets, mostly PrivUnit for pure and (epsilon, delta) ones.
    calibration
        ``"analytic"``, or ``"classic"`` for the paper's (epsilon, delta) formula.
    features
        Feature names in a fixed order; required where noise is real, and in a simulation by default the sorted names of
        the first record.
    radius
        Public bound of the features' l2 norm, the constant not counted; by default ``sqrt(k)``, for k features
        in [-1, 1].
    beyond
        What becomes of a record beyond the bound: ``"scale"`` (down to it), or ``"zero"`` (a record of zeros).
    design
        ``"bounded"``, or ``"gaussian"``: the bound is what ``people`` normal vectors of the public covariance stay
        within, except with probability ``failure``.
    people, failure
        For ``design="gaussian"``.
    release
        ``"directions"``: ``y z / |z|``, z the features whitened by the public ones, one number a feature.
        ``"observed"``: ``x x'`` and ``x y`` by one mechanism, zeros where the target is missing, and a number that says
        whether it is. ``"joint"``: without that number, a missing target being the middle of its range. ``"separate"``:
        joint ones by a mechanism each. By default directions where covariates are public
        and no argument is given that only moments have: ``calibration``, ``radius``, ``beyond``, ``design``,
        ``target_weight``, ``covariance``, ``solver``, ``repair``, ``intercept``, ``inputs``; else ``"observed"``, and
        ``"joint"`` without an intercept.
    target_weight
        What the target, coded to -1 and +1, is multiplied by before the joint release; by default ``sqrt 2`` times
        the bound of ``||x||``, at which ``x y`` is as little noisy as if it were released alone.
    covariance
        ``"both"``: private and public second moments, by inverse variance; ``"pooled"``: by numbers of people;
        ``"private"``.
    solver
        ``"stein"``, the paper's; or ``"score"``, which solves the model's own equations ``mean x f(x'w) = E x y``
        over public covariates, and is consistent whatever the features' distribution.
    repair
        Whether eigenvalues of the noisy ``x x'`` that lie below the noise's own are raised to these. ``False``, as
        published, inverts the matrix as it is, be it indefinite.
    intercept
        Whether there is one. Without, labels count as 0 and 1, as published, and on most data there is no root.
    inputs
        ``"records"``, or ``"released"``: ``learn_one`` then takes released integers by the names in ``moments``.
    seed
        Simulate the noise from this seed. Not private: for experiments.
    noise
        Another source of noise, such as ``OpenDPNoise()``.

    Notes
    -----
    From directions consistent for any features, if the public ones are like the people's; from moments for normal ones:
    for others there is a bias that more people do not remove (docs/public-glm.md).
    Each call of ``learn_one`` is one release of one person.

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
        self.budget = budget
        self.public = public
        self.loss = loss
        self.classes = classes
        self.levels = levels
        self.mechanism = mechanism
        self.calibration = calibration
        self.features = features
        self.radius = radius
        self.beyond = beyond
        self.design = design
        self.people = people
        self.failure = failure
        self.release = release
        self.target_weight = target_weight
        self.covariance = covariance
        self.solver = solver
        self.repair = repair
        self.intercept = intercept
        self.inputs = inputs
        self.seed = seed
        self.noise = noise
        # With a constant, labels of -1 and +1 are the least to say; without, they are 0 and 1, as published.
        self._codes = two_labels(classes, (-1.0 if intercept else 0.0, 1.0))
        self._fitted_curve = curve_of(loss, LOSSES, "loss")
        self._prepare()

    @classmethod
    def as_published(cls, *, budget: Guarantee, **more: Any) -> Self:
        """The paper's own release and constants, no intercept, covariance pooled by people and inverted as it is.

        Give ``radius=`` (the paper's r) or ``design="gaussian"``. ``budget`` is an ``ApproxDP`` whose half
        the classic calibration holds for: by its exact curve, of an epsilon up to 17 at delta = 1e-6.
        """
        settings: dict[str, Any] = {
            "release": "separate",
            "calibration": "classic" if isinstance(budget, ApproxDP) else "analytic",
            "covariance": "pooled",
            "repair": False,
            "intercept": False,
            "beyond": "zero",
        }
        return cls(budget=budget, **{**settings, **more})

    def _curve(self) -> Curve:
        return self._fitted_curve

    def _response(self) -> Response:
        return Response(0.0, 1.0) if self.intercept else Response(-1.0, 1.0)

    def _scale(self) -> Scale:
        return "log odds" if self.loss == "logistic" else "own"

    def learn_one(self, x: Record, y: Any = None, budget: Any = None) -> None:
        """Randomize the record's moments once and learn from the result.

        ``budget`` overrides the learner's for this person. With ``inputs="released"``, ``x`` maps the names in
        ``moments`` to released integers, ``y`` is not looked at, and ``budget`` is a level's name.
        """
        if self.inputs == "released":
            self._learn_released(x, budget)
        else:
            try:
                code = self._codes.get(y, math.nan)
            except TypeError:  # what cannot be a key is no class
                code = math.nan
            self._learn(x, code, budget)

    def learn_many(self, X: Any, y: Any = None, budget: Any = None) -> None:
        """Learn from the rows of a data frame or an ``(n, k)`` array, as one by one.

        ``budget`` is everybody's, or a sequence with each row's own; a level's name with ``inputs="released"``.
        """
        self._learn_rows(X, np.zeros(0) if self.inputs == "released" else codes_of(y, self._codes), budget)

    def _chances(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return two_chances(np.clip(self._responses(rows), 0.0, 1.0))

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"budget": GaussianDP(mu=1.0), "seed": 1}
        yield {"budget": PureDP(epsilon=2.0), "loss": "boosting", "seed": 1}


PublicDataGLM = PublicGLMClassifier
"""Its name until 0.3."""
