"""One of several random directions, chosen by one exact word: the most accurate pure release, and its calibration."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from murk._internal.arrays import Floats
from murk.errors import UserError
from murk.privacy.guarantees import Guarantee
from murk.privacy.mechanisms.base import DirectionMechanism, checked_shape
from murk.privacy.mechanisms.costs import UNITS, OddsMechanism, epsilon_units, pure_only
from murk.privacy.mechanisms.lattice import NATS, PRIVUNIT, PayloadBound, gaussian_square
from murk.privacy.rounding import decimal, precise

_ERROR_CODE = "MURK-PRIVACY-001"

_WORDS = 2**64


@dataclass(frozen=True, slots=True)
class PrivUnitMechanism(DirectionMechanism, OddsMechanism):
    r"""A random direction, e^epsilon times likelier if it is close to the vector's direction.

    PrivUnit (Bhowmick et al. 2018), optimal among pure mechanisms for a direction (Asi, Feldman, Talwar 2022), draws u
    on the sphere with e^epsilon times the density on the cap ``<u, v> >= gamma`` and releases ``u / m``. Here the cap
    is defined by rank, so its probability is the same for every vector, without rounding. Draw n integer vectors from
    the discrete Gaussian; the candidates are these vectors and their negatives. The k candidates with directions
    closest to the vector's have ``a`` of the 2^64 values of one random word each, and the 2 n - k others ``b`` each,

    .. math:: k a + (2 n - k) b = 2^{64}, \quad a / b \le e^\epsilon .

    **Why it is epsilon-DP.** The candidates are drawn independently of the vector. Given them, each is released with
    probability a / 2^64 or b / 2^64, so its probabilities for two vectors have at most the ratio a / b; averaging over
    candidates keeps this bound. Which candidates are closest is decided in floats: an error there costs accuracy, not
    privacy. As n grows with k / 2n = q this becomes PrivUnit; ``n = k = 1`` is `L2BallMechanism`.

    A vector g of norm below r is first rounded to r g/||g|| or its negative, with probability 1/2 + ||g||/2r. The
    release is B times the direction of the payload, B = r / m with

    .. math:: m = A \left(p - (1 - p) \frac{k}{2 n - k}\right), \quad p = k a / 2^{64},

    A the mean of the k largest of n independent ``|<u, v>|``. That is unbiased for uniform directions; those of the
    lattice are uniform up to rounding of 2^-20 of a standard deviation, a bias below 1e-5 B per coordinate. The work is
    the same for every vector.

    Reference: Bhowmick, Duchi, Freudiger, Kapoor, Rogers, "Protection against reconstruction and its applications in
    private federated learning", 2018; Asi, Feldman, Talwar, "Optimal algorithms for mean estimation under local
    differential privacy", 2022; Isik, Chen, Ozgur, Weissman, No, "Exact optimality of communication-privacy-utility
    tradeoffs in distributed mean estimation", 2023 (the k closest of a random codebook).

    Parameters
    ----------
    dimension, radius
        Length d of the vectors, and public bound r of their l2 norm.
    draws, closest
        n, integer vectors per release, with n d at most 2^20; k, from 1 to n.
    threshold
        k a: the probability, in units of 2^-64, that one of the closest candidates is released.

    Examples
    --------
    >>> from murk.privacy import PrivUnitMechanism, PureDP
    >>> mechanism = PrivUnitMechanism.calibrate(PureDP(4.0), dimension=11, radius=1.0)
    >>> mechanism.guarantee
    PureDP(epsilon=4.0)
    >>> mechanism.draws, mechanism.closest, round(mechanism.variance, 3)
    (54, 8, 0.477)
    """

    dimension: int
    radius: float
    draws: int
    closest: int
    threshold: int
    kind: ClassVar[str] = "privunit"
    code: ClassVar[int] = PRIVUNIT

    def __post_init__(self) -> None:
        self._check_fields("draws", "closest", "threshold")
        if self.draws < 1 or (self.draws > 1 and self.draws * self.dimension > 2**20):
            raise UserError(
                f"PrivUnitMechanism: draws={self.draws} of {self.dimension} numbers each is not between 1 and 2^20 "
                "numbers in all; draw fewer, or use the l2-ball mechanism, which draws one"
            )
        if not 1 <= self.closest <= self.draws:
            raise UserError(f"PrivUnitMechanism: closest={self.closest} is not between 1 and draws={self.draws}")
        near, far = self._shares
        if near * self.closest != self.threshold or not far.denominator == 1 <= far < near:
            raise UserError(
                f"PrivUnitMechanism: threshold={self.threshold} cannot be shared equally among the {self.closest} "
                f"closest candidates, and the rest of 2^64 among the {2 * self.draws - self.closest} others, with a "
                "smaller share; use PrivUnitMechanism.calibrate"
            )

    @property
    def _shares(self) -> tuple[int, Fraction]:
        """Numbers of values of a random word that select each closest candidate, and each other candidate."""
        return self.threshold // self.closest, Fraction(_WORDS - self.threshold, 2 * self.draws - self.closest)

    @property
    def odds(self) -> tuple[int, int]:
        """a and b: the numbers of values of a 64-bit word that select each closest candidate, and each other one."""
        near, far = self._shares
        return near, int(far)

    @property
    def steps(self) -> int:
        """``closest``, which kernels read under this name; nothing is quantised."""
        return self.closest

    @property
    def unit(self) -> float:
        """The norm B of a decoded release."""
        # p is computed from the integers, so that the release is unbiased for the actual word.
        return self.radius / gain(self.dimension, self.draws, self.closest, self.threshold / _WORDS)

    @property
    def second_moment(self) -> tuple[float, float]:
        """Mean squares of a decoded release across the vector's direction (per coordinate) and along it.

        The mean of ``out out'`` is ``across (I - v v') + along v v'`` with v the vector's direction, for every norm.
        """
        d, n, k = self.dimension, self.draws, self.closest
        near, share = moments(d, n, k)[1], self.threshold / _WORDS
        along = share * near + (1.0 - share) * (2 * n / d - k * near) / (2 * n - k)
        square = self.unit**2
        return (square * (1.0 - along) / (d - 1) if d > 1 else 0.0), square * along

    @property
    def payload_bound(self) -> PayloadBound:
        """Bound on an honest payload's norm; a longer one is forged."""
        # A release is at most 2 n a / 2^64 times as likely to be in a set as one draw is.
        likelier = Fraction(2 * self.draws * self.odds[0], _WORDS)
        return PayloadBound(
            ((0, self.dimension, gaussian_square(self.dimension, 0, NATS + math.ceil(math.log(likelier)))),)
        )

    @classmethod
    def calibrate(
        cls, guarantee: Guarantee, *, dimension: int, radius: float, method: Literal["analytic"] = "analytic"
    ) -> "PrivUnitMechanism":
        """Return the mechanism for ``guarantee`` with the fewest draws whose variance is within 3% of PrivUnit's.

        At most 2^17 integers are drawn per release. So in many dimensions with a large epsilon the variance may be more
        than 3% above PrivUnit's, but it never exceeds the l2 ball's. `ZeroConcentratedDP` becomes epsilon = sqrt(2
        rho), `GaussianDP` epsilon = log(Phi(mu/2) / Phi(-mu/2)), at most mu. 64-bit words express an epsilon of at most
        44 - log(k). Raises `UserError` for a budget below 1e-12.
        """
        pure_only("privunit", method)
        size, bound = checked_shape("PrivUnitMechanism", dimension, radius)
        units = epsilon_units(guarantee)
        if units == 0:
            raise UserError(f"PrivUnitMechanism: {guarantee!r} allows no release; give an epsilon of at least 1e-12")
        draws, closest = fitted(size, units / UNITS)
        return cls(size, bound, draws, closest, shared_threshold(units, draws, closest))


