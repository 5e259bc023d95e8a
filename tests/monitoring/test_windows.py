"""Estimates by window, as the monitor shows them: on its page, and to Prometheus for the newest windows."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from murk import Task
from murk.inference.confidence_sequences import sequence_half_widths
from murk.monitoring import history
from murk.monitoring.figures import Place, figures
from murk.monitoring.metrics.catalogue import METRICS
from murk.monitoring.metrics.exporter import family
from murk.monitoring.metrics.monitor import VALUES
from murk.monitoring.snapshot import Snapshot
from murk.protocols.device import device_for
from murk.stream.wire.releases import TargetRelease
from murk.stream.wire.state import Counters, StateMessage
from murk.task.windows import Repeats, begin_of, start_of

TASK = Task.parse("""
name: visits
features: []
target: {name: y, kind: real, low: 0, high: 10, missing_share: 0}
privacy: {guarantee: {gdp: {mu: 1.0}}, window: month}
track: {window: month, smooth: 1}
""")


def release(number, window, payload):
    time = start_of("month", window)
    fields = {"id": f"{number:032x}", "task": TASK.hash, "level": "default", "partition": 0, "payload": payload}
    return TargetRelease(**fields, time=time, expires=time)


def snapshot(engine, before=None):
    count = engine.n_releases
    counters = Counters(learned=count)
    message = StateMessage(
        task=TASK.hash, identity="x", partition=0, offset=count, last_id=None, counters=counters,
        learner=engine.state_dict(),
    )  # fmt: skip
    found = figures(TASK, device_for(TASK), [message], [Place(count, count)], before=before)
    return Snapshot(
        task=TASK, url="x", started=0.0, now=0.0, figures=found, read=True, problem=None, rate=0.0, grown=0.0,
        reference=None, history=(), pace={},
    )  # fmt: skip


def samples(shown, name):
    metric = next(metric for metric in METRICS if metric.name == name)
    return {
        (each.labels["begins"], each.labels["of"]): each.value
        for each in family(metric, {TASK.name: VALUES[name](shown)}).samples
    }


@pytest.fixture
def engine():
    """Fifteen months; in the last one everybody answers with the upper bound."""
    device = device_for(TASK)
    engine, unit = device.engine(), round(1.0 / device.mechanisms["default"].unit)
    payloads = [[unit, 0], [0, unit]]
    learned = [
        release(900 * month + i, 600 + month, payloads[month == 14 or i % 2]) for month in range(15) for i in range(900)
    ]
    engine.learn_releases(learned)
    return engine


def test_the_page_and_prometheus_have_the_windows(engine):
    shown = snapshot(engine)
    track = json.loads(shown.body)["estimate"]["track"]
    assert track["begins"][-1] == begin_of("month", 614).isoformat()
    assert track["releases"] == [900] * 15
    assert track["changed"] == ["intercept"]
    # In the target's own units.
    mean = track["coefficients"]["intercept"]
    assert mean["windows"]["values"][0] == pytest.approx(5.0)
    assert mean["windows"]["values"][14] == pytest.approx(10.0)
    # The last month and the one before.
    assert mean["path"]["values"][14] == pytest.approx(7.5)
    values, halves = (samples(shown, f"murk_window_{each}") for each in ("parameter", "half_width"))
    assert len(values) == len(halves) == 2 * 12
    assert values[track["begins"][14], "path"] == pytest.approx(0.5)
    assert values[track["begins"][14], "window"] == pytest.approx(1.0)
    assert 0.0 < halves[track["begins"][7], "path"] < halves[track["begins"][7], "window"]


def test_windows_are_estimated_again_once_more_has_come(engine):
    first = snapshot(engine).figures
    assert snapshot(engine, first).figures.track is first.track
    engine.learn_releases([release(10**6 + i, 615, [0, 0]) for i in range(900)])
    assert len(snapshot(engine, first).figures.track.numbers) == 16


def earlier(effect=1.0, excess=1.0):
    """Half-width of a sequence at an earlier point, of a fixed one of .1 that is .04 now."""
    looks = SimpleNamespace(count=500.0, tightest_at=1_000, repeats=Repeats(4, effect))
    now = float(sequence_half_widths(np.array([[0.04]]), np.array([500.0]), 1_000)[0, 0])
    figures = SimpleNamespace(
        looks=looks,
        releases_used=500,
        half_widths=(0.04,),
        sequence_count=500.0,
        sequence_half_widths=(excess * now,),
    )
    return history._sequences(figures, [SimpleNamespace(releases=200, half_widths=(0.1,))])[0][0]


def test_earlier_points_allow_for_people_who_answer_again():
    assert earlier(effect=4.0) == pytest.approx(2.0 * earlier())


def test_earlier_points_are_at_least_as_much_wider_than_normal_ones_as_the_newest():
    """Near the noise, levels above 95% have a z of their own, which states do not record."""
    assert earlier(excess=1.2) == pytest.approx(1.2 * earlier())
    assert earlier(excess=0.9) == pytest.approx(earlier())
    assert earlier(excess=np.inf) == np.inf
