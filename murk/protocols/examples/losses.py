"""Losses of released examples: valid radius, model probabilities and gradient size."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.links import logistic
from murk.errors import UserError
from murk.privacy.guarantees import nearest
from murk.protocols.examples.transforms import EXPONENTIAL, LOG, PROBIT, QUADRATIC, SQUARED, value
from murk.task.protocols.examples import DIRECTED
from murk.task.protocols.examples import LOSSES as BY_TARGET

_ERROR_CODE = "MURK-LEARN-001"

# Losses that directions identify. The others are functions of the quotient theta'v / a, of which noisy v and a allow no
# unbiased estimate.
DIRECTED_LOSSES: Final = DIRECTED

# t of the probit-type loss: its slope differs from the logistic loss's by at most 0.0095, so coefficients are logits.
LOGIT_WIDTH: Final = 1.702**2


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise of a level's releases."""

    variance: float  # noise variance of each feature
    constant_variance: float = 0.0  # noise variance of the constant: that of features in a product, else 0
    target_variance: float = 0.0  # noise variance of a real target
    keep: float = 1.0  # weight of a released label, whose opposite has 1 - keep; 1 without randomized response
    laplace: bool = False  # whether the noise is Laplace rather than Gaussian noise


@dataclass(frozen=True, slots=True)
class Size:
    """Terms of the approximate mean square of a gradient estimate at the edge of the ball."""

    length: float  # mean squared length of a released record
    label: float  # squared attenuation of a label's mean, 1 without randomized response
    v: float  # noise variance of a score
    noise: Noise  # noise of a release


@dataclass(frozen=True, slots=True)
class ExampleLoss:
    """A loss of released examples."""

    name: str  # name in tasks and arguments
    code: int  # code in `murk.protocols.examples.transforms`
    radius: float  # default radius of the ball of coefficients: a logit of 3 is odds of 20
    probabilities: Callable[[Floats], Floats] | None  # probability of the positive label, by score; None if real
    spread: Callable[[Size], float]  # approximate E||gradient estimate||^2, for weights and step sizes
    moderate: float = math.inf  # largest score variance used by default
    valid: float = math.inf  # score variance below which the estimate exists
    # `moderate` and `valid` under Laplace noise; `moderate` depends on the number of coefficients.
    moderate_laplace: Callable[[int], float] = lambda p: math.inf
    valid_laplace: float = math.inf


def _line(scores: Floats) -> Floats:
    return np.clip(0.5 + 0.5 * scores, 0.0, 1.0)


def _normal(scores: Floats) -> Floats:
    root = math.sqrt(2.0 * LOGIT_WIDTH)
    return np.array([0.5 * math.erfc(-z / root) for z in scores])


def _bounded_slopes(size: Size) -> float:
    # Slopes lie between -1 and 0; the label adds its share.
    return size.length * (0.25 * size.label + 1.0 / 12.0)


def _probit_spread(size: Size) -> float:
    if size.noise.laplace:
        return _log_spread(size)
    left = LOGIT_WIDTH - size.v
    steep = 2.0 * math.sqrt(math.pi * left) * math.sqrt(2 * math.pi * (size.v + left / 2))
    return _bounded_slopes(size) + size.label * size.noise.variance * size.v / steep


def _exponential_spread(size: Size) -> float:
    growth = math.exp(min(size.v, 300.0))
    if size.noise.laplace:
        # All of theta on one coordinate, the worst case: E exp(-2 theta N) times the square of the correction.
        growth = (1.0 - 0.5 * size.v) ** 2 / (1.0 - 2.0 * size.v)
    return (size.length + size.noise.variance * size.v) * size.label * growth


def _log_spread(size: Size) -> float:
    return _bounded_slopes(size) + size.noise.variance * size.v / 16.0


# The variance of the exponential estimate is of order e^v, the truncated log estimate has a bias that grows with v, and
# the probit estimate is exact up to v = t, where its second derivative becomes a spike. Under Laplace noise of scale b
# all estimates are exact. That of the exponential loss has a variance if b |theta_j| < 1/2, and its standard error
# settles if b |theta_j| < 1/4. Derivatives of the log loss grow with their order, and so with the number of features.
_ALL = (
    ExampleLoss("quadratic", QUADRATIC, 2.0, _line, lambda at: at.length * (at.label + at.v)),
    ExampleLoss(
        "exponential",
        EXPONENTIAL,
        3.0,
        lambda z: logistic(2.0 * z),
        _exponential_spread,
        moderate=2.0,
        moderate_laplace=lambda p: 0.125,
        valid_laplace=0.5,
    ),
    ExampleLoss("log", LOG, 3.0, logistic, _log_spread, moderate=3.0, moderate_laplace=lambda p: min(3.0, 20.0 / p)),
    ExampleLoss(
        "probit",
        PROBIT,
        3.0,
        _normal,
        _probit_spread,
        moderate=0.9 * LOGIT_WIDTH,
        valid=LOGIT_WIDTH,
        moderate_laplace=lambda p: 0.9 * LOGIT_WIDTH,
    ),
    ExampleLoss("squared", SQUARED, 1.5, None, lambda at: at.length * (0.25 + at.v + at.noise.target_variance)),
)
LOSSES: Final = {loss.name: loss for loss in _ALL}
CODES: Final = {name: loss.code for name, loss in LOSSES.items()}