def shared_threshold(units: int, draws: int, closest: int) -> int:
    """Return the largest threshold whose odds are at most e^epsilon; ``closest`` is a power of 2."""
    others = 2 * draws - closest
    with precise():
        epsilon = decimal(Fraction(units, UNITS))
        # b (k e^epsilon + 2 n - k) >= 2^64, with b a multiple of k. Then k, which divides 2^64, divides the threshold.
        exact = _WORDS * (-epsilon).exp() / (closest + others * (-epsilon).exp())
        share = int(((exact + Decimal("1e-28")) / closest).to_integral_value(rounding=ROUND_CEILING)) * closest
    return _WORDS - others * share


Moments = tuple[float, float]

_PANELS, _NODES = 48, 16
# The angle is beyond 15 standard deviations with a probability below 1e-48.
_REACH = 15.0
_WORK = 2**17
_TOLERANCE = 0.03


@lru_cache(maxsize=64)
def _angles(dimension: int) -> tuple[Floats, Floats, Floats]:
    """Return nodes of the angle, their probabilities, and the probability of a larger score at each; dimension >= 2."""
    x, w = np.polynomial.legendre.leggauss(_NODES)
    # Integrals from -1 to each node of the polynomials that are 1 at one node and 0 at the others.
    values = np.polynomial.legendre.legvander(x, _NODES)
    orders = np.arange(1, _NODES)
    rising = np.empty((_NODES, _NODES))
    rising[:, 0] = x + 1.0
    rising[:, 1:] = (values[:, 2:] - values[:, : _NODES - 1]) / (2 * orders + 1)
    partial = rising @ (values[:, :_NODES] * (np.arange(_NODES) + 0.5) * w[:, None]).T
    end = min(math.pi / 2, _REACH / math.sqrt(max(dimension - 2, 1)))
    # Panels become finer towards the end, where in few dimensions the closest of very many draws lie.
    edges = np.unique(np.concatenate([np.linspace(0.0, end, _PANELS), end * (1 - 0.5 ** np.arange(6, 36))]))
    half = np.diff(edges)[:, None] / 2
    angles = edges[:-1, None] + half * (1 + x)
    density = np.exp((dimension - 2) * np.log(np.cos(angles)))
    panels = (half * density) @ w
    # From the far end, so that small probabilities keep their digits.
    after = np.concatenate([np.cumsum(panels[::-1])[::-1], [0.0]])
    above = (after[1:, None] + (panels[:, None] - (half * density) @ partial.T)) / after[0]
    return angles.ravel(), (half * density * w).ravel() / after[0], above.ravel()


