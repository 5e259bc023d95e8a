"""Distribution of the distance of the closest random directions from a vector, to calibrate `PrivUnitMechanism`.

The score of a random direction u of R^d and a unit vector v is ``|<u, v>| = sin(angle)``; the angle has a density
proportional to ``cos(angle)^(d - 2)`` on [0, pi/2]. Integrals are Gauss-Legendre sums over the angle.
"""

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["Moments", "closest_share", "fitted", "gain", "limit", "moments"]

Array = npt.NDArray[np.float64]
Moments = tuple[float, float]

_PANELS, _NODES = 48, 16
# The angle is beyond 15 standard deviations with a probability below 1e-48.
_REACH = 15.0
_WORK = 2**17
_TOLERANCE = 0.03


@lru_cache(maxsize=64)
def _angles(dimension: int) -> tuple[Array, Array, Array]:
    """Return nodes of the angle, their probabilities, and each node's probability of a larger score; dimension >= 2."""
    x, w = np.polynomial.legendre.leggauss(_NODES)
    # Integrals from -1 to each node of the polynomials that are 1 at one node and 0 at the others.
    values = np.polynomial.legendre.legvander(x, _NODES)
    orders = np.arange(1, _NODES)
    rising = np.empty((_NODES, _NODES))
    rising[:, 0] = x + 1.0
    rising[:, 1:] = (values[:, 2:] - values[:, : _NODES - 1]) / (2 * orders + 1)
    partial = rising @ (values[:, :_NODES] * (np.arange(_NODES) + 0.5) * w[:, None]).T
    end = min(math.pi / 2, _REACH / math.sqrt(max(dimension - 2, 1)))
    # Panels become finer towards the end, where the closest of very many draws are in few dimensions.
    edges = np.unique(np.concatenate([np.linspace(0.0, end, _PANELS), end * (1 - 0.5 ** np.arange(6, 36))]))
    half = np.diff(edges)[:, None] / 2
    angles = edges[:-1, None] + half * (1 + x)
    density = np.exp((dimension - 2) * np.log(np.cos(angles)))
    panels = (half * density) @ w
    # From the far end, so that small probabilities keep their digits.
    after = np.concatenate([np.cumsum(panels[::-1])[::-1], [0.0]])
    above = (after[1:, None] + (panels[:, None] - (half * density) @ partial.T)) / after[0]
    return angles.ravel(), (half * density * w).ravel() / after[0], above.ravel()


def _among_closest(draws: int, closest: int, above: Array) -> Array:
    """Return the probability that fewer than ``closest`` of the other draws have a larger score."""
    if closest == draws:
        return np.ones_like(above)
    log_above, log_below = np.log(np.maximum(above, 1e-300)), np.log1p(-np.minimum(above, 1.0 - 1e-16))
    total = np.zeros_like(above)
    for i in range(closest):
        choices = math.lgamma(draws) - math.lgamma(i + 1) - math.lgamma(draws - i)
        total += np.exp(choices + i * log_above + (draws - 1 - i) * log_below)
    return np.minimum(total, 1.0)


def closest_share(dimension: int, draws: int, closest: int, scores: Array) -> Array:
    """Return the probability that a draw with a score in [0, 1] is one of the ``closest``."""
    if dimension == 1:
        return np.full(np.shape(scores), closest / draws)
    angles, _, above = _angles(dimension)
    probability = np.interp(
        scores, np.concatenate([[0.0], np.sin(angles), [1.0]]), np.concatenate([[1.0], above, [0.0]])
    )
    return _among_closest(draws, closest, probability)


@lru_cache(maxsize=1024)
def moments(dimension: int, draws: int, closest: int) -> Moments:
    """Return mean and mean square of the scores of the ``closest`` of ``draws`` independent random directions.

    Examples
    --------
    >>> mean, square = moments(3, 1, 1)  # uniform on [0, 1] in three dimensions (Archimedes)
    >>> round(mean, 12), round(square, 12)
    (0.5, 0.333333333333)
    """
    if dimension == 1:
        return 1.0, 1.0
    angles, weights, above = _angles(dimension)
    scores = np.sin(angles)
    chosen = weights * _among_closest(draws, closest, above) * (draws / closest)
    return float(chosen @ scores), float(chosen @ scores**2)


