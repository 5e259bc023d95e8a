"""Randomized moments: bounds whatever the vector, unbiased, at the noise that was promised."""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from murk.errors import UserError
from murk.privacy import ApproxDP, GaussianDP, PureDP, SimulatedNoise, ZeroConcentratedDP
from murk.protocols.moments.mechanisms import Level, MomentMechanism, calibrated
from murk.protocols.moments.statistics import Statistics, balanced
from tests.learners.public_glm.test_statistics import records

R = math.sqrt(3.0)
LAYOUT = Statistics(("a", "b", "1"), R, balanced(R))
OBSERVED = replace(LAYOUT, observed=True)
LAYOUTS = pytest.mark.parametrize(
    "layout", [LAYOUT, replace(LAYOUT, constant=False), OBSERVED], ids=["constant", "none", "observed"]
)


class NoNoise:
    """Shows what noise would be added to."""

    simulated = True

    def gaussian(self, indices, size):
        return np.zeros((len(indices), size), dtype=np.int64)


def quantised(mechanism, vectors):
    return mechanism.randomize(vectors, NoNoise(), np.arange(len(vectors)))


@LAYOUTS
def test_the_integers_of_two_records_are_within_what_the_guarantee_is_for(layout):
    mechanism = calibrated(GaussianDP(1.0), layout)
    rng = np.random.default_rng(2)
    X, y = records(rng, 3000, 3, R, layout.constant)
    Z = np.where(rng.random((3000, 1)) < 0.5, X, records(rng, 3000, 3, R, layout.constant)[0])
    here, there = layout.vectors(X, np.sign(y)), layout.vectors(Z, np.where(y < 0.9, -np.sign(y), np.nan))
    # Any vectors at all, and moments pushed beyond what records can have.
    wild = rng.normal(size=here.shape) * 10.0 ** rng.integers(-3, 200, size=(3000, 1))
    hostile = np.full((4, layout.dimension), [[np.nan], [np.inf], [-np.inf], [1e308]])
    rows = np.concatenate([here, there, 5 * here, wild, hostile])
    integers = quantised(mechanism, rows)
    far = integers[:, None, :][:3000, 0] - integers[3000:6000]
    assert np.max(np.sum(far**2, axis=1)) <= (2 * mechanism.noise.steps) ** 2
    # It is nearly reached: the noise is not calibrated to more than there is.
    assert np.max(np.sum(far**2, axis=1)) > 0.99 * (2 * mechanism.noise.steps) ** 2
    picks = rng.integers(len(rows), size=(4000, 2))
    apart = np.sum((integers[picks[:, 0]] - integers[picks[:, 1]]) ** 2, axis=1)
    assert np.max(apart) <= (2 * mechanism.noise.steps) ** 2
    assert np.max(np.abs(integers)) + 13 * 2**20 <= mechanism.magnitude


@LAYOUTS
def test_honest_moments_go_through_unchanged(layout):
    mechanism = calibrated(GaussianDP(1.0), layout)
    X, y = records(np.random.default_rng(3), 500, 3, R, layout.constant)
    y[::7] = np.nan
    vectors = layout.vectors(X, y)
    # Truncation takes less than a step, rounding of floats far less than a hundredth of one.
    assert np.max(np.abs(mechanism.decode(quantised(mechanism, vectors)) - vectors)) < 1.01 * mechanism.unit


CASES = [
    (GaussianDP(2.0), "joint", None),
    (ApproxDP(4.0, 1e-6), "joint", "gaussian"),
    (ApproxDP(4.0, 1e-6), "joint", None),
    (ZeroConcentratedDP(2.0), "joint", None),
    (PureDP(4.0), "joint", "l2-ball"),
    (PureDP(4.0), "joint", "laplace"),
    (GaussianDP(2.0), "separate", None),
    (ApproxDP(4.0, 1e-6), "separate", None),
]


@pytest.mark.parametrize(("budget", "release", "kind"), CASES)
def test_releases_are_unbiased_at_the_promised_noise(budget, release, kind):
    layout = LAYOUT if release == "joint" else Statistics(("a", "b", "1"), R, root=1.0)
    mechanism = calibrated(budget, layout, release=release, kind=kind)
    m = 100_000
    vector = layout.vectors(np.array([[0.9, -0.4, 1.0]]), np.array([0.8]))
    payload = mechanism.randomize(np.repeat(vector, m, axis=0), SimulatedNoise(5), np.arange(m))
    released = mechanism.decode(payload)
    level = Level.of(mechanism, layout)
    noise = np.repeat(level.variances, [layout.cross, layout.size])
    # 8 cases of at most 8 coordinates, two tests each: all within z standard errors but once in 10^6 runs.
    z = NormalDist().inv_cdf(1 - 1e-6 / (2 * 2 * 8 * 8))
    off = np.abs(released.mean(axis=0) - vector[0]) / np.sqrt(noise / m)
    assert np.max(off) < z
    # Twins: half of the vector would be seen, and so would off-diagonals with or without sqrt 2 where they are not.
    wrong = np.abs(released.mean(axis=0) - 0.5 * vector[0]) / np.sqrt(noise / m)
    assert np.max(wrong) > z
    other = replace(layout, root=1.0 if layout.root > 1 else math.sqrt(2.0))
    matrix, misread = (each.matrices(released.mean(axis=0))[0] for each in (layout, other))
    exact = np.outer([0.9, -0.4, 1.0], [0.9, -0.4, 1.0])
    assert np.max(np.abs(matrix - exact)) / math.sqrt(noise[0] / m) < z
    assert np.max(np.abs(misread - exact)) / math.sqrt(noise[0] / m) > z
    # The variance of a variance: 2 / m for normal noise, 5 / m for Laplace; those of directions are bounds.
    ratio = released.var(axis=0) / noise
    assert np.all(ratio < 1 + z * math.sqrt(5 / m))
    if mechanism.kind not in ("l2-ball", "privunit"):
        assert np.all(ratio > 1 - z * math.sqrt(5 / m))
    # The twin: noise of another scale.
    assert np.any(np.abs(1.5 * ratio - 1) > z * math.sqrt(5 / m))


