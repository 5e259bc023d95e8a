"""The numbers of a release: their layout, and how far two records' can be apart."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murk.errors import UserError
from murk.protocols.moments.statistics import Statistics, balanced, sensitivity


def layout(p=4, constant=True, **more):
    return Statistics(tuple(f"x{i}" for i in range(p)), **{"radius": 2.0, "constant": constant, **more})


def records(rng, m, p, r, constant):
    """Records within the bounds, half of them at them."""
    k = p - constant
    u = rng.normal(size=(m, k))
    u *= (math.sqrt(r * r - constant) * np.where(rng.random(m) < 0.5, 1, rng.random(m)) / np.linalg.norm(u, axis=1))[
        :, None
    ]
    X = np.column_stack([u, np.ones(m)]) if constant else u
    return X, np.where(rng.random(m) < 0.5, np.sign(rng.normal(size=m)), rng.uniform(-1, 1, m))


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("root", [1.0, math.sqrt(2.0)])
def test_means_of_vectors_give_the_moments_back(constant, root):
    X, y = records(np.random.default_rng(1), 50, 4, 2.0, constant)
    shape = layout(constant=constant, root=root, weight=3.0)
    vectors = shape.vectors(X, y)
    assert vectors.shape == (50, shape.dimension)
    matrix, cross = shape.matrices(vectors.mean(axis=0))
    np.testing.assert_allclose(matrix, X.T @ X / 50, rtol=0, atol=1e-12)
    np.testing.assert_allclose(cross, X.T @ y / 50, rtol=0, atol=1e-12)


def test_the_public_entry_is_not_released():
    assert (layout(2).dimension, layout(2, constant=False).dimension) == (4, 5)
    assert layout(2).entry_variances(1.0).tolist() == [[1.0, pytest.approx(0.5)], [pytest.approx(0.5), 0.0]]


@given(
    p=st.integers(2, 4), r=st.floats(1.1, 4), b=st.floats(0.1, 8), constant=st.booleans(), seed=st.integers(0, 2**32)
)
def test_no_two_records_are_further_apart_than_the_sensitivity(p, r, b, constant, seed):
    shape = layout(p, constant, radius=r, weight=b)
    rng = np.random.default_rng(seed)
    X, y = records(rng, 400, p, r, constant)
    vectors = shape.vectors(X, y)
    # The worst pairs differ in the target's sign, at an angle whose cosine is b^2 / 2 r^2 at most.
    Z, z = records(rng, 400, p, r, constant)
    Z = np.where(rng.random((400, 1)) < 0.5, X + 0.3 * (Z - X), Z)
    others = shape.vectors(Z, -np.sign(y) * np.abs(z))
    assert np.linalg.norm(vectors - others, axis=1).max() <= shape.sensitivity * (1 + 1e-12)
    assert np.linalg.norm(vectors, axis=1).max() <= shape.norm * (1 + 1e-12)


@given(p=st.integers(2, 4), r=st.floats(1.01, 4), b=st.floats(0.1, 8), seed=st.integers(0, 2**32))
def test_a_missing_target_is_no_further_from_another_record_than_the_sensitivity(p, r, b, seed):
    shape = layout(p, radius=r, weight=b, observed=True)
    rng = np.random.default_rng(seed)
    X, y = records(rng, 200, p, r, True)
    y = np.where(rng.random(200) < 0.5, np.sign(y), y)
    with_target, without = shape.vectors(X, y), shape.vectors(X, np.full(200, np.nan))
    for one, other in ((with_target, without), (with_target, shape.vectors(X[::-1], -y[::-1])), (without, without)):
        assert np.linalg.norm(one - other, axis=1).max() <= shape.sensitivity * (1 + 1e-12)
    assert np.linalg.norm(np.concatenate([with_target, without]), axis=1).max() <= shape.norm * (1 + 1e-12)
    # Who has no target tells nothing else.
    assert len(np.unique(without, axis=0)) == 1


@pytest.mark.parametrize("r", [1.01, math.sqrt(2), 3.0])
def test_telling_who_has_a_target_costs_nothing_at_the_balanced_scale(r):
    one = layout(2, radius=r, weight=balanced(r), observed=True)
    assert one.sensitivity == layout(2, radius=r, weight=balanced(r)).sensitivity
    # A smaller scale of the target pays for it, as the second bound says.
    assert layout(2, radius=r, weight=0.01, observed=True).sensitivity >= 2.0 * one.presence


def test_moments_of_the_records_with_a_target():
    shape = layout(2, radius=2.0, weight=3.0, observed=True)
    vectors = shape.vectors(np.array([[0.5, 1.0], [0.7, 1.0], [9.0, 1.0]]), np.array([-1.0, np.nan, 0.5]))
    assert vectors[0] == pytest.approx([0.25, math.sqrt(2) * 0.5, 2.0, -1.5, -3.0])
    assert vectors[1].tolist() == [0.0, 0.0, -2.0, 0.0, 0.0]
    matrix, cross = shape.matrices(vectors[:2].mean(axis=0))
    assert matrix == pytest.approx(np.array([[0.125, 0.25], [0.25, 0.5]]))
    assert cross == pytest.approx([-0.25, -0.5])
    assert shape.share(vectors.mean(axis=0)) == pytest.approx(2 / 3)
    with pytest.raises(UserError, match="without the constant"):
        layout(2, False, observed=True)


def test_what_is_not_told_leaves_fingerprints_as_they_were():
    """States of joint releases go on: this is the one that they carry since 0.3."""
    assert Statistics(("a", "b", "1"), 2.0, 1.5).digest == "f1909a094888c446"
    assert Statistics(("a", "b", "1"), 2.0, 1.5, observed=True).digest != "f1909a094888c446"


@pytest.mark.parametrize(("r", "b"), [(1.0, 1.0), (1.0, 0.3), (2.0, balanced(2.0)), (1.0, 3.0)])
def test_the_sensitivity_is_reached(r, b):
    """Brute force over the angle: the bound is the largest distance, not only above it."""
    angles = np.linspace(0, math.pi, 20_001)
    X = r * np.column_stack([np.cos(angles), np.sin(angles)])
    shape = layout(2, False, radius=r, weight=b)
    far = shape.vectors(X, -np.ones(len(X))) - shape.vectors(X[:1], np.ones(1))
    # A step of pi / 20,000 changes the distance by less than 1e-7 of itself at its largest.
    assert np.linalg.norm(far, axis=1).max() == pytest.approx(sensitivity(r, b), rel=1e-7)
    assert sensitivity(1.0, 1.0) == pytest.approx(2.1213, abs=5e-5)


def test_another_factor_off_the_diagonal_breaks_the_bound():
    """The twin: with 2 in place of sqrt 2 the brute force finds records further apart than the formula says."""
    angles = np.linspace(0, math.pi, 2001)
    X = np.column_stack([np.cos(angles), np.sin(angles)])
    wrong = layout(2, False, radius=1.0, weight=0.3, root=2.0)
    vectors = np.concatenate([wrong.vectors(X, -np.ones(len(X))), wrong.vectors(X, np.ones(len(X)))])
    apart = max(np.linalg.norm(vectors - one, axis=1).max() for one in vectors[::50])
    assert apart > 1.3 * sensitivity(1.0, 0.3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300, -1e300])
@pytest.mark.parametrize("zero", [True, False])
def test_whatever_a_record_says_it_has_moments_within_the_bounds(value, zero):
    shape = layout(3, zero=zero, weight=2.0)
    X = np.array([[value, 0.5, 1.0], [0.5, value, 1.0], [value, value, 1.0], [0.1, 0.2, 1.0]])
    vectors = shape.vectors(X, np.array([1.0, value, value, value]))
    assert np.all(np.isfinite(vectors))
    assert np.all(np.linalg.norm(vectors, axis=1) <= shape.norm * (1 + 1e-12))


def test_beyond_the_bound_is_scaled_or_becomes_zero():
    X, y = np.array([[3.0, 4.0, 1.0], [0.0, 0.0, 1.0]]), np.array([1.0, 0.0])
    scaled = layout(3, radius=math.sqrt(2.0)).vectors(X, y)
    np.testing.assert_allclose(scaled[0], layout(3).vectors(np.array([[0.6, 0.8, 1.0]]), y[:1])[0], atol=1e-12)
    zeros = layout(3, radius=math.sqrt(2.0), zero=True).vectors(X, y)
    assert np.array_equal(zeros[0], zeros[1])


def test_wrong_bounds_are_refused():
    with pytest.raises(UserError, match="above 1"):
        layout(radius=1.0)
    with pytest.raises(UserError, match="scale"):
        layout(weight=0.0)
