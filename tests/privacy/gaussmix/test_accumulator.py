"""The accumulator: what it computes, what it hides, and what it releases."""

import copy
import math
import os
import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from murk.errors import MurkError, UserError
from murk.privacy import ApproxDP, GaussMixMechanism, Sketch, SketchAccumulator
from murk.privacy.central import LARGEST_WINDOW, LEAST_SPREAD, kernels
from murk.privacy.central.kernels import Room, normals
from murk.privacy.noise import SecureNoise, SimulatedNoise

STATED = ApproxDP(1.0, 1e-5)


def mechanism(rows=40, columns=4, guarantee=STATED, **changes):
    bounds = {"feature_bound": 2.0, "target_bound": 1.0}
    return GaussMixMechanism.calibrate(guarantee, rows=rows, columns=columns, **bounds | changes)


MECHANISM = mechanism()


def data(n, columns=4, seed=0):
    """Rows within the bounds."""
    return np.random.default_rng(seed).uniform(-1, 1, size=(n, columns))


def sketched(rows, blocks=(), noise=None, window=0, settings=MECHANISM):
    accumulator = SketchAccumulator(settings, noise or SimulatedNoise(seed=7), window)
    for block in np.split(rows, blocks):
        accumulator.add_block(block)
    return accumulator


def mixing_matrix(accumulator, n):
    """S transposed: the normals of each row (n, k)."""
    k = accumulator.mechanism.rows
    room, out = Room.for_entries(k), np.empty((n, k))
    for start in range(0, n, room.rows):
        part = out[start : start + room.rows]
        room.fill(accumulator._key, start, len(part))
        normals(accumulator._key, start, 0, room.words, room.counter, room.spare, part)
    return out


def test_sums_are_those_of_the_matrices():
    rows = data(1000)
    accumulator = sketched(rows)
    mixed = mixing_matrix(accumulator, 1000).T @ rows
    # A thousand terms, each rounded to 2^-53 of sums below 100.
    np.testing.assert_allclose(accumulator._mixtures.T, mixed, atol=1e-11)
    np.testing.assert_allclose(np.triu(accumulator._moments), np.triu(rows.T @ rows), rtol=1e-12)
    assert accumulator.records == 1000


def test_released_sketch_is_the_mixture_plus_lattice_noise():
    """Noise on 160 entries: none beyond 6 standard deviations (3e-7), and their spread within 5.5 of its own."""
    rows = data(1000)
    accumulator = sketched(rows)
    mixed = mixing_matrix(accumulator, 1000).T @ rows
    sketch = accumulator.release()
    assert (sketch.rows, sketch.records, sketch.simulated) == (40, 1000, True)
    assert sketch.integers.dtype == np.int64
    assert not sketch.integers.flags.writeable
    assert np.abs(sketch.integers).max() <= MECHANISM.magnitude
    noise = (MECHANISM.decode(sketch.integers, sketch.spread) - mixed) / (sketch.spread * MECHANISM.bound)
    assert np.abs(noise).max() < 6
    assert abs(np.mean(noise**2) - 1) < 5.5 * math.sqrt(2 / 160)


@pytest.mark.parametrize("blocks", [[1], [3, 3, 10, 17, 600], list(range(1, 700)), [16, 32, 691]])
def test_the_same_however_rows_are_split(blocks):
    rows = data(700)
    rows[13], rows[690, 1] = 40.0, np.nan
    whole, parts = sketched(rows), sketched(rows, blocks)
    for name in ("_mixtures", "_moments", "_carry"):
        assert (getattr(whole, name) == getattr(parts, name)).all()
    one, other = whole.release(), parts.release()
    assert one.spread == other.spread
    assert (one.integers == other.integers).all()


def test_windows_and_seeds_differ_and_repeat():
    rows = data(50)
    first = sketched(rows).release().integers
    assert (sketched(rows).release().integers == first).all()
    for other in (
        sketched(rows, window=1),
        sketched(rows, noise=SimulatedNoise(seed=8)),
        sketched(rows, noise=SecureNoise()),
    ):
        assert (other.release().integers != first).mean() > 0.99
    one, other = SketchAccumulator(MECHANISM), SketchAccumulator(MECHANISM)
    assert not one.simulated
    assert (one._key != other._key).any()


def bounded(rows, settings):
    """The rows as they are mixed."""
    inside = np.zeros(rows.shape)
    for i in range(len(rows)):
        kernels.bounded(rows, i, settings.feature_bound, settings.target_bound, inside, i)
    return inside