def test_claims_are_the_gaussian_mechanisms():
    mechanism = calibrated(ApproxDP(1.0, 1e-6), LAYOUT, kind="gaussian")
    assert isinstance(mechanism, MomentMechanism)
    assert ApproxDP(1.0, 1e-6) in mechanism.guarantees
    assert mechanism.cost("rho") == mechanism.noise.cost("rho")
    # sensitivity / scale, less what the lattice takes.
    mu = mechanism.sensitivity / math.sqrt(mechanism.variance)
    assert mu == pytest.approx(mechanism.guarantee.mu, rel=1e-4)
    assert mu <= mechanism.guarantee.mu


def test_the_published_figures():
    """r = b = 1, epsilon = 10, delta = 1e-6: 2.17 falls to 1.15, 0.81 off the diagonal and 1.15."""
    layout = Statistics(("a", "b"), 1.0, constant=False)
    joint = math.sqrt(calibrated(ApproxDP(10.0, 1e-6), layout, kind="gaussian").variance)
    assert (round(joint, 2), round(joint / layout.root, 2)) == (1.15, 0.81)
    assert math.sqrt(32 * math.log(2.5e6)) / 10 == pytest.approx(2.17, abs=0.005)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 10.0])
def test_separate_classic_has_the_papers_constants(epsilon):
    layout = Statistics(("a", "b"), 1.5, constant=False, root=1.0)
    mechanism = calibrated(ApproxDP(epsilon, 1e-6), layout, release="separate", method="classic")
    paper = 32 * math.log(2.5e6) / epsilon**2
    np.testing.assert_allclose(mechanism.variances, [paper * 1.5**4] * 3 + [paper * 1.5**2] * 2, rtol=1e-3)
    assert np.all(mechanism.variances >= np.array([paper * 1.5**4] * 3 + [paper * 1.5**2] * 2))


@pytest.mark.parametrize(
    ("epsilon", "delta", "kind"), [(1.0, 1e-6, "privunit"), (4.0, 1e-6, "privunit"), (0.01, 0.3, "gaussian")]
)
def test_the_better_mechanism_is_taken(epsilon, delta, kind):
    """By the worst direction's variance: people's moments point much the same way, along which PrivUnit varies most."""
    best, gaussian = (calibrated(ApproxDP(epsilon, delta), LAYOUT, kind=kind) for kind in (None, "gaussian"))
    ball = calibrated(ApproxDP(epsilon, delta), LAYOUT, kind="l2-ball")
    assert best.kind == kind
    worst = {"gaussian": gaussian.variance, "privunit": max(getattr(best, "second_moment", (math.inf,)))}
    assert worst[kind] == min(worst.values())
    assert worst[kind] < ball.variance * 1.02
    assert Level.of(best, LAYOUT).variances == (worst[kind], worst[kind])


@pytest.mark.parametrize(
    ("epsilon", "delta", "kind"), [(1.0, 1e-6, "privunit"), (10.0, 1e-6, "privunit"), (0.01, 0.3, "gaussian")]
)
def test_observed_moments_take_the_mechanism_of_smaller_mean_square(epsilon, delta, kind):
    """What stands along the direction is mostly the signal: with it, Gaussian noise is taken from epsilon = 10 on."""
    best, gaussian = (calibrated(ApproxDP(epsilon, delta), OBSERVED, kind=kind) for kind in (None, "gaussian"))
    assert best.kind == kind
    assert best.variance <= gaussian.variance
    level = Level.of(best, OBSERVED)
    if kind == "gaussian":
        assert level.variances == (best.variance, 0.0)
    else:
        across, along = best.second_moment
        assert level.variances == (across, along - across)
    # Of levels with other shares of missing targets both means are of the same people.
    assert level.weights[0] == level.weights[1]
    joint = calibrated(ApproxDP(10.0, 1e-6), LAYOUT)
    assert joint.kind == "gaussian"
    assert joint.variance > 2.0 * calibrated(ApproxDP(10.0, 1e-6), OBSERVED).variance


def test_what_cannot_be_given_is_refused():
    with pytest.raises(UserError, match="observed"):
        calibrated(GaussianDP(1.0), LAYOUT, release="separate", kind="l2-ball")
    with pytest.raises(UserError, match="Gaussian noise"):
        calibrated(PureDP(1.0), LAYOUT, release="separate")
    with pytest.raises(UserError, match="Gaussian noise cannot"):
        calibrated(PureDP(1.0), LAYOUT, kind="gaussian")
    with pytest.raises(UserError, match="classic"):
        calibrated(ApproxDP(20.0, 1e-6), LAYOUT, release="separate", method="classic")
    with pytest.raises(UserError, match="release="):
        calibrated(GaussianDP(1.0), LAYOUT, release="twice")
    with pytest.raises(UserError, match="larger budget"):
        calibrated(GaussianDP(4e-6), LAYOUT)
    mechanism = calibrated(GaussianDP(1.0), LAYOUT)
    with pytest.raises(UserError, match="moments of shape"):
        mechanism.randomize(np.zeros((2, 3)), SimulatedNoise(1), [0, 1])
    with pytest.raises(UserError, match="integers"):
        mechanism.decode(np.zeros((2, mechanism.dimension)))
