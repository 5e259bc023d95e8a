"""`compose.yaml` as a deployment: its services run here as processes, until every panel of every dashboard is full.

Against a real broker with the file's settings, and a real Prometheus with the mounted configuration.
"""

import json
import math
import time
import urllib.request

import pytest

from tests.cli.harness import murk
from tests.services.composed import ROOT, Composed
from tests.services.services import PROMETHEUS, eventually, require, require_kafka
from tests.services.test_prometheus import OF_OTHERS, targets, values
from tools import promql

# What Grafana makes of it for a data source that is scraped every 5 seconds.
RATE_INTERVAL = "20s"
TASKS = {"third-child": "scores", "third-child-gradients": "gradients", "third-child-examples": "examples"}
"""The deployment's tasks, and their protocols."""
POPULATIONS = ("population", "population-gradients", "population-examples")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def composed(tmp_path_factory):
    require_kafka()
    require(PROMETHEUS)
    began = time.time()
    with Composed(tmp_path_factory.mktemp("composed")) as everything:
        everything.began = began
        for name in (*POPULATIONS, "gateway"):
            everything.healthy(name)
        # What is waited for is time and scrapes: people who release as fast as they can would take all cores meanwhile.
        # Whoever releases gradients waits for the newest model.
        for name in ("population", "population-examples"):
            everything.slow(name)
        yield everything


def shown(composed, what, task=None):
    """What the monitor says of a task, or of all."""
    page = "" if task is None else f"tasks/{task}/"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(composed.here(f"http://monitor:9464/{page}api/{what}"), timeout=30) as answer:
        return json.load(answer)


def has(task, metric):
    """Whether the deployment has a metric of a task."""
    if metric.side in ("archiver", "shuffler") or (
        metric.optional in OF_OTHERS and not metric.optional.startswith("with protocol")
    ):
        # No task has a public sample, contrasts, an archiver or a shuffler.
        return False
    if metric.side == "gateway":
        return task == "third-child"
    if metric.optional == "if the learner is iterative":
        return TASKS[task] in ("gradients", "examples")
    protocol = metric.optional.removeprefix("with protocol ")
    return protocol not in TASKS.values() or protocol == TASKS[task]


def queries():
    """Queries of all panels, each with the tasks that fill it."""
    for parameter in targets():
        text = parameter.values[0]["expr"]
        metrics = [promql.find(name) for name in promql.names(text)]
        filled = [task for task in TASKS if all(has(task, metric) for metric in metrics)]
        text = text.replace("$__rate_interval", RATE_INTERVAL).replace("$tasks", "|".join(TASKS))
        for asked in [filled] if "$task" not in text else [[task] for task in filled]:
            if asked:
                expr = text.replace("$task", asked[0]).replace("$parameter", ".+")
                assert "$" not in expr
                yield f"{parameter.id}: {expr}", expr, asked


def test_all_services_become_healthy(composed):
    for name, service in composed.services.items():
        if "healthcheck" in service:
            composed.healthy(name)


def test_a_learners_log_says_what_it_does_in_objects_with_times(composed):
    def said(name):
        # It is being written: what stands behind the last end of a line is not yet one.
        *lines, _ = (composed.folder / f"{name}.log").read_text().split("\n")
        return [json.loads(line) for line in lines]

    for name in composed.copies("learner"):
        eventually(lambda name=name: any("taken over at offset" in one["message"] for one in said(name)), limit=180)
        assert all({"time", "level", "logger", "message"} == found.keys() for found in said(name))


def test_every_panel_of_every_dashboard_fills_for_every_task(composed):
    compared = set()
    for name, expr, tasks in queries():

        def filled(expr=expr, tasks=tasks):
            found = composed.prometheus.query_range(expr, composed.began, time.time(), 5)
            series = [
                one["metric"].get("task", tasks[0])
                for one in found
                if any(math.isfinite(float(text)) for _, text in one["values"])
            ]
            return series if set(tasks) <= set(series) else None

        try:
            eventually(filled, limit=180, every=1)
        except BaseException as error:
            error.add_note(name)
            raise
        compared.add(tuple(tasks))
    # All three side by side, and each of those that only some have.
    assert {tuple(TASKS), tuple(TASKS)[1:], ("third-child-gradients",), ("third-child-examples",)} <= compared


def test_both_learners_have_a_partition(composed):
    found = eventually(
        lambda: values(composed.prometheus.query('murk_model_version{task="third-child"} > 100')), limit=180
    )
    assert len(found) <= 2
    learners = {str(composed.running[f"learner {number}"].pid) for number in range(2)}
    # One may have had both until the other one came, and an owner shows in what it commits.
    eventually(lambda: _owners(composed) == learners, limit=120)


def _owners(composed):
    """Processes that own a partition."""
    owners = [partition["owner"] for partition in shown(composed, "status", "third-child")["partitions"]]
    return {owner.rpartition(":")[2] for owner in owners if owner is not None}


def test_no_alert_stays(composed):
    """At the start a partition may wait while its learner compiles; none of that lasts."""

    def quiet():
        alerts = composed.prometheus.get("alerts")["alerts"]
        found = [alert["labels"] for alert in alerts if alert["labels"]["severity"] != "info"]
        assert not [alert for alert in alerts if alert["labels"] in found and alert["state"] == "firing"]
        return not found

    eventually(quiet, limit=180, every=1)


def test_stopped_in_order_nothing_is_lost(composed):
    """Last: everything ends here, as `docker compose stop` ends it, and what was sent is what was learned."""
    for name in POPULATIONS:
        assert composed.stop(name) in (0, 130), composed.said(name)
    stopped = time.time()

    def learned():
        """What the monitor shows of each task, once it has read since then that nothing waits."""
        found = [shown(composed, "status", task) for task in TASKS]
        return found if all(each["now"] > stopped and each["lag"] == 0 for each in found) else None

    tasks = eventually(learned, limit=120, every=1)
    for service in composed.services:
        if service.startswith("learner"):
            for name in composed.copies(service):
                assert composed.stop(name) == 0, composed.said(name)
    found = murk("status", "--log", f"{composed.broker.url}/third-child", "--json", folder=ROOT).json
    for task, seen in zip(TASKS, tasks, strict=True):
        assert seen["duplicates"] == 0
        assert sum(seen["dead_letters"].values()) == 0
        assert seen["releases"] > 20
        assert task != "third-child" or seen["releases"] == found["releases"]
    assert composed.stop("monitor") == 0, composed.said("monitor")
