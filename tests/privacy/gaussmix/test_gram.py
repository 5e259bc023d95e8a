"""Second moments with noise: the distance of neighbours, what is promised for it, and the noise's distribution."""

import copy
import json
import math
import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr

from murk.audit.release_distributions import Silence
from murk.errors import UserError
from murk.privacy import ApproxDP, GaussianDP, PureDP, ZeroConcentratedDP
from murk.privacy.central import GramAccumulator, GramMechanism
from murk.privacy.mechanisms.base import WIDTH
from murk.privacy.noise import SecureNoise, SimulatedNoise

REALS = st.floats(width=64, allow_nan=True, allow_infinity=True)
NUMBERS = st.one_of(REALS, st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-2.0, 2.0))
ROWS = st.lists(st.lists(NUMBERS, min_size=4, max_size=4), min_size=0, max_size=5)
KINDS = ("zero-out", "replace-one")


def made(guarantee=None, columns=4, **more):
    settings = {"columns": columns, "feature_bound": math.sqrt(3), "target_bound": 1.0, **more}
    return GramMechanism.calibrate(guarantee or GaussianDP(1.0), **settings)


def places(mechanism, rows):
    """Where the release of a window is centred, as Python's integers."""
    window = GramAccumulator(mechanism, Silence(), 0)
    window.add_block(np.reshape(np.array(rows, dtype=float), (-1, mechanism.columns)))
    return [int(one) for one in window.release().integers]


def apart(mechanism, first, second):
    pairs = zip(places(mechanism, first), places(mechanism, second), strict=True)
    return sum((one - other) ** 2 for one, other in pairs)


MECHANISMS = {
    (kind, mu, bounds): made(GaussianDP(mu), neighbours=kind, feature_bound=bounds[0], target_bound=bounds[1])
    for kind in KINDS
    for mu in (1e-4, 0.3, 40.0)
    for bounds in ((math.sqrt(3), 1.0), (0.7, 1e6), (1e-9, 3e-3))
}


@pytest.mark.parametrize("case", MECHANISMS, ids=str)
@settings(max_examples=40, deadline=None)
@given(rows=ROWS, one=st.lists(NUMBERS, min_size=4, max_size=4), other=st.lists(NUMBERS, min_size=4, max_size=4))
def test_neighbours_are_never_further_apart_than_the_noise_is_for(case, rows, one, other):
    """In integers, whatever the values: the guarantee is that of sums at most 2 steps apart."""
    mechanism, (_, _, (x, y)) = MECHANISMS[case], case
    scaled = [[value * x for value in row[:3]] + [row[3] * y] for row in (*rows, one, other)]
    first = [*scaled[:-2], scaled[-2]]
    second = [*scaled[:-2], [0.0] * 4 if mechanism.neighbours == "zero-out" else scaled[-1]]
    assert apart(mechanism, first, second) <= (2 * mechanism.noise.steps) ** 2


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_is_reached(kind):
    """Noise for less would break the promise: the longest row, or two long ones at right angles."""
    mechanism = made(neighbours=kind)
    far = 1e9
    second = [0.0] * 4 if kind == "zero-out" else [far, far, -far, -far]
    if kind == "replace-one":
        # Of squared lengths 3 and 3/2 in the release's coordinates: features at right angles to (1, 1, 1)
        # by -1/3 of the cosine, and targets of the other sign make up for it partly.
        second = [far, -far, 0.0, far]
    distance = math.sqrt(apart(mechanism, [[far, far, far, far]], [second]))
    assert distance <= 2 * mechanism.noise.steps
    assert distance > (0.999 if kind == "zero-out" else 0.9) * 2 * mechanism.noise.steps
    # Not so of a mechanism with 1% less noise.
    assert 1.12 * distance > 2 * mechanism.noise.steps


