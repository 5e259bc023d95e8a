import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murk.privacy.mechanisms import lattice
from murk.privacy.mechanisms.lattice import GAUSSIAN, L2BALL, LAPLACE, PRIVUNIT, _shrink_l1, _shrink_l2
from murk.privacy.noise import SimulatedNoise

ALL = 2**64 - 1
NONE = np.zeros(3, dtype=np.uint64)

steps_and_size = st.tuples(st.integers(1, 2**31 - 1), st.integers(1, 40)).filter(
    lambda pair: pair[1] * pair[0] ** 2 < 2**63
)
anything = st.floats(width=64, allow_nan=True, allow_infinity=True)


def quantise(norm: int, v: npt.ArrayLike, spacing: float, steps: int) -> list[int]:
    vector = np.asarray(v, dtype=np.float64)
    out = np.full(len(vector), 77, dtype=np.int64)
    (lattice.quantise_l2 if norm == 2 else lattice.quantise_l1)(vector, spacing, steps, out)
    return [int(q) for q in out]


def within(norm: int, q: list[int], steps: int) -> bool:
    return sum(x * x for x in q) <= steps**2 if norm == 2 else sum(map(abs, q)) <= steps


@pytest.mark.parametrize("norm", [1, 2])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data(), pair=steps_and_size, spacing=st.floats(1e-300, 1e300))
def test_any_vector_ends_within_the_bound(
    norm: int, data: st.DataObject, pair: tuple[int, int], spacing: float
) -> None:
    """NaN, infinities, huge, subnormal and honest values alike; the bound is checked in Python's integers."""
    steps, size = pair
    near = st.floats(-1.0, 1.0).map(lambda share: share * spacing * steps)
    v = data.draw(st.lists(st.one_of(anything, near), min_size=size, max_size=size))
    q = quantise(norm, v, spacing, steps)
    assert within(norm, q, steps)
    for value, integer in zip(v, q, strict=True):
        # The sign is kept or lost, never turned; NaN has none.
        assert integer == 0 or (integer > 0) == (value > 0)
        assert integer == 0 or not math.isnan(value)


@pytest.mark.parametrize("norm", [1, 2])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data(), pair=steps_and_size, radius=st.floats(1e-6, 1e6), share=st.floats(0, 1))
def test_an_honest_vector_changes_by_less_than_a_step(
    norm: int, data: st.DataObject, pair: tuple[int, int], radius: float, share: float
) -> None:
    steps, size = pair
    direction = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=size, max_size=size)))
    length = np.linalg.norm(direction, norm)
    if length < 1e-3:
        direction, length = np.eye(size)[0], 1.0
    v = direction / length * (radius * share * (1 - 2.0**-39))
    spacing = radius / steps
    for value, integer in zip(v.tolist(), quantise(norm, v, spacing, steps), strict=True):
        exact = Fraction(value) / Fraction(spacing)
        # Less than a step, towards zero, up to the rounding of one division.
        assert abs(integer - exact) < 1
        assert abs(integer) <= abs(exact) * (1 + Fraction(2) ** -52)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("steps", [1, 10, 12345, 2**31 - 1])
def test_at_the_very_bound(norm: int, steps: int) -> None:
    """Vectors whose norm rounds to the bound, or a little above it, lose at most two steps a coordinate."""
    generator = np.random.default_rng(steps)
    for size in (1, 2, 3):
        if size * steps**2 >= 2**63:
            continue
        for _ in range(200):
            v = generator.normal(size=size)
            v /= np.linalg.norm(v, norm)
            for factor in (1.0, 1 + 2.0**-52, 1 + 2.0**-45):
                q = quantise(norm, v * 1.7 * factor, 1.7 / steps, steps)
                assert within(norm, q, steps)
                assert np.abs(np.array(q) - v * steps).max() <= 2
    axis = quantise(norm, [1.7], 1.7 / steps, steps)
    assert steps - 1 <= axis[0] <= steps


