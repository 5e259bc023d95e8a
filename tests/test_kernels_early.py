"""Kernels that are interpreted until compiling pays give the same bits either way, whatever they are given."""

import math

import numpy as np
import pytest

from murk.privacy.mechanisms import lattice, outer_product
from murk.privacy.noise import SimulatedNoise
from murk.privacy.noise.kernels import Purpose
from murk.protocols.examples import device_kernels, layout
from murk.protocols.linear_algebra import contrasts
from murk.protocols.moments import kernels as second_moments
from murk.protocols.scores import kernels as scores

ODD = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e200, 5e-324, -1e-310, 0.0, -0.0]
RECORDS = 300


def both(kernel, *args, out):
    """What a kernel writes when it is interpreted, and compiled."""
    found = []
    for work in (kernel.early, kernel.compiled):
        result = np.full_like(out, 77)
        work(*args, result)
        found.append(result)
    return found


def rows(rng, count, size):
    """Rows of ordinary numbers, and rows with odd ones among them."""
    found = rng.normal(size=(count, size)) * 10.0 ** rng.integers(-3, 4, size=(count, 1))
    strange = rng.random((count, size)) < 0.2
    strange[: count // 3] = False
    found[strange] = rng.choice(ODD, strange.sum())
    return found


@pytest.mark.parametrize("code", [lattice.GAUSSIAN, lattice.LAPLACE, lattice.L2BALL, lattice.PRIVUNIT])
@pytest.mark.parametrize(("spacing", "steps"), [(1e-3, 1000), (1e-300, 5), (1e290, 2**30)])
def test_payloads(code, spacing, steps):
    rng = np.random.default_rng([code, steps])
    size, draws = 7, 5 if code == lattice.PRIVUNIT else 1
    with np.errstate(over="ignore", invalid="ignore"):
        vectors = rows(rng, RECORDS, size) * (spacing * steps)
    people = np.arange(RECORDS)
    noise = SimulatedNoise(3).gaussian(people, draws * size)
    noise[::50] = 0
    coins = SimulatedNoise(3).words(people, 3, Purpose.COIN)
    how = (1.5 * spacing * steps, spacing, 2 if draws > 1 else steps, np.uint64(2**63 + 2**61))
    found = both(lattice.randomize_block, code, vectors, how, noise, coins, out=np.empty((RECORDS, size), np.int64))
    np.testing.assert_array_equal(*found)
    decoded = both(lattice.decode_block, code, found[0], 0.3, out=np.empty((RECORDS, size)))
    np.testing.assert_array_equal(*(one.view(np.int64) for one in decoded))


def numbers(found):
    """Bit for bit, but which NaN it is."""
    assert not np.isnan(found).any(), "what is not finite counts as 0"
    return found.view(np.int64)


@pytest.mark.parametrize("query", [0, 1, 2])
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("exponent", [0.0, 0.3, 1.0])
def test_scores(query, binary, exponent):
    rng = np.random.default_rng([query, binary])
    p = 5
    X, y = rows(rng, RECORDS, p), rng.choice([0.0, 1.0, -1.0, 0.4, 3.0, np.nan, np.inf], RECORDS)
    origin, transform = rng.normal(size=p), rng.normal(size=(p, p))
    how = origin, transform, 2.0, exponent, binary, query
    found = both(scores.vectors, X, y, *how, out=np.empty((RECORDS, p)))
    np.testing.assert_array_equal(*map(numbers, found))
    assert np.count_nonzero(found[0]) > RECORDS


def test_scores_of_classes():
    rng = np.random.default_rng(4)
    p, classes = 4, 3
    X, y = rows(rng, RECORDS, p), rng.choice([0.0, 1.0, 2.0, 3.0, -1.0, np.nan], RECORDS)
    how = rng.normal(size=2 * p), rng.normal(size=(p, p)), 2.0, 0.7, contrasts(classes)
    found = both(scores.class_scores, X, y, *how, out=np.empty((RECORDS, 2 * p)))
    np.testing.assert_array_equal(*map(numbers, found))
    assert np.count_nonzero(found[0]) > RECORDS


def test_matrices():
    found = both(outer_product.write_outer, rows(np.random.default_rng(5), RECORDS, 6), out=np.empty((RECORDS, 21)))
    np.testing.assert_array_equal(*map(numbers, found))
    assert np.count_nonzero(found[0]) > RECORDS


def test_matrices_with_noise():
    given = rows(np.random.default_rng(5), RECORDS, 6)
    noise = SimulatedNoise(3).gaussian(np.arange(RECORDS), 21)
    found = both(outer_product.write_noisy_outer, given, 1e-3, noise, out=np.empty((RECORDS, 21), dtype=np.int64))
    np.testing.assert_array_equal(*found)
    assert np.count_nonzero(found[0] - noise) > RECORDS


def test_another_rounding_would_be_seen():
    """The twin: sums in another order."""

    def summed(X, out):
        out[:] = X.sum(axis=1)

    def one_by_one(X, out):
        out[:] = 0.0
        for j in range(X.shape[1]):
            out += X[:, j]

    X = np.random.default_rng(6).normal(size=(RECORDS, 9))
    found = np.empty((2, RECORDS))
    summed(X, found[0])
    one_by_one(X[:, ::-1], found[1])
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(*map(numbers, found))


@pytest.mark.parametrize(("constant", "zero"), [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("presence", [0.0, 2.5])
def test_moments(constant, zero, presence):
    rng = np.random.default_rng([constant, zero])
    p, size = 4, 10 + 4
    X, y = rows(rng, RECORDS, p), rng.choice([0.4, -1.0, 3.0, np.nan, np.inf], RECORDS)
    X[:, -1] = 1.0
    bounds = 2.0, constant, zero, math.sqrt(2.0), 1.7, presence
    vectors = both(second_moments.moments_of, X, y, bounds, out=np.empty((RECORDS, size)))
    np.testing.assert_array_equal(*(one.view(np.int64) for one in vectors))
    noise = SimulatedNoise(3).gaussian(np.arange(RECORDS), size)
    how = np.nan_to_num(vectors[0]), p, bounds, 1e-3, noise
    found = both(second_moments.randomize_block, *how, out=np.empty((RECORDS, size), np.int64))
    np.testing.assert_array_equal(*found)
    assert np.count_nonzero(found[0] - noise) > RECORDS


FORMS = (layout.PRODUCT, layout.LABEL, layout.REAL, layout.DIRECTED_LABEL, layout.DIRECTED_REAL)


@pytest.mark.parametrize("form", FORMS)
def test_examples(form):
    rng = np.random.default_rng(form)
    X, y = rows(rng, RECORDS, 5), rng.choice([0.0, 1.0, 0.4, np.nan], RECORDS)
    found = both(device_kernels.to_vectors, form, 1, 1.5, X, y, out=np.empty((RECORDS, 7)))
    np.testing.assert_array_equal(*(one.view(np.int64) for one in found))


@pytest.mark.parametrize("form", [layout.OUTER_LABEL, layout.OUTER_REAL])
def test_outer_products(form):
    rng = np.random.default_rng(form)
    X, y = rows(rng, RECORDS, 5), rng.choice([0.0, 1.0, 0.4, np.nan], RECORDS)
    found = both(device_kernels.to_units, form, 1, 1.5, X, y, out=np.empty((RECORDS, 6)))
    np.testing.assert_array_equal(*map(numbers, found))
