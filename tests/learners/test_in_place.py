"""What a kernel learns of one record in place is what blocks learn of it, bit for bit, whatever comes between."""

import copy
import math
import os
import pickle
import struct
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from murk.privacy import GaussianDP, PureDP
from murk.privacy.noise import SecureNoise, SimulatedNoise
from murk.privacy.noise.distributions import GAUSSIAN_NOISE
from murk.privacy.noise.sources import compiled as sampler
from murk.privacy.noise.sources import fill
from murk.protocols import one_record as record_kernel
from murk.protocols.scores import fast_records as scores
from murk.protocols.scores import in_process as local
from murk.protocols.scores.fast_records import LearnKernel
from tests.kernels import compiled_at_once
from tests.learners.catalogue import FEATURES, SECRETS, STRICT, compiled, made, target_of

# Targets are of records that nobody has scaled.
pytestmark = pytest.mark.filterwarnings("ignore:.* targets are beyond:murk.errors.DataWarning")

PUBLIC = {"public": np.random.default_rng(7).uniform(-1, 1, (50, 2))}
CLASSES = {"classes": ("a", "b", "c"), **PUBLIC}
# Of each kernel: learners with Gaussian noise, which it draws in place.
LEARNERS = {
    "gradients": ("LDPSGDClassifier", {}),
    "directed examples": ("IWPSGDClassifier", {"release": "directions"}),
    "examples and labels": ("IWPSGDClassifier", {"release": "separate"}),
    "outer products": ("IWPSGDClassifier", {}),
    "outer products of targets": ("IWPSGDRegressor", {}),
    "moments": ("PublicGLMClassifier", {}),
    "joint moments": ("PublicGLMClassifier", {"release": "joint"}),
    "moments without a constant": ("PublicGLMRegressor", {"intercept": False, "radius": 0.7}),
    "scores once": ("ScoreClassifier", {"interactive": False, **PUBLIC}),
    "scores of targets once": ("ScoreRegressor", {"interactive": False, **PUBLIC}),
    "scores": ("ScoreClassifier", {}),
    "scores of targets": ("ScoreRegressor", {}),
    "scores with public rows": ("ScoreClassifier", PUBLIC),
    "scores of classes": ("ScoreClassifier", CLASSES),
}
ODD = (0.5, -1, True, None, math.nan, math.inf, -math.inf, "0.25", "text", 10**400, 1e300, Fraction(1, 3), [1], 0.0)


@pytest.fixture(autouse=True)
def _at_once():
    compiled()
    with compiled_at_once():
        yield


def young(key, **more):
    name, settings = LEARNERS[key]
    return made(name, **{"guarantee": GaussianDP(1.0), **settings, **more})


def surveyed(model):
    """The number of releases of the survey that a learner begins with, if it does."""
    survey = getattr(getattr(model._engine, "settings", None), "survey", None)
    return 0 if survey is None else survey.end


def learner(key, **more):
    """A learner that asks for what kernels answer: after its survey, if there is one."""
    model, rng = young(key, **more), np.random.default_rng(9)
    count = surveyed(model)
    if count:
        model.learn_many(rng.uniform(-1, 1, (count, 2)), targets(key, count, rng))
    return model


def targets(key, count, rng):
    name, settings = LEARNERS[key]
    if "Regress" in name:
        return [*rng.uniform(-1.5, 1.5, count - 3), math.nan, "text", None]
    labels = settings.get("classes", (False, True))
    return [*(labels[place] for place in rng.integers(0, len(labels), count - 2)), "?", None]


def records(key, count, seed=1):
    rng = np.random.default_rng(seed)
    places = rng.integers(0, len(ODD), (count, 2))
    rows = [
        {
            name: ODD[place] if place < len(ODD) // 2 or i % 3 else float(rng.uniform(-1, 1))
            for name, place in zip(FEATURES, own, strict=True)
        }
        for i, own in enumerate(places.tolist())
    ]
    for row in rows[::9]:
        del row["b"]
    return rows, targets(key, count, rng)