def test_rows_beyond_the_bounds_are_scaled_down_and_counted():
    huge, tiny = 1e200, 1e-200
    rows = np.array([
        [3.0, 4.0, 0.0, 0.5],  # features beyond
        [0.0, 2.0, 0.0, -7.0],  # target beyond
        [huge, huge, 0.0, huge],
        [1.7e308, 1.7e308, 1.7e308, 0.0],
        [2.0, 0.0, 0.0, 1.0],  # just at both bounds
        [tiny, 0.0, 0.0, -tiny],
        [math.nan, 9.0, 9.0, 9.0],
        [0.0, math.inf, 0.0, 0.0],
        [0.0, 0.0, 0.0, -math.inf],
    ])  # fmt: skip
    accumulator = sketched(rows)
    third = 2 / math.sqrt(3)
    expected = np.array([
        [1.2, 1.6, 0.0, 0.5], [0.0, 2.0, 0.0, -1.0], [math.sqrt(2), math.sqrt(2), 0.0, 1.0], [third, third, third, 0.0],
        [2.0, 0.0, 0.0, 1.0], [tiny, 0.0, 0.0, -tiny], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0],
    ])  # fmt: skip
    inside = bounded(rows, MECHANISM)
    np.testing.assert_allclose(inside, expected, rtol=1e-14)
    assert np.linalg.norm(inside, axis=1).max() <= MECHANISM.bound
    assert accumulator.records == 9


def test_rows_of_exactly_the_bound_are_left_as_they_are():
    """Features of +-1 have a norm of sqrt(p), which as a float may lie on either side of the bound."""
    for p in range(1, 60):
        settings = mechanism(rows=60, columns=p + 1, feature_bound=math.sqrt(p))
        accumulator = sketched(np.ones((3, p + 1)), settings=settings)
        assert (bounded(np.ones((3, p + 1)), settings) == 1.0).all()
        assert not accumulator._inside.any(), "the last rows are still there"


@pytest.mark.parametrize("method", ["linear-mixing", "mixing"])
def test_many_windows_estimate_the_second_moment(method):
    """M'M / k less the noise is unbiased: the mean of 400 windows lies within 5.5 of its standard errors.

    An entry of a k-row sample covariance has variance (S_ii S_jj + S_ij^2) / k, S = Z'Z + noise. The twin leaves the
    noise in.
    """
    settings = mechanism(method=method)
    rows = data(300, seed=4)
    estimates, noise = [], []
    for window in range(400):
        sketch = sketched(rows, window=window, settings=settings).release()
        sketched_rows = settings.decode(sketch.integers, sketch.spread)
        noise.append(settings.noise_variance(sketch.spread))
        estimates.append(sketched_rows.T @ sketched_rows / 40)
    truth = rows.T @ rows
    total = truth + np.max(noise) * np.eye(4)
    error = np.sqrt((np.outer(total.diagonal(), total.diagonal()) + total**2) / (40 * 400))
    mean = np.mean(estimates, axis=0)
    assert np.abs((mean - np.mean(noise) * np.eye(4) - truth) / error).max() < 5.5
    assert np.abs((mean - truth) / error).max() > 5.5


def test_the_eigenvalue_is_released_with_its_noise():
    """Over 300 windows the noisy eigenvalue is N(lambda - eta tau, eta^2); 5.5 standard errors. Twin: without tau."""
    rows = data(2000, seed=5)
    smallest = np.linalg.eigvalsh(rows.T @ rows)[0] / MECHANISM.bound**2
    low = smallest - MECHANISM.eta * MECHANISM.tau
    assert low - 5 * MECHANISM.eta > 0
    accumulator = sketched(rows)
    drawn = [accumulator._noisy_eigenvalue(int(z)) for z in SimulatedNoise(3).gaussian(range(300), 1)[:, 0]]
    assert abs(np.mean(drawn) - low) < 5.5 * MECHANISM.eta / math.sqrt(300)
    assert abs(np.std(drawn) / MECHANISM.eta - 1) < 5.5 / math.sqrt(600)
    assert abs(np.mean(drawn) - smallest) > 5.5 * MECHANISM.eta / math.sqrt(300)
    assert accumulator.release().spread < MECHANISM.largest_spread


def test_enough_data_needs_no_noise_but_the_least():
    sketch = sketched(data(20_000, seed=6)).release()
    assert sketch.spread == pytest.approx(LEAST_SPREAD, rel=1e-11)
    assert np.abs(sketch.integers).max() <= MECHANISM.magnitude


def test_without_an_eigenvalue_the_spread_is_public_beforehand():
    plain, generous = mechanism(method="mixing"), mechanism(guarantee=ApproxDP(30.0, 1e-5))
    assert not generous.releases_eigenvalue
    for settings in (plain, generous):
        assert sketched(data(5000), settings=settings).release().spread == settings.largest_spread


def test_an_empty_window():
    sketch = SketchAccumulator(MECHANISM, SimulatedNoise(1)).release()
    assert (sketch.records, sketch.spread) == (0, MECHANISM.largest_spread)


