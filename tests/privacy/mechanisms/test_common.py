"""What every lattice mechanism does alike: data, shapes, bounds, and the exact likelihood ratio of its payloads."""

import copy
import dataclasses
import json
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from murk.errors import UserError
from murk.privacy import (
    ApproxDP,
    GaussianDP,
    GaussianMechanism,
    L2BallMechanism,
    LaplaceMechanism,
    PrivUnitMechanism,
    PureDP,
    SecureNoise,
    SimulatedNoise,
    guarantee_from_dict,
)
from murk.privacy.mechanisms import KINDS, WIDTH, calibrate
from murk.privacy.mechanisms.lattice import GAUSSIAN, L2BALL, LAPLACE, PRIVUNIT
from murk.privacy.noise import LATTICE_WIDTH
from tests.privacy.mechanisms.scripted import Scripted

DIMENSION, RADIUS = 4, 1.5
MECHANISMS = [
    GaussianMechanism.calibrate(GaussianDP(1.0), dimension=DIMENSION, radius=RADIUS),
    GaussianMechanism.calibrate(ApproxDP(1.0, 1e-6), dimension=DIMENSION, radius=RADIUS),
    LaplaceMechanism.calibrate(PureDP(1.0), dimension=DIMENSION, radius=RADIUS),
    L2BallMechanism.calibrate(PureDP(1.0), dimension=DIMENSION, radius=RADIUS),
    PrivUnitMechanism.calibrate(PureDP(2.0), dimension=DIMENSION, radius=RADIUS),
]
# A new mechanism is checked as soon as it is in the registry.
MECHANISMS += [
    calibrate(kind, PureDP(2.0), dimension=DIMENSION, radius=RADIUS)
    for kind in KINDS
    if kind not in {mechanism.kind for mechanism in MECHANISMS}
]
every = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: f"{m.kind}-{m.guarantee.kind}")
# Whatever a gradient may be: beyond the bound, infinite, not a number.
anything = hnp.arrays(np.float64, DIMENSION, elements=st.floats(width=64))


def test_the_constants_are_those_of_the_sampler_and_the_kernels():
    assert WIDTH == LATTICE_WIDTH
    codes = (GaussianMechanism.code, LaplaceMechanism.code, L2BallMechanism.code, PrivUnitMechanism.code)
    assert codes == (GAUSSIAN, LAPLACE, L2BALL, PRIVUNIT)


@every
def test_mechanisms_are_frozen_plain_data(mechanism):
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.radius = 2.0
    named = {**globals(), type(mechanism).__name__: type(mechanism)}
    assert (
        eval(repr(mechanism), named) == mechanism == pickle.loads(pickle.dumps(mechanism)) == copy.deepcopy(mechanism)
    )
    assert hash(mechanism) == hash(copy.copy(mechanism))
    data = mechanism.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert guarantee_from_dict(data["guarantee"]) == mechanism.guarantee
    assert data["kind"] == mechanism.kind


@every
def test_numpy_integers_are_welcome(mechanism):
    other = dataclasses.replace(mechanism, dimension=np.int64(DIMENSION), radius=np.float64(RADIUS))
    assert other == mechanism
    assert type(other.dimension) is int


@every
def test_payloads_are_integers_that_decode(mechanism):
    vectors = np.full((7, DIMENSION), 0.5)
    payload = mechanism.randomize(vectors, SecureNoise(), np.arange(7))
    assert payload.shape == (7, DIMENSION)
    assert payload.dtype == np.int64
    assert (abs(payload) <= mechanism.magnitude).all()
    decoded = mechanism.decode(payload)
    assert decoded.shape == (7, DIMENSION)
    assert mechanism.decode(payload.tolist()) == pytest.approx(decoded)
    assert mechanism.randomize(vectors[:0], SecureNoise(), []).shape == (0, DIMENSION)


@every
def test_simulated_releases_depend_on_the_record_alone(mechanism):
    vectors = np.random.default_rng(1).normal(size=(5, DIMENSION))
    noise = SimulatedNoise(3)
    together = mechanism.randomize(vectors, noise, np.arange(5))
    apart = [mechanism.randomize(vectors[i : i + 1], noise, [i])[0] for i in range(5)]
    assert (together == apart).all()
    assert (mechanism.randomize(vectors, SimulatedNoise(4), np.arange(5)) != together).any()


@every
def test_shapes_that_do_not_fit(mechanism):
    with pytest.raises(UserError, match=r"shape \(m, 4\)"):
        mechanism.randomize(np.zeros(DIMENSION), SecureNoise(), [0])
    with pytest.raises(UserError, match=r"shape \(m, 4\)"):
        mechanism.randomize(np.zeros((1, 3)), SecureNoise(), [0])
    with pytest.raises(UserError, match="record indices"):
        mechanism.randomize(np.zeros((2, DIMENSION)), SecureNoise(), [0])
    with pytest.raises(UserError, match="integers"):
        mechanism.decode(np.zeros((1, DIMENSION)))


