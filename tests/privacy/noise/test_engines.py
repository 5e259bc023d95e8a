"""The compiled sampler and the reference: identical values from identical words, however these arrive."""

import importlib.util
import re
from types import ModuleType

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher

from murk._internal.arrays import Integers, Words
from murk.privacy.noise import kernels, sources
from murk.privacy.noise.distributions import GAUSSIAN_NOISE, LAPLACE_NOISE, NoiseDistribution
from murk.privacy.noise.kernels import DONE, SPARE
from murk.privacy.noise.sources import Draw, Feed, SimulatedNoise, fill

from . import reference_sampler
from .oracle import ENGINES, random_feed

DISTRIBUTIONS = [
    NoiseDistribution(kind, coarse * step, coarse, width, levels)
    for kind in ("gaussian", "laplace")
    for coarse, step in ((1, 1), (1, 3), (3, 1), (3, 16), (16, 3))
    for width, levels in ((2, 1), (5, 2), (64, 2))
]


def early(distribution: NoiseDistribution, words: Words, spare: Words, out: Integers) -> tuple[int, int, int, int]:
    """What draws while nothing is compiled."""
    arrays = distribution.shape, distribution.table, distribution.guide
    status, *used = sources.draw_block.early(*arrays, words, spare, out)  # type: ignore[attr-defined]
    return int(status), *map(int, used)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    distribution=st.sampled_from([*DISTRIBUTIONS, GAUSSIAN_NOISE, LAPLACE_NOISE]),
    seed=st.integers(0, 2**32),
    trials=st.integers(0, 40),
    spares=st.integers(0, 30),
    size=st.integers(0, 40),
)
def test_same_words_same_everything(
    distribution: NoiseDistribution, seed: int, trials: int, spares: int, size: int
) -> None:
    words, spare = random_feed(seed)(trials, spares)
    found = []
    for draw in (*ENGINES.values(), early):
        out = np.full(size, -7, dtype=np.int64)
        found.append((draw(distribution, words, spare, out), out.tolist()))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("distribution", [GAUSSIAN_NOISE, LAPLACE_NOISE], ids=["gaussian", "laplace"])
def test_same_words_same_values_at_length(distribution: NoiseDistribution) -> None:
    words, spare = random_feed(11)(300_000, 30_000)
    outs = [np.empty(280_000, dtype=np.int64) for _ in ENGINES]
    progress = [draw(distribution, words, spare, out) for draw, out in zip(ENGINES.values(), outs, strict=True)]
    assert progress[0] == progress[1]
    assert progress[0][0] == DONE
    assert progress[0][3] > 2000, "the rare paths were taken"
    np.testing.assert_array_equal(outs[0], outs[1])


def tape_feed(seed: int, words_at_once: int, spares_at_once: int) -> Feed:
    """The same two sequences of words whatever the size of the pieces, which ignores what was asked for."""
    generators = [np.random.Generator(np.random.SFC64([seed, which])) for which in (0, 1)]

    def piece(which: int, count: int) -> Words:
        fresh = generators[which].integers(0, 2**64, size=count, dtype=np.uint64)
        fresh.setflags(write=False)
        return fresh

    return lambda trials, spares: (piece(0, words_at_once if trials else 0), piece(1, spares_at_once))


@pytest.mark.parametrize("draw", [*ENGINES.values(), early], ids=[*ENGINES, "early"])
@pytest.mark.parametrize(
    "distribution", [distribution for distribution in DISTRIBUTIONS if distribution.width < 64], ids=str
)
def test_no_trial_is_dropped_where_a_buffer_ends(distribution: NoiseDistribution, draw: Draw) -> None:
    whole = np.empty(150, dtype=np.int64)
    fill(distribution, whole, tape_feed(3, 40_000, 40_000), draw)
    # One trial and one spare word at a time; pieces that end in the middle of a trial; no spare at first.
    for words_at_once, spares_at_once in ((2, 1), (3, 2), (14, 1)):
        out = np.empty(150, dtype=np.int64)
        fill(distribution, out, tape_feed(3, words_at_once, spares_at_once), draw)
        np.testing.assert_array_equal(out, whole)


def test_dropping_the_trial_where_a_buffer_ends_is_noticed() -> None:
    """The twin: a driver that goes on with the next trial instead."""

    def dropping(
        distribution: NoiseDistribution, words: Words, spare: Words, out: Integers
    ) -> tuple[int, int, int, int]:
        status, produced, trials, spares = reference_sampler.draw(distribution, words, spare, out)
        return status, produced, trials + (status == SPARE), spares

    distribution = NoiseDistribution("gaussian", 9, 3, width=5)
    with pytest.raises(AssertionError):
        test_no_trial_is_dropped_where_a_buffer_ends(distribution, dropping)


