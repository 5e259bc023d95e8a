"""What the page of an experiment is made of: lifts at every look, and none of them twice."""

import itertools

import pytest

import murk
from murk import Task
from murk.monitoring import Monitor
from murk.results.report import report_log
from murk.stream import open_log

TASK = """
name: checkout
features:
  - {name: arm, categories: [old, new, newest], known: true}
  - {name: platform, categories: [web, ios], known: true}
target: {name: bought, kind: binary, positive: "yes", negative: "no", missing_share: 0}
experiment: {arm: arm, control: old, assigned: {by: server, shares: [0.4, 0.3, 0.3]}METRICS}
contrasts: [{feature: platform, category: ios, against: web}]
privacy: {guarantee: {gdp: {mu: 4.0}}}
"""
METRICS = ", metrics: [{name: amount, kind: real, low: 0, high: 10, missing_share: 0}]"


@pytest.mark.parametrize("metrics", ["", METRICS], ids=["target", "metrics"])
def test_lifts_are_those_of_the_report_at_every_look(tmp_path, metrics):
    task, url, looks = Task.parse(TASK.replace("METRICS", metrics)), f"sqlite:///{tmp_path}/log.db", []
    values = itertools.product(["old", "new", "newest"], ["web", "ios"], ["yes", "no"], [0, 9.5])
    rows = [dict(zip(["arm", "platform", "bought", "amount"], row, strict=True)) for row in values] * 100
    with open_log(url) as log:
        log.register_task(task.with_simulated(True).document())
        monitor = Monitor(log, task.with_simulated(True))
        assert monitor.poll()
        assert monitor.status()["experiment"] is None
        assert monitor.status()["history"]["lifts"] == {}

        def look(*_: int) -> None:
            monitor.poll()
            report = report_log(monitor.snapshot.task, log, live=True)
            if report["releases"]:
                looks.append(report)

        murk.run(task, rows, seed=1, log=url, ledger=tmp_path / "ledger.db", block=800, progress=look)
        status = monitor.status()
    last = looks[-1]["experiment"]
    assert status["experiment"]["people"] == last["people"]
    assert status["experiment"]["words"] == last["words"]
    # The arms have lifts, so that only the task's own contrast is among contrasts.
    assert [each["name"] for each in status["estimate"]["contrasts"]] == ["platform: ios against web"]
    lifts = status["history"]["lifts"]
    assert list(lifts) == ["new", "newest"] + ["new, amount", "newest, amount"] * bool(metrics)
    assert status["history"]["releases"][-len(looks) :] == [each["releases"] for each in looks]
    for place, arm in enumerate(["new", "newest"]):
        for seen, report in zip(range(-len(looks), 0), looks, strict=True):
            expected = report["experiment"]["lifts"][place]
            assert lifts[arm]["values"][seen] == pytest.approx(expected["value"])
            ends = lifts[arm]["lows"][seen], lifts[arm]["highs"][seen]
            assert ends == pytest.approx(expected["interval"])
    assert lifts["new"]["values"][0] is None
