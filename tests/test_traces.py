"""How many files of the package one call crosses, so that the way of a record stays short."""

import sys
from functools import partial
from pathlib import Path

import pytest

import murk
from murk import Task
from murk.learners import IWPSGDClassifier, LDPSGDClassifier, PublicGLMRegressor, ScoreClassifier, ScoreRegressor
from murk.privacy import GaussianDP
from murk.producers import Ledger, Producer
from murk.protocols.device import device_for
from murk.stream import Worker, open_log

PACKAGE = str(Path(murk.__file__).parent)
TASK = """
name: traced
features: [{{name: age, low: 21, high: 35}}]
target: {{name: y, kind: binary, positive: "yes", negative: "no"}}
protocol: {}
privacy: {{guarantee: {{gdp: {{mu: 1.0}}}}}}
"""
RELEASE, STEP = 20, 22
RECORD = {"age": 29, "y": "yes"}


def crossed(act):
    """Files of the package in which a function is called."""
    files = set()

    def see(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            files.add(frame.f_code.co_filename)

    sys.setprofile(see)
    try:
        act()
    finally:
        sys.setprofile(None)
    return files


@pytest.mark.parametrize(
    ("estimator", "settings", "y"),
    [
        (ScoreClassifier, {}, True),
        (ScoreRegressor, {"target_bounds": (-1.0, 1.0)}, 0.3),
        (LDPSGDClassifier, {}, True),
        (IWPSGDClassifier, {}, True),
        (PublicGLMRegressor, {}, 0.3),
    ],
)
def test_learning_a_record_crosses_few_files(estimator, settings, y):
    learner, x = estimator(guarantee=GaussianDP(mu=1.0), features=("a", "b"), seed=1, **settings), {"a": 0.1, "b": 0.2}
    # A kernel takes over where compiling it pays.
    for _ in range(6_100):
        learner.learn_one(x, y)
    assert 2 <= len(crossed(lambda: learner.learn_one(x, y))) <= 8


@pytest.mark.parametrize("protocol", ["scores", "gradients", "examples", "moments"])
def test_a_release_and_a_step_cross_few_files(protocol, tmp_path):
    task = Task.parse(TASK.format(protocol))
    with open_log(f"sqlite:///{tmp_path}/log.db") as log, Ledger(tmp_path / "ledger.db") as ledger:
        log.register_task(task.document())
        worker, producer = Worker(log, task, device_for(task).engine()), Producer(task, log, ledger)
        for person in "abc":
            producer.release(RECORD, person=person)
        # One of them may read the model again.
        files = [crossed(partial(producer.release, RECORD, person=person)) for person in "ghijk"]
        counts = sorted(map(len, files))
        assert 10 <= counts[0] <= counts[-2] <= RELEASE
        worker.step()
        producer.release(RECORD, person="e")
        assert 10 <= len(crossed(worker.step)) <= STEP
