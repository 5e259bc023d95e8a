"""Dashboards and alerts against a real Prometheus that scrapes a real run.

People, learner and monitor are processes of their own. The configuration is the deployed one, with other targets
and a shorter interval.
"""

import json
import math
import queue
import re
import signal
import subprocess
import threading
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
import yaml

from deploy.broker.ports import number, reserve
from murk.monitoring.metrics import alerts
from murk.monitoring.metrics.catalogue import METRICS
from murk.producers import Ledger
from murk.stream import open_log
from tests.cli.harness import HEADER, ROWS, murk, start
from tests.services.services import PROMETHEUS, Prometheus, eventually, require
from tests.tools.grafana_schema import flat
from tools import prometheus, promql
from tools.grafana import DASHBOARDS

DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"
TASK = """\
name: third-child
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
privacy:
  guarantee: {gdp: {mu: 1.0}}
  levels:
    strict: {approx: {epsilon: 1.0, delta: 1.0e-6}}
    open: {zcdp: {rho: 2.0}}
learner: {radius: 1.5, intervals: random-scaling}
log: {partitions: 2}
"""
LOG = "sqlite:///third-child.db"
# What a fit of all records without noise comes to, roughly: "true" is what the monitor is told.
REFERENCE = {"same_sex": 0.14, "age": 0.47, "intercept": -0.48}
RECORDS = 5_200
NAMED = RECORDS * 3 // 4  # every fourth record is a second one of the person before
WITHDRAWN = 40  # people who are refused
PEOPLE = NAMED - WITHDRAWN
# Of further tasks, with other protocols, which have what the first one's has not.
CONTRASTS = 'contrasts: [{feature: same_sex, category: "yes", against: "no"}]'
OTHERS = {
    "examples": f"protocol: examples\n{CONTRASTS}",
    "scores": "protocol: scores\npublic: {set_aside: 500}\npredictions: {coverage: 0.9, share: 0.2}",
    "tracked": "track: {window: week}",
}
OF_OTHERS = {
    "with protocol examples": "examples",
    "with `contrasts`, and for the arms of an `experiment`": "examples",
    "with `contrasts`, and for the arms of an `experiment`, once it has an interval": "examples",
    "with `predictions`": "scores",
    "with `track`, for the newest windows": "tracked",
    "with `predictions`, once enough people have answered": "scores",
    "if releases allow this check: scores, examples and moments (not joint or separate ones)": "scores",
}
SHUFFLED = "shuffled"
"""The task that has a shuffler."""
OWN = {metric.name: OF_OTHERS[metric.optional] for metric in METRICS if metric.optional in OF_OTHERS} | {
    metric.name: SHUFFLED for metric in METRICS if metric.side == "shuffler"
}
# Compared only where several rounds have intervals, of far more people than are here; tests/monitoring/test_drift.py
# has tasks that have.
OF_MANY_PEOPLE = {"murk_drift_p_value", "murk_parameter_change"}
# A rate needs two scrapes within its interval, and on a busy machine many of them come late.
VARIABLES = {"$parameter": ".+", "$tasks": ".+", "$__rate_interval": "15s"}


