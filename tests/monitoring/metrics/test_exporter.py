"""What Prometheus gets is what is described and what the states say, whatever befalls log and monitor."""

import shutil
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from murk import Task
from murk.errors import UserError
from murk.monitoring import Monitor
from murk.monitoring.metrics.catalogue import METRICS
from murk.monitoring.metrics.exporter import RESULTS, new_registry
from murk.monitoring.metrics.monitor import VALUES
from murk.monitoring.processes import SMALLEST_GROUP, PeopleMetrics, PeopleSums
from murk.monitoring.web.routes import metrics
from murk.producers.ledger import statements as aggregates
from murk.stream import open_log
from murk.stream.wire.codec import REASONS
from tests.monitoring.runs import PEOPLE, TEXT, TRUTH, copied, finished, opened, url, watching
from tests.producers.world import Wrapped

TASK = {"task": "third-child"}


def families(registry):
    return list(text_string_to_metric_families(metrics(registry, {}).body.decode()))


def described(side):
    return [metric for metric in METRICS if metric.side == side]


def check(registry, side):
    """Names, kinds, words, labels and buckets are exactly the described ones, in order."""
    found = families(registry)
    wanted = described(side)
    names = [family.name + ("_total" if family.type == "counter" else "") for family in found]
    assert names == [metric.name for metric in wanted]
    for family, metric in zip(found, wanted, strict=True):
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        for sample in family.samples:
            extra = {"le"} if sample.name.endswith("_bucket") else set()
            assert sample.labels.keys() == set(metric.labels) | extra, sample
        if metric.kind == "histogram" and family.samples:
            bounds = [float(sample.labels["le"]) for sample in family.samples if "le" in sample.labels]
            assert bounds == [*metric.buckets, float("inf")]
        assert family.samples or metric.optional, metric.name


@pytest.mark.parametrize("reference", [None, TRUTH])
def test_exporter_and_description_agree(reference):
    monitor, log = watching(finished()[0], reference=reference)
    with log:
        check(monitor.registry, "monitor")
        assert VALUES.keys() == {metric.name for metric in described("monitor")}
        error = monitor.registry.get_sample_value("murk_parameter_error", TASK)
        assert (error is None) == (reference is None)


def test_counters_are_those_of_the_states_also_after_a_restart():
    monitor, log = watching(finished()[0])
    again, other = watching(finished()[0])
    with log, other:
        value = monitor.registry.get_sample_value
        results = dict(zip(RESULTS, (PEOPLE, 1, 1), strict=True))
        for result, count in results.items():
            assert value("murk_releases_total", {**TASK, "result": result}) == count
        for reason in REASONS:
            assert value("murk_dead_letters_total", {**TASK, "reason": reason}) == (reason == "malformed")
        assert value("murk_duplicates_total", TASK) == 1
        assert value("murk_staleness_releases_count", TASK) == PEOPLE
        for _ in range(3):
            again.poll()
        kept = {"murk_last_release_timestamp_seconds"}
        first, second = (
            [sample for family in families(one.registry) if family.name not in kept for sample in family.samples]
            for one in (monitor, again)
        )
        assert first == second


def test_promises_are_counted_by_what_they_state():
    monitor, log = watching(finished()[0])
    with log:
        value = monitor.registry.get_sample_value
        learned = {level["name"]: level["learned"] for level in monitor.status()["task"]["levels"]}
        assert sum(learned.values()) == PEOPLE
        assert value("murk_release_mu_count", TASK) == learned["default"]
        assert value("murk_release_mu_sum", TASK) == learned["default"]
        # A value on a bound belongs to the bucket below it, as everywhere in Prometheus.
        assert value("murk_release_mu_bucket", {**TASK, "le": "0.5"}) == 0
        assert value("murk_release_mu_bucket", {**TASK, "le": "1.0"}) == learned["default"]
        assert value("murk_release_epsilon_sum", TASK) == 2 * learned["strict"]


def test_two_monitors_need_two_registries():
    registry = new_registry()
    log, task = opened(finished()[0])
    with log:
        first = Monitor(log, task, registry=registry)
        with pytest.raises(UserError, match="a registry of its own"):
            Monitor(log, task, registry=registry)
        first.close()
        Monitor(log, task, registry=registry)


def test_without_prometheus_client_the_cure_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    log, task = opened(finished()[0])
    with log, pytest.raises(UserError, match=r'pip install .*\[monitor\]"'):
        Monitor(log, task)


def test_a_log_without_the_task_is_refused(tmp_path):
    with open_log(url(tmp_path)) as log, pytest.raises(UserError, match="carries no task yet"):
        Monitor(log, Task.parse(TEXT))
    log, task = opened(finished()[0])
    other = Task.parse(TEXT.replace("mu: 1.0", "mu: 1.5"))
    with log:
        with pytest.raises(UserError, match="carries the task"):
            Monitor(log, other)
        with pytest.raises(UserError, match="'age' missing"):
            Monitor(log, task, reference={"same_sex": 1.0, "intercept": 0.0})


def test_before_the_log_was_read_nothing_is_claimed():
    log, task = opened(finished()[0])
    with log:
        monitor = Monitor(log, task)
        samples = [sample for family in families(monitor.registry) for sample in family.samples]
        # A counter at zero would look as if it had been reset, and be counted twice.
        assert [(sample.name, sample.value) for sample in samples] == [("murk_log_reachable", 0.0)]
        assert monitor.status()["releases"] == 0
        assert not monitor.healthy
        monitor.poll()
        assert monitor.healthy


