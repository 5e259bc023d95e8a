"""River regressor for releases of an organisation's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from river import base

from murk.learners.core.estimator import TargetEstimator
from murk.learners.core.values import stated_bounds
from murk.learners.sketches.base import Budget, GaussMix, Method
from murk.learners.sketches.settings import Kind, Weighting
from murk.privacy import ApproxDP
from murk.privacy.noise import NoiseSource
from murk.privacy.sketches import Analysis, Neighbours
from murk.stream.task.protocol import Scale

PUBLISHED: dict[str, Any] = {"analysis": "published", "debiased": False, "weighting": "uniform"}


class GaussMixRegressor(GaussMix, TargetEstimator, base.MiniBatchRegressor):
    r"""Linear regression from an organisation's releases: noisy second moments, or random mixtures, of its records.

    Records ``z = (x, 1, y)``, scaled down to public bounds, are added up as they arrive; a window of them is released
    once and forgotten, and the learner learns from the release alone. With ``"moments"`` a release is

    .. math:: M = Z'Z + \sigma W, \qquad \theta = M_{xx}^{-1} M_{xy}

    with symmetric Gaussian noise; with ``"linear-mixing"`` or ``"mixing"``, k random mixtures of records (GaussMix),

    .. math:: M = S Z + \text{std}\, C\, \Xi, \qquad
        \theta = (M_x'M_x / k - \text{std}^2 C^2 I)^{-1} M_x'm_y / k.

    Parameters
    ----------
    budget
        Guarantee of *each* release, for a record replaced by zeros: ``ApproxDP``, or for moments also ``GaussianDP`` or
        ``ZeroConcentratedDP``. Only the organisation, in this process, sees raw records.
    levels
        Further guarantees by name, for releases made elsewhere.
    features
        Feature names in a fixed order; by default the sorted names of the first record.
    feature_bound, target_bound
        Public bounds C_X of ``||(x, 1)||`` and C_Y of ``|y|``: records beyond them are scaled down. By default
        ``sqrt(p + 1)`` and 1, for values within [-1, 1]; ``target_bound`` is required unless noise is simulated.
    rows
        k, the rows of a mixture; by default 4,096, or as many as fit in a message. More are more precise but slower.
    window
        Number of records in a window, which is released when full; by default windows end by :meth:`release`.
    windows
        Largest number of windows to release. Each spends ``budget`` for its people, so more than 1 needs people who are
        in one window each, or may spend the budget several times.
    method
        ``"moments"``, ``"mixing"``, or ``"linear-mixing"``, which also releases a noisy least eigenvalue to add less
        noise. By default moments, or linear mixing if ``rows``, ``analysis`` or ``debiased`` is given.
    analysis
        Proof of the mixtures' guarantee, which sets the noise: ``"tight"`` (least noise), ``"joint"``, ``"published"``.
    neighbours
        ``"zero-out"``, or ``"replace-one"`` for a guarantee comparable with the local protocols'.
    debiased
        False for the paper's ``argmin ||m_y - M_x theta||`` of mixtures, which is shrunk.
    weighting
        How to weight windows, by public numbers: ``"inverse-variance"``, or ``"uniform"`` (every record alike).
    intercept
        False leaves the constant out of records, their bound and the model: ``z = (x, y)``, as in the paper. Intervals
        then assume that every record has a target.
    seed
        Simulate noise (and mixing) from this seed, for experiments: no privacy.
    noise
        Another source of noise.

    Notes
    -----
    Copies, clones, pickles and states hold releases only: the records of an open window are not in them.

    References
    ----------
    Lev, Srinivasan, Shenfeld, Ligett, Sekhari, Wilson. The Gaussian Mixing Mechanism. Algorithms 1 and 2.
    Wang. Revisiting differentially private linear regression (AdaSSP). 2018.

    Examples
    --------
    >>> from murk.learners import GaussMixRegressor
    >>> from murk.privacy import ApproxDP
    >>> model = GaussMixRegressor(budget=ApproxDP(1.0, 1e-6), window=20_000, seed=1)
    >>> for i in range(20_000):
    ...     x = (i * 7919 % 2003) / 1001.5 - 1
    ...     model.learn_one({"x": x}, 0.25 + 0.5 * x)
    >>> abs(model.coefficients()["x"] - 0.5) < 0.02
    True
    """

    def __init__(
        self,
        *,
        budget: Budget,
        levels: Mapping[str, Budget] | None = None,
        features: Sequence[Any] | None = None,
        feature_bound: float | None = None,
        target_bound: float | None = None,
        rows: int | None = None,
        window: int | None = None,
        windows: int = 1,
        method: Method | None = None,
        analysis: Analysis = "tight",
        neighbours: Neighbours = "zero-out",
        debiased: bool = True,
        weighting: Weighting = "inverse-variance",
        intercept: bool = True,
        seed: int | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        self._keep(locals())
        self._bound = float(stated_bounds("target_bound", target_bound, 1.0, seed=seed))
        self._prepare()

    @classmethod
    def as_published(cls, *, budget: ApproxDP, rows: int, **more: Any) -> Self:
        """Return the paper's LinearMixing with k = ``rows``: least squares on the sketch, its noise not subtracted."""
        return cls(budget=budget, rows=rows, **{"target_bound": 1.0, **PUBLISHED, **more})

    def _kind(self) -> Kind:
        return "real"

    def _target_bound(self) -> float:
        return self._bound

    def _scale(self) -> Scale:
        return "slope"

    def _means(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._linear(rows)

    @classmethod
    def _unit_test_params(cls) -> Any:
        many: dict[str, Any] = {"windows": 10**6, "seed": 1}
        # Not 50: River measures memory after 500 and 1001 records, and a window must be open at both.
        yield {"budget": ApproxDP(1.0, 1e-5), "window": 49, **many}
        yield {"budget": ApproxDP(1.0, 1e-5), "window": 49, "rows": 64, **many}
        yield {"budget": ApproxDP(1.0, 1e-5), "window": 1, "rows": 64, "debiased": False, **many}