class Tool:
    """A command of murk that runs until it is told to stop, and the lines that it has printed."""

    def __init__(self, folder, *arguments):
        self.process = start(*arguments, folder=folder)
        self.lines = queue.Queue()
        self.said = []
        streams = self.process.stdout, self.process.stderr
        self.readers = [threading.Thread(target=self._read, args=(stream,), daemon=True) for stream in streams]
        for reader in self.readers:
            reader.start()

    def _read(self, stream):
        # Whoever reads it closes it: closed by another thread, it could end this one with an error.
        with stream:
            for line in stream:
                self.said.append(line)
                self.lines.put(line)

    def line(self, words, limit=120):
        """The first line from now on that holds the words."""
        deadline = time.monotonic() + limit
        while words not in (line := self.lines.get(timeout=max(deadline - time.monotonic(), 0.01))):
            pass
        return line

    def end(self):
        """Stop as an operator does; safe to call again."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for reader in self.readers:
            reader.join(60)
        return self.process.returncode


@contextmanager
def tool(folder, *arguments):
    running = Tool(folder, *arguments)
    try:
        yield running
    except BaseException as error:
        error.add_note(f"{arguments} said: {''.join(running.said)}")
        raise
    finally:
        running.end()


def configuration(monitor, people, learner, gateway, shuffler, archiver):
    """The deployed configuration with other targets and shorter intervals."""
    found = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    targets = {
        alerts.MONITOR_JOB: [monitor], prometheus.PEOPLE_JOB: [people], prometheus.LEARNER_JOB: [learner],
        prometheus.GATEWAY_JOB: [gateway], prometheus.SHUFFLER_JOB: [shuffler], prometheus.ARCHIVER_JOB: [archiver],
    }  # fmt: skip
    assert {job["job_name"] for job in found["scrape_configs"]} == set(targets)
    for job in found["scrape_configs"]:
        job.pop("dns_sd_configs", None)
        job["static_configs"] = [{"targets": targets[job["job_name"]]}]
    found["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    return yaml.safe_dump(found)


def address(line):
    return re.search(r"http://([\d.]+:\d+)", line)[1]


def world(folder):
    (folder / "task.yaml").write_text(TASK)
    for name, protocol in OTHERS.items():
        text = TASK.replace("third-child", name).replace("learner: {radius: 1.5, intervals: random-scaling}", protocol)
        if name == "tracked":
            # A share, whose bands have an end from the first people on.
            before, _, after = text.partition("features:")
            text = f"{before}features: []\ntarget:{after.partition('target:')[2]}"
            text = text.replace("privacy:\n", "privacy:\n  window: week\n")
        (folder / f"{name}.yaml").write_text(text)
    shuffled = TASK.partition("privacy:")[0].replace("name: third-child", f"name: {SHUFFLED}")
    # Its protocol has no models, for which people would wait.
    shuffled = f"{shuffled}protocol: examples\nshuffle: {{crowd: 500, promise: {{epsilon: 0.5}}}}\n"
    (folder / f"{SHUFFLED}.yaml").write_text(shuffled)
    (folder / "few.csv").write_text("\n".join([",".join(HEADER), *ROWS[1:1_201]]) + "\n")
    (folder / "reference.json").write_text(json.dumps(REFERENCE))
    rows = [f"p{row - (row % 4 == 3)},{ROWS[row + 1]}" for row in range(RECORDS)]
    (folder / "people.csv").write_text("\n".join([",".join(["who", *HEADER]), *rows]) + "\n")


def disturb(folder):
    """Put what cannot be learned, and what has been learned already, on the log."""
    with open_log(f"sqlite:///{folder / 'third-child.db'}", create=False) as log:
        again = [(0, message.value) for message in log.read(0, max(log.end(0) - 20, 0), 5)]
        log.append([(0, b"not a release"), (1, b"{}"), *again])


def lag(folder):
    """How many releases nobody has learned."""
    with open_log(f"sqlite:///{folder / 'third-child.db'}", create=False) as log:
        return sum(log.status(partition).lag for partition in range(2))


def told_since(server, page, running):
    """Wait until the monitor has read, what runs was scraped after that, and the rules were evaluated after that."""

    def read(moment):
        with urllib.request.urlopen(page) as answer:
            return json.load(answer)["now"] > moment

    def scraped(moment):
        found = server.get("targets", state="active")["activeTargets"]
        return sum(each["health"] == "up" and since(each["lastScrape"], moment) for each in found) >= running

    def evaluated(moment):
        return all(since(group["lastEvaluation"], moment) for group in server.get("rules")["groups"])

    for look in (read, scraped, evaluated):
        eventually(partial(look, time.time()), every=0.1)


def since(text, moment):
    return datetime.fromisoformat(text).timestamp() > moment


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    """A Prometheus that has seen a run from its beginning: the server, and when the run began."""
    require(PROMETHEUS)
    folder = tmp_path_factory.mktemp("run")
    world(folder)
    for name in OTHERS:
        arguments = f"run {name}.yaml --source people.csv --level lot --seed 2 --ledger {name}.ledger.db --json --log"
        # Where some are set aside, every row is somebody's only one.
        person, expected = ([], RECORDS - 500) if name == "scores" else (["--person", "who"], NAMED)
        found = murk(*arguments.split(), f"sqlite:///{name}.db", *person, folder=folder).json["releases"]
        assert found == expected
    sent = murk(*f"produce {SHUFFLED}.yaml --source few.csv --log sqlite:///input.db --ledger few.db".split(),
                folder=folder)  # fmt: skip
    assert sent.status == 0, sent.err
    with Ledger(folder / "third-child.ledger.db") as ledger:
        for row in range(WITHDRAWN):
            ledger.withdraw(f"p{4 * row}")
    began = time.time()
    # The producer waits for learners, so everything that looks is there before the first release; small blocks
    # make it last for several scrapes.
    produce = ["produce", "task.yaml", "--source", "people.csv", "--person", "who", "--level", "lot", "--seed", 1,
               "--patience", 300, "--metrics-port", 0, "--block", 12]  # fmt: skip
    watch = ["monitor", "--log", LOG, "--port", 0, "--wait", "--json", "--interval", 0.5,
             "--reference", "third-child=reference.json", "--known-within", 0.001]  # fmt: skip
    for name in OTHERS:
        watch += ["--log", f"sqlite:///{name}.db"]
    with tool(folder, *produce) as people, tool(folder, *watch) as monitor, ExitStack() as stack:
        watching = address(monitor.line('"url"'))

        def shown():
            with urllib.request.urlopen(f"http://{watching}/api/tasks") as answer:
                return {each["name"] for each in json.load(answer)["tasks"]}

        # One monitor of all tasks, of which the first appears when its people begin.
        eventually(lambda: shown() == {"third-child", *OTHERS}, every=0.25)
        door = stack.enter_context(reserve())
        gateway = stack.enter_context(
            tool(folder, "gateway", "--log", LOG, "--port", 0, "--metrics-port", number(door), "--json")
        )
        url = address(gateway.line('"url"'))
        forward = ["--from", "sqlite:///input.db", "--to", "sqlite:///crowds.db", "--metrics-port", 0, "--json"]
        shuffler = stack.enter_context(tool(folder, "shuffle", *forward))
        keep = ["--log", LOG, "--to", "archive", "--follow", "--metrics-port", 0, "--json"]
        archiver = stack.enter_context(tool(folder, "archive", *keep))
        with urllib.request.urlopen(f"http://{url}/healthz") as answer:
            assert answer.status == 200
        # The learner's port is known before it is started, so that it is scraped from the first release on.
        held = reserve()
        targets = (
            watching,
            address(people.line("/metrics")),
            f"127.0.0.1:{number(held)}",
            f"127.0.0.1:{number(door)}",
            address(shuffler.line("/metrics")),
            address(archiver.line("/metrics")),
        )
        files = {"rules.yml": (DEPLOY / "rules.yml").read_text()}
        with (
            held,
            Prometheus(folder / "prometheus", configuration(*targets), files) as server,
            tool(folder, "learn", "--log", LOG, "--metrics-port", number(held)) as learner,
        ):
            version = 'murk_model_version{task="third-child"}'
            eventually(lambda: sum(values(server.query(version))) > 1_000, every=0.25)
            learned = sum(values(server.query(version)))
            disturb(folder)
            eventually(lambda: sum(values(server.query("murk_dead_letters_total"))) >= 2, every=0.25)
            eventually(lambda: sum(values(server.query(version))) > learned + 1_000, every=0.25)
            eventually(lambda: people.process.poll() is not None)
            assert people.process.returncode == 0, people.said
            eventually(lambda: lag(folder) == 0)
            told_since(server, f"http://{watching}/tasks/third-child/api/status", running=len(targets) - 1)
            assert learner.process.poll() is None, learner.said
            yield server, began, time.time()
            assert monitor.process.poll() is None, monitor.said


def values(result):
    found = [float(series["value"][1]) for series in result]
    return [value for value in found if math.isfinite(value)]


def substituted(expr):
    names = {promql.find(name).name for name in promql.names(expr)}
    task = next((OWN[name] for name in sorted(names) if name in OWN), "third-child")
    for name, value in {**VARIABLES, "$task": task}.items():
        expr = expr.replace(name, value)
    assert "$" not in expr
    return expr


def targets():
    for name, make in DASHBOARDS.items():
        for panel in flat(make()["panels"]):
            for target in panel.get("targets", []):
                if any(name in target["expr"] for name in OF_MANY_PEOPLE):
                    continue
                yield pytest.param(target, id=f"{name}: {panel['title']} {target['refId']}")


@pytest.mark.slow
@pytest.mark.parametrize("target", list(targets()))
def test_every_panel_is_filled(scraped, target):
    server, began, end = scraped
    found = server.query_range(substituted(target["expr"]), began, end, 1)
    finite = [float(text) for series in found for _, text in series["values"] if math.isfinite(float(text))]
    assert finite, "no data"
    for series in found:
        for label in promql._LEGEND.findall(target["legendFormat"]):
            assert label in series["metric"]


@pytest.mark.slow
def test_values_say_what_happened(scraped):
    server, began, end = scraped
    window = f"{math.ceil(end - began) + 60}s"

    def last(expr, task="third-child"):
        name, _, labels = expr.partition("{")
        return values(server.query(f'last_over_time({name}{{task="{task}",{labels or "}"}[{window}])'))

    assert sum(last("murk_model_version")) == PEOPLE
    assert last('murk_releases_total{result="learned"}') == [PEOPLE]
    assert sum(last("murk_model_version", "examples")) == NAMED
    # Of the other protocol: no age, no updates refused, and a loss that is known about as well as it says. That of
    # coefficients 0 is 1/2 over 1 + |x|^2, of 3 to 4 here, and 6 standard errors are as good as certain.
    assert last("murk_staleness_releases_count", "examples") == []
    assert sum(last("murk_refused_updates_total", "examples")) == 0
    [loss], [error] = last("murk_unbiased_loss", "examples"), last("murk_unbiased_loss_error", "examples")
    assert 0 < error < 0.5
    assert abs(loss - 0.15) < 0.05 + 6 * error
    assert last("murk_duplicates_total") == [5]
    assert sum(last("murk_dead_letters_total")) == 2
    # 1,200 people leave in crowds of 500; what waits is told in tenths of a crowd.
    assert last("murk_shuffler_releases_total", SHUFFLED)[0] in (1_000, 1_200)
    [waiting] = last("murk_shuffler_waiting_releases", SHUFFLED)
    assert waiting in (0, 200)
    # Three levels at random: one states an epsilon, the two others a mu.
    assert last("murk_release_epsilon_count")[0] + last("murk_release_mu_count")[0] == PEOPLE
    # Sums over people are told now and then, and not once more when the last one has left.
    assert 20 <= last("murk_ledger_spent_ratio_count")[0] <= PEOPLE
    assert 0 < last("murk_ledger_refusals_total")[0] <= WITHDRAWN


@pytest.mark.slow
def test_task_and_parameters_can_be_chosen(scraped):
    server, began, end = scraped
    for name, make in DASHBOARDS.items():
        for variable in make()["templating"]["list"]:
            inside = variable["query"].removeprefix("label_values(").removesuffix(")")
            selector, label = inside.rsplit(", ", 1)
            # What Grafana asks for such a variable.
            found = server.get(
                f"label/{label}/values", **{"match[]": substituted(selector), "start": began, "end": end}
            )
            tasks = sorted([*OTHERS, "third-child"])
            wanted = {"task": tasks, "tasks": tasks, "parameter": sorted(REFERENCE)}[variable["name"]]
            assert found == wanted, name


@pytest.mark.slow
def test_rules_are_evaluated_on_what_is_there(scraped):
    server, began, end = scraped
    groups = server.get("rules")["groups"]
    found = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert set(found) == {alert.name for alert in alerts.ALERTS} | set(alerts.RECORDED)
    for name, rule in found.items():
        assert (rule["health"], rule.get("lastError", "")) == ("ok", ""), name
    for name in alerts.RECORDED:
        assert server.query_range(name, began, end, 1), name
    for alert in alerts.ALERTS:
        for name in promql.names(alert.expr):
            assert server.query_range(name, began, end, 1), f"{alert.name} looks at {name}, which is not there"
        assert server.query(alert.expr) is not None


@pytest.mark.slow
def test_a_healthy_run_does_not_even_begin_to_raise_an_alert(scraped):
    server, _, _ = scraped

    def begun():
        # Those of severity "info" are about what is allowed to happen: some people have withdrawn and are refused.
        alerts = server.get("alerts")["alerts"]
        return [alert["labels"] for alert in alerts if alert["labels"]["severity"] != "info"]

    # What a busy machine does not answer within a second counts as away until the next scrape; any other alert stays.
    eventually(lambda: not begun(), limit=30)
