"""Rivals of the sketches: objective perturbation, AdaSSP and Sheffet's sketched regression."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from murk.errors import MurkError, UserError
from murk.privacy import ApproxDP
from murk.privacy.central.sketch_renyi import smallest_threshold
from murk.privacy.conversions import gdp_mu
from murk.privacy.mechanisms.base import WIDTH
from murk.privacy.noise import NoiseSource, SecureNoise

_ERROR_CODE = "MURK-CLI-002"

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


def least_squares(sketch: Matrix) -> Vector:
    """Return the paper's ``argmin ||Y~ - X~ theta||`` from one sketch, the target last (Lev et al., Algorithm 2).

    Raises UserError for fewer rows than features, whose fit would be exact.

    >>> least_squares(np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 3.0], [1.0, 1.0, 5.0]])).round(6).tolist()
    [2.0, 3.0]
    """
    rows = np.asarray(sketch, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise UserError(f"a sketch is a matrix of features and the target, got shape {rows.shape}")
    check_rows(rows.shape[0], rows.shape[1] - 1)
    return np.asarray(np.linalg.lstsq(rows[:, :-1], rows[:, -1], rcond=None)[0], dtype=np.float64)


def check_rows(rows: int, features: int) -> None:
    """Raise UserError if a sketch has no more rows than features."""
    if rows <= features:
        raise UserError(
            f"a sketch of {rows} rows does not determine {features} coefficients (the constant is one of them): "
            f"give at least {features + 1} rows, better a hundred times as many"
        )


@dataclass(frozen=True)
class Baseline(ABC):
    """Base class for private regressions of an organisation's records.

    Parameters
    ----------
    budget
        (epsilon, delta) of the whole fit under zero-out neighbours: a record against the zero record.
    feature_bound, target_bound
        Public C_X and C_Y; longer records are scaled down to them.
    noise
        Source of exact lattice noise. The arithmetic after it uses floats, so the guarantee is about real-valued
        noise, as in the papers.
    """

    budget: ApproxDP
    feature_bound: float
    target_bound: float = 1.0
    noise: NoiseSource = field(default_factory=SecureNoise)

    statement: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not isinstance(self.budget, ApproxDP) or not (0 < self.budget.epsilon < math.inf and self.budget.delta > 0):
            raise UserError(f"guarantee={self.budget!r}: a baseline needs ApproxDP with epsilon and delta above 0")
        for name in ("feature_bound", "target_bound"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise UserError(f"{name}={value!r} is not a bound: give a positive finite number")

    @property
    def epsilon(self) -> float:
        """Return epsilon of the budget."""
        return float(self.budget.epsilon)

    @property
    def delta(self) -> float:
        """Return delta of the budget."""
        return float(self.budget.delta)

    @property
    def square(self) -> float:
        """Return ``C^2 = C_X^2 + C_Y^2``."""
        return self.feature_bound**2 + self.target_bound**2

    def fit(self, X: ArrayLike, y: ArrayLike) -> Vector:
        """Return the coefficients ``(p,)`` of targets ``y`` ``(n,)`` on features ``X`` ``(n, p)``, without intercept.

        Raises
        ------
        UserError
            If the shapes do not fit or a number is not finite.
        """
        features, targets = self.bounded(X, y)
        return self.release(features, targets, Draws(self.noise))

    @abstractmethod
    def release(self, X: Matrix, y: Vector, draws: Draws) -> Vector:
        """Return the coefficients from bounded records."""

    def bounded(self, X: ArrayLike, y: ArrayLike) -> tuple[Matrix, Vector]:
        """Return the records within the public bounds: long rows scaled down, targets clipped."""
        features, targets = np.array(X, dtype=np.float64), np.array(y, dtype=np.float64)
        if features.ndim != 2 or targets.shape != features.shape[:1]:
            raise UserError(f"X must be (n, p) and y (n,), not {features.shape} and {targets.shape}")
        if not (np.all(np.isfinite(features)) and np.all(np.isfinite(targets))):
            raise UserError("a feature or target is not finite: code missing values by a public rule first")
        lengths = np.sqrt(np.einsum("ij,ij->i", features, features))
        features *= (self.feature_bound / np.maximum(lengths, self.feature_bound))[:, None]
        return features, np.clip(targets, -self.target_bound, self.target_bound)


class Draws:
    """Standard normal and Laplace draws, each block with its own record index."""

    def __init__(self, noise: NoiseSource) -> None:
        self._noise = noise
        self._record = count()

    def normal(self, *shape: int) -> Matrix:
        """Draw independent N(0, 1) numbers."""
        size = math.prod(shape)
        integers = self._noise.gaussian(np.array([next(self._record)]), size)
        return np.asarray(integers, dtype=np.float64).reshape(shape) / WIDTH

    def laplace(self) -> float:
        """Draw one Laplace number of scale 1."""
        return float(self._noise.laplace(np.array([next(self._record)]), 1)[0, 0]) / WIDTH

    def symmetric(self, size: int) -> Matrix:
        """Draw a symmetric matrix whose upper triangle is independent N(0, 1)."""
        upper = np.triu(self.normal(size, size))
        return upper + np.triu(upper, 1).T

    def rows(self, second_moment: Matrix, rows: int) -> Matrix:
        """Draw a sketch ``S Z`` of records with that second moment: its rows are N(0, Z'Z)."""
        eigenvalues, vectors = np.linalg.eigh(second_moment)
        root = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
        return np.asarray(self.normal(rows, len(second_moment)) @ root.T, dtype=np.float64)


_STEPS = 200
_GRADIENT = 1e-9


@dataclass(frozen=True)
class ObjectivePerturbation(Baseline):
    r"""Logistic regression by perturbing the objective; labels -1 and +1.

    .. math:: \theta = \arg\min \sum_i \log(1 + e^{-y_i x_i'\theta}) + b'\theta + \frac{\Delta}{2} \|\theta\|^2, \quad
        b \sim N(0, \sigma^2 I)

    with ``sigma = C_X sqrt(4 epsilon + 8 log(2/delta)) / epsilon`` and ``Delta = C_X^2 / (2 epsilon)``. The listing
    prints ``-log``, which has no minimum.

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
        "(epsilon, delta)-DP under zero-out neighbours for the exact minimum (a zero record adds a constant); here the "
        "gradient is at most 1e-9 for each record, which the proof does not cover"
    )

    @property
    def deviation(self) -> float:
        """Return sigma of the random linear term."""
        return self.feature_bound * math.sqrt(4.0 * self.epsilon + 8.0 * math.log(2.0 / self.delta)) / self.epsilon

    @property
    def ridge(self) -> float:
        """Return Delta: twice the largest curvature of a record, ``C_X^2 / 4``, over epsilon."""
        return self.feature_bound**2 / (2.0 * self.epsilon)

    def bounded(self, X: ArrayLike, y: ArrayLike) -> tuple[Matrix, Vector]:
        """Return the records within the public bound."""
        features, targets = super().bounded(X, np.zeros(len(np.asarray(y))))
        labels = np.array(y, dtype=np.float64)
        if labels.shape != targets.shape or not np.all(np.abs(labels) == 1.0):
            raise UserError("y: labels must be -1 or +1, one for each row of X")
        return features, labels

    def release(self, X: Matrix, y: Vector, draws: Draws) -> Vector:
        """Return the coefficients from bounded records."""
        linear = self.deviation * draws.normal(X.shape[1])
        return minimise(X * y[:, None], linear, self.ridge)


def minimise(signed: Matrix, linear: Vector, ridge: float) -> Vector:
    """Return ``argmin sum log(1 + e^-z_i'theta) + linear'theta + ridge/2 |theta|^2`` over rows z of ``signed``.

    Raises
    ------
    MurkError
        If Newton's method with halved steps does not converge in 200 steps.

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
            # No float has a lower value.
            return theta
        theta, now = theta - size * step, after
    raise MurkError("objective perturbation did not converge: scale the features")


@dataclass(frozen=True)
class AdaSSP(Baseline):
    r"""Linear regression from a noisy ``X'X``, ``X'y`` and least eigenvalue (AdaSSP).

    With ``b`` the noise of a release of sensitivity 1,

    .. math::
        \tilde\lambda = \max(\lambda_{\min} + b C_X^2 z - t C_X^2, 0), \quad
        \lambda = \max(0, b \sqrt{d \log(2 d^2 / \rho)} C_X^2 - \tilde\lambda), \\
        \theta = (X'X + b C_X^2 \Xi_1 + \lambda I)^{-1} (X'y + b C_X C_Y \xi_2).

    Subtracting ``t`` makes an overstated eigenvalue rare.

    Parameters
    ----------
    failure
        rho, the failure probability of the ridge.
    calibration
        ``"published"``: ``b = sqrt(log(6/delta)) / (epsilon/3)``, ``t = log(6/delta) / (epsilon/3)``.
        ``"analytic"``: the least ``b`` for which the composition of three Gaussian releases is (epsilon, delta)-DP,
        and ``t = b sqrt(2 log(6/delta))``.

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
        "C_X C_Y: their composition is sqrt(3)/b-GDP, and the published b is larger than needed"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.failure < 1:
            raise UserError(f"failure={self.failure!r} is not a probability: give a number between 0 and 1")
        if self.calibration not in ("published", "analytic"):
            raise UserError(f'calibration={self.calibration!r} is not one of "published", "analytic"')

    @property
    def unit_noise(self) -> float:
        """Return ``b``, the noise's standard deviation for sensitivity 1."""
        if self.calibration == "published":
            return math.sqrt(math.log(6.0 / self.delta)) / (self.epsilon / 3.0)
        return math.sqrt(3.0) / gdp_mu(self.epsilon, self.delta)

    @property
    def shift(self) -> float:
        """Return ``t``, subtracted from the least eigenvalue, in units of C_X^2."""
        if self.calibration == "published":
            return math.log(6.0 / self.delta) / (self.epsilon / 3.0)
        return self.unit_noise * math.sqrt(2.0 * math.log(6.0 / self.delta))

    def eigenvalue(self, exact: float, draw: float) -> float:
        """Return the released least eigenvalue for a standard normal ``draw``."""
        bound = self.feature_bound**2
        return max(exact + self.unit_noise * bound * draw - self.shift * bound, 0.0)

    def release(self, X: Matrix, y: Vector, draws: Draws) -> Vector:
        """Return the coefficients from bounded records."""
        d = X.shape[1]
        bound, b = self.feature_bound**2, self.unit_noise
        second = X.T @ X
        least = self.eigenvalue(float(np.linalg.eigvalsh(second)[0]), float(draws.normal(1)[0]))
        wanted = b * math.sqrt(d * math.log(2.0 * d * d / self.failure)) * bound
        noisy = second + b * bound * draws.symmetric(d) + max(0.0, wanted - least) * np.eye(d)
        cross = X.T @ y + b * self.feature_bound * self.target_bound * draws.normal(d)
        # Least squares gives the shortest solution if the matrix is singular.
        return np.asarray(np.linalg.lstsq(noisy, cross, rcond=None)[0])


def sheffet_threshold(epsilon: float, delta: float, rows: int) -> float:
    """Return the threshold of Sheffet's algorithm in units of C^2.

    >>> round(sheffet_threshold(1.0, 1e-5, 100), 1)
    317.3
    """
    size = math.log(8.0 / delta)
    return 4.0 / epsilon * (math.sqrt(2.0 * rows * size) + 2.0 * size)


@dataclass(frozen=True)
class Sheffet(Baseline):
    r"""Linear regression on a Gaussian sketch, with noise only if a test of the least eigenvalue fails.

    If ``lambda_min(Z'Z) > gamma + z + 4 C^2 log(1/delta) / epsilon`` with ``z ~ Laplace(4 C^2 / epsilon)``, the sketch
    ``S Z`` is solved, else ``S Z + sqrt(gamma) Xi``. The threshold gamma is a *variance*; the listing prints gamma
    instead of its root.

    Parameters
    ----------
    sketch_rows
        k.
    analysis
        ``"published"``: Sheffet's ``gamma = (4 C^2 / epsilon) (sqrt(2 k log(8/delta)) + 2 log(8/delta))``.
        ``"renyi"``: the least gamma by the Renyi curve of GaussMix at (epsilon/2, delta/2), which is smaller.
    printed
        Follow the listings of Lev et al. literally: noise of *standard deviation* gamma, and with ``"renyi"`` the
        sketch at delta instead of delta/2.

    References
    ----------
    Sheffet 2017, Differentially private ordinary least squares, Algorithm 1; Lev et al., Algorithms 4 and 5. Algorithm
    5 spends all of delta on the sketch and leaves none for the test; here each has delta/2.

    Examples
    --------
    >>> from murk.privacy import ApproxDP
    >>> budget = ApproxDP(1.0, 1e-5)
    >>> round(Sheffet(budget, feature_bound=0.8, target_bound=0.6, sketch_rows=100).gamma, 1)
    317.3
    >>> Sheffet(budget, feature_bound=0.8, target_bound=0.6, sketch_rows=100, analysis="renyi").gamma < 100
    True
    """

    sketch_rows: int = 400
    analysis: Literal["published", "renyi"] = "published"
    printed: bool = False

    statement: ClassVar[str] = (
        "(epsilon, delta)-DP under zero-out neighbours (3/4 epsilon is used): the test's Laplace noise has epsilon/4, "
        "the sketch (epsilon/2, delta/2), and with probability delta/2 the test passes below the threshold"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.analysis not in ("published", "renyi"):
            raise UserError(f'analysis={self.analysis!r} is not one of "published", "renyi"')

    @property
    def gamma(self) -> float:
        """Return the threshold on the least eigenvalue, which is also the variance of the noise."""
        if self.analysis == "renyi":
            delta = self.delta if self.printed else self.delta / 2.0
            return self.square * smallest_threshold(self.epsilon / 2.0, delta, self.sketch_rows, "mixing")
        return self.square * sheffet_threshold(self.epsilon, self.delta, self.sketch_rows)

    def variance(self, least: float, draw: float) -> float:
        """Return the noise variance, 0 if the test passes, for a least eigenvalue and a standard Laplace ``draw``."""
        scale = 4.0 * self.square / self.epsilon
        passes = least > self.gamma + scale * draw + scale * math.log(1.0 / self.delta)
        return 0.0 if passes else self.gamma ** (2 if self.printed else 1)

    def release(self, X: Matrix, y: Vector, draws: Draws) -> Vector:
        """Return the coefficients from bounded records."""
        check_rows(self.sketch_rows, X.shape[1])
        records = np.column_stack([X, y])
        second = records.T @ records
        variance = self.variance(float(np.linalg.eigvalsh(second)[0]), draws.laplace())
        return least_squares(draws.rows(second + variance * np.eye(len(second)), self.sketch_rows))
