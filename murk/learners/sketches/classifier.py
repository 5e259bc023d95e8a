"""River classifier for releases of an organisation's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from river import base

from murk.errors import UserError
from murk.learners.core.estimator import LabelEstimator, two_chances, two_labels
from murk.learners.estimates.links import logistic
from murk.learners.sketches.base import Budget, GaussMix, Method
from murk.learners.sketches.regressor import PUBLISHED
from murk.learners.sketches.settings import Kind, Weighting
from murk.learners.sketches.surrogate import Surrogate
from murk.privacy import ApproxDP
from murk.privacy.noise import NoiseSource
from murk.privacy.sketches import Analysis, Neighbours
from murk.stream.task.protocol import Scale


class GaussMixClassifier(GaussMix, LabelEstimator, base.MiniBatchClassifier):
    """Logistic regression from an organisation's releases: noisy second moments, or random mixtures, of its records.

    Records ``z = (x, 1, y)``, scaled down to public bounds, are added up as they arrive; a window of them is released
    once and forgotten, and the learner learns from the release alone: by least squares on labels -1 and +1, whose fit
    is turned into logistic coefficients.

    Parameters
    ----------
    budget
        Guarantee of *each* release, for a record replaced by zeros: ``ApproxDP``, or for moments also ``GaussianDP`` or
        ``ZeroConcentratedDP``. Only the organisation, in this process, sees raw records.
    classes
        The two labels, the positive one last. Any other label counts as missing: its record becomes a row of zeros.
    levels
        Further guarantees by name, for releases made elsewhere.
    features
        Feature names in a fixed order; by default the sorted names of the first record.
    feature_bound
        Public bound C_X of ``||(x, 1)||``: records beyond it are scaled down. By default ``sqrt(p + 1)``, for features
        within [-1, 1].
    rows
        k, the rows of a mixture; by default 4,096, or as many as fit in a message. More are more precise but slower.
    window
        Number of records in a window, which is released when full; by default windows end by :meth:`release`.
    windows
        Largest number of windows to release. Each spends ``budget`` for its people, so more than 1 needs people who are
        in one window each, or may spend the budget several times.
    method
        ``"moments"``; ``"newton"``, second moments of a window's first records, then a step of the logistic loss with
        all others, which is better with many records; ``"mixing"``; or ``"linear-mixing"``, which also releases a
        noisy least eigenvalue to add less noise. By default moments, or linear mixing if ``rows``, ``analysis`` or
        ``debiased`` is given.
    first
        Number of records in a window's first part, with ``method="newton"``; by default 2,500 for each coefficient, at
        most 10,000 and half of ``window``.
    analysis
        Proof of the mixtures' guarantee, which sets the noise: ``"tight"`` (least noise), ``"joint"``, ``"published"``.
    neighbours
        ``"zero-out"``, or ``"replace-one"`` for a guarantee comparable with the local protocols'.
    range
        Q of the paper's quadratic surrogate on [-Q, Q]. By default no surrogate: the least-squares fit is turned into
        logistic coefficients as if ``x'theta`` were normal, with the released moments.
    surrogate
        The quadratic: ``"minimax"``, the closest on that range, or ``"chebyshev"``, through the Chebyshev nodes.
    debiased
        False for the paper's ``argmin ||m_y - M_x theta||`` of mixtures, which is shrunk.
    weighting
        How to weight windows, by public numbers: ``"inverse-variance"``, or ``"uniform"`` (every record alike).
    intercept
        False leaves the constant out of records, their bound and the model: ``z = (x, y)``, as in the paper. Then log
        odds have no intervals, as these need a constant.
    seed
        Simulate noise (and mixing) from this seed, for experiments: no privacy.
    noise
        Another source of noise.

    Notes
    -----
    Copies, clones, pickles and states hold releases only: the records of an open window are not in them.

    References
    ----------
    Lev, Srinivasan, Shenfeld, Ligett, Sekhari, Wilson. The Gaussian Mixing Mechanism. Section 5.2.

    Examples
    --------
    >>> from murk.learners import GaussMixClassifier
    >>> from murk.privacy import ApproxDP
    >>> model = GaussMixClassifier(budget=ApproxDP(1.0, 1e-6), window=20_000, seed=1)
    >>> for i in range(20_000):
    ...     x = (i * 7919 % 2003) / 1001.5 - 1
    ...     model.learn_one({"x": x}, x > 0)
    >>> model.predict_one({"x": 0.7})
    True
    """

    range: float | None

    def __init__(
        self,
        *,
        budget: Budget,
        classes: Sequence[Any] = (False, True),
        levels: Mapping[str, Budget] | None = None,
        features: Sequence[Any] | None = None,
        feature_bound: float | None = None,
        rows: int | None = None,
        window: int | None = None,
        windows: int = 1,
        method: Method | None = None,
        first: int | None = None,
        analysis: Analysis = "tight",
        neighbours: Neighbours = "zero-out",
        range: float | None = None,
        surrogate: Surrogate = "minimax",
        debiased: bool = True,
        weighting: Weighting = "inverse-variance",
        intercept: bool = True,
        seed: int | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        self._keep(locals())
        if surrogate != "minimax" and range is None:
            raise UserError(f"surrogate={surrogate!r} needs a range: also give range=")
        if first is not None and method != "newton":
            raise UserError(f'first={first!r} needs windows in two parts: also give method="newton"')
        self._codes = two_labels(classes, (-1.0, 1.0))
        self._prepare()

    @classmethod
    def as_published(cls, *, budget: ApproxDP, rows: int, range: float = 3.0, **more: Any) -> Self:
        """Return the paper's LinearMixing with k = ``rows`` and the quadratic surrogate on [-``range``, ``range``]."""
        return cls(budget=budget, rows=rows, range=range, **{**PUBLISHED, **more})

    def _kind(self) -> Kind:
        return "binary"

    def _reach(self) -> float | None:
        return self.range

    def _scale(self) -> Scale:
        return "log odds" if self.range is None else "own"

    def _chances(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return two_chances(logistic(self._linear(rows)))

    @classmethod
    def _unit_test_params(cls) -> Any:
        many: dict[str, Any] = {"windows": 10**6, "seed": 1}
        yield {"budget": ApproxDP(1.0, 1e-5), "window": 49, **many}
        yield {"budget": ApproxDP(1.0, 1e-5), "window": 49, "rows": 64, **many}
        yield {"budget": ApproxDP(1.0, 1e-5), "window": 49, "method": "newton", **many}
        yield {"budget": ApproxDP(1.0, 1e-5), "window": 20, "rows": 64, "range": 3.0, "debiased": False, **many}
