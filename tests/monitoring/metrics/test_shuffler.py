"""A shuffler's metrics: those of the catalogue, and no moment of an arrival."""

import time
import urllib.error
import urllib.request
from dataclasses import replace
from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest

from murk import Task
from murk.cli.metrics import MetricsAddress, shuffler_metrics
from murk.monitoring.metrics.catalogue import METRICS
from murk.monitoring.metrics.shuffler import CrowdSums, ShufflerMetrics
from murk.shuffler.shuffler import Totals

TASK = Task.parse("""
name: crowds
features: [{name: age, low: 21, high: 35}]
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
shuffle: {crowd: 1000, promise: {epsilon: 0.5}}
granularity: 1h
""")
NONE = CrowdSums(0, 0, 0, 0, 0, {})


class Clock:
    now = 7_200.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def metrics(clock):
    return ShufflerMetrics(TASK, clock=clock)


def shown(metrics):
    return generate_latest(metrics.registry)


def test_they_are_those_of_the_catalogue(metrics):
    metrics.update(NONE, "")
    found = [family.name + "_total" * (family.type == "counter") for family in metrics.registry.collect()]
    assert found == [metric.name for metric in METRICS if metric.side == "shuffler"]


def test_one_arrival_more_changes_nothing_until_a_crowd_leaves(metrics, clock):
    """Whatever it was: admitted, refused, a duplicate, or the end of somebody's patience."""
    metrics.update(NONE, "")
    clock.now += 3_600
    metrics.update(replace(NONE, waiting=199), "")
    before = shown(metrics)
    assert b'murk_shuffler_waiting_releases{task="crowds"} 100.0' in before
    for one in (
        replace(NONE, waiting=200),
        replace(NONE, waiting=199, duplicates=1),
        replace(NONE, waiting=199, refused={"stale": 1}),
        replace(NONE, waiting=199, dropped=1),
    ):
        clock.now += 59
        metrics.update(one, "")
        assert shown(metrics) == before
    metrics.update(CrowdSums(1_000, 1, 200, 1, 1, {"stale": 1}), "")
    assert b'murk_shuffler_waiting_releases{task="crowds"} 200.0' in shown(metrics)
    # The twin: with a crowd everything is told.
    assert b'murk_shuffler_refusals_total{reason="stale",task="crowds"} 1.0' in shown(metrics)
    assert b'murk_shuffler_dropped_releases_total{task="crowds"} 1.0' in shown(metrics)


def test_a_restart_within_a_period_tells_no_arrival(metrics, clock):
    found = []
    for one in (replace(NONE, waiting=199, duplicates=3), replace(NONE, waiting=200, duplicates=4)):
        again = ShufflerMetrics(TASK, clock=clock)
        again.update(one, "")
        found.append(shown(again))
    assert found[0] == found[1]


def test_without_a_crowd_sums_are_told_once_a_period(metrics, clock):
    metrics.update(NONE, "")
    clock.now = 10_799.0
    metrics.update(replace(NONE, dropped=7), "")
    assert b'murk_shuffler_dropped_releases_total{task="crowds"} 0.0' in shown(metrics)
    clock.now = 10_800.0
    metrics.update(replace(NONE, dropped=7), "")
    assert b'murk_shuffler_dropped_releases_total{task="crowds"} 7.0' in shown(metrics)


def asked(url):
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_health_says_what_is_wrong(capsys):
    totals = Totals(read=0, duplicates=0, refused={}, released=0, crowds=0, waiting=0, dropped=0)
    running = SimpleNamespace(task=TASK, totals=totals, trouble="", stepped=time.monotonic())
    with shuffler_metrics(MetricsAddress("127.0.0.1", 0), running) as refresh:
        url = capsys.readouterr().err.split(" at ")[1].strip()
        health = url.replace("/metrics", "/healthz")
        assert asked(health)[0] == 200
        running.trouble = "kafka://b:9092 cannot be reached"
        refresh()
        assert asked(health) == (503, b"kafka://b:9092 cannot be reached\n")
        assert b'murk_shuffler_log_reachable{task="crowds"} 0.0' in asked(url)[1]
        # A crowd of ten millions may take a quarter of an hour.
        running.trouble, running.stepped = "", time.monotonic() - 800
        assert asked(health)[0] == 200
        running.stepped = time.monotonic() - 1_000
        status, words = asked(health)
        assert (status, words[:11]) == (503, b"no step for")
