"""A learner used from many threads learns what one thread would have; nobody reads a state that is half written."""

import copy
import os
import pickle
import sys
import threading
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from murk.errors import MurkError
from murk.protocols.device import device_for
from murk.protocols.gradients.engine import SGDEngine
from murk.protocols.univariate.engine import TargetEngine
from murk.task.task import Task
from tests.learners.catalogue import BY_RECORD, FEATURED, FEATURES, NAMES, RECORD, STRICT, compiled, made, target_of

THREADS, EACH, BLOCK = 4, 10, 20


class Slow:
    """A number during whose conversion other threads run."""

    def __init__(self, value):
        self.value = value

    def __float__(self):
        time.sleep(0)
        return self.value


class Interrupting:
    """A number whose conversion does something first."""

    def __init__(self, act):
        self.act = act

    def __float__(self):
        self.act()
        return 0.5


SLOW = {name: Slow(value) for name, value in RECORD.items()}


@pytest.fixture(autouse=True)
def _often():
    """Threads change at every opportunity."""
    compiled()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(*acts):
    """Run all acts at once; the first error of any is raised."""
    start = threading.Barrier(len(acts))

    def run(act):
        start.wait()
        act()

    with ThreadPoolExecutor(len(acts)) as pool:
        for done in [pool.submit(run, act) for act in acts]:
            done.result()


def windows(name):
    """One window for all records, where there are windows: its sketch then does not depend on their order."""
    return {"window": THREADS * EACH + 2 * BLOCK} if name.startswith("GaussMix") else {}


@pytest.mark.parametrize("name", NAMES)
def test_threads_learn_what_one_would(name):
    """All records are alike, so the order of threads does not matter: the states are the same bit for bit."""
    shared, alone, y = made(name, seed=3, **windows(name)), made(name, seed=3, **windows(name)), target_of(name)
    rows, targets = np.tile(list(RECORD.values()), (BLOCK, 1)), [y] * BLOCK

    def one_by_one():
        for _ in range(EACH):
            shared.learn_one(SLOW, y)

    together(*[one_by_one] * THREADS, *[lambda: shared.learn_many(rows, targets)] * 2)
    for _ in range(THREADS * EACH):
        alone.learn_one(RECORD, y)
    alone.learn_many(rows, targets)
    alone.learn_many(rows, targets)
    assert shared.n_releases == alone.n_releases > 0
    assert shared.state_dict() == alone.state_dict()


@pytest.mark.parametrize("name", ["LDPSGDClassifier", "IWPSGDRegressor"])
def test_secure_noise_is_shared_safely(name):
    """Without noise a gradient is at most its bound; with that of another record's, or none, sums would not fit."""
    shared, y = made(name), target_of(name)
    together(*[lambda: [shared.learn_one(SLOW, y) for _ in range(EACH)]] * THREADS)
    assert shared.n_releases == THREADS * EACH


@pytest.mark.parametrize("name", BY_RECORD)
def test_a_budget_is_that_of_its_own_record(name):
    """The sums of the noise that was declared are those of so many releases at each budget."""
    shared, alone, y = made(name, seed=3), made(name, seed=3), target_of(name)
    together(
        *[lambda: [shared.learn_one(SLOW, y) for _ in range(EACH)]] * 2,
        *[lambda: [shared.learn_one(SLOW, y, guarantee=STRICT) for _ in range(EACH)]] * 2,
    )
    for _ in range(2 * EACH):
        alone.learn_one(RECORD, y)
        alone.learn_one(RECORD, y, guarantee=STRICT)
    assert declared(shared) == pytest.approx(declared(alone), rel=1e-9)


def declared(model):
    """Sums over releases that are functions of their budgets alone."""
    engine = model._engine
    if hasattr(engine, "layout"):
        return engine.sums.sums
    if hasattr(engine, "now"):
        counts = Counter()
        for round_ in engine.now.rounds:
            for (level, _), tally in round_.tallies.items():
                counts[level] += tally.count
        return counts
    if isinstance(engine, TargetEngine):
        return {level: count for level, (count, _) in engine.totals.items()}
    if isinstance(engine, SGDEngine):
        return engine.memory.real[16:19]
    from murk.protocols.examples import layout as k

    return engine.real[k.SUM_WEIGHT : k.SUM_SPREAD + 1]


def releases_of(fold):
    """The number of releases in a learner's state."""
    return fold["n_releases"] if "n_releases" in fold else sum(one["count"] for one in fold["levels"].values())


@pytest.mark.parametrize("name", NAMES)
def test_nobody_reads_what_is_half_written(name):
    """States, copies, estimates and predictions are those of some number of releases, all of them together."""
    count = 30
    windows = {"window": 1} if name.startswith("GaussMix") else {}
    shared, alone, y = made(name, seed=5, **windows), made(name, seed=5, **windows), target_of(name)
    states, estimates = {}, {}
    for _ in range(count):
        alone.learn_one(RECORD, y)
        states[alone.n_releases] = alone.state_dict()
        estimates[alone.n_releases] = alone.estimate().values
    shared.learn_one(RECORD, y)
    done = threading.Event()

    def learn():
        for _ in range(count - 1):
            shared.learn_one(SLOW, y)
        done.set()

    def read():
        while True:
            last = done.is_set()
            for found in (shared.state_dict(), pickle.loads(pickle.dumps(shared)).state_dict()):
                number = releases_of(found["fold"])
                assert found["fold"] == states[number]["fold"]
            for found in (shared.estimate(), shared.merged([])):
                assert np.array_equal(found.values, estimates[found.n_releases])
            assert np.all(np.isfinite(shared.predict_many(np.array([[0.5, 0.5]])).astype(float)))
            if last:
                return

    together(learn, read)
    assert shared.state_dict() == states[count]