def learn(model, rows, y, budgets=None):
    for place, (row, target) in enumerate(zip(rows, y, strict=True)):
        model.learn_one(row, target, None if budgets is None else budgets[place])


def block(model, rows, y, budgets=None):
    frame = pd.DataFrame({name: pd.Series([row.get(name) for row in rows], dtype=object) for name in FEATURES})
    model.learn_many(frame, y, budgets)


def shown(model):
    """The state, and what is known by it."""
    return model.state_dict(), model.n_releases, pickle.dumps(model.estimate().values)


@pytest.mark.parametrize("key", LEARNERS)
def test_one_by_one_is_as_in_blocks(key):
    rows, y = records(key, 90)
    one, many = learner(key, seed=3), learner(key, seed=3)
    learn(one, rows, y)
    assert one._engine._record_kernel or type(one._engine.memory) is record_kernel.Held, "the kernel is not used"
    block(many, rows, y)
    assert shown(one) == shown(many)
    learn(one, rows[:1], y[:1])
    assert shown(one) != shown(many)


@pytest.mark.parametrize("key", LEARNERS)
def test_the_kernel_is_what_learns(key, monkeypatch):
    """Otherwise this file would compare blocks with blocks."""
    for noise in ({"seed": 3}, {}):
        model, calls = learner(key, **noise), []
        kernels = model._engine._kernels
        real = kernels.learn_record

        def called(*given, real=real, calls=calls):
            calls.append(real(*given))
            return calls[-1]

        with monkeypatch.context() as patch:
            patch.setattr(kernels, "learn_record", called)
            learn(model, *records(key, 40))
        assert calls.count(record_kernel.LEARNED) >= 25
        assert model.n_releases == 40 + surveyed(model)


@pytest.mark.parametrize("key", LEARNERS)
def test_what_comes_between_records_changes_nothing(key):
    """Blocks, budgets of people's own, reading, copies and a state that is taken and loaded."""
    rows, y = records(key, 120, seed=5)
    budgets = [STRICT if i % 5 == 0 else None for i in range(120)]
    one, many = learner(key, seed=3), learner(key, seed=3)
    learn(one, rows[:30], y[:30], budgets[:30])
    one.n_releases, one.estimate(), one.predict_many(np.zeros((1, 2)))
    one = pickle.loads(pickle.dumps(one))
    learn(one, rows[30:50], y[30:50], budgets[30:50])
    block(one, rows[50:60], y[50:60])
    learn(one, rows[60:80], y[60:80], budgets[60:80])
    twin = learner(key, seed=3)
    twin.load_state_dict(one.state_dict())
    learn(one, rows[80:], y[80:], budgets[80:])
    copied = copy.deepcopy(twin)
    for model in (twin, copied):
        learn(model, rows[80:100], y[80:100], budgets[80:100])
        learn(model, rows[100:], y[100:], budgets[100:])
    for start in range(0, 120, 10):
        own = [None] * 10 if start == 50 else budgets[start : start + 10]
        block(many, rows[start : start + 10], y[start : start + 10], [budget or GaussianDP(1.0) for budget in own])
    assert shown(one) == shown(many) == shown(twin) == shown(copied)


@pytest.mark.parametrize("key", ["scores", "scores of targets", "scores with public rows", "scores once"])
def test_epochs_end_where_they_do_in_blocks(key):
    """Models, too, and what predictions are by, at every thousandth record."""
    rng, one, many = np.random.default_rng(1), young(key, seed=3), young(key, seed=3)
    # Of the survey, too.
    ends = [1, 8, *(surveyed(one) + more for more in (9, 2999, 3000, 3001, 5999, 6000, 7000))]
    X = rng.uniform(-1, 1, (ends[-1], 2))
    y = targets(key, len(X), rng)
    for start, stop in zip((0, *ends), ends, strict=False):
        learn(one, [dict(zip(FEATURES, row, strict=True)) for row in X[start:stop].tolist()], y[start:stop])
        many.learn_many(X[start:stop], y[start:stop])
        assert one.state_dict() == many.state_dict()
        assert np.array_equal(one._engine.shown(), many._engine.shown())