@pytest.mark.parametrize("distribution", [GAUSSIAN_NOISE, LAPLACE_NOISE], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("size", [1, 11, 400])
def test_simulation_is_the_same_in_numpy(distribution: NoiseDistribution, size: int) -> None:
    records = np.array([*range(600 // size + 20), 2**40, 2**62], dtype=np.int64)
    found = np.empty((len(records), size), dtype=np.int64)
    for record, row in zip(records.tolist(), found, strict=True):
        reference_sampler.simulate(distribution, 2**64 - 2, record, row)
    noise = SimulatedNoise(2**64 - 2)
    expected = noise.gaussian(records, size) if distribution.kind == "gaussian" else noise.laplace(records, size)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "kernel", [sources.simulated_gaussians, sources.simulated_laplaces], ids=["gaussian", "laplace"]
)
@pytest.mark.parametrize(("count", "size"), [(400, 1), (300, 11), (20, 300), (3, 2), (0, 4), (2, 0)])
def test_simulation_is_the_same_before_it_is_compiled(kernel, count: int, size: int) -> None:  # type: ignore[no-untyped-def]
    records = np.arange(count, dtype=np.int64) * 2**40
    found = np.empty((2, count, size), dtype=np.int64)
    for work, out in zip((kernel.early, kernel.compiled), found, strict=True):
        work(np.uint64(2**63 + 5), records, out)
    np.testing.assert_array_equal(*found)


def test_a_record_that_rejects_many_trials_is_the_same_before_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_more_than", lambda size: size)
    test_simulation_is_the_same_before_it_is_compiled(sources.simulated_laplaces, 300, 11)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 8])
def test_words_are_the_same_before_they_are_compiled(size: int) -> None:
    records = np.array([0, 5, 2**62], dtype=np.int64)
    found = np.empty((2, 3, size), dtype=np.uint64)
    for work, out in zip((sources.simulated_words.early, sources.simulated_words.compiled), found, strict=True):  # type: ignore[attr-defined]
        work(np.uint64(7), records, 3, out)
    np.testing.assert_array_equal(*found)


def test_simulation_survives_running_out_of_spare_words() -> None:
    # A table one digit of two bits deep sends nearly every trial through the spare words.
    distribution = NoiseDistribution("gaussian", 8, 4, width=2, levels=40)
    found, expected = np.empty((2, 500), dtype=np.int64)
    no_words = np.empty(0, dtype=np.uint64)
    kernels._draw(
        distribution.shape,
        distribution.table,
        distribution.guide,
        no_words,
        no_words,
        True,
        np.uint64(9),
        np.uint64(5),
        found,
    )
    reference_sampler.simulate(distribution, 9, 5, expected)
    np.testing.assert_array_equal(found, expected)


def fresh_module(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module compiled again, without numba's cache: what comes out of the cache has lost its types."""
    monkeypatch.setattr("murk._internal.jit.jit", numba.njit(nogil=True, error_model="numpy"))
    spec = importlib.util.spec_from_file_location(f"{module.__name__}_fresh", str(module.__file__))
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    return fresh


def types(function: Dispatcher) -> set[str]:
    """The types of all variables of a compiled function."""
    assert function.overloads, f"{function} was not called"
    return {str(t) for o in function.overloads.values() for t in o.type_annotation.typemap.values()}


def floating(names: set[str]) -> set[str]:
    return {name for name in names if re.search("float|complex", name)}


def test_no_float_in_the_compiled_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    # Types are found before anything is optimized.
    monkeypatch.setattr(numba.config, "OPT", type(numba.config.OPT)(0))
    fresh_kernels = fresh_module(kernels, monkeypatch)
    fresh_kernels.block(*[np.uint64(1)] * 4)
    fresh_kernels.blocks(*[np.uint64(1)] * 3, np.empty(4, dtype=np.uint64))
    no_words, out = np.empty(0, dtype=np.uint64), np.empty(100, dtype=np.int64)
    no_words.setflags(write=False)
    fresh_kernels.draw(*_arrays(GAUSSIAN_NOISE), no_words, no_words, out)
    fresh_kernels.draw_gaussian(no_words, no_words, out)
    fresh_kernels.simulated_gaussian(np.uint64(1), np.int64(1), out)
    fresh_kernels.fast_gaussian(np.uint64(1), np.int64(1), np.empty(4, dtype=np.uint64), out)
    fresh_kernels.simulated_laplace(np.uint64(1), np.int64(1), out)
    fresh_kernels.simulated_words(np.uint64(1), np.int64(1), 2, no_words.copy())
    dispatchers = [f for f in vars(fresh_kernels).values() if isinstance(f, Dispatcher)]
    own = [f for f in dispatchers if f.__module__.endswith("_fresh")]
    assert len(own) >= 11
    for function in own:
        found = types(function)
        assert not floating(found), function
        assert found & {"int64", "uint64"}


def test_a_float_would_be_seen() -> None:
    """The twin: what the mixture of types that the kernels avoid turns into."""

    @numba.njit
    def mixed(words, integers):  # type: ignore[no-untyped-def]
        return words + integers

    mixed(np.ones(2, dtype=np.uint64), np.ones(2, dtype=np.int64))
    assert floating(types(mixed))


def _arrays(distribution: NoiseDistribution) -> tuple[Integers, Words, Integers]:
    return distribution.shape, distribution.table, distribution.guide