@pytest.mark.parametrize(
    ("v", "l2", "l1"),
    [
        ([3.0, 4.0], [3, 4], [3, 4]),
        ([30.0, 40.0], [6, 8], [4, 5]),
        ([-3e300, 4e300], [-6, 8], [-4, 5]),
        ([math.inf, 5.0], [10, 0], [10, 0]),
        ([math.inf, -math.inf], [7, -7], [5, -5]),
        ([math.nan, 4.9], [0, 4], [0, 4]),
        ([math.nan, math.inf], [0, 10], [0, 10]),
        ([math.nan, math.nan], [0, 0], [0, 0]),
        ([0.0, -0.0], [0, 0], [0, 0]),
        ([5e-324, -5e-324], [0, 0], [0, 0]),
        ([-0.99, 0.99], [0, 0], [0, 0]),
        ([10.0, 0.5], [10, 0], [9, 0]),
    ],
)
def test_examples(v: list[float], l2: list[int], l1: list[int]) -> None:
    assert quantise(2, v, 1.0, 10) == l2
    assert quantise(1, v, 1.0, 10) == l1


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("spacing", [1e-310, 1e-200, 1e200, 1e299])
def test_lattices_at_the_ends_of_the_floats(norm: int, spacing: float) -> None:
    """Where squares overflow or underflow: the result is that of an ordinary spacing (and comes at once)."""
    steps = 2**28
    ordinary = np.array([0.9, -0.3, 0.2, 0.7]) * steps
    for factor in (1.0, 0.5):
        expected = quantise(norm, ordinary * factor, 1.0, steps)
        assert np.abs(np.array(quantise(norm, ordinary * factor * spacing, spacing, steps)) - expected).max() <= 1
    assert quantise(norm, [math.inf, 1.0, 0.0, math.nan], spacing, steps) == [steps, 0, 0, 0]
    assert within(norm, quantise(norm, [spacing * steps] * 4, spacing, steps), steps)


def test_the_shrink_is_in_integers() -> None:
    # Three too many, of 2^62: no float can tell.
    steps = 2**31 - 1
    assert (steps - 1) ** 2 + 65536**2 == steps**2 + 3
    assert float((steps - 1) ** 2 + 65536**2) == float(steps**2)
    out = np.array([steps - 1, -65536], dtype=np.int64)
    _shrink_l2(steps, out)
    assert out.tolist() == [steps - 2, -65536]
    out = np.array([-7, 7, 1], dtype=np.int64)
    _shrink_l1(13, out)
    assert out.tolist() == [-6, 6, 1]


def randomize(
    kind: int,
    v: npt.ArrayLike,
    noise: npt.ArrayLike,
    coins: npt.ArrayLike = NONE,
    *,
    steps: int = 10,
    threshold: int = 0,
) -> list[int]:
    vector = np.asarray(v, dtype=np.float64)
    out = np.full(len(vector), 77, dtype=np.int64)
    lattice.randomize(
        kind,
        vector,
        (1.0, 1.0 / steps if kind < L2BALL else 0.0, steps if kind != L2BALL else 0, np.uint64(threshold)),
        np.asarray(noise, dtype=np.int64),
        np.asarray(coins, dtype=np.uint64),
        out,
    )
    return [int(q) for q in out]


def test_additive_noise_is_added_to_the_quantised_vector() -> None:
    assert randomize(GAUSSIAN, [0.61, -0.32], [100, -7]) == [106, -10]
    assert randomize(LAPLACE, [0.6, -0.72], [0, 0]) == [4, -5]
    assert randomize(GAUSSIAN, [math.nan, math.inf], [5, 5]) == [5, 15]


@pytest.mark.parametrize("coin", [0, 1, 2**63 - 1, 2**63, 3 * 2**62 - 1, 3 * 2**62, ALL])
@pytest.mark.parametrize("threshold", [2**63, 3 * 2**62])
def test_the_ball_coin_is_an_exact_comparison(coin: int, threshold: int) -> None:
    # The vector is as long as the radius, so that the rounding keeps its direction whatever the first word.
    for rounding in (0, 2**63, ALL):
        for v, noise in (([1.0, 0.0], [3, -4]), ([0.0, 1.0], [3, -4]), ([-math.inf, 1.0], [3, 4])):
            towards = 1 if np.dot(np.clip(v, -1e9, 1e9), noise) > 0 else -1
            sign = towards if coin < threshold else -towards
            found = randomize(L2BALL, v, noise, [rounding, coin, 0], threshold=threshold)
            assert found == [sign * x for x in noise]


def test_the_ball_rounds_shorter_vectors_in_proportion() -> None:
    # Norm 0.5: with the vector for the first 3/4 of the words.
    for word, kept in ((0, True), (3 * 2**62 - 2**11, True), (3 * 2**62, False), (ALL, False)):
        found = randomize(L2BALL, [0.5, 0.0], [3, -4], [word, 0, 0], threshold=2**63)
        assert found == ([3, -4] if kept else [-3, 4])


@pytest.mark.parametrize("v", [[0.0, 0.0], [math.nan, math.nan], [math.nan, 0.0]])
def test_the_ball_of_a_vector_without_direction(v: list[float]) -> None:
    for third, sign in ((0, -1), (2**63 - 1, -1), (2**63, 1), (ALL, 1)):
        assert randomize(L2BALL, v, [3, -4], [5, 0, third], threshold=2**63) == [sign * 3, sign * -4]
        # It goes through the coin as well.
        assert randomize(L2BALL, v, [3, -4], [5, ALL, third], threshold=2**63) == [-sign * 3, sign * 4]