SCORES = [key for key, (name, more) in LEARNERS.items() if name.startswith("Score") or more is PUBLIC]


class Elsewhere(SimulatedNoise):
    """The draws of a seed, which no kernel of learners knows how to make."""


def some_rows(key, count):
    """Among them what is no number, or none to multiply."""
    rng = np.random.default_rng(8)
    X = rng.uniform(-1.5, 1.5, (count, 2))
    for place, odd in enumerate((math.nan, math.inf, -math.inf, 1e300, -1e-300, 0.0)):
        X[place :: 17 + place, place % 2] = odd
    return X, targets(key, count, rng)


@pytest.mark.parametrize("key", SCORES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_in_one_call_are_as_by_their_parts(key, order):
    """Answers that one kernel gives of many rows, and those that are asked, randomized and added up by turns."""
    X, y = some_rows(key, 7000)
    X = np.asarray(X, order=order)
    fused, parts, other = learner(key, seed=3), learner(key, noise=Elsewhere(3)), learner(key, noise=Elsewhere(4))
    for start, stop in ((0, 1), (1, 3), (3, 3), (3, 4500), (4500, 7000)):
        for model in (fused, parts, other):
            model.learn_many(X[start:stop], y[start:stop])
    for budget in (STRICT, [STRICT, GaussianDP(1.0)]):
        for model in (fused, parts, other):
            model.learn_many(X[:2], y[:2], budget)
    assert fused.state_dict() == parts.state_dict() != other.state_dict()


@pytest.mark.parametrize("key", SCORES)
@pytest.mark.parametrize("broken", [False, True])
def test_nothing_of_rows_is_left(key, broken, monkeypatch):
    """Neither in the memory that they were learned in, nor, where it fails half-way, in that or in the learner."""
    model, made_of, real = learner(key, seed=3), [], scores.learn_rows
    X, y = some_rows(key, 50)
    X[-1] = SECRETS

    def memory(*given):
        made_of.append(LearnKernel(*given))
        return made_of[-1]

    def fail(address, X, y):
        held = made_of[-1]
        held.features[:] = SECRETS
        held.noise[:] = held.words[:] = 77
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "LearnKernel", memory)
    monkeypatch.setattr(scores, "learn_rows", fail if broken else real)
    if broken:
        with pytest.raises(KeyboardInterrupt):
            model.learn_many(X, y)
    else:
        model.learn_many(X, y)
    assert model.n_releases == surveyed(model) + (0 if broken else 50)
    assert made_of, "the kernel is not used"
    for held in made_of:
        assert not left(held)
        assert not held.noise.any()
        assert not held.words.any()
    made_of[-1].features[:] = SECRETS
    assert len(left(made_of[-1])) == 2, "the search would not find a record"
    assert np.all(X[-1] == SECRETS), "the caller's own rows are left alone"


def test_a_memory_that_is_full_is_joined():
    """Sums of more answers than fit into 64 bits at their worst are never added up."""
    X = np.random.default_rng(1).uniform(-1, 1, (5000, 2))
    one, many = learner("scores once", seed=3), learner("scores once", seed=3)
    start = np.zeros((40_000, 2))
    for model in (one, many):
        model.learn_many(start, [True] * len(start))
    learn(one, [dict(zip(FEATURES, row, strict=True)) for row in X.tolist()], [True] * len(X))
    assert one._engine.memory.count < 4096
    many.learn_many(X, [True] * len(X))
    assert one.state_dict() == many.state_dict()


