"""AdaSSP: private sufficient statistics with an adaptive ridge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from murk.errors import UserError
from murk.learners.gaussmix.baselines.common import Baseline, Draws, Matrix, Vector
from murk.privacy.conversions import gdp_mu


@dataclass(frozen=True)
class AdaSSP(Baseline):
    r"""Linear regression from a noisy ``X'X``, ``X'y`` and least eigenvalue (AdaSSP).

    With ``b`` the noise of a release of sensitivity 1,

    .. math::
        \tilde\lambda = \max(\lambda_{\min} + b C_X^2 z - t C_X^2, 0), \quad
        \lambda = \max(0, b \sqrt{d \log(2 d^2 / \rho)} C_X^2 - \tilde\lambda), \\
        \theta = (X'X + b C_X^2 \Xi_1 + \lambda I)^{-1} (X'y + b C_X C_Y \xi_2).

    The shift ``t`` is *taken off* the eigenvalue, so that it is rarely overstated.

    Parameters
    ----------
    budget, feature_bound, target_bound, noise
        As every baseline has them.
    failure
        rho: the probability that the ridge allows for.
    calibration
        ``"published"``: ``b = sqrt(log(6/delta)) / (epsilon/3)``, ``t = log(6/delta) / (epsilon/3)``.
        ``"analytic"``: the least ``b`` at which three Gaussian releases together are (epsilon, delta)-DP, and
        ``t = b sqrt(2 log(6/delta))``: the same algorithm without slack.

    References
    ----------
    Wang 2018, Revisiting differentially private linear regression, Algorithm 2; Lev et al., Algorithm 3.

    Examples
    --------
    >>> from murk.privacy import ApproxDP, SimulatedNoise
    >>> rng = np.random.default_rng(1)
    >>> X = np.column_stack([rng.uniform(-1, 1, 50_000), np.ones(50_000)])
    >>> fit = AdaSSP(ApproxDP(1.0, 1e-5), feature_bound=2**0.5, noise=SimulatedNoise(1)).fit(X, X @ [0.5, 0.1])
    >>> fit.round(1).tolist()
    [0.5, 0.1]
    """

    failure: float = 0.05
    calibration: Literal["published", "analytic"] = "published"

    statement: ClassVar[str] = (
        "(epsilon, delta)-DP under zero-out neighbours, by three Gaussian releases of sensitivity C_X^2, C_X^2 and "
        "C_X C_Y: together sqrt(3)/b-GDP, which the published b exceeds (tests hold it against the exact curve)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.failure < 1:
            raise UserError(f"failure={self.failure!r} is not a probability above 0")
        if self.calibration not in ("published", "analytic"):
            raise UserError(f'calibration={self.calibration!r}; known are "published" and "analytic"')

    @property
    def unit_noise(self) -> float:
        """``b``: standard deviation of the noise of a release of sensitivity 1."""
        if self.calibration == "published":
            return math.sqrt(math.log(6.0 / self.delta)) / (self.epsilon / 3.0)
        return math.sqrt(3.0) / gdp_mu(self.epsilon, self.delta)

    @property
    def shift(self) -> float:
        """``t``: what is taken off the least eigenvalue, in units of C_X^2."""
        if self.calibration == "published":
            return math.log(6.0 / self.delta) / (self.epsilon / 3.0)
        return self.unit_noise * math.sqrt(2.0 * math.log(6.0 / self.delta))

    def eigenvalue(self, exact: float, draw: float) -> float:
        """The released least eigenvalue for a standard normal ``draw``."""
        bound = self.feature_bound**2
        return max(exact + self.unit_noise * bound * draw - self.shift * bound, 0.0)

    def release(self, X: Matrix, y: Vector, draws: Draws) -> Vector:
        """The mechanism on bounded records."""
        d = X.shape[1]
        bound, b = self.feature_bound**2, self.unit_noise
        second = X.T @ X
        least = self.eigenvalue(float(np.linalg.eigvalsh(second)[0]), float(draws.normal(1)[0]))
        wanted = b * math.sqrt(d * math.log(2.0 * d * d / self.failure)) * bound
        noisy = second + b * bound * draws.symmetric(d) + max(0.0, wanted - least) * np.eye(d)
        cross = X.T @ y + b * self.feature_bound * self.target_bound * draws.normal(d)
        # Least squares, so that the rare singular matrix gives its shortest solution.
        return np.asarray(np.linalg.lstsq(noisy, cross, rcond=None)[0])