def test_a_log_deleted_and_put_back(tmp_path):
    folder = copied(tmp_path)
    log, task = opened(folder)
    monitor = Monitor(log, task, reopen=lambda: open_log(url(folder), create=False))
    value = monitor.registry.get_sample_value
    assert monitor.poll()
    before = monitor.status()
    away = tmp_path / "away"
    away.mkdir()
    log.close()
    for path in folder.glob("log.db*"):
        shutil.move(path, away / path.name)
    for _ in range(3):
        assert not monitor.poll()
        found = monitor.status()
        assert "\n" not in found["problem"]
        assert "log.db" in found["problem"]
        assert not found["healthy"]
        assert value("murk_log_reachable", TASK) == 0
        # What was known stays.
        assert value("murk_releases_total", {**TASK, "result": "learned"}) == PEOPLE
        assert {**found, "healthy": True, "problem": None, "now": before["now"]} == before
    for path in away.iterdir():
        shutil.copy(path, folder / path.name)
    assert monitor.poll()
    assert monitor.healthy
    assert value("murk_log_reachable", TASK) == 1
    assert monitor.status()["releases"] == PEOPLE
    monitor.close()


def test_a_log_made_anew_with_the_old_states_is_a_problem(tmp_path):
    log, task = opened(copied(tmp_path))
    with log:
        monitor = Monitor(Wrapped(log, identity="another"), task)
        assert not monitor.poll()
        assert "belongs to another log" in monitor.status()["problem"]


def test_a_damaged_state_and_an_unforeseen_error_are_problems_and_pass():
    log, task = opened(finished()[0])
    with log:
        wrapped = Wrapped(log)
        monitor = Monitor(wrapped, task)
        assert monitor.poll()
        wrapped.checkpoint = lambda partition: log.checkpoint(partition)._replace(state=b"[")
        assert not monitor.poll()
        assert "is not JSON" in monitor.status()["problem"]

        def broken(partition):
            raise ZeroDivisionError("a record's value")

        wrapped.checkpoint = broken
        assert not monitor.poll()
        assert monitor.status()["problem"] == "the log could not be read (ZeroDivisionError)"
        del wrapped.checkpoint
        assert monitor.poll()


def test_time_as_the_monitor_sees_it(tmp_path):
    now = [1000.0]
    log, task = opened(copied(tmp_path))
    with log:
        states = {partition: log.checkpoint(partition) for partition in range(2)}
        wrapped = Wrapped(log, checkpoint=lambda partition: states[partition]._replace(state=None, offset=0))
        monitor = Monitor(wrapped, task, clock=lambda: now[0], patience=60.0)

        def at(moment):
            now[0] = moment
            assert monitor.poll()
            return monitor.status()

        def last():
            return monitor.registry.get_sample_value("murk_last_release_timestamp_seconds", TASK)

        assert at(1001.0)["rate"] == 0.0
        assert last() == 1001.0
        assert at(1004.0)["lag"] == PEOPLE + 2
        assert last() == 1001.0
        wrapped.checkpoint = states.__getitem__
        assert at(1005.0)["rate"] == PEOPLE / 4
        assert last() == 1005.0
        # Ten seconds later nothing has come for ten seconds.
        assert at(1010.0)["rate"] > 0
        assert at(1016.0)["rate"] == 0
        assert last() == 1005.0
        history = monitor.status()["history"]
        assert history["releases"] == [0, 0, PEOPLE, PEOPLE]
        assert history["time"] == [1001.0, 1004.0, 1005.0, 1016.0]
        # A clock that was set back says nothing.
        assert at(900.0)["rate"] == 0.0
        # A log that hangs: nobody polls, and that is said.
        now[0] = 961.0
        assert monitor.status()["problem"].endswith("has not answered for 61 s")
        assert monitor.registry.get_sample_value("murk_log_reachable", TASK) == 0
        assert not monitor.healthy
        assert at(962.0)["healthy"]


def test_owners_are_shown_where_the_log_knows_them():
    log, task = opened(finished()[0])
    with log:
        monitor = Monitor(Wrapped(log, owners=lambda: {1: "host:77"}), task)
        monitor.poll()
        assert [partition["owner"] for partition in monitor.status()["partitions"]] == [None, "host:77"]


def sums(people, refused=3, pending=2):
    return PeopleSums(people, refused, pending, [(0.5, people - 1), (1.0, 1)])


def test_the_peoples_side_is_what_is_described():
    exported = PeopleMetrics("third-child")
    assert [sample for family in families(exported.registry) for sample in family.samples] == []
    assert exported.update(sums(30))
    check(exported.registry, "people")
    value = exported.registry.get_sample_value
    assert value("murk_ledger_spent_ratio_bucket", {**TASK, "le": "0.5"}) == 29
    assert value("murk_ledger_spent_ratio_count", TASK) == 30
    assert value("murk_ledger_refusals_total", TASK) == 3
    assert value("murk_outbox_pending", TASK) == 2


def test_sums_are_over_enough_people():
    """Of their differences the ledger takes care (`GroupSums`), for all who export its sums."""
    assert SMALLEST_GROUP == aggregates.SMALLEST_GROUP == 20
    exported = PeopleMetrics("third-child")
    value = exported.registry.get_sample_value
    assert not exported.update(sums(19))
    assert value("murk_outbox_pending", TASK) is None
    assert exported.update(sums(20, pending=7))
    assert value("murk_outbox_pending", TASK) == 7
    assert not exported.update(sums(19, pending=8))
    assert value("murk_outbox_pending", TASK) == 7