@pytest.mark.parametrize("key", LEARNERS)
@pytest.mark.parametrize("missing", [record_kernel.TOO_FEW, record_kernel.NO_WORDS])
def test_randomness_that_comes_late_is_waited_for(key, missing, monkeypatch):
    model = learner(key)
    rows, y = records(key, 20)
    learn(model, rows[:1], y[:1])
    if missing == record_kernel.TOO_FEW:
        model._engine._trials = 1
    else:
        kernels = model._engine._kernels
        real = kernels.learn_record
        monkeypatch.setattr(
            kernels, "learn_record", lambda at, y, trials: record_kernel.NO_WORDS if trials else real(at, y, trials)
        )
    asked, urandom = [], os.urandom
    monkeypatch.setattr(os, "urandom", lambda size: asked.append(size) or urandom(size))
    for place in range(1, 20):
        learn(model, rows[place : place + 1], y[place : place + 1])
        memory = model._engine.memory
        if isinstance(memory, record_kernel.KernelMemory):
            assert not memory.words.any(), "words are left, of which the noise was made"
            assert not memory.noise.any()
    assert model.n_releases == 20 + surveyed(model)
    assert len(asked) >= 15
    assert np.all(np.isfinite(model.estimate().values))


@pytest.mark.parametrize("key", LEARNERS)
@pytest.mark.parametrize("seed", [None, 3])
def test_nothing_of_a_record_is_left(key, seed):
    model = learner(key, seed=seed)
    y = target_of(LEARNERS[key][0]) if "classes" not in LEARNERS[key][1] else "a"
    record = dict(zip(FEATURES, SECRETS, strict=True))
    # After 14 releases no predictions are solved for, with which a memory ends.
    for _ in range(14):
        model.learn_one(record, y)
    memory = model._engine.memory
    assert not left(memory)
    before = memory.real.copy(), memory.whole.copy()
    memory.wipe()
    # What was released may stay.
    changed = np.flatnonzero(memory.whole != before[1])
    assert not len(changed)
    memory.features[:] = SECRETS
    memory.noise[:] = memory.words[:] = 77
    assert len(left(memory)) == 2, "the search would not find a record"
    memory.wipe()
    assert not left(memory)
    assert np.array_equal(memory.whole, before[1])


def left(memory):
    return [value for value in SECRETS if struct.pack("<d", value) in memory.real.tobytes()]


@pytest.mark.parametrize("key", LEARNERS)
def test_copies_without_a_seed_draw_their_own_noise(key):
    rows, y = records(key, 30)
    model = learner(key)
    learn(model, rows[:10], y[:10])
    twins = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model]
    for twin in twins:
        learn(twin, rows[10:], y[10:])
    states = [str(twin.state_dict()) for twin in twins]
    assert len(set(states)) == 3


def test_what_the_kernel_does_not_draw_is_left_to_blocks():
    """Noise of another source, and mechanisms of several draws."""

    class Other(SecureNoise):
        pass

    for more in ({"noise": Other()}, {"guarantee": PureDP(1.0)}):
        model = learner("scores", **more)
        before = model.n_releases
        learn(model, *records("scores", 10))
        assert model.n_releases == before + 10
        assert not model._engine._record_kernel


@pytest.mark.parametrize("size", [1, 3, 78])
@pytest.mark.parametrize("trials", [1, 2, 5])
def test_no_word_is_passed_over(size, trials, monkeypatch):
    """What is drawn of words that did not suffice, and then of others, is what a stream of them all gives."""
    rng = np.random.default_rng(size + trials)

    def words(count):
        return rng.integers(0, 2**64, count, dtype=np.uint64)

    first, more = words(2 * trials + record_kernel.SPARE), words(4000)
    at = 0

    def urandom(count):
        nonlocal at
        at += count // 8
        return more[at - count // 8 : at].tobytes()

    monkeypatch.setattr(os, "urandom", urandom)
    found, wanted = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    record_kernel.finish_draw(first, trials, found)

    # The reference has one feed of all words, of which the first are handed out first.
    at, begun = 0, []

    def feed(trials_asked, spares):
        if not begun:
            begun.append(True)
            return first[: 2 * trials], first[2 * trials :]
        fresh = np.frombuffer(urandom(16 * trials_asked + 8 * spares), dtype=np.uint64)
        return fresh[: 2 * trials_asked], fresh[2 * trials_asked :]

    fill(GAUSSIAN_NOISE, wanted, feed, sampler)
    assert np.array_equal(found, wanted)
    assert found.any()
