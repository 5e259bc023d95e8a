"""The distributions of the mechanisms by simulation, each with a wrong-parameter twin that must fail.

Seeds are fixed, so a test passes or fails always; had they been drawn afresh, each assertion would be wrong with
probability below 1e-6 (5.5 standard errors on both sides: 4e-8 for each coordinate looked at).
"""

import math

import numpy as np
import pytest

from murk.privacy import (
    GaussianDP,
    GaussianMechanism,
    L2BallMechanism,
    LaplaceMechanism,
    PureDP,
    SimulatedNoise,
    ZeroConcentratedDP,
)
from murk.privacy.conversions import gdp_delta
from tests.privacy.mechanisms.scripted import Louder

N = 200_000
SIGMAS = 5.5
RECORDS = np.arange(N)
# Kolmogorov-Smirnov: P(sup |F_n - F| > x) <= 2 exp(-2 n x^2) (Dvoretzky, Kiefer, Wolfowitz, Massart) = 1e-7.
KS = math.sqrt(math.log(2e7) / (2 * N))

phi = np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2)


def repeat(vector):
    return np.tile(np.asarray(vector, dtype=np.float64), (N, 1))


def close(values, expected):
    """Whether the mean of independent values is ``expected`` within the tolerance."""
    values = np.asarray(values, dtype=np.float64)
    return bool((abs(values.mean(axis=0) - expected) <= SIGMAS * values.std(axis=0) / math.sqrt(len(values))).all())


def distance(values, cdf):
    """Kolmogorov-Smirnov distance of the values' distribution from ``cdf``."""
    ordered = np.sort(values)
    exact = cdf(ordered)
    steps = np.arange(1, len(values) + 1) / len(values)
    return max(abs(exact - steps).max(), abs(exact - steps + 1 / len(values)).max())


def laplace_cdf(x):
    return np.where(x < 0, np.exp(-abs(x)) / 2, 1 - np.exp(-abs(x)) / 2)


CASES = [
    (GaussianMechanism.calibrate(GaussianDP(1.0), dimension=3, radius=2.0), phi),
    (LaplaceMechanism.calibrate(PureDP(1.0), dimension=3, radius=2.0), laplace_cdf),
]


@pytest.mark.parametrize(("mechanism", "cdf"), CASES, ids=["gaussian", "laplace"])
def test_additive_noise_has_the_law_it_says(mechanism, cdf):
    vector = np.array([1.0, -0.5, 0.25])
    noise = SimulatedNoise(11)
    released = mechanism.decode(mechanism.randomize(repeat(vector), noise, RECORDS))
    # Quantising moves a coordinate by less than one spacing, a millionth of the noise.
    assert close(released, vector)
    assert close((released - vector) ** 2, mechanism.variance)
    assert distance((released[:, 0] - vector[0]) / mechanism.scale, cdf) < KS
    for factor in (0.9, 1.1):
        wrong = mechanism.decode(mechanism.randomize(repeat(vector), Louder(noise, factor), RECORDS))
        assert not close((wrong - vector) ** 2, mechanism.variance)
        assert distance((wrong[:, 0] - vector[0]) / mechanism.scale, cdf) > KS


def test_what_lies_beyond_the_radius_is_brought_back_to_it():
    for mechanism, _ in CASES:
        vector = np.array([300.0, -400.0, 0.0])
        released = mechanism.decode(mechanism.randomize(repeat(vector), SimulatedNoise(12), RECORDS))
        shrunk = vector / np.linalg.norm(vector) * mechanism.radius
        if mechanism.kind == "laplace":
            shrunk = vector / abs(vector).sum() * mechanism.radius * math.sqrt(3)
        assert close(released, shrunk)


BALL = L2BallMechanism.calibrate(PureDP(2.0), dimension=3, radius=2.0)
VECTORS = [[0.0, 0.0, 0.0], [1.0, -0.5, 0.25], [2.0, 0.0, 0.0], [-1.2, 0.0, 1.6], [0.0, 1e-12, 0.0]]


@pytest.mark.parametrize("vector", VECTORS)
def test_l2_ball_is_unbiased(vector):
    released = BALL.decode(BALL.randomize(repeat(vector), SimulatedNoise(13), RECORDS))
    assert close(released, vector)
    norms = np.linalg.norm(released, axis=1)
    assert np.allclose(norms, BALL.unit, rtol=1e-12, atol=0.0)
    assert close(released**2, BALL.variance)


def test_l2_ball_the_twin_with_another_norm_is_biased():
    vector = np.array([2.0, 0.0, 0.0])
    released = BALL.decode(BALL.randomize(repeat(vector), SimulatedNoise(13), RECORDS))
    for factor in (0.95, 1.05):
        assert not close(released * factor, vector)


@pytest.mark.parametrize("dimension", [1, 2, 10, 50])
def test_l2_ball_is_unbiased_in_every_dimension(dimension):
    mechanism = L2BallMechanism.calibrate(PureDP(3.0), dimension=dimension, radius=0.5)
    vector = np.zeros(dimension)
    vector[-1] = 0.3
    released = mechanism.decode(mechanism.randomize(repeat(vector)[:50_000], SimulatedNoise(14), RECORDS[:50_000]))
    assert close(released, vector)
    assert not close(released * 1.5, vector)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0, 100.0])
