"""A model that has changed, as the monitor tells it: to its page, to Prometheus; worked out again now and then."""

import json

import numpy as np
import pytest

from murk import Task
from murk.monitoring.figures import Place, figures
from murk.monitoring.metrics.catalogue import METRICS
from murk.monitoring.metrics.exporter import family
from murk.monitoring.metrics.monitor import VALUES
from murk.monitoring.snapshot import Snapshot
from murk.protocols.device import device_for
from murk.protocols.scores.device import ScoreDevice
from murk.stream.wire.state import Counters, StateMessage
from tests.learners.scores.people import learn_sums, outcomes

TASK = Task.parse("""
name: third-child
features: [{name: age, low: 21, high: 35}]
target: {name: third_child, kind: binary, positive: "yes"}
privacy: {guarantee: {gdp: {mu: 4.0}}}
forget: 48000
""")


def told(engine, before=None):
    """The figures of a partition's state."""
    count = engine.n_releases
    message = StateMessage(
        task=TASK.hash, identity="x", partition=0, offset=count, last_id=None, counters=Counters(learned=count),
        learner=engine.state_dict(),
    )  # fmt: skip
    return figures(TASK, device_for(TASK), [message], [Place(count, count)], before=before)


def shown(found):
    """What the page and Prometheus are told, by metric and label."""
    snapshot = Snapshot(
        task=TASK, url="x", started=0.0, now=0.0, figures=found, read=True, problem=None, rate=0.0, grown=0.0,
        reference=None, history=(), pace={},
    )  # fmt: skip
    samples = {
        (sample.name, sample.labels.get("name")): sample.value
        for metric in METRICS
        if metric.name in VALUES
        for sample in family(metric, {snapshot.task.name: VALUES[metric.name](snapshot)}).samples
        if sample.name in ("murk_drift_p_value", "murk_parameter_change", "murk_estimate_releases")
    }
    return json.loads(snapshot.body)["estimate"], samples


@pytest.fixture(scope="module")
def engines():
    """One whose people go on as they were, and one whose people have changed half-way."""
    surveyed = device_for(TASK).settings.survey.end
    rng, n = np.random.default_rng(1), 56_000 + surveyed
    X = np.c_[rng.uniform(-1, 1, size=n), np.ones(n)]
    before, after = np.array([1.0, -0.2]), np.array([0.0, -0.2])
    still, changed = outcomes(rng, X, before), outcomes(rng, X, before)
    half = surveyed + 28_000
    changed[half:] = outcomes(rng, X[half:], after)
    return {name: learn_sums(device_for(TASK), X, y, 2) for name, y in (("still", still), ("changed", changed))}


def test_a_change_is_told(engines):
    estimate, samples = shown(told(engines["changed"]))
    assert estimate["drift"]["alarm"]
    assert "age" in estimate["drift"]["words"]
    assert estimate["drift"]["changes"]["age"] == samples["murk_parameter_change", "age"] < -0.2
    assert samples["murk_drift_p_value", None] == estimate["drift"]["p_value"] < 0.01
    assert samples["murk_estimate_releases", None] == estimate["releases_used"] == 44_000


def test_no_change_is_told(engines):
    estimate, samples = shown(told(engines["still"]))
    assert not estimate["drift"]["alarm"]
    assert estimate["drift"]["compared"] > 3
    assert samples["murk_drift_p_value", None] > 0.01
    assert ("murk_parameter_change", "age") not in samples


def test_it_is_judged_again_when_much_was_added(engines, monkeypatch):
    judged = []
    judge = ScoreDevice.drift
    monkeypatch.setattr(ScoreDevice, "drift", lambda self, engines: judged.append(1) or judge(self, engines))
    engine = device_for(TASK).engine()
    engine.load_state_dict(engines["still"].state_dict())
    found = told(engine)
    for added, times in ((500, 1), (500, 2), (200, 2)):
        engine.learn_payloads({("default", "score"): np.zeros((added, 2), dtype=np.int64)})
        found = told(engine, before=found)
        assert len(judged) == times