def test_released_once_and_wiped():
    accumulator = sketched(data(30))
    assert not accumulator.released
    accumulator.release()
    assert accumulator.released
    for array in (
        accumulator._key,
        accumulator._mixtures,
        accumulator._moments,
        accumulator._carry,
    ):
        assert not array.any()
    assert not any(array.any() for array in (accumulator._inside, accumulator._drawn, accumulator._room.words))
    for use in (accumulator.release, lambda: accumulator.add_block(data(1))):
        with pytest.raises(UserError, match="released or wiped"):
            use()


def test_a_failing_release_wipes_too(monkeypatch):
    accumulator = sketched(data(30))

    def fail(matrix, **options):
        if np.array_equal(matrix, np.eye(len(matrix))):
            return np.ones(len(matrix))
        raise np.linalg.LinAlgError

    monkeypatch.setattr(np.linalg, "eigvalsh", fail)
    with pytest.raises(MurkError, match="window is lost"):
        accumulator.release()
    assert accumulator.released
    assert not accumulator._mixtures.any()


def test_an_interruption_loses_the_window(monkeypatch):
    """Rows that were added but not counted would share their normals with the next ones."""
    accumulator = sketched(data(30))

    def interrupted(*args):
        args[5][:] = 1.0
        raise KeyboardInterrupt

    monkeypatch.setattr(kernels, "accumulate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        accumulator.add_block(data(1))
    assert accumulator.released
    assert not accumulator._mixtures.any()


def test_threads_take_turns():
    """However they interleave, every row has an index of its own: the second moment is that of all of them."""
    accumulator, rows = SketchAccumulator(MECHANISM, SimulatedNoise(1)), data(400)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: accumulator.add_block(rows), range(40)))
    assert accumulator.records == 16_000
    np.testing.assert_allclose(
        accumulator._mixtures, sketched(np.tile(rows, (40, 1)), noise=SimulatedNoise(1))._mixtures
    )


def test_nothing_private_in_words_copies_or_forks(monkeypatch):
    rows = data(30)
    rows[:17] = 99.0
    accumulator = sketched(rows)
    assert repr(accumulator) == "<SketchAccumulator of window 0: 30 rows>"
    assert "17" not in str(accumulator)
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(UserError, match="cannot be copied or stored"):
            duplicate(accumulator)
    assert not hasattr(accumulator, "__dict__")
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    for use in (accumulator.release, lambda: accumulator.add_block(rows)):
        with pytest.raises(UserError, match="fork"):
            use()
    monkeypatch.undo()
    sketch = accumulator.release()
    assert isinstance(sketch, Sketch)
    assert "integers" not in repr(sketch)
    assert repr(accumulator) == "<SketchAccumulator of window 0: wiped>"


def test_bad_blocks_are_refused_without_quoting_them():
    accumulator = SketchAccumulator(MECHANISM, SimulatedNoise(1))
    for block in (np.zeros((2, 3)), np.zeros(4), [[1.0, 2.0, 3.0, "secret"]], [[1.0], [1.0, 2.0]]):
        with pytest.raises(UserError) as caught:
            accumulator.add_block(block)
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None
    assert accumulator.records == 0
    assert MECHANISM.largest_window == LARGEST_WINDOW
    assert mechanism(rows=1024, columns=1024).largest_window == 2**28
    accumulator._records = LARGEST_WINDOW
    with pytest.raises(UserError, match="at most"):
        accumulator.add_block(data(1))
    for window in (-1, 2.0, True):
        with pytest.raises(UserError, match="window"):
            SketchAccumulator(MECHANISM, window=window)


def test_memory_does_not_grow_with_rows():
    """20 blocks of 5,000 rows: after the first, not a kilobyte more."""
    accumulator, block = SketchAccumulator(MECHANISM, SimulatedNoise(1)), data(5000)
    accumulator.add_block(block)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            accumulator.add_block(block)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 4096
    assert peak - before < 16384


def test_second_moments_do_not_lose_digits():
    """A million rows of one value: plain summation is off by 1e-10 or more of the sum, compensated by 2^-52."""
    settings = mechanism(rows=3, columns=2)
    accumulator = SketchAccumulator(settings, SimulatedNoise(1))
    block = np.full((100_000, 2), 0.1)
    for _ in range(10):
        accumulator.add_block(block)
    exact = 10**6 * (0.1 * 0.1)
    assert abs(accumulator._moments[0, 1] - accumulator._carry[0, 1] - exact) <= 4 * 2**-52 * exact
    assert abs(np.cumsum(np.full(10**6, 0.1 * 0.1))[-1] - exact) > 100 * 2**-52 * exact