def check_loss(loss: str, target: str) -> None:
    """Refuse an unknown loss, or one of another kind of target (``"binary"`` or ``"real"``)."""
    fitting = BY_TARGET[target]
    if loss not in fitting:
        raise UserError(
            f"loss={loss!r} is not a loss of a {target} target{nearest(loss, fitting)}; use one of {', '.join(fitting)}"
        )


def largest_radius(loss: str, variance: float, laplace: int = 0) -> float:
    """Return the radius below which estimates are valid under feature noise (probit: ``variance ||theta||^2 < t``).

    ``laplace`` is the number of coefficients under Laplace noise, and 0 under Gaussian noise.
    """
    return _radius_at(LOSSES[loss].valid_laplace if laplace else LOSSES[loss].valid, variance)


def _radius_at(largest: float, variance: float) -> float:
    return math.sqrt(largest / variance) if math.isfinite(largest) else math.inf


def default_radius(loss: str, variance: float, laplace: int = 0) -> float:
    """Return the default radius, within which estimates are valid and the variance of scores is moderate."""
    loss_settings = LOSSES[loss]
    moderate = loss_settings.moderate_laplace(laplace) if laplace else loss_settings.moderate
    return min(loss_settings.radius, _radius_at(moderate, variance))


def checked_radius(loss: str, radius: float | None, variance: float, laplace: int = 0) -> float:
    """Return the projection radius for this noise, or raise UserError if a given one is invalid."""
    if radius is None:
        return default_radius(loss, variance, laplace)
    if not (math.isfinite(radius) and radius > 0):
        raise UserError(
            f"radius={radius!r} must be positive and finite; by default it is at most {LOSSES[loss].radius:g}"
        )
    largest = largest_radius(loss, variance, laplace)
    if radius >= largest:
        raise UserError(
            f"radius={radius:g} is outside the {loss} loss's valid region: with feature noise of standard deviation "
            f"{math.sqrt(variance):.4g} the largest radius that works is {0.999 * largest:.4g}. Give that or less, "
            "leave it out, ask for a weaker guarantee, or use loss='quadratic', which is valid everywhere"
        )
    return float(radius)


def probabilities(loss: str, scores: Floats) -> Floats:
    """Return the probability of the positive label at scores z, under the loss's model.

    probit: ``Phi(z / sqrt t)``; log: ``1 / (1 + e^-z)``; exponential: ``1 / (1 + e^-2z)``; quadratic: ``(1 + z) / 2``.
    """
    of_scores = LOSSES[loss].probabilities
    assert of_scores is not None, f"the {loss} loss is of a real target"
    return of_scores(scores)


@lru_cache(maxsize=256)
def truncation_error(terms: int, variance: float, reach: float) -> float:
    """Return the bias of the log loss truncated after K terms: ``sup |W_v[g_K](z) - f(z)|`` for ``|z| <= reach``.

    Here f is the log loss, g_K its truncated estimate, and W_v the mean over noise of ``variance`` v in the score z
    (Dufraiche et al., appendix D.7, the equation for K*).
    """
    # The trapezoidal rule on a Gaussian converges faster than any power.
    nodes = np.linspace(-10.0, 10.0, 801)
    weights = np.exp(-0.5 * nodes * nodes)
    weights /= weights.sum()
    root, worst = math.sqrt(variance), 0.0
    for z in np.linspace(-reach, reach, 25):
        smoothed = sum(w * value(LOG, terms, 0.0, z + root * x, variance) for w, x in zip(weights, nodes, strict=True))
        worst = max(worst, abs(float(smoothed) - value(LOG, 0, 0.0, z, 0.0)))
    return worst


def best_truncation(variance: float, reach: float) -> int:
    """Return the K in {1, 2, 3} with the least :func:`truncation_error`, the paper's criterion."""
    return min((1, 2, 3), key=lambda terms: truncation_error(terms, variance, reach))


def spread(loss: str, noise: Noise, features: int, bound: float, radius: float) -> float:
    """Return about ``E||gradient estimate||^2`` at the edge of the ball, the scale of weights and step sizes.

    It is no bound, as it takes a release and its score as independent. For quadratic losses of p numbers dominated by
    noise, the true mean square is ``(p + 1) / p`` times this under Gaussian noise, and ``(p + 4) / p`` times this under
    Laplace noise.
    """
    noised = features if noise.constant_variance > 0 else features - 1
    length = bound * bound + noised * noise.variance
    v = noise.variance * radius * radius
    return LOSSES[loss].spread(Size(length, (2.0 * noise.keep - 1.0) ** 2, v, noise))