def _among_closest(draws: int, closest: int, above: Floats) -> Floats:
    """Return the probability that fewer than ``closest`` of the other draws have a larger score."""
    if closest == draws:
        return np.ones_like(above)
    log_above, log_below = np.log(np.maximum(above, 1e-300)), np.log1p(-np.minimum(above, 1.0 - 1e-16))
    total = np.zeros_like(above)
    for i in range(closest):
        choices = math.lgamma(draws) - math.lgamma(i + 1) - math.lgamma(draws - i)
        total += np.exp(choices + i * log_above + (draws - 1 - i) * log_below)
    return np.minimum(total, 1.0)


def closest_share(dimension: int, draws: int, closest: int, scores: Floats) -> Floats:
    """Return the probability that a draw is among the ``closest`` of all ``draws``, given its score in [0, 1]."""
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
    r"""Return the cap, its probability q and the mean m of PrivUnit on the sphere, the best epsilon-DP direction.

    .. math:: m = C \frac{e^\epsilon - 1}{1 - q + e^\epsilon q}, \quad
        C = \frac{(1 - \gamma^2)^{(d - 1)/2}}{d - 1} \frac{\Gamma(d/2)}{\sqrt\pi\, \Gamma((d - 1)/2)}

    at the gamma that maximizes it; m is accurate to 1e-3. An epsilon above 44, the limit of a 64-bit word, counts as
    44.

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

    These are the smallest numbers whose variance is within 3% of the limit, with at most 2^17 integers. Devices and
    learners of a task must compute the same numbers, so this rule is part of the meaning of a task's document.

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
    """Yield increasing numbers of draws up to ``most``, each with a number of closest ones, about 2 q of the draws."""
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