def test_the_ball_of_noise_without_direction() -> None:
    assert randomize(L2BALL, [0.0, -1.0], [0, 0], [0, 0, ALL], threshold=2**63) == [1, 0]
    assert randomize(L2BALL, [-1.0], [0], [0, 0, 0], threshold=2**63) == [-1]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(v=st.lists(anything, min_size=1, max_size=12), seed=st.integers(0, 2**32), kind=st.sampled_from([0, 1, 2]))
def test_no_vector_raises(v: list[float], seed: int, kind: int) -> None:
    """And the ball's output is the noise or its opposite, whatever the vector."""
    noise = SimulatedNoise(seed)
    draws, coins = noise.gaussian([0], len(v))[0], noise.words([0], 3, 2)[0]
    found = randomize(kind, v, draws, coins, steps=1000, threshold=2**63 + 12345)
    if kind == L2BALL:
        assert found in (draws.tolist(), (-draws).tolist())
    else:
        assert within(2 if kind == GAUSSIAN else 1, [x - n for x, n in zip(found, draws.tolist(), strict=True)], 1000)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_the_ball_is_unbiased(size: int) -> None:
    """Mean of 40,000 decoded releases: each score beyond 5.5 has probability 4 x 10^-8.

    B = r (e^eps + 1) / (e^eps - 1) sqrt(pi)/2 d Gamma((d-1)/2 + 1) / Gamma(d/2 + 1), at eps = 1, r = 1. The
    twin is decoded with 1.3 B.
    """
    count, odds = 40_000, math.e
    threshold = int(Fraction(odds / (1 + odds)) * 2**64)
    gammas = math.exp(math.lgamma((size - 1) / 2 + 1) - math.lgamma(size / 2 + 1))
    ball = (odds + 1) / (odds - 1) * math.sqrt(math.pi) / 2 * size * gammas
    v = np.linspace(-0.5, 0.6, size)
    noise = SimulatedNoise(size)
    draws, coins = noise.gaussian(range(count), size), noise.words(range(count), 3, 2)
    payload, decoded = np.empty(size, dtype=np.int64), np.empty((count, size))
    for i in range(count):
        lattice.randomize(L2BALL, v, (1.0, 0.0, 0, np.uint64(threshold)), draws[i], coins[i], payload)
        lattice.decode(L2BALL, payload, ball, decoded[i])
    np.testing.assert_allclose(np.linalg.norm(decoded, axis=1), ball, rtol=1e-12)
    error = math.sqrt(count) / decoded.std(axis=0)
    assert np.abs((decoded.mean(axis=0) - v) * error).max() < 5.5
    assert np.abs((1.3 * decoded.mean(axis=0) - v) * error / 1.3).max() > 5.5


def test_decoding() -> None:
    out = np.empty(2)
    for kind in (GAUSSIAN, LAPLACE):
        lattice.decode(kind, np.array([3, -(2**40)]), 2.0**-20, out)
        assert out.tolist() == [3 * 2.0**-20, -(2.0**20)]
    lattice.decode(PRIVUNIT, np.array([3, -4]), 10.0, out)
    assert out.tolist() == [6.0, -8.0]
    lattice.decode(L2BALL, np.array([3, -4]), 10.0, out)
    assert out.tolist() == [6.0, -8.0]
    lattice.decode(L2BALL, np.array([2**62, 2**62]), math.sqrt(2), out)
    np.testing.assert_allclose(out, 1.0, rtol=1e-15)
    lattice.decode(L2BALL, np.array([0, 0]), 10.0, out)
    assert out.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("shrink", "steps", "vector", "expected"),
    [
        (_shrink_l1, 5, [3, -2], [3, -2]),
        (_shrink_l1, 4, [3, -2], [2, -2]),
        (_shrink_l1, 2, [3, -2], [1, -1]),
        (_shrink_l2, 5, [3, -4], [3, -4]),
        (_shrink_l2, 4, [3, -4], [2, -3]),
        (_shrink_l2, 0, [-1, 1], [0, 0]),
    ],
)
def test_a_vector_is_shortened_by_single_steps_and_no_further_than_the_bound(
    shrink: Any, steps: int, vector: list[int], expected: list[int]
) -> None:
    out = np.array(vector, dtype=np.int64)
    shrink(steps, out)
    assert out.tolist() == expected
