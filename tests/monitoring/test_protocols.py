"""Every protocol on the same monitor: what its learner knows is shown, and what it does not know is not made up."""

import json
import math
import re
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from murk import Task
from murk.inference.estimate import RANDOM_SCALING, Estimate
from murk.monitoring import Monitor
from murk.monitoring import monitor as module
from murk.monitoring.figures import Place, figures
from murk.monitoring.metrics.catalogue import METRICS
from murk.monitoring.web.routes import PAGE
from murk.populations.local_run import LocalRun
from murk.populations.people import PopulationConfig
from murk.privacy import ApproxDP, calibrate
from murk.protocols.device import ROOMS, device_for
from murk.protocols.scores.device import ScoreDevice
from murk.protocols.scores.estimate import ScoreEstimate
from murk.stream import open_log
from murk.stream.wire.state import Counters, StateMessage
from tests.cli.harness import people
from tests.monitoring.metrics.test_exporter import check, families
from tests.monitoring.runs import url
from tests.stream.harness import VERSIONED

TEXT = """\
name: third-child
features:
  - {{name: same_sex, categories: ["no", "yes"]}}
  - {{name: age, low: 21, high: 35}}
target: {{name: third_child, kind: binary, positive: "yes", negative: "no"}}
privacy: {{guarantee: {{approx: {{epsilon: 2.0, delta: 1.0e-6}}}}}}
protocol: {protocol}
log: {{partitions: 2}}
"""
STEPS = {"murk_iterate_gap", "murk_step_size"}
LOSS = {"murk_unbiased_loss", "murk_unbiased_loss_error", "murk_refused_updates_total"}
# What each protocol's learner knows beyond what is known of all; of gradients the age as well.
KNOWN = {
    "gradients": STEPS | {"murk_staleness_releases"}, "examples": STEPS | LOSS,
    "scores": set(), "moments": set(), "summaries": set(),
}  # fmt: skip
MODELS = {
    "gradients": "logistic", "examples": "quadratic loss over 1 + |x|^2", "moments": "logistic loss",
    "summaries": "quadratic surrogate of the logistic loss", "scores": "logistic",
}  # fmt: skip
TASK = {"task": "third-child"}
every_protocol = pytest.mark.parametrize("protocol", KNOWN)


def task_for(protocol: str) -> Task:
    # Rows of a sketch that there are records for.
    more = "summaries: {rows: 100, window: 400}\n" if protocol == "summaries" else ""
    return Task.parse(TEXT.format(protocol=protocol) + more)


@dataclass
class StandInEngine:
    """A learner that knows what its state says."""

    n_releases: int = 0
    known: dict = field(default_factory=dict)

    def figures(self) -> dict:
        return self.known

    def load_state_dict(self, state: dict) -> None:
        self.n_releases, self.known = state["n_releases"], state["known"]


