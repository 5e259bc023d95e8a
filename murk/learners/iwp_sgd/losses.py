"""Losses of released examples: where their unbiased estimates are valid, and how large those estimates get."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.learners.iwp_sgd.transforms import EXPONENTIAL, LOG, PROBIT, QUADRATIC, SQUARED, value
from murk.privacy.guarantee import nearest

LossName = Literal["probit", "quadratic", "exponential", "log", "squared"]

CODES: Final[dict[str, int]] = {
    "quadratic": QUADRATIC,
    "exponential": EXPONENTIAL,
    "log": LOG,
    "probit": PROBIT,
    "squared": SQUARED,
}

DIRECTED_LOSSES: Final = ("quadratic", "squared")
"""Losses that directions tell. The others are functions of theta'v / a, and no function of a noisy divisor has a mean
that is a quotient."""

LOGIT_WIDTH: Final = 1.702**2
"""t of the probit-type loss: with it its slope is that of the logistic loss to within 0.0095, so that coefficients are
logits. Another t would only rescale them: f_t(z) = sqrt(t) f_1(z / sqrt(t))."""

# Default radii: a logit of 3 is odds of 20; a fit of a target in [-1, 1] by features in [-1, 1] seldom needs more than
# a norm of 2 (with a real target, of 1.5).
_RADII: Final = {"quadratic": 2.0, "squared": 1.5, "exponential": 3.0, "log": 3.0, "probit": 3.0}

# Largest variance v of a score for which a loss is used by default. The exponential loss's estimate has a variance of
# e^v; the truncated log loss's bias grows with v (0.007 in the loss at v = 3, with K = 3).
_MOST: Final = {"exponential": 2.0, "log": 3.0}

# The probit-type loss is exact up to v = t, where its second derivative becomes a spike; by default it stays below.
_SHARE: Final = 0.9


def check_loss(loss: str, target: str) -> None:
    """Refuse a loss that is unknown or not one of the target's kind, ``"binary"`` or ``"real"``."""
    fitting = ("squared",) if target == "real" else ("probit", "quadratic", "exponential", "log")
    if loss not in fitting:
        raise UserError(
            f"loss={loss!r} is not a loss of a {target} target{nearest(loss, fitting)}; one of {', '.join(fitting)}"
        )


def largest_radius(loss: str, variance: float) -> float:
    """The radius below which the loss's estimate is valid under feature noise of this variance; often infinite.

    The probit-type loss needs ``variance ||theta||^2 < t``.

    Examples
    --------
    >>> round(largest_radius("probit", 4.0), 3)
    0.851
    """
    return math.sqrt(LOGIT_WIDTH / variance) if loss == "probit" else math.inf


def default_radius(loss: str, variance: float) -> float:
    """The radius used where none is given: inside the valid region, and where the estimate's variance is moderate."""
    radius = _RADII[loss]
    if loss == "probit":
        return min(radius, math.sqrt(_SHARE * LOGIT_WIDTH / variance))
    if loss in _MOST:
        return min(radius, math.sqrt(_MOST[loss] / variance))
    return radius


def checked_radius(loss: str, radius: float | None, variance: float) -> float:
    """The radius to project on, for feature noise of at most this variance.

    Raises
    ------
    UserError
        If the one given is not positive and finite, or outside the loss's valid region; the message names the
        largest that works.
    """
    if radius is None:
        return default_radius(loss, variance)
    if not (math.isfinite(radius) and radius > 0):
        raise UserError(f"radius={radius!r} must be positive and finite; leave it out for {_RADII[loss]:g} at most")
    largest = largest_radius(loss, variance)
    if radius >= largest:
        raise UserError(
            f"radius={radius:g} is outside the {loss} loss's valid region: with feature noise of standard deviation "
            f"{math.sqrt(variance):.4g} the largest radius that works is {0.999 * largest:.4g}. Give that or less, "
            "leave it out, ask for a weaker guarantee, or use loss='quadratic', which is valid everywhere"
        )
    return float(radius)


