"""Objective perturbation: logistic regression with a random linear term."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from murk.errors import MurkError, UserError
from murk.learners.gaussmix.baselines.common import Baseline, Draws, Matrix, Vector

_STEPS = 200
_GRADIENT = 1e-9


@dataclass(frozen=True)
class ObjectivePerturbation(Baseline):
    r"""Logistic regression by perturbing the objective; labels -1 and +1.

    .. math:: \theta = \arg\min \sum_i \log(1 + e^{-y_i x_i'\theta}) + b'\theta + \frac{\Delta}{2} \|\theta\|^2, \quad
        b \sim N(0, \sigma^2 I)

    with ``sigma = C_X sqrt(4 epsilon + 8 log(2/delta)) / epsilon`` and ``Delta = C_X^2 / (2 epsilon)``. (The listing
    prints ``-log``, whose minimum does not exist.)

    Parameters
    ----------
    budget, feature_bound, target_bound, noise
        As every baseline has them; labels need no bound.

    References
    ----------
    Kifer, Smith, Thakurta 2012, Algorithm 1 and theorem 2; Lev et al., Algorithm 6.

    Examples
    --------
    >>> from murk.privacy import ApproxDP, SimulatedNoise
    >>> rng = np.random.default_rng(1)
    >>> X = np.column_stack([rng.uniform(-1, 1, 50_000), np.ones(50_000)])
    >>> y = np.where(rng.random(50_000) < 1 / (1 + np.exp(-X @ [1.0, 0.5])), 1.0, -1.0)
    >>> fit = ObjectivePerturbation(ApproxDP(1.0, 1e-5), feature_bound=2**0.5, noise=SimulatedNoise(1)).fit(X, y)
    >>> fit.round(1).tolist()
    [1.0, 0.5]
    """

    statement: ClassVar[str] = (
        "(epsilon, delta)-DP under zero-out neighbours for the exact minimum (a zero record adds a constant); it is "
        "found here to a gradient of 1e-9 of the records' number, which the proof does not cover"
    )

    @property
    def deviation(self) -> float:
        """sigma, of the random linear term."""
        return self.feature_bound * math.sqrt(4.0 * self.epsilon + 8.0 * math.log(2.0 / self.delta)) / self.epsilon

    @property
    def ridge(self) -> float:
        """Delta: twice the largest curvature of a record, ``C_X^2 / 4``, over epsilon."""
        return self.feature_bound**2 / (2.0 * self.epsilon)

    def bounded(self, X: ArrayLike, y: ArrayLike) -> tuple[Matrix, Vector]:
        """The records within the public bound."""
        features, targets = super().bounded(X, np.zeros(len(np.asarray(y))))
        labels = np.array(y, dtype=np.float64)
        if labels.shape != targets.shape or not np.all(np.abs(labels) == 1.0):
            raise UserError("labels are -1 and +1, one for each row of X")
        return features, labels

    def release(self, X: Matrix, y: Vector, draws: Draws) -> Vector:
        """The mechanism on bounded records."""
        linear = self.deviation * draws.normal(X.shape[1])
        return minimise(X * y[:, None], linear, self.ridge)


def minimise(signed: Matrix, linear: Vector, ridge: float) -> Vector:
    """``argmin sum log(1 + e^-z_i'theta) + linear'theta + ridge/2 |theta|^2``, z the rows of ``signed``, by Newton.

    Raises
    ------
    MurkError
        If 200 halved steps do not reach it.

    Examples
    --------
    >>> minimise(np.zeros((1, 1)), np.array([2.0]), 4.0).tolist()
    [-0.5]
    """
    theta = np.zeros(signed.shape[1])

    def value(at: Vector) -> float:
        return float(np.logaddexp(0.0, -signed @ at).sum() + linear @ at + 0.5 * ridge * (at @ at))

    now = value(theta)
    for _ in range(_STEPS):
        probability = 0.5 * (1.0 - np.tanh(0.5 * (signed @ theta)))
        gradient = linear + ridge * theta - signed.T @ probability
        if float(np.linalg.norm(gradient)) <= _GRADIENT * max(len(signed), 1):
            return theta
        curvature = (signed * (probability * (1.0 - probability))[:, None]).T @ signed + ridge * np.eye(len(theta))
        step, size = np.linalg.solve(curvature, gradient), 1.0
        while size > 1e-12 and not (after := value(theta - size * step)) < now:
            size /= 2.0
        if size <= 1e-12:
            # No float is lower: as near as arithmetic comes.
            return theta
        theta, now = theta - size * step, after
    raise MurkError("objective perturbation found no minimum: scale the features")
