"""Whatever way a record leaves a learner by, nothing of it stays behind: not in memory, and not in a copy."""

import copy
import os
import pickle
import random
import signal
import struct
import threading
from functools import partial

import numpy as np
import pandas as pd
import pytest

import murk
from murk.protocols.one_record import NO_WORDS
from tests.interrupts import interrupted
from tests.learners.catalogue import (
    BY_RECORD,
    FEATURED,
    FEATURES,
    NAMES,
    PURE,
    RECORD,
    SECRETS,
    compiled,
    made,
    target_of,
)

INTERRUPTS = 30
PLACE = murk.__file__.rsplit("/", 1)[0]


class Broken(Exception):
    """Raised by a value."""


class Raising:
    """A value whose conversion fails, as none of a number does."""

    def __float__(self):
        raise Broken


def held(data):
    """Which of the record's values the bytes hold."""
    return [value for value in (*SECRETS, 0.577215664) if struct.pack("<d", value) in data]


def memory(model):
    """The bytes of a learner's arrays, without a copy that would wipe them."""
    engine = model._engine
    arrays = engine.memory if hasattr(engine, "memory") else engine
    found = [arrays.real, arrays.whole] if hasattr(arrays, "real") else []
    return b"".join(array.tobytes() for array in found)


def left(model):
    """What is left of the record in a learner's memory or in a copy of it."""
    return held(memory(model) + pickle.dumps(model))


def record_once(model, name):
    model.learn_one(RECORD, target_of(name))


def record_block(model, name):
    model.learn_many(pd.DataFrame([SECRETS] * 3, columns=list(FEATURES)), [target_of(name)] * 3)


WAYS = [record_once, record_block]


# The signal may come while numba has the file of a kernel open that it loads for the first time.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <_io.FileIO name='.*nbi'")
@pytest.mark.parametrize("learn", WAYS)
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("name", NAMES)
def test_an_interrupt_leaves_nothing(name, seed, learn):
    """The signal arrives at a random moment of the call, as Ctrl-C does, and the learner can be used afterwards."""
    compiled()
    rng = random.Random(1)
    more = {"window": 4} if name.startswith("GaussMix") else {}
    model, fired, caught = made(name, seed=seed, **more), 0, 0
    learn(model, name)

    def interrupt(number, frame):
        nonlocal fired
        fired += 1
        raise KeyboardInterrupt

    # A function of its own: Python 3.13 does not catch what is raised at the head of a loop where the loop stands.
    def learn_until(count):
        # Python itself swallows what is raised while a weak reference dies.
        while fired == count:
            learn(model, name)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for count in range(INTERRUPTS):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(2e-6, 2e-4))
                learn_until(count)
            except KeyboardInterrupt:
                caught += 1
            assert not held(memory(model))
            if count % 10 == 0:
                assert not left(model)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert caught > INTERRUPTS / 2
    learned = model.n_releases
    for _ in range(4):
        learn(model, name)
    assert model.n_releases > learned


WHITENED = {"second_moment": np.diag([2.0, 1.0, 1.0])}


@pytest.mark.parametrize(
    ("name", "seed", "more"),
    [
        ("LDPSGDClassifier", None, {}),
        ("LDPSGDClassifier", 3, {}),
        ("LDPSGDRegressor", None, WHITENED),
        ("LDPSGDRegressor", None, PURE),
        ("LDPSGDRegressor", None, {**PURE, "mechanism": "privunit"}),
        ("IWPSGDRegressor", None, {}),
        ("PublicGLMRegressor", None, {}),
        ("ScoreClassifier", None, {}),
    ],
)
def test_no_instruction_leaves_anything_when_interrupted(name, seed, more):
    """An interrupt at every single instruction of Murk's Python, one after another."""
    compiled()
    first = made(name, seed=seed, **more)
    record_once(first, name)
    at = 0
    while True:
        model = copy.deepcopy(first)
        seen = interrupted(partial(record_once, model, name), at + 1, PLACE)
        assert not held(memory(model)), f"after {at} instructions"
        if seen <= at:
            break
        at += 1
    assert at > 50


@pytest.mark.parametrize("name", FEATURED)
def test_a_value_that_fails_leaves_nothing(name):
    model = made(name)
    for x in ({**RECORD, "b": Raising()}, {"a": Raising(), "b": SECRETS[1]}):
        with pytest.raises(Broken):
            model.learn_one(x, target_of(name))
        assert model.n_releases == 0
        assert not left(model)
    frame = pd.DataFrame({"a": [SECRETS[0]] * 2, "b": [SECRETS[1], Raising()]})
    with pytest.raises(Broken):
        model.learn_many(frame, [target_of(name)] * 2)
    assert model.n_releases == 0
    assert not left(model)


@pytest.mark.parametrize("learn", WAYS)
@pytest.mark.parametrize("name", BY_RECORD)
def test_randomness_that_fails_leaves_nothing(name, learn, monkeypatch):
    model = made(name)
    learn(model, name)
    learned, calls = model.n_releases, [0]

    def urandom(size):
        calls[0] += 1
        raise OSError("no entropy")

    with monkeypatch.context() as patch:
        patch.setattr(os, "urandom", urandom)
        # Nor has the kernel any, where there is one.
        kernels = getattr(model._engine, "_kernels", None)
        if kernels is not None:
            real = kernels.learn_record
            patch.setattr(kernels, "learn_record", lambda at, y, trials: NO_WORDS if trials else real(at, y, 0))
        with pytest.raises(OSError, match="entropy"):
            learn(model, name)
    assert calls[0]
    assert model.n_releases == learned
    assert not left(model)


def test_randomness_that_fails_half_way_leaves_nothing(monkeypatch):
    """Where the words did not suffice, some of the record's noise is drawn already when the next ones do not come."""
    # Outer products, the default of examples, take all of their words at once.
    for name, more in (("LDPSGDRegressor", {}), ("IWPSGDRegressor", {"release": "directions"})):
        model, calls = made(name, **more), [0]
        engine = model._engine
        # The first words come within the kernel, and do not suffice.
        engine._trials = 1

        def urandom(size, calls=calls):
            calls[0] += 1
            raise OSError("no entropy")

        with monkeypatch.context() as patch:
            patch.setattr(os, "urandom", urandom)
            with pytest.raises(OSError, match="entropy"):
                model.learn_one(RECORD, target_of(name))
        assert calls == [1]
        assert not left(model)
        arrays = getattr(engine, "memory", engine)
        words = len(getattr(arrays, "words", ()))
        assert not arrays.whole[-2 * engine.dimension - words :].any(), "the noise is still there"


@pytest.mark.parametrize("name", ["LDPSGDRegressor", "IWPSGDRegressor"])
def test_a_copy_is_wiped_whatever_stands_in_the_learner(name):
    """Taken by another thread while a record is being read, too: it waits, and finds nothing."""
    model = made(name)
    arrays = getattr(model._engine, "memory", model._engine)
    arrays.features[:] = SECRETS
    arrays.whole[-1] = 77
    assert held(memory(model)) == list(SECRETS)
    assert not held(pickle.dumps(model))
    twin = copy.deepcopy(model)._engine
    assert not getattr(twin, "memory", twin).whole[-1]
    seen = []

    class Copied:
        def __float__(self):
            if not seen:
                thread = threading.Thread(target=lambda: seen.append(pickle.dumps(model)))
                seen.append(thread)
                thread.start()
                thread.join(0.05)
            return 0.5

    model.learn_one({"a": SECRETS[0], "b": Copied()}, 0.577215664)
    seen[0].join()
    assert len(seen) == 2
    assert not held(seen[1])
