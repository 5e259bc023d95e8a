"""Mean functions: of a loss, ``f = Phi'``, or a link of a non-linear regression, ``y = f(x'w) + e``.

A loss ``Phi(x'w) - y x'w`` and a link ``f = Phi'`` have the same estimate (Wang et al., Lemma 5 and Theorem 21).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.links import logistic
from murk.errors import UserError
from murk.privacy.guarantees import nearest
from murk.task.features import RealTarget

if TYPE_CHECKING:
    from murk.task.features import Target

_ERROR_CODE = "MURK-LEARN-001"

Function = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Curve:
    """A mean function f with its derivatives and inverse."""

    name: str  # name of the loss or link in a task
    mean: Function  # f
    slope: Function  # f'
    bend: Function  # f''
    inverse: Function  # inverse of f
    low: float  # lower end of the range of f
    high: float

    def __reduce__(self) -> tuple[Any, ...]:
        return _known, (self.name,)


@dataclass(frozen=True)
class CodedCurve:
    """The mean ``(f - middle) / half`` of a coded target; a binary target has middle 0 and half 1."""

    curve: Curve
    middle: float = 0.0
    half: float = 1.0

    def mean(self, z: Floats) -> Floats:
        """Return the coded target's mean."""
        return np.asarray((self.curve.mean(z) - self.middle) / self.half)

    def slope(self, z: Floats) -> Floats:
        """Return the slope of the coded target's mean."""
        return np.asarray(self.curve.slope(z) / self.half)


def _exp(z: Floats) -> Floats:
    return np.asarray(np.exp(np.clip(z, -700.0, 700.0)))


def _hump(z: Floats) -> Floats:
    e = np.exp(-np.abs(z))
    return np.asarray(e / (1.0 + e) ** 2)


_LOGISTIC = Curve(
    "logistic",
    logistic,
    _hump,
    lambda z: _hump(z) * (1.0 - 2.0 * logistic(z)),
    lambda y: np.log(y / (1.0 - y)),
    0.0,
    1.0,
)
_POISSON = Curve("poisson", _exp, _exp, _exp, np.log, 0.0, np.inf)
_BOOSTING = Curve(
    "boosting",
    lambda z: 0.5 + 0.5 * z / np.sqrt(4.0 + z * z),
    lambda z: 0.25 * (1.0 + z * z / 4.0) ** -1.5,
    lambda z: -0.1875 * z * (1.0 + z * z / 4.0) ** -2.5,
    lambda y: (2.0 * y - 1.0) / np.sqrt(y * (1.0 - y)),
    0.0,
    1.0,
)
_CUBIC = Curve("cubic", lambda z: z**3 / 3.0, np.square, lambda z: 2.0 * z, lambda y: np.cbrt(3.0 * y), -np.inf, np.inf)
_SOFTPLUS = Curve(
    "softplus", lambda z: np.logaddexp(0.0, z), logistic, _hump, lambda y: y + np.log(-np.expm1(-y)), 0.0, np.inf
)
_IDENTITY = Curve("identity", np.positive, np.ones_like, np.zeros_like, np.positive, -np.inf, np.inf)


@dataclass(frozen=True)
class ResponseRange:
    """Meaning of coded targets of -1 and +1: ``response = middle + half * coded``."""

    low: float
    high: float

    @property
    def half(self) -> float:
        """Half the range."""
        return (self.high - self.low) / 2.0

    @property
    def middle(self) -> float:
        """The middle of the range."""
        return (self.high + self.low) / 2.0


LOSSES = {curve.name: curve for curve in (_LOGISTIC, _POISSON, _BOOSTING)}
"""Losses Phi for a binary target: log(1 + e^z), e^z, and the boosting loss z/2 + sqrt(1 + z^2/4)."""

_SIGMOID, _EXP = replace(_LOGISTIC, name="sigmoid"), replace(_POISSON, name="exp")
LINKS = {curve.name: curve for curve in (_IDENTITY, _SIGMOID, _CUBIC, _SOFTPLUS, _EXP)}
"""Links f for a real target. ``softplus`` is log(1 + e^z); the paper's log(1 + e^-z) reverses all signs."""


def coded_curve(curve: Curve, response: ResponseRange) -> CodedCurve | None:
    """Return the mean of a coded target; None for logistic and identity, for which scores have their own solvers."""
    if curve.name in ("logistic", "identity"):
        return None
    return CodedCurve(curve) if curve.name in LOSSES else CodedCurve(curve, response.middle, response.half)


_COVERS_HALF = {"sigmoid", "softplus"}  # links whose response is a target's position in its bounds, from 0 to 1


def _known(name: str) -> Curve:
    return (LOSSES | LINKS)[name]


def curve_of(name: str, among: dict[str, Curve], what: str) -> Curve:
    """Return a curve by name, or raise UserError with the nearest known one."""
    if name not in among:
        raise UserError(f"unknown {what} {name!r}{nearest(name, among)}; use one of {', '.join(among)}")
    return among[name]


def curve_for(block: Any, binary: bool) -> Curve:
    """Return the mean function of a block's loss, for labels, or of its link."""
    if binary:
        return curve_of(block.loss or "logistic", LOSSES, "loss")
    return curve_of(block.link or "identity", LINKS, "link")


def response_range_of(target: Target, curve: Curve, intercept: bool = True) -> ResponseRange:
    """Return the response, as a function of the coded target, to which a curve is fitted.

    Sigmoid and softplus apply to a real target's position in its range, the exponential to the target itself, others to
    the coded target. Without an intercept, labels are 0 and 1, and all curves but the line apply to the target itself.
    """
    if isinstance(target, RealTarget):
        if not intercept and target.low != -target.high:
            raise UserError(
                f"moments.intercept: false needs a target with bounds of -b and b, but {target.name!r} is from "
                f"{target.low:g} to {target.high:g}: give such bounds, or intercept: true"
            )
        if curve.name == "exp" or not (intercept or curve.name == "identity"):
            return ResponseRange(target.low, target.high)
        return ResponseRange(0.0, 1.0) if curve.name in _COVERS_HALF else ResponseRange(-1.0, 1.0)
    return ResponseRange(0.0, 1.0) if intercept else ResponseRange(-1.0, 1.0)
