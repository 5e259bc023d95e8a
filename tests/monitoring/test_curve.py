"""A curve is whole whenever it is looked at: of a finished run, by another monitor, after another learner."""

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

from murk.cli.commands.status import command
from murk.monitoring import Monitor
from murk.protocols.device import device_for
from murk.stream import Worker
from murk.stream.wire.codec import WireRules, decode
from murk.stream.wire.state import decode_state
from tests.monitoring.runs import PEOPLE, TRUTH, copied, finished, opened, url, watching

SEEN = ("rate", "dead", "lag", "unbiased_loss", "unbiased_loss_error")
"""What only a monitor that watches knows."""


@pytest.fixture(scope="module")
def status():
    """What a monitor says that was opened when all was over."""
    monitor, log = watching(finished()[0], reference=TRUTH)
    with log:
        return monitor.status()


def test_a_monitor_that_comes_late_has_the_whole_curve(status):
    history = status["history"]
    assert history["releases"][0] == 2 * 16  # on two partitions
    assert history["releases"][-1] == PEOPLE
    assert history["releases"] == sorted(set(history["releases"]))
    assert np.diff(np.log2(history["releases"])).max() < 0.5
    # Four an octave, over some five octaves.
    assert len(history["releases"]) > 18
    lengths = {len(history[key]) for key in history if key not in ("values", "half_widths", "lifts")}
    assert lengths | {len(values) for values in history["values"].values()} == {len(history["releases"])}
    for key in SEEN:
        assert all(value is None for value in history[key][:-1]), key
    assert history["lag"][-1] == 0
    assert all(time % 86_400 == 0 for time in history["time"][:-1])


def test_the_curve_ends_at_the_estimate_and_its_errors_are_distances_to_the_truth(status):
    history, estimate = status["history"], status["estimate"]
    assert [values[-1] for values in history["values"].values()] == estimate["values"]
    known = history["parameter_error"]
    assert known[-1] == estimate["parameter_error"]
    points = zip(*history["values"].values(), strict=True)
    assert known == pytest.approx([math.dist(point, TRUTH.values()) for point in points])


def test_status_tells_the_same_curve(status):
    done = CliRunner().invoke(command, ["--log", url(finished()[0]), "--json"])
    found = json.loads(done.output)
    history = found["history"]
    assert history.keys() == {"releases", "time", "values", "half_widths", "estimated_error"}
    for key in ("releases", "time", "estimated_error"):
        assert history[key] == status["history"][key][:-1]
    for key in ("values", "half_widths"):
        assert history[key] == {name: values[:-1] for name, values in status["history"][key].items()}
    # What it takes to read them per unit stands beside them.
    unit = found["per_unit"]["age"]
    assert unit["value"] == found["coefficients"]["age"] * unit["factor"] + unit["shift"]
    assert (unit["factor"], unit["shift"]) == (pytest.approx(1 / 7), 0.0)


def test_each_point_is_the_estimate_at_its_count():
    """Of one partition, bit for bit in single precision: a learner that stops there says the same."""
    folder, _ = finished()
    log, task = opened(folder)
    with log:
        history = decode_state(log.checkpoint(1).state, "here").history
    for place in (5, -1):
        count = history.counts[place]
        single = device_for(task).engine()
        log, _ = opened(folder)
        with log:
            messages = log.read(1, 0, count)
            magnitudes = {level: one.magnitude for level, one in single.mechanisms.items()}
            rules = WireRules(task.hash, task.simulated, (single.dimension,), magnitudes, partitions=2)
            single.learn_releases([decode(message.value, rules) for message in messages])
        found = single.estimate()
        wanted = np.float32([*found.values, *found.half_widths(0.95), found.standard_error])
        assert history.table(3, "here")[place].tobytes() == wanted.tobytes()


def test_another_learner_goes_on_with_the_curve(tmp_path):
    log, task = opened(copied(tmp_path))
    with log:
        monitor = Monitor(log, task)
        monitor.poll()
        before = monitor.status()["history"]
        log.append([(0, b"not a release")])
        with Worker(log, task, device_for(task).engine(), 0) as worker:
            assert worker.step().read == 1
        again = Monitor(log, task)
        again.poll()
        after = again.status()["history"]
    assert after["releases"] == before["releases"]
    assert after["values"] == before["values"]
    assert after["half_widths"] == before["half_widths"]


def test_what_is_seen_goes_on_where_the_states_end(tmp_path):
    """A monitor that watches adds its own points, and no others come between them."""
    log, task = opened(copied(tmp_path))
    with log:
        late = Monitor(log, task)
        late.poll()
        seen = late.status()["history"]["releases"]
        late.poll()
        late.poll()
        again = late.status()["history"]["releases"]
    assert again == [*seen, PEOPLE]