def gain(dimension: int, draws: int, closest: int, share: float) -> float:
    r"""Return the mean m of the chosen candidate's component along the vector.

    .. math:: m = A \left(p - (1 - p) \frac{k}{2n - k}\right)

    with A the mean score of the k closest of n draws, chosen with probability p; the mean over all 2n candidates is
    zero.
    """
    return moments(dimension, draws, closest)[0] * (share - (1.0 - share) * closest / (2 * draws - closest))


def limit(dimension: int, epsilon: float) -> tuple[float, float, float]:
    r"""Return cap, its probability q and m of PrivUnit on the sphere itself, the optimum of an epsilon-DP direction.

    .. math:: m = C \frac{e^\epsilon - 1}{1 - q + e^\epsilon q}, \quad
        C = \frac{(1 - \gamma^2)^{(d - 1)/2}}{d - 1} \frac{\Gamma(d/2)}{\sqrt\pi\, \Gamma((d - 1)/2)}

    at the gamma that maximizes it; m is accurate to 1e-3. An epsilon above 44, the limit of a 64-bit word, counts as
    44.

    Examples
    --------
    >>> _, q, m = limit(11, 4.0)
    >>> round(q, 3), round(1 / (11 * m**2), 3)  # the variance of a coordinate
    (0.075, 0.464)
    """
    epsilon = min(epsilon, 44.0)
    if dimension == 1:
        return 0.0, 0.5, math.tanh(epsilon / 2)
    angles, weights, above = _angles(dimension)
    mean = float(weights @ np.sin(angles)) / 2
    angles, q = np.concatenate([[0.0], angles]), np.concatenate([[0.5], above / 2])
    # Half the mean of the scores beyond each node, in closed form but for its constant.
    means = mean * np.exp((dimension - 1) * np.log(np.cos(angles)))
    m = means * -math.expm1(-epsilon) / (math.exp(-epsilon) * (1.0 - q) + q)
    best = int(np.argmax(m))
    return math.sin(angles[best]), float(q[best]), float(m[best])


@lru_cache(maxsize=1024)
def fitted(dimension: int, epsilon: float) -> tuple[int, int]:
    """Return the number of directions to draw and the number that count as closest.

    The fewest that bring the variance within 3% of the limit, with at most 2^17 integers. Devices and learners of a
    task must compute the same numbers, so this rule is part of the meaning of a task's document.

    Examples
    --------
    >>> fitted(11, 0.1), fitted(11, 4.0), fitted(5000, 8.0)
    ((1, 1), (54, 8), (26, 1))
    """

    def gain_of(draws: int, closest: int) -> float:
        others = (2 * draws - closest) * math.exp(-epsilon)
        return gain(dimension, draws, closest, closest / (closest + others))

    _, q, best = limit(dimension, epsilon)
    most = max(1, _WORK // dimension)
    chosen = (1, 1)
    for pair in _choices(q, most):
        chosen = max(chosen, pair, key=lambda pair: gain_of(*pair))
        if gain_of(*chosen) >= best / math.sqrt(1.0 + _TOLERANCE):
            break
    return chosen


def _choices(q: float, most: int) -> Iterator[tuple[int, int]]:
    """Yield increasing numbers of draws up to ``most``, with about a share 2 q of them, at least 1, as closest."""
    draws, closest = 1, 1
    while 2 * q * draws < 1 and draws <= most:
        yield draws, 1
        draws *= 2
    draws = max(1, round(1 / (2 * q)))
    while draws <= most:
        yield draws, closest
        closest *= 2
        draws = max(closest, round(closest / (2 * q)))
    yield most, max(1, closest // 2)