@dataclass
class StandInDevice:
    interactive: bool
    mechanisms: ClassVar[dict[str, Any]] = defaultdict(
        lambda: calibrate(None, ApproxDP(2.0, 1e-6), dimension=3, radius=1.0)
    )

    def engine(self) -> StandInEngine:
        return StandInEngine()

    def estimate(self, engines: list[StandInEngine]) -> Estimate:
        names = ("same_sex", "age", "intercept")
        n = sum(engine.n_releases for engine in engines)
        return Estimate(names, np.zeros(3), RANDOM_SCALING, np.full(3, math.inf), "a stand-in", len(engines), n)


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Makes a monitor that has polled a log whose partitions know what is given: ``(releases, figures)`` each."""

    def make(protocol: str, *partitions: tuple[int, dict]) -> Monitor:
        monkeypatch.setattr(module, "device_for", lambda task: StandInDevice(task.protocol in VERSIONED))
        task = task_for(protocol)
        log = open_log(url(tmp_path))
        log.register_task(task.document())
        for partition, (n, known) in enumerate(partitions):
            state = StateMessage(
                task=task.hash, identity=log.identity, partition=partition, offset=0, last_id=None,
                counters=Counters(learned=n, levels={"default": n}), learner={"n_releases": n, "known": known},
            )  # fmt: skip
            with closing(log.acquire(partition)) as owned:
                owned.commit(state.encode(), 0, [], None)
        monitor = Monitor(log, task)
        assert monitor.poll(), monitor.status()["problem"]
        opened.append(log)
        return monitor

    opened = []
    yield make
    for log in opened:
        log.close()


FIGURES = {
    "gradients": {"iterate_gap": 0.5, "step_size": 0.1},
    "examples": {
        "iterate_gap": 0.5, "step_size": 0.1, "unbiased_loss": 0.6, "unbiased_loss_error": 0.02, "refused_updates": 3.0,
    },
    "moments": {},
    "summaries": {"records": 250_000.0},
    "scores": {},
}  # fmt: skip


@every_protocol
def test_what_a_learner_does_not_know_is_null_and_not_exported(stand_in, protocol):
    monitor = stand_in(protocol, (100, FIGURES[protocol]), (100, FIGURES[protocol]))
    found = json.loads(monitor.snapshot.body)
    assert (found["task"]["protocol"], found["task"]["model"]) == (protocol, MODELS[protocol])
    assert found["task"]["objective"] == ("balanced" if protocol == "gradients" else None)
    assert found["releases"] == 200
    for partition in found["partitions"]:
        for name in ("iterate_gap", "step_size", "unbiased_loss", "unbiased_loss_error", "refused_updates", "records"):
            assert partition[name] == FIGURES[protocol].get(name)
    assert (found["staleness"] is None) == (protocol != "gradients")
    assert found["records"] == (500_000 if protocol == "summaries" else None)
    check(monitor.registry, "monitor")
    assert filled(monitor) & (STEPS | LOSS | {"murk_staleness_releases"}) == KNOWN[protocol]
    if protocol == "examples":
        assert found["unbiased_loss"] == {"value": 0.6, "error": pytest.approx(0.02 / math.sqrt(2))}
        assert found["refused_updates"] == 6
        assert found["history"]["unbiased_loss"] == [0.6]
        assert found["history"]["unbiased_loss_error"] == [found["unbiased_loss"]["error"]]
    else:
        assert found["unbiased_loss"] is found["refused_updates"] is None
        assert found["history"]["unbiased_loss"] == found["history"]["unbiased_loss_error"] == [None]


@pytest.mark.parametrize("alike", [True, False, None])
def test_whether_public_covariates_are_like_the_peoples(stand_in, monkeypatch, alike):
    said = StandInDevice.estimate
    monkeypatch.setattr(StandInDevice, "estimate", lambda self, engines: replace(said(self, engines), alike=alike))
    monitor = stand_in("scores", (100, {}))
    check(monitor.registry, "monitor")
    [family] = [each for each in families(monitor.registry) if each.name == "murk_public_covariates_alike"]
    assert [sample.value for sample in family.samples] == ([] if alike is None else [float(alike)])


def test_what_it_would_take_is_forecast_now_and_then(monkeypatch, tmp_path):
    """Where scores did not learn a coefficient; again when much was added, or something else is not learned."""
    text = TEXT.format(protocol="scores").replace("partitions: 2", "partitions: 1")
    task = Task.parse(text.replace("approx: {epsilon: 2.0, delta: 1.0e-6}", "gdp: {mu: 0.05}")).with_simulated(True)
    asked = []
    forecast = ScoreEstimate.needs
    monkeypatch.setattr(ScoreEstimate, "needs", lambda self, level: asked.append(1) or forecast(self, level))
    device = device_for(task)
    # As if no survey preceded the scores, so that a few releases are enough.
    device = ScoreDevice(replace(device.settings, survey=None), device.mechanisms)
    engine, rng = device.engine(), np.random.default_rng(1)
    before = None

    def learned(count):
        payloads = rng.integers(-(2**22), 2**22, size=(count, 3))
        engine.learn_payloads({("default", "score"): payloads})
        message = StateMessage(
            task=task.hash, identity="x", partition=0, offset=count, last_id=None,
            counters=Counters(learned=engine.n_releases), learner=engine.state_dict(),
        )  # fmt: skip
        return figures(task, device, [message], [Place(count, count)], before=before)

    assert figures(task, device, [None], [Place(0, 0)]).needed.of == {}
    before = learned(400)
    assert before.needed.of.keys() == {"same_sex", "age", "intercept"}
    assert (before.needed.releases, len(asked)) == (400, 1)
    before = learned(50)
    assert (before.needed.releases, len(asked)) == (400, 1)
    before = learned(100)
    assert (before.needed.releases, len(asked)) == (550, 2)


def filled(monitor: Monitor) -> set[str]:
    """Described metrics that have values."""
    found = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in families(monitor.registry)
        if family.samples
    }
    assert found <= {metric.name for metric in METRICS}
    return found


def loss(value: float, error: float) -> dict:
    return {"unbiased_loss": value, "unbiased_loss_error": error, "refused_updates": 1.0}


def test_the_loss_is_the_mean_over_all_partitions_releases(stand_in):
    monitor = stand_in("examples", (300, loss(0.5, 0.03)), (100, loss(0.9, 0.05)))
    found = monitor.status()["unbiased_loss"]
    assert found["value"] == pytest.approx((300 * 0.5 + 100 * 0.9) / 400)
    # Partitions share no release, so their errors are independent.
    assert found["error"] == pytest.approx(math.hypot(300 * 0.03, 100 * 0.05) / 400)
    value = monitor.registry.get_sample_value
    assert value("murk_unbiased_loss", TASK) == found["value"]
    assert value("murk_unbiased_loss_error", TASK) == found["error"]
    assert [value("murk_refused_updates_total", {**TASK, "partition": partition}) for partition in "01"] == [1, 1]


@pytest.mark.parametrize("nothing", [(0, loss(7.0, 7.0)), (0, {"refused_updates": 0.0}), (5, {"refused_updates": 5.0})])
def test_a_partition_without_a_loss_counts_for_nothing(stand_in, nothing):
    found = stand_in("examples", (300, loss(0.5, 0.03)), nothing).status()
    assert found["unbiased_loss"] == {"value": 0.5, "error": 0.03}


@pytest.mark.parametrize("error", [{}, {"unbiased_loss_error": 0.0}])
def test_of_one_release_no_error_is_known(stand_in, error):
    monitor = stand_in("examples", (1, {"unbiased_loss": 0.5} | error), (0, {}))
    assert monitor.status()["unbiased_loss"] == {"value": 0.5, "error": None}
    assert monitor.registry.get_sample_value("murk_unbiased_loss_error", TASK) is None


def test_before_the_first_release_the_loss_is_there_and_unknown(stand_in):
    monitor = stand_in("examples", (0, {"refused_updates": 0.0}), (0, {"refused_updates": 0.0}))
    assert monitor.status()["unbiased_loss"] == {"value": None, "error": None}
    assert filled(monitor) & LOSS == {"murk_refused_updates_total"}


@every_protocol
def test_a_real_run_is_watched(protocol, tmp_path):
    task = task_for(protocol)
    # Gradients wait for a model after every few rows.
    people(tmp_path / "people.csv", 400 if protocol == "gradients" else 1600)
    with LocalRun(
        task, PopulationConfig(tmp_path / "people.csv", seed=1), url(tmp_path), tmp_path / "ledger.db"
    ) as run:
        monitor = Monitor(run.log, run.task)
        assert monitor.poll()
        check(monitor.registry, "monitor")
        for _ in run.steps():
            assert monitor.poll()
        assert monitor.poll()
        learned, releases = run.estimate(), run.releases
        found = json.loads(monitor.snapshot.body)
        check(monitor.registry, "monitor")
    assert found["healthy"], found["problem"]
    assert found["task"]["protocol"] == protocol
    assert found["releases"] == releases == sum(partition["version"] for partition in found["partitions"]) > 0
    assert found["estimate"]["values"] == list(learned.values)
    assert found["estimate"]["method"] == learned.method
    assert filled(monitor) & (STEPS | LOSS | {"murk_staleness_releases"}) == KNOWN[protocol]
    if protocol == "examples":
        assert found["unbiased_loss"]["error"] > 0
        assert found["refused_updates"] == 0
        known = [value for value in found["history"]["unbiased_loss"] if value is not None]
        assert known[-1] == found["unbiased_loss"]["value"]


def test_the_page_says_what_a_release_of_each_protocol_is():
    [words] = re.findall(r"const RELEASES = {(.*?)};", (PAGE / "blocks.js").read_text(), re.DOTALL)
    assert set(re.findall(r"^  (\w+): ", words, re.MULTILINE)) == ROOMS.keys()
