"""`compose.yaml` as a deployment: its services run here as processes, until every panel of every dashboard is full.

Against a real broker with the file's settings, and a real Prometheus with the mounted configuration.
"""

import json
import math
import time

import pytest

from murk.monitoring.metrics.catalogue import METRICS
from tests.cli.harness import murk
from tests.services.composed import ROOT, Composed
from tests.services.services import PROMETHEUS, eventually, require, require_kafka
from tests.services.test_prometheus import OWN, substituted, targets, values

# What Grafana makes of it for a data source that is scraped every 5 seconds.
RATE_INTERVAL = "20s"
OF_OTHERS = OWN.keys() | {
    metric.name
    for metric in METRICS
    if metric.optional
    in ("with protocol gradients", "if the learner is iterative", "with `murk monitor --known-within`")
}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def composed(tmp_path_factory):
    require_kafka()
    require(PROMETHEUS)
    began = time.time()
    with Composed(tmp_path_factory.mktemp("composed")) as everything:
        everything.began = began
        everything.healthy("population")
        everything.healthy("gateway")
        # What is waited for is time and scrapes: people who release as fast as they can would take all cores meanwhile.
        everything.slow("population")
        yield everything


def status(composed):
    return murk("status", "--log", f"{composed.broker.url}/third-child", "--json", folder=ROOT).json


def test_all_services_become_healthy(composed):
    for name in ("gateway", "learner", "monitor", "population"):
        composed.healthy(name)


def test_a_learners_log_says_what_it_does_in_objects_with_times(composed):
    def said(name):
        return [json.loads(line) for line in (composed.folder / f"{name}.log").read_text().splitlines()]

    for name in composed.copies("learner"):
        eventually(lambda name=name: any("taken over at offset" in one["message"] for one in said(name)), limit=180)
        assert all({"time", "level", "logger", "message"} == found.keys() for found in said(name))


def test_every_panel_of_every_dashboard_fills(composed):
    for parameter in targets():
        # The deployment's task is one of scores without contrasts: it has neither steps nor what other tasks have.
        if any(name in parameter.values[0]["expr"] for name in OF_OTHERS):
            continue
        expr = substituted(parameter.values[0]["expr"].replace("$__rate_interval", RATE_INTERVAL))

        def filled(expr=expr):
            found = composed.prometheus.query_range(expr, composed.began, time.time(), 5)
            return any(math.isfinite(float(text)) for series in found for _, text in series["values"])

        try:
            eventually(filled, limit=180, every=0.5)
        except AssertionError as error:
            error.add_note(f"{parameter.id}: {expr}")
            raise


def test_both_learners_have_a_chain(composed):
    found = eventually(lambda: values(composed.prometheus.query("murk_model_version > 100")), limit=180)
    assert len(found) <= 2
    learners = {str(composed.running[f"learner {number}"].pid) for number in range(2)}
    shown = eventually(lambda: _owners(composed), limit=120)
    assert shown == learners


def _owners(composed):
    """Processes that own a chain, once there is one for each of the two chains."""
    import urllib.request

    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(composed.here("http://monitor:9464/api/status"), timeout=30) as answer:
        owners = [chain["owner"] for chain in json.load(answer)["chains"]]
    return {owner.rpartition(":")[2] for owner in owners} if None not in owners and len(owners) == 2 else None


def test_no_alert_stays(composed):
    """At the start a chain may wait while its learner compiles; none of that lasts."""

    def quiet():
        alerts = composed.prometheus.get("alerts")["alerts"]
        found = [alert["labels"] for alert in alerts if alert["labels"]["severity"] != "info"]
        assert not [alert for alert in alerts if alert["labels"] in found and alert["state"] == "firing"]
        return not found

    eventually(quiet, limit=180, every=1)


def test_stopped_in_order_nothing_is_lost(composed):
    """Last: everything ends here, as `docker compose stop` ends it, and what was sent is what was learned."""
    assert composed.stop("population") in (0, 130), composed.said("population")
    eventually(lambda: status(composed)["lag"] == 0, limit=120, every=1)
    for number in range(2):
        name = f"learner {number}"
        assert composed.stop(name) == 0, composed.said(name)
    found = status(composed)
    assert found["duplicates"] == 0
    assert sum(found["dead_letters"].values()) == 0
    assert found["releases"] > 100
    assert composed.stop("monitor") == 0, composed.said("monitor")