def test_l2_ball_the_odds_of_the_half_space(share):
    # Towards the vector with p (1 + s)/2 + (1 - p)(1 - s)/2, s = norm / radius, at most 1.
    towards = np.array([0.6, 0.0, 0.8])
    vector = towards * BALL.radius * share
    payload = BALL.randomize(repeat(vector), SimulatedNoise(15), RECORDS)
    side = payload @ towards > 0

    def expected(epsilon):
        keep = 1 / (1 + math.exp(-epsilon))
        return 0.5 + (2 * keep - 1) * min(share, 1.0) / 2

    assert close(side, expected(2.0))
    if share > 0:
        assert not close(side, expected(2.2))
        assert not close(side, expected(1.8))


def test_l2_ball_directions_are_uniform_within_the_half_space():
    # Given the side, the length of the projection on the vector is uniform on [0, 1] in three dimensions
    # (Archimedes), and the rest has no direction of its own.
    towards = np.array([0.0, 0.0, 1.0])
    decoded = BALL.decode(BALL.randomize(repeat(2 * towards), SimulatedNoise(16), RECORDS)) / BALL.unit
    assert distance(abs(decoded[:, 2]), lambda x: x) < KS
    assert distance(abs(decoded[:, 2]), lambda x: x**1.1) > KS
    angle = np.arctan2(decoded[:, 0], decoded[:, 1]) / (2 * math.pi) + 0.5
    assert distance(angle, lambda x: x) < KS


def test_l2_ball_beats_laplace_at_equal_guarantee():
    for dimension in (2, 10, 100):
        ball = L2BallMechanism.calibrate(PureDP(1.0), dimension=dimension, radius=1.0)
        laplace = LaplaceMechanism.calibrate(PureDP(1.0), dimension=dimension, radius=1.0)
        assert ball.variance < laplace.variance


# The strongest attack on a Gaussian release: which of two opposite vectors of full length was it? The best guess is by
# the sign of the projection, right with probability Phi(mu / 2); and the privacy loss is known exactly from integers.


def loss_of(mechanism, noise):
    """log P(payload | v) / P(payload | -v) of releases of v, with v at the bound: the largest that can be."""
    vector = np.zeros(mechanism.dimension)
    vector[0] = mechanism.radius
    payload = mechanism.randomize(repeat(vector), noise, RECORDS)[:, 0]
    steps = mechanism.steps
    return 2 * payload.astype(np.float64) * steps / float(2**40), payload > 0


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_gaussian_releases_keep_their_promise_and_are_no_noisier(mu):
    mechanism = GaussianMechanism.calibrate(GaussianDP(mu), dimension=3, radius=2.0)
    loss, right = loss_of(mechanism, SimulatedNoise(17))
    success = math.erfc(-mu / 2 / math.sqrt(2)) / 2
    assert close(right, success)
    assert close(loss, mu**2 / 2)
    for epsilon in (0.0, mu / 2, mu):
        # delta(epsilon) = E max(0, 1 - exp(epsilon - loss)).
        assert close(np.maximum(0.0, -np.expm1(epsilon - loss)), gdp_delta(mu, epsilon))
    # The twin: noise 10% too small, and the attack succeeds more often than was promised.
    _, right = loss_of(mechanism, Louder(SimulatedNoise(17), 0.9))
    assert right.mean() > success + SIGMAS * 0.5 / math.sqrt(N)


def test_zcdp_releases_keep_their_promise():
    mechanism = GaussianMechanism.calibrate(ZeroConcentratedDP(0.5), dimension=3, radius=2.0)
    loss, _ = loss_of(mechanism, SimulatedNoise(18))
    for order in (1.5, 2.0, 3.0):
        # (order - 1) D_order = log E exp((order - 1) loss), D_order = order rho.
        excess = order - 1
        assert close(np.exp(excess * loss), math.exp(excess * order * 0.5))
        assert not close(np.exp(excess * loss), math.exp(excess * order * 0.45))


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("cls", [LaplaceMechanism, L2BallMechanism])
def test_pure_releases_keep_their_promise(cls, epsilon):
    mechanism = cls.calibrate(PureDP(epsilon), dimension=1, radius=1.0)
    ones = np.ones((N, 1))
    one = mechanism.randomize(ones, SimulatedNoise(19), RECORDS)[:, 0]
    other = mechanism.randomize(-ones, SimulatedNoise(20), RECORDS)[:, 0]
    # Whatever half-line an adversary watches, its odds change by at most e^epsilon; and at the ends by just that.
    watched = np.quantile(one, [0.2, 0.5, 0.8])
    for edge in [0.0, *watched]:
        p, q = (one > edge).mean(), (other > edge).mean()
        spread = SIGMAS * math.sqrt((1 - p) / (p * N) + (1 - q) / (q * N))
        assert abs(math.log(p / q)) <= epsilon + spread
    top = np.log((one > watched[2]).mean() / (other > watched[2]).mean())
    # The twin: a claim of 0.8 epsilon would be refuted.
    assert top - SIGMAS * math.sqrt(2 / (0.2 * math.exp(-epsilon) * N)) > 0.8 * epsilon


@pytest.mark.parametrize("mechanism", [CASES[0][0], CASES[1][0], BALL], ids=lambda m: m.kind)
def test_magnitude_bounds_every_payload_without_being_slack(mechanism):
    vector = np.full(3, mechanism.radius)
    largest = abs(mechanism.randomize(repeat(vector), SimulatedNoise(21), RECORDS)).max()
    assert mechanism.magnitude / 10 < largest < mechanism.magnitude
