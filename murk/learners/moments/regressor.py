"""River regressor for public-data GLM."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from river import base

from murk.errors import UserError
from murk.learners.core.curves import LINKS, curve_of
from murk.learners.core.estimator import TargetEstimator
from murk.learners.core.values import stated_range, target, targets
from murk.learners.moments.base import PublicMoments, published
from murk.learners.moments.fit import Response
from murk.privacy import GaussianDP, Guarantee, PureDP
from murk.privacy.noise import NoiseSource
from murk.stream.task.protocol import Scale


class PublicGLMRegressor(PublicMoments, TargetEstimator, base.MiniBatchRegressor):
    """Regression ``y = f(x'w) + e`` of a bounded target, from moments released once.

    Each person releases once, with noise and without seeing a model, one of two things:

    - The direction of their whitened features times the coded target. The learner solves for coefficients over public
      covariates.
    - Their second moments ``x x'`` and ``x y``, which give least-squares slopes u. Coefficients are then ``c u``, where
      public covariates give the factor c and intercept a with ``mean f(a + c x'u) = mean y`` and
      ``c mean f'(a + c x'u) = 1``.

    ``link="identity"`` is least squares and needs no public covariates; ``link="exp"`` is Poisson regression of bounded
    counts.

    Parameters
    ----------
    budget
        Guarantee of each release: ``PureDP``, ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``.
    public
        Public covariates without targets: an array, a data frame, an iterable of mappings (a generator is used up) or a
        CSV file's path, read once. Beyond 20,000 rows only second moments are kept. Without any, ``x'w`` is taken as
        normal, with the mean and variance that follow from the releases.
    link
        ``"identity"``, ``"sigmoid"``, ``"cubic"`` (``z^3/3``), ``"softplus"`` (``log(1 + e^z)``; the paper's
        ``log(1 + e^-z)`` reverses all signs) or ``"exp"``.
    target_bounds
        Public bounds (low, high) of the target, to which it is clipped before it is coded to [-1, 1]; required unless
        noise is simulated or moments are released, then (-1, 1) by default.
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
        Public bound on the features' l2 norm without the constant; by default ``sqrt(k)``, for k features in [-1, 1].
    beyond
        For records beyond the bound: ``"scale"`` them down to it, or release a record of zeros (``"zero"``) for them.
    design, people, failure
        ``"bounded"``: the bound is ``radius``. ``"gaussian"``: all of ``people`` normal vectors with the public
        covariance are within the bound, except with probability ``failure``.
    release
        ``"directions"``: ``y z / |z|``, z the features whitened by the public ones. ``"observed"``: ``x x'``, ``x y``
        and whether the target is present, by one mechanism. ``"joint"``: without presence; a missing target counts as
        the middle of its range. ``"separate"``: ``x x'`` and ``x y`` by a mechanism each. The default is directions if
        there are public covariates, the link is not cubic and no argument is given that applies only to moments
        (``calibration``, ``radius``, ``beyond``, ``design``, ``target_weight``, ``covariance``, ``solver``, ``repair``,
        ``intercept``, ``inputs``); else ``"observed"``, or ``"joint"`` without an intercept.
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
        Whether there is an intercept. Otherwise the target is divided by its largest bound instead of centred.
    inputs
        ``"records"``; or ``"released"``, where ``learn_one`` takes released integers under the names in ``moments``.
    seed, noise
        Simulate the noise from a seed (no privacy), or take it from another source, such as ``OpenDPNoise()``.

    Notes
    -----
    Directions, ``link="identity"`` and ``solver="score"`` are consistent for any features. All other estimates are
    consistent for normal features; for other features they have a bias that more people do not remove.

    References
    ----------
    Wang, Zhang, Gaboardi, Xu. Estimating Smooth GLM in Non-interactive Local Differential Privacy Model with Public
    Unlabeled Data. Algorithms 3 and 4.

    Examples
    --------
    >>> from murk.learners import PublicGLMRegressor
    >>> from murk.privacy import GaussianDP
    >>> model = PublicGLMRegressor(budget=GaussianDP(mu=2.0), features=["x"], seed=1)
    >>> for i in range(20_000):
    ...     x = (i * 7919 % 2003) / 1001.5 - 1
    ...     model.learn_one({"x": x}, 0.25 + 0.5 * x)
    >>> abs(model.coefficients()["x"] - 0.5) < 0.1
    True
    """

    link: str
    target_bounds: tuple[float, float] | None

    def __init__(
        self,
        *,
        budget: Guarantee,
        public: Any = None,
        link: Literal["identity", "sigmoid", "cubic", "softplus", "exp"] = "identity",
        target_bounds: tuple[float, float] | None = None,
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
        self._bounds = low, high = stated_range(target_bounds, seed=seed, records=inputs == "records")
        # Without a constant, the middle of the range must be 0.
        size = max(abs(low), abs(high))
        self._response = Response(low, high) if intercept else Response(-size, size)
        self._middle = self._response.middle
        self._curve = curve_of(link, LINKS, "link")
        self._prepare()

    @classmethod
    def as_published(
        cls,
        *,
        budget: Guarantee,
        link: Literal["identity", "sigmoid", "cubic", "softplus", "exp"],
        radius: float | None = None,
        lipschitz: float,
        error: float,
        **more: Any,
    ) -> Self:
        """Return a learner with the paper's settings: separate Gaussian releases without an intercept.

        Raises UserError if neither ``radius`` nor ``target_bounds`` is given.

        Parameters
        ----------
        budget
            The classic calibration must be valid for half of an ``ApproxDP``: epsilon up to 17 at delta = 1e-6.
        link, radius
            The paper's f and r. ``design="gaussian"`` takes no radius but needs ``target_bounds``.
        lipschitz, error
            The paper's L, a bound on ``|f'|``, and C, a bound on ``|y - f(x'w)|``: with ``||w|| <= 1`` the target is
            within ``L r + |f(0)| + C``.
        **more
            Further constructor arguments.
        """
        start = float(curve_of(link, LINKS, "link").mean(np.zeros(1))[0])
        if radius is None and "target_bounds" not in more:
            raise UserError("as_published bounds the target by lipschitz * radius: give radius= or target_bounds=")
        size = lipschitz * (radius or 0.0) + abs(start) + error
        settings = published(budget) | {"target_bounds": (-size, size)} | more
        return cls(budget=budget, link=link, radius=radius, **settings)

    def _coded_one(self, y: Any) -> float:
        value, (low, high) = target(y), self._bounds
        code = (min(max(value, low), high) - self._response.middle) / self._response.half
        return code if math.isfinite(value) else math.nan

    def _coded_many(self, y: Any) -> NDArray[np.float64]:
        values = targets(y)
        clipped = np.clip(np.where(np.isfinite(values), values, np.nan), *self._bounds)
        return np.asarray((clipped - self._response.middle) / self._response.half)

    def _scale(self) -> Scale:
        return "slope" if self.link == "identity" else "own"

    def _means(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.clip(self._responses(rows), *self._bounds)

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"budget": GaussianDP(mu=1.0), "seed": 1}
        yield {"budget": PureDP(epsilon=2.0), "link": "softplus", "seed": 1}


PublicDataRegression = PublicGLMRegressor  # Name until 0.3