def chances(loss: str, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Chance of the positive label at scores, by the model whose minimiser a loss finds.

    probit: ``Phi(z / sqrt t)``; log: ``1 / (1 + e^-z)``; exponential: ``1 / (1 + e^-2z)``; quadratic: ``(1 + z) / 2``,
    cut off at 0 and 1.
    """
    if loss == "probit":
        root = math.sqrt(2.0 * LOGIT_WIDTH)
        return np.array([0.5 * math.erfc(-z / root) for z in scores])
    if loss == "quadratic":
        return np.clip(0.5 + 0.5 * scores, 0.0, 1.0)
    odds = np.clip(2.0 * scores if loss == "exponential" else scores, -700.0, 700.0)
    return np.asarray(1.0 / (1.0 + np.exp(-odds)))


@lru_cache(maxsize=256)
def truncation_error(terms: int, variance: float, reach: float) -> float:
    r"""How far the log loss cut off after K terms is from unbiased: ``sup |W_v[g_K](z) - f(z)|`` over ``|z| <= reach``.

    Parameters
    ----------
    terms
        K.
    variance
        v, the variance of the score.
    reach
        How far scores without noise can lie from 0.

    References
    ----------
    Dufraiche et al., appendix D.7 (the equation for K*).

    Examples
    --------
    >>> round(truncation_error(1, 1.0, 3.0), 4)
    0.0096
    """
    # The trapezoidal rule on a Gaussian converges faster than any power; 10 standard deviations leave out 1e-23.
    nodes = np.linspace(-10.0, 10.0, 801)
    weights = np.exp(-0.5 * nodes * nodes)
    weights /= weights.sum()
    root, worst = math.sqrt(variance), 0.0
    for z in np.linspace(-reach, reach, 25):
        smoothed = sum(w * value(LOG, terms, 0.0, z + root * x, variance) for w, x in zip(weights, nodes, strict=True))
        worst = max(worst, abs(float(smoothed) - value(LOG, 0, 0.0, z, 0.0)))
    return worst


def best_truncation(variance: float, reach: float) -> int:
    """K in {1, 2, 3} of the least :func:`truncation_error`: the paper's criterion.

    Examples
    --------
    >>> best_truncation(1.0, 3.0)
    3
    """
    return min((1, 2, 3), key=lambda terms: truncation_error(terms, variance, reach))


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a level's releases, as the learner knows it.

    Attributes
    ----------
    variance
        Of every feature.
    constant_variance
        Of the constant: the features' in a product, else 0.
    target_variance
        Of a real target.
    keep
        Weight S~ of a released label; 1 where none was in randomized response.
    """

    variance: float
    constant_variance: float = 0.0
    target_variance: float = 0.0
    keep: float = 1.0


def spread(loss: str, noise: Noise, features: int, bound: float, radius: float) -> float:
    """About how large ``E||gradient estimate||^2`` gets in the ball: it weighs people and sizes steps.

    A function of public settings alone. It need not be exact: it decides efficiency, not what is estimated.
    """
    noised = features if noise.constant_variance > 0 else features - 1
    length = bound * bound + noised * noise.variance
    v = noise.variance * radius * radius
    label = (2.0 * noise.keep - 1.0) ** 2
    if loss == "squared":
        return length * (0.25 + v + noise.target_variance)
    if loss == "quadratic":
        return length * (label + v)
    if loss == "exponential":
        return (length + noise.variance * v) * label * math.exp(min(v, 300.0))
    # Slopes between -1 and 0, and what the label adds.
    found = length * (0.25 * label + 1.0 / 12.0)
    if loss == "log":
        return found + noise.variance * v / 16.0
    left = LOGIT_WIDTH - v
    return found + label * noise.variance * v / (
        2.0 * math.sqrt(math.pi * left) * math.sqrt(2 * math.pi * (v + left / 2))
    )
