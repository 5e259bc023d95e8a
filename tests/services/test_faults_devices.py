"""Devices, organisations and populations killed around a send, and the broker gone: each release is counted once."""

import json
import random
import uuid
from itertools import cycle

import pytest

from murk import Task
from murk.producers import Ledger
from murk.stream import open_log
from tests.cli import harness
from tests.protocols import CLASSES, GRADIENTS, NEWTON
from tests.services.faults.devices import AMID, POINTS
from tests.services.faults.nursery import Nursery
from tests.services.faults.world import as_if_undisturbed, caught_up, folder_of, new_log, task_text

DEVICES = "tests.services.faults.devices"
# A release of many figures, so that it would show in memory if it were kept there.
WIDE = (
    "name: wide\nfeatures:\n"
    + "".join(f"  - {{name: f{number}, low: 21, high: 35}}\n" for number in range(400))
    + """\
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
privacy: {guarantee: {gdp: {mu: 1.0}}, per_person: {gdp: {mu: 1000.0}}}
max_staleness: {releases: 100000}
"""
)


def learn_all(nursery, url):
    learner = nursery.learner(url)
    caught_up(url, learner)
    assert learner.stop() == 0, learner.err


@pytest.mark.slow
@pytest.mark.parametrize("points", [POINTS[:1], POINTS], ids=str)
def test_a_device_killed_around_a_send(broker, tmp_path, points):
    protocol, count = GRADIENTS, 12
    task = Task.parse(task_text(2, protocol, protocol.cap))
    url, ledger = new_log(broker, task), tmp_path / "ledger.db"
    with Nursery(tmp_path / "children", [protocol]) as nursery:
        for number, point in zip((3, 1, 5), cycle(points), strict=False):
            child = nursery.call(f"{DEVICES}:release", url, ledger, count, point, number)
            assert child.wait() == -9, child.err
        child = nursery.call(f"{DEVICES}:release", url, ledger, count)
        assert child.wait() == 0, child.err
        assert child.out == "sent 0\n"
        learn_all(nursery, url)
    found = as_if_undisturbed(url, task)
    assert sum(counters["learned"] for _, counters in found) == count
    # What had arrived unheard was sent again; what had not was not lost.
    assert (sum(counters["duplicates"] for _, counters in found) > 0) == ("after" in points)
    assert all(counters["dead"] == {} for _, counters in found)
    with Ledger(ledger) as accounts:
        assert (accounts.totals().releases, accounts.pending()) == (count, 0)


# Kills at points in turn, each at most so many sends after the last one; anyone who waits for no model sends blocks.
POPULATIONS = [
    (GRADIENTS, 40, 4, POINTS, 8, []),
    # So many that each partition ends its first round.
    (CLASSES, 7000, 2, POINTS, 3, []),
    (NEWTON, 800, 3, (*POINTS, AMID), 5, ["--block", 15]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "rows", "kills", "points", "most", "options"), POPULATIONS, ids=str)
def test_a_population_killed_around_its_sends(broker, tmp_path, protocol, rows, kills, points, most, options):
    folder = folder_of(tmp_path / "people", rows, 2, protocol)
    url = f"{broker.url}/f{uuid.uuid4().hex[:12]}"
    rng = random.Random(5)
    command = ["produce", "task.yaml", "--source", "people.csv", "--log", url, "--seed", 1, "--json", *options]
    with Nursery(folder, [protocol], MURK_KAFKA_SESSION_TIMEOUT_MS="1000") as nursery:
        topics = nursery.murk("topics", "task.yaml", "--log", url, "--simulated")
        assert topics.wait() == 0, topics.err
        learner = nursery.learner(url, "--wait")
        for kill in range(kills):
            child = nursery.call(f"{DEVICES}:murk", points[kill % len(points)], rng.randint(1, most), *command)
            assert child.wait() == -9, child.err
        child = nursery.murk(*command)
        assert child.wait() == 0, child.err
        caught_up(url, learner)
        assert learner.stop() == 0, learner.err
    with open_log(url, create=False) as log:
        task = Task.from_document(log.document())
    found = as_if_undisturbed(url, task)
    assert sum(counters["learned"] for _, counters in found) == protocol.releases(rows)
    assert all(counters["dead"] == {} for _, counters in found)
    with Ledger(folder / "third-child.ledger.db") as accounts:
        assert (accounts.totals().releases, accounts.pending()) == (protocol.releases(rows), 0)
    # Windows that a process died in are lost with it, and that is said; nothing was debited for them.
    lost = json.loads(child.out).get("windows_lost", 0)
    assert (lost > 0) == (AMID in points)
    assert lost <= kills


