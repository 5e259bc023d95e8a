"""Matrices are randomized with the noise that their own distance takes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from murk.errors import UserError
from murk.privacy import ApproxDP, GaussianDP, PureDP
from murk.privacy.mechanisms.outer_product import OuterGaussian, matrix_size, outer
from murk.privacy.noise import SimulatedNoise
from murk.protocols.linear_algebra import symmetric
from murk.protocols.scores.mechanisms import score_mechanisms

P = 3
anything = st.floats(allow_nan=True, allow_infinity=True)


class NoNoise(SimulatedNoise):
    def gaussian(self, records, size):
        return np.zeros((len(records), size), dtype=np.int64)


@settings(max_examples=80, deadline=None)
@given(arrays(float, (2, P), elements=anything | st.floats(-2, 2)))
def test_two_matrices_are_never_further_apart_than_the_noise_is_for(vectors):
    mechanism = OuterGaussian.calibrate(GaussianDP(1.0), features=P)
    steps = mechanism.randomize(vectors, NoNoise(1), np.arange(2))
    assert math.dist(*steps.tolist()) <= 2 * mechanism.noise.steps
    assert np.all(np.linalg.norm(outer(vectors, P), axis=1) <= 1 + 1e-9)


def test_orthogonal_vectors_use_all_of_it():
    mechanism = OuterGaussian.calibrate(GaussianDP(1.0), features=P)
    steps = mechanism.randomize(np.eye(P)[:2], NoNoise(1), np.arange(2))
    assert math.dist(*steps.tolist()) == pytest.approx(2 * mechanism.noise.steps, rel=1e-4)


def test_a_matrix_is_half_as_noisy_as_any_vector_of_norm_one():
    pair = score_mechanisms(None, GaussianDP(0.7), P)
    assert pair.matrix.variance == pytest.approx(pair.score.variance / 2, rel=1e-4)
    assert pair.guarantee == GaussianDP(pair.guarantee.mu)
    assert pair.guarantee.mu <= 0.7
    for currency in ("gdp", "rho"):
        costs = [mechanism.cost(currency) for mechanism in (pair.score, pair.matrix)]
        assert all(cost <= pair.cost(currency) for cost in costs)


@pytest.mark.parametrize("guarantee", [PureDP(2.0), ApproxDP(1.0, 1e-6)])
def test_other_guarantees_take_other_mechanisms(guarantee):
    pair = score_mechanisms(None, guarantee, P)
    vectors = np.tile([0.6, -0.8, 0.0], (20_000, 1))
    payload = pair.matrix.randomize(vectors, SimulatedNoise(4), np.arange(len(vectors)))
    found = pair.matrix.decode(payload).mean(axis=0)
    # A mean of 20,000 of this variance; beyond 5 of its standard deviations once in 10^5 times for all six.
    assert np.max(np.abs(found - outer(vectors[:1], P)[0])) < 5 * math.sqrt(pair.matrix.variance / len(vectors))


def test_it_is_unbiased():
    mechanism = OuterGaussian.calibrate(GaussianDP(4.0), features=P)
    vectors = np.tile([0.5, -0.5, 0.1], (20_000, 1))
    found = mechanism.decode(mechanism.randomize(vectors, SimulatedNoise(2), np.arange(len(vectors))))
    tolerance = 5 * math.sqrt(mechanism.variance / len(vectors))
    assert np.max(np.abs(found.mean(axis=0) - outer(vectors[:1], P)[0])) < tolerance
    # The twin: as if off-diagonal numbers were not multiplied by sqrt 2.
    wrong = outer(vectors[:1], P)[0] / np.where(np.array([1, 0, 0, 1, 0, 1]) == 1, 1.0, math.sqrt(2.0))
    assert np.max(np.abs(found.mean(axis=0) - wrong)) > tolerance


def test_matrices_and_vectors_have_one_length():
    vectors = np.array([[0.6, -0.3, 0.5], [3.0, 4.0, np.nan]])
    first, second = outer(vectors, P)
    assert len(first) == matrix_size(P)
    assert np.linalg.norm(first) == pytest.approx(np.sum(vectors[0] ** 2))
    assert symmetric(first, P) == pytest.approx(np.outer(vectors[0], vectors[0]))
    assert symmetric(second, P) == pytest.approx(np.outer([0.6, 0.8, 0.0], [0.6, 0.8, 0.0]))


def test_a_budget_that_no_lattice_expresses_is_refused():
    with pytest.raises(UserError, match="larger budget"):
        OuterGaussian.calibrate(GaussianDP(4e-6), features=P)
    with pytest.raises(UserError, match=r"\(m, 3\)"):
        outer(np.ones((1, 4)), P)