def quantised(mechanism, vector):
    """The integers that the noise is added to."""
    return [int(q) for q in mechanism.randomize(vector[None, :], Scripted(), [0])[0]]


@settings(max_examples=80, deadline=None)
@given(one=anything, other=anything, payload=hnp.arrays(np.int64, DIMENSION, elements=st.integers(-(2**40), 2**40)))
def test_laplace_the_exact_likelihood_ratio_is_bounded_for_any_two_vectors(one, other, payload):
    mechanism = MECHANISMS[2]
    p, q = quantised(mechanism, one), quantised(mechanism, other)
    log_ratio = Fraction(sum(abs(int(x) - b) - abs(int(x) - a) for x, a, b in zip(payload, p, q, strict=True)), WIDTH)
    assert log_ratio <= Fraction(mechanism.guarantee.epsilon)


def test_laplace_the_bound_is_reached():
    # The twin of the test above: two vectors and a payload for which no smaller epsilon would do.
    mechanism = MECHANISMS[2]
    corner = np.zeros(DIMENSION)
    corner[0] = 10 * RADIUS * math.sqrt(DIMENSION)
    p, q = quantised(mechanism, corner), quantised(mechanism, -corner)
    assert Fraction(sum(abs(a - b) for a, b in zip(p, q, strict=True)), WIDTH) == Fraction(1)


@settings(max_examples=80, deadline=None)
@given(one=anything, other=anything)
def test_gaussian_the_exact_divergence_is_bounded_for_any_two_vectors(one, other):
    # Two discrete Gaussians of width S at integers a distance D apart: Renyi divergence alpha D^2 / 2 S^2 at most.
    mechanism = MECHANISMS[0]
    p, q = quantised(mechanism, one), quantised(mechanism, other)
    square = sum((a - b) ** 2 for a, b in zip(p, q, strict=True))
    assert square <= 4 * mechanism.steps**2
    rho = mechanism.guarantees[1].rho
    assert Fraction(square, 2 * WIDTH**2) <= Fraction(rho)
    assert square <= Fraction(mechanism.guarantee.mu) ** 2 * (WIDTH**2 - 9)


def test_gaussian_the_bound_is_reached():
    mechanism = MECHANISMS[0]
    corner = np.array([1e9, 0.0, 0.0, 0.0])
    assert quantised(mechanism, corner)[0] == mechanism.steps == -quantised(mechanism, -corner)[0]


@settings(max_examples=80, deadline=None)
@given(
    one=anything,
    other=anything,
    noise=hnp.arrays(np.int64, DIMENSION, elements=st.integers(-(2**24), 2**24)),
    words=st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)),
)
def test_l2_ball_only_the_coin_can_tell_two_vectors_apart(one, other, noise, words):
    # Given the noise vector and the data-independent words, a payload is plus or minus the noise, and the coin's
    # word alone decides which, by one threshold: so its odds are threshold : 2^64 - threshold whatever the vector.
    mechanism = MECHANISMS[3]
    t = mechanism.threshold
    rounding, spare = words
    results = []
    for vector in (one, other):
        payloads = [
            mechanism.randomize(vector[None, :], Scripted(noise, [rounding, coin, spare]), [0])[0].tolist()
            for coin in (0, t - 1, t, 2**64 - 1)
        ]
        assert payloads[0] == payloads[1]
        assert payloads[2] == payloads[3] == [-x for x in payloads[0]]
        results.append(payloads[0])
    assert results[0] == results[1] or results[0] == [-x for x in results[1]]
    if noise.any():
        assert [abs(x) for x in results[0]] == abs(noise).tolist()
    else:
        assert np.abs(results[0]).tolist() == [1] + [0] * (DIMENSION - 1)


@pytest.mark.parametrize("units", [1, 10**6, 10**11, 10**12, 5 * 10**12, 40 * 10**12, 10**18])
def test_l2_ball_the_odds_are_certified(units):
    import mpmath

    epsilon = Fraction(units, 10**12)
    mechanism = L2BallMechanism.calibrate(PureDP(float(epsilon)), dimension=2, radius=1.0)
    t = mechanism.threshold
    with mpmath.workdps(100):
        exact = mpmath.mpf(epsilon.numerator) / epsilon.denominator
        assert mpmath.mpf(t) / (2**64 - t) <= mpmath.exp(exact)
        # The largest such threshold, unless 64 bits cannot hold a larger one.
        assert t == 2**64 - 1 or mpmath.mpf(t + 1) / (2**64 - t - 1) > mpmath.exp(exact)
        claimed = mpmath.mpf(repr(mechanism.guarantee.epsilon))
        assert mpmath.log(mpmath.mpf(t) / (2**64 - t)) <= claimed <= exact
    assert mechanism.cost("epsilon").units <= units