@pytest.mark.slow
@pytest.mark.parametrize(("gone", "count"), [("killed", 800), ("frozen", 150)])
def test_a_device_outlasts_its_broker(own_broker, tmp_path, gone, count):
    """The outbox grows on disk and the memory does not; all is delivered once the broker is back."""
    task = Task.parse(WIDE)
    url, ledger = new_log(own_broker, task), tmp_path / "ledger.db"
    some = 100
    with Nursery(tmp_path / "children", MURK_KAFKA_SESSION_TIMEOUT_MS="2000") as nursery:
        device = nursery.call(f"{DEVICES}:outlast", url, ledger, some, count)
        device.said("there")
        own_broker.kill() if gone == "killed" else own_broker.freeze()
        device.said("gone", limit=400)
        grown, waiting, on_disk = map(int, device.out.splitlines()[1].split()[1:])
        assert waiting >= count - 100
        if gone == "killed":
            # Nearly three thousand bytes each, which the outbox has and the memory has not: it would hold as much again
            # beside the two megabytes that a client which looks for its broker takes.
            assert on_disk > 2_000 * (count - 200)
            assert grown < on_disk
        assert device.status is None
        own_broker.start() if gone == "killed" else own_broker.thaw()
        assert device.wait() == 0, device.err
        sent = int(device.out.splitlines()[2].split()[1])
        learn_all(nursery, url)
    [(_, counters)] = as_if_undisturbed(url, task)
    assert (counters["learned"], counters["dead"]) == (sent, {})
    with Ledger(ledger) as accounts:
        assert (accounts.totals().releases, accounts.pending()) == (sent, 0)


@pytest.mark.slow
def test_a_full_disk_for_the_ledger(broker, tmp_path):
    """It says so and stops; with room again, the same command carries on and everybody is counted once."""
    protocol, rows, size = GRADIENTS, 40, 60_000
    task = Task.parse(task_text(2, protocol)).with_simulated(True)
    folder = folder_of(tmp_path / "people", rows, 2, protocol)
    url = new_log(broker, task)
    command = ["produce", "task.yaml", "--source", "people.csv", "--log", url, "--seed", 1, "--json"]
    with Nursery(folder, [protocol], MURK_KAFKA_SESSION_TIMEOUT_MS="1000") as nursery:
        learner = nursery.learner(url)
        harness.refused(harness.murk(*command, folder=folder, file_limit=size), "ledger", "disk", status=1)
        done = nursery.murk(*command)
        assert done.wait() == 0, done.err
        caught_up(url, learner)
        assert learner.stop() == 0, learner.err
    found = as_if_undisturbed(url, task)
    assert sum(counters["learned"] for _, counters in found) == protocol.releases(rows)
    assert all(counters["dead"] == {} for _, counters in found)


def test_a_learner_needs_no_disk(broker, tmp_path):
    """Where no file may grow at all, learning goes on: all that a learner writes is stored in the log."""
    task = Task.parse(task_text(2)).with_simulated(True)
    url = new_log(broker, task)
    done = harness.murk("learn", "--log", url, "--idle", 1, "--json", folder=tmp_path, file_limit=0)
    assert done.json["releases"] == 0
