"""Objectives whose gradients are bounded for every parameter, feature vector and target.

An objective is a frozen description: its dimension, the supremum ``C0`` of a gradient's l2 norm for ``||x|| w(x) <=
reach`` (`bound`, which sets the noise), and a gradient's approximate mean square over ``C0^2`` (`spread`).
:mod:`murk.protocols.gradients.kernels` computes the gradient. Source: Shi, Xie, Jiang, Kong and He, "Non-Asymptotic
Analysis of Online Local Private Learning with SGD", sections 3 and 5. The scale's multiplier, the centring of its
gradient and the contrast coding of softmax are Murk's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from murk._internal.arrays import Floats
from murk.errors import UserError
from murk.protocols.linear_algebra import contrasts

_ERROR_CODE = "MURK-LEARN-001"

LOGISTIC, SOFTMAX, HUBER, HUBER_SCALE, BALANCED = 0, 1, 2, 3, 4


class _OfLogit:
    """An objective whose gradient is ``x w(x)`` times a function of the logit and y that is at most 1 in size."""

    __slots__ = ()

    def dimension(self, features: int) -> int:
        """Return the number of parameters: one for each feature."""
        return features

    def bound(self, reach: float) -> float:
        """Return ``reach``."""
        return reach


@dataclass(frozen=True, slots=True)
class Logistic(_OfLogit):
    """Logistic loss for y in {0, 1}: gradient ``(p - y) x w(x)``, ``C0 = reach``."""

    code: ClassVar[int] = LOGISTIC
    spread: ClassVar[float] = 0.25


@dataclass(frozen=True, slots=True)
class Balanced(_OfLogit):
    """Balanced loss for y in {0, 1}: the logistic gradient scaled up to its bound, ``C0 = reach``.

    With the margin m (``x'theta`` for y = 1, else its negative) the convex loss is ``exp(-m)`` for m > 0, else ``1 -
    m``, times w(x). The gradient is ``r x w(x)``, ``r(1) = -min(1, e^-t)``, ``r(0) = min(1, e^t)``, ``t = x'theta``:
    ``p - y`` divided by ``max(p, 1 - p)``, the largest weight that depends on x alone. The mean of r given x is zero at
    the logit's coefficients, with slope ``min(p, 1 - p)`` instead of ``p (1 - p)``.
    """

    code: ClassVar[int] = BALANCED
    spread: ClassVar[float] = 1.0


@dataclass(frozen=True, slots=True)
class Softmax:
    """Softmax loss over K >= 2 classes: gradient ``(p - e_y) (x) x w(x)``, ``C0 = sqrt(2) reach``.

    As ``p - e_y`` sums to zero, K - 1 coordinates in a basis of contrasts suffice, with (K - 1) / K of the noise.
    """

    classes: int
    code: ClassVar[int] = SOFTMAX
    spread: ClassVar[float] = 0.25

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise UserError(f"softmax needs at least 2 classes, got {self.classes}")

    @property
    def basis(self) -> Floats:
        """Map from coefficient rows to one score for each class, ``(K, K - 1)``."""
        return contrasts(self.classes)

    def dimension(self, features: int) -> int:
        """Return the number of parameters: K - 1 contrasts for each feature."""
        return (self.classes - 1) * features

    def bound(self, reach: float) -> float:
        """Return ``sqrt(2) reach``, as ``||p - e_y|| <= sqrt 2``."""
        return math.sqrt(2.0) * reach


@dataclass(frozen=True, slots=True)
class FullSoftmax(Softmax):
    """Softmax loss with a row of coefficients for each class, as in the paper: K / (K - 1) times the noise."""

    @property
    def basis(self) -> Floats:
        """The identity, ``(K, K)``."""
        return np.eye(self.classes)

    def dimension(self, features: int) -> int:
        """Return the number of parameters: K for each feature."""
        return self.classes * features


@dataclass(frozen=True, slots=True)
class Huber:
    """Huber regression with a known scale, or one that is estimated with the coefficients.

    With ``u = (y - x'beta)/sigma`` the loss is ``[sigma rho_c(u) + kappa_c sigma / 2] w(x)``; a known scale is divided
    out, which leaves ``-psi_c(u) x w(x)`` with ``C0 = c reach``. For an estimated scale ``multiplier`` times d/dsigma,
    minus its centre, is released as well, so ``C0 = sqrt((c reach)^2 + (multiplier c^2 / 4)^2)``.

    >>> round(2 * Huber(c=1.345).bound(reach=2**0.5), 6)
    3.910287
    """

    c: float = 0.5  # 1.345 in the paper; if noise outweighs residuals, the variance grows like (c / P(|u| < c))^2
    scale: float | None = None  # None to estimate it
    multiplier: float = 1.0  # unit of the scale's working coordinate; 1 in the paper
    spread: ClassVar[float] = 0.25

    def __post_init__(self) -> None:
        for name, value in (("c", self.c), ("scale", self.scale), ("multiplier", self.multiplier)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise UserError(f"Huber's {name} must be positive and finite, got {value!r}")

    @property
    def code(self) -> int:
        """Code of the objective in kernels."""
        return HUBER_SCALE if self.scale is None else HUBER

    @property
    def kappa(self) -> float:
        """``E min(Z^2, c^2)`` for standard normal Z, which makes the estimated scale consistent."""
        c = self.c
        inside = math.erf(c / math.sqrt(2.0))
        density = math.exp(-c * c / 2.0) / math.sqrt(2.0 * math.pi)
        return inside - 2.0 * c * density + c * c * (1.0 - inside)

    @property
    def inside(self) -> float:
        """``P(|Z| < c)`` for standard normal Z; 1 if no residual of coded targets can exceed a known scale times c."""
        if self.scale is not None and self.c * self.scale >= 2.0:
            return 1.0
        return math.erf(self.c / math.sqrt(2.0))

    @property
    def caution(self) -> float:
        """`inside` over its least value for unimodal residuals whose standard deviation is a known scale (Gauss)."""
        if self.scale is None or self.inside == 1.0:
            return 1.0
        c = self.c
        return self.inside / (c / math.sqrt(3.0) if c * c < 4.0 / 3.0 else 1.0 - 4.0 / (9.0 * c * c))

    @property
    def centre(self) -> float:
        """Midpoint of the range of d/dsigma, subtracted before a release and added back after it."""
        return self.kappa / 2.0 - self.c * self.c / 4.0

    def dimension(self, features: int) -> int:
        """Return the number of parameters: one for each feature, and one for an estimated scale."""
        return features + (self.scale is None)

    def bound(self, reach: float) -> float:
        """Return C0 for a known or an estimated scale (see the class)."""
        slope = self.c * reach
        return slope if self.scale is not None else math.hypot(slope, self.multiplier * self.c**2 / 4.0)
