"""Honest payloads' length: the stated false alarm, by exact distributions and by draws, in integers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gamma, ncx2

from murk.privacy import ApproxDP, GaussianDP, PureDP, RandomizedResponse, SimulatedNoise
from murk.privacy.mechanisms import (
    CompositeMechanism,
    GaussianMechanism,
    L2BallMechanism,
    LaplaceMechanism,
)
from murk.privacy.mechanisms.base import WIDTH
from murk.privacy.mechanisms.lattice import FALSE_ALARM, NATS, PayloadBound, gaussian_square, laplace_square

SHAPES = [(d, steps) for d in (1, 2, 10, 65, 1000) for steps in (0, 1, WIDTH // 2, 4 * WIDTH, 900 * WIDTH)]


def test_the_false_alarm_is_that_of_eight_standard_deviations():
    assert math.exp(-(8**2) / 2) == FALSE_ALARM
    assert 1.2e-14 < FALSE_ALARM < 1.3e-14


@pytest.mark.parametrize(("dimension", "steps"), SHAPES)
def test_gaussian_payloads_are_longer_with_the_stated_probability_at_most(dimension, steps):
    """By the non-central chi-square distribution of the worst vector. A square a fifth shorter is exceeded."""
    square = gaussian_square(dimension, steps) / WIDTH**2
    centre = (steps / WIDTH) ** 2
    assert ncx2.sf(square, dimension, centre) <= FALSE_ALARM
    deviation = square - dimension - centre
    assert ncx2.sf(dimension + centre + 0.6 * deviation, dimension, centre) > FALSE_ALARM


@pytest.mark.parametrize(("dimension", "steps"), SHAPES)
def test_laplace_payloads_are_longer_with_the_stated_probability_at_most(dimension, steps):
    """By the gamma distribution of the noise's l1 norm, each of whose terms is rounded up by a step at most."""
    norm = math.sqrt(laplace_square(dimension, steps)) - steps - dimension
    assert gamma.sf(norm / WIDTH, dimension) <= FALSE_ALARM
    assert gamma.sf(0.6 * norm / WIDTH, dimension) > FALSE_ALARM


@pytest.mark.parametrize("dimension", [1, 3, 20])
@pytest.mark.parametrize("steps", [0, WIDTH])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_draws_keep_to_it(law, dimension, steps):
    """Share of 20,000 payloads of the worst vector beyond the square for e^-2, seed fixed.

    False alarm of the test below 1e-8: e^-2 is an upper bound of the probability, and 6 standard errors of the
    share are 0.0145. The twin, noise six times as wide, exceeds it.
    """
    square = (gaussian_square if law == "gaussian" else laplace_square)(dimension, steps, nats=2)
    noise = getattr(SimulatedNoise(dimension), law)(np.arange(20_000), dimension).astype(float)
    vector = np.zeros(dimension)
    vector[0] = steps

    def share(factor):
        return np.mean(((vector + factor * noise) ** 2).sum(axis=1) > square)

    allowed = math.exp(-2) + 0.0145
    assert share(1.0) <= allowed
    assert share(6.0) > allowed


def test_every_mechanism_says_how_long_its_payloads_are():
    gaussian = GaussianMechanism.calibrate(GaussianDP(1.0), dimension=4, radius=1.0)
    laplace = LaplaceMechanism.calibrate(PureDP(1.0), dimension=4, radius=1.0)
    ball = L2BallMechanism.calibrate(PureDP(1.0), dimension=4, radius=1.0)
    assert gaussian.payload_bound == PayloadBound(((0, 4, gaussian_square(4, gaussian.steps)),))
    assert laplace.payload_bound == PayloadBound(((0, 4, laplace_square(4, laplace.steps)),))
    # Noise alone, whose direction tells: there is no vector in it.
    assert ball.payload_bound == PayloadBound(((0, 4, gaussian_square(4, 0)),))
    label = RandomizedResponse.calibrate(PureDP(0.5), classes=2)
    other = GaussianMechanism.calibrate(ApproxDP(1.0, 1e-6), dimension=2, radius=5.0)
    mixed = CompositeMechanism((gaussian, label, other))
    # Each part by its own: their steps are of different sizes.
    assert mixed.payload_bound == PayloadBound(
        ((0, 4, gaussian_square(4, gaussian.steps)), (5, 7, gaussian_square(2, other.steps)))
    )


def test_a_part_is_held_to_its_own_length():
    payload_bound = PayloadBound(((0, 2, 25), (3, 5, 100)))
    assert payload_bound.holds([3, 4, 10**9, 6, 8])
    assert not payload_bound.holds([3, 5, 0, 0, 0])
    assert not payload_bound.holds([0, 0, 0, 6, 9])


coordinates = st.one_of(st.integers(-10, 10), st.integers(-(2**62) + 1, 2**62 - 1), st.sampled_from([2**31, 2**32]))


@given(st.lists(st.lists(coordinates, min_size=3, max_size=3), min_size=1, max_size=5), st.integers(0, 2**130))
def test_a_table_is_held_to_what_its_rows_are(rows, square):
    """Squares of 62-bit integers wrap around in 64 bits: 2^32 squared would be 0."""
    for bound in (square, sum(v * v for v in rows[0]), max(sum(v * v for v in rows[0]) - 1, 0)):
        payload_bound = PayloadBound(((0, 3, bound),))
        each = [sum(v * v for v in row) <= bound for row in rows]
        assert [payload_bound.holds(row) for row in rows] == each
        assert payload_bound.holds_all(np.array(rows, dtype=np.int64)) == all(each)


def test_nats_are_those_of_eight_standard_deviations():
    assert NATS == 32
    assert gaussian_square(1, 0, nats=0) == WIDTH**2