@pytest.mark.parametrize("name", [name for name in BY_RECORD if name in FEATURED])
def test_two_first_records_make_one_learner(name):
    y = target_of(name)
    for _ in range(5):
        shared = made(name, features=None, seed=1)
        together(*[lambda shared=shared: shared.learn_one(SLOW, y)] * 4)
        assert shared.n_releases == 4


@pytest.mark.parametrize("name", FEATURED)
def test_a_record_that_uses_the_learner_which_reads_it_is_refused(name):
    """As a signal's handler would that learns, or copies the learner, while it reads a record."""
    model, y = made(name, seed=1), target_of(name)
    twin, refused, learned = made(name, seed=1), [], []

    def act():
        before = model.n_releases
        try:
            model.learn_one(RECORD, y)
        except MurkError as error:
            refused.append(error)
        else:
            learned.append(before)

    model.learn_one({"a": Interrupting(act), "b": 0.25}, y)
    assert refused or learned
    assert all("already in use by this thread" in str(error) for error in refused)
    # While it was read before or after it was the learner's turn: then both were learned, one after the other.
    order = [{"a": 0.5, "b": 0.25}]
    for before in learned:
        order.insert(before, RECORD)
    for record in order:
        twin.learn_one(record, y)
    model.learn_one(RECORD, y)
    twin.learn_one(RECORD, y)
    if not name.startswith("GaussMix"):
        assert model.state_dict() == twin.state_dict()


TASK = """
name: shared
features: [{name: a, low: -1, high: 1}, {name: b, low: -1, high: 1}]
target: {name: y, kind: binary, positive: "yes"}
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""


@pytest.mark.parametrize("protocol", ["gradients", "examples"])
def test_a_device_may_be_shared(protocol):
    """Vectors that devices of one process take at once are of their own records."""
    device = device_for(Task.parse(f"{TASK}protocol: {protocol}\n"))
    if protocol == "gradients":
        moment = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.0], [0.1, 0.0, 1.0]])
        device = replace(device, settings=replace(device.settings, second_moment=moment))
    rng = np.random.default_rng(1)
    parts = [np.column_stack([rng.uniform(-1, 1, (1000, 2)), np.ones(1000)]) for _ in range(4)]
    y = (rng.random(1000) < 0.5).astype(float)
    theta = np.array([0.5, -0.2, 0.1]) if device.interactive else None
    wanted = [device.vectors(part, y, theta) for part in parts]
    found = [[] for _ in parts]

    def shared(place):
        for _ in range(20):
            found[place].append(device.vectors(parts[place], y, theta))

    together(*[lambda place=place: shared(place) for place in range(len(parts))])
    for mine, right in zip(found, wanted, strict=True):
        assert all(np.array_equal(one, right) for one in mine)


def test_a_child_process_goes_on_with_a_learner_that_a_thread_was_using():
    model, done = made("LDPSGDClassifier", seed=1), threading.Event()

    def learn():
        while not done.is_set():
            model.learn_one(SLOW, True)

    thread = threading.Thread(target=learn)
    thread.start()
    try:
        for _ in range(10):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if not child:
                code = 1
                try:
                    before = model.n_releases
                    model.learn_one(RECORD, True)
                    code = 0 if model.n_releases == before + 1 else 2
                finally:
                    os._exit(code)
            deadline = time.monotonic() + 120
            while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
                time.sleep(0.001)
            if ended == (0, 0):
                os.kill(child, 9)
                os.waitpid(child, 0)
            assert ended == (child, 0)
    finally:
        done.set()
        thread.join()


def test_a_child_process_is_refused_what_a_thread_did_not_let_go_of(monkeypatch):
    """Before, it waited for ever for a thread that it does not have."""
    monkeypatch.setattr("murk._internal.locks._PATIENCE", 0.05)
    model, let_go, taken = made("LDPSGDClassifier", seed=1), threading.Event(), threading.Event()

    def hold():
        with model._engine._turns:
            taken.set()
            let_go.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait(60)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            try:
                model.learn_one(RECORD, True)
            except MurkError:
                os._exit(7)
            os._exit(1)
        deadline = time.monotonic() + 120
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.001)
        if ended == (0, 0):
            os.kill(child, 9)
            os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(ended[1]) == 7
    finally:
        let_go.set()
        thread.join()
    model.learn_one(RECORD, True)
    assert model.n_releases == 1


def test_a_copy_of_a_learner_in_use_is_free():
    model = made("LDPSGDClassifier", seed=1)
    model._engine._turns.acquire()
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        done = threading.Thread(target=lambda twin=twin: twin.learn_one(RECORD, True), daemon=True)
        done.start()
        done.join(10)
        assert twin.n_releases == 1
    assert model._names == FEATURES