def test_a_replaced_row_is_as_far_as_it_is_said():
    zeroed, replaced = made(), made(neighbours="replace-one")
    assert replaced.scale == pytest.approx(math.sqrt(2) * zeroed.scale, rel=1e-4)
    assert zeroed.replace_one().mu == pytest.approx(math.sqrt(2), rel=1e-9)
    assert zeroed.replace_one().mu >= math.sqrt(2)
    assert made(ZeroConcentratedDP(0.1)).replace_one().rho == pytest.approx(0.2, rel=1e-9)
    assert made(ZeroConcentratedDP(0.1)).replace_one().rho >= 0.2
    assert replaced.replace_one() == replaced.guarantee


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (4.0, 1e-5)])
def test_the_noise_is_that_of_the_exact_curve(epsilon, delta):
    """By the curve of a normal distribution, whose delta is the claim's at its epsilon; above it with less noise."""
    mechanism = made(ApproxDP(epsilon, delta))

    def curve(mu):
        return ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))

    mu = mechanism.noise.guarantee.mu
    assert curve(mu) <= delta * (1 + 1e-9)
    assert curve(1.01 * mu) > delta
    # Its standard deviation is C_X^2 (1 + 1/2) / mu, but for the lattice.
    assert mechanism.scale * mu == pytest.approx(4.5, rel=1e-3)
    wider = made(ApproxDP(epsilon, delta), neighbours="replace-one")
    stated, replaced = mechanism.guarantee, mechanism.replace_one()
    assert (stated, wider.guarantee, wider.replace_one()) == (ApproxDP(epsilon, delta),) * 3
    assert replaced.delta == delta
    assert epsilon < replaced.epsilon < 2 * epsilon


def test_what_it_costs_is_what_gaussian_noise_costs():
    mechanism = made(ApproxDP(1.0, 1e-6))
    assert [type(claim) for claim in mechanism.guarantees] == [GaussianDP, ZeroConcentratedDP, ApproxDP]
    assert mechanism.cost("gdp") == mechanism.noise.cost("gdp")
    assert str(mechanism.cost("approx")) == str(made(ApproxDP(1.0, 1e-6)).cost("approx"))
    with pytest.raises(UserError, match="none of which is stated"):
        made().cost("approx")
    assert json.loads(json.dumps(mechanism.to_dict()))["stated"] == {"approx": {"epsilon": 1.0, "delta": 1e-6}}


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"guarantee": PureDP(1.0)}, "cannot give"),
        ({"columns": 1}, "not from 2"),
        ({"columns": 5000}, "to 4096"),
        ({"columns": 2.5}, "not an integer"),
        ({"feature_bound": 0.0}, "feature_bound=0.0 is not a bound"),
        ({"target_bound": math.nan}, "target_bound=nan is not a bound"),
        ({"neighbours": "any"}, "unknown neighbours 'any'"),
        ({"guarantee": GaussianDP(6e-6)}, "less than a lattice can express"),
    ],
)
def test_mistakes_are_named(settings, match):
    with pytest.raises(UserError, match=match):
        made(**settings)


def window(rows=None, noise=None, number=0, mechanism=None):
    accumulator = GramAccumulator(mechanism or made(), noise or SimulatedNoise(3), number)
    if rows is not None:
        accumulator.add_block(rows)
    return accumulator


def some_rows(count=500, seed=1):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.uniform(-1, 1, (count, 2)), np.ones(count), rng.choice([-1.0, 1.0], count)])


def test_without_noise_it_is_the_gram_matrix():
    rows, mechanism = some_rows(), made()
    released = window(rows, Silence()).release()
    # Rounded to the lattice of the noise, and rows to their grid.
    assert np.allclose(mechanism.decode(released.integers), rows.T @ rows, atol=2e-3 * mechanism.scale)
    assert (released.records, released.simulated) == (500, True)


def test_however_rows_come_it_is_the_same_to_the_bit():
    rows = some_rows()
    whole = window(rows).release().integers
    parts = window()
    for start in range(0, 500, 7):
        parts.add_block(rows[start : start + 7])
    assert np.array_equal(parts.release().integers, whole)
    assert np.array_equal(window(rows[::-1]).release().integers, whole)
    assert not np.array_equal(window(rows, number=1).release().integers, whole)


def test_sums_beyond_64_bits_are_carried_over(monkeypatch):
    from murk.privacy.central import accumulators as totals

    rows = some_rows()
    whole = window(rows).release().integers
    monkeypatch.setattr(totals, "_ROWS", 3)
    assert np.array_equal(window(rows).release().integers, whole)


def test_rows_that_are_no_numbers_are_rows_of_zeros():
    rows = some_rows(5)
    spoiled = np.vstack([rows, np.full((2, 4), 0.5)])
    spoiled[5, 0], spoiled[6, 3] = math.nan, math.inf
    zeros = np.vstack([rows, np.zeros((2, 4))])
    first, second = window(spoiled).release(), window(zeros).release()
    assert np.array_equal(first.integers, second.integers)
    assert first.records == second.records == 7


def test_the_noise_has_the_stated_law():
    """200 windows of zeros: 2,000 normals. Chi-square at 6 standard errors (1 in 10^8); noise 20% off fails."""
    mechanism = made()
    found = np.array([window(noise=SimulatedNoise(1), number=i).release().integers for i in range(200)], dtype=float)
    scaled = np.array([mechanism.decode(one.astype(np.int64)) for one in found]) / mechanism.scale
    weights = np.array([1.0, 1.0, 1.0, mechanism.target_weight])
    upper = np.triu_indices(4)
    even = (scaled * np.outer(weights, weights))[:, *upper] * np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))

    def fits(draws):
        return abs(np.mean(draws**2) - 1.0) < 6.0 * math.sqrt(2.0 / draws.size)

    assert fits(even)
    assert not fits(1.2 * even)
    assert not fits(even / 1.2)
    assert np.all(np.abs(found) < 13 * WIDTH)


def test_it_is_released_once_and_wiped():
    accumulator = window(some_rows())
    secrets = list(accumulator._secrets())
    assert any(array.any() for array in secrets)
    accumulator.release()
    assert not any(array.any() for array in secrets)
    with pytest.raises(UserError, match="released once"):
        accumulator.release()
    with pytest.raises(UserError, match="released once"):
        accumulator.add_block(some_rows(1))


def test_it_is_neither_copied_nor_forked():
    accumulator = window(some_rows())
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(UserError, match="cannot be copied or stored"):
            attempt(accumulator)
    accumulator._pid = os.getpid() + 1
    with pytest.raises(UserError, match="fork"):
        accumulator.release()


def test_blocks_of_another_shape_are_refused():
    for rows in (np.ones((2, 3)), np.ones(4), [["a", 1, 1, 1]]):
        with pytest.raises(UserError, match="block"):
            window(rows)


def test_secure_noise_is_never_the_same():
    rows = some_rows()
    first, second = (window(rows, SecureNoise()).release() for _ in range(2))
    assert not first.simulated
    assert not np.array_equal(first.integers, second.integers)


def test_a_guarantee_that_the_noise_does_not_give_is_refused():
    mechanism = made()
    with pytest.raises(UserError, match="does not hold with steps"):
        GramMechanism(4, 1.0, 1.0, mechanism.noise, "zero-out", GaussianDP(0.99))
    assert GramMechanism(4, 1.0, 1.0, mechanism.noise).guarantee == mechanism.noise.guarantee


def test_decoding_needs_as_many_integers():
    with pytest.raises(UserError, match="has 10 integers"):
        made().decode(np.zeros(9, dtype=np.int64))
    with pytest.raises(UserError, match="has 10 integers"):
        made().decode(np.zeros(10))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [1, 3, 40])
def test_all_rows_of_a_person_are_no_further_apart_than_the_noise_is_for(kind, most):
    """The farthest that k rows can be: each at its bound, all alike. One row more is farther than is promised."""
    mechanism = made(neighbours=kind, rows_per_person=most)
    assert mechanism.guarantee == GaussianDP(1.0)
    assert mechanism.scale == pytest.approx(most * made(neighbours=kind).scale, rel=1e-12)
    far = 1e9
    own = [far, far, far, far]
    other = [0.0] * 4 if kind == "zero-out" else [far, -far, 0.0, far]
    distance = math.sqrt(apart(mechanism, [own] * most, [other] * most))
    assert distance <= 2 * mechanism.noise.steps
    more = math.sqrt(apart(mechanism, [own] * (most + 1), [other] * (most + 1)))
    if kind == "zero-out":
        assert more > 2 * mechanism.noise.steps


def test_rows_of_a_person_are_a_bounded_number_and_part_of_what_is_public():
    assert "rows_per_person" not in made().to_dict()
    assert made(rows_per_person=5).to_dict()["rows_per_person"] == 5
    for wrong in (0, -1, 10_001):
        with pytest.raises(UserError, match="rows_per_person"):
            made(rows_per_person=wrong)
