"""Alert rules: Prometheus' own checker, its unit tests for every alert, and a link to what to do for each."""

import os
import re
import subprocess
from email.message import Message
from pathlib import Path

import numpy as np
import pytest
import yaml

from murk.monitoring.metrics import alerts
from murk.monitoring.web.routes import runbook_routes, sections
from tests.services.services import require
from tools import prometheus

PROMTOOL = "/usr/bin/promtool"
DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"


def promtool(*arguments):
    require(PROMTOOL)
    done = subprocess.run([PROMTOOL, *arguments], cwd=DEPLOY, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [("check", "rules", "rules.yml"), ("check", "config", "prometheus.yml"),
                                       ("test", "rules", "rules_test.yml")], ids=" ".join)  # fmt: skip
def test_promtool_finds_nothing_wrong(arguments):
    status, said = promtool(*arguments)
    assert status == 0, said


def names(test):
    """Alerts of which a unit test says something."""
    return {case["alertname"] for case in test["alert_rule_test"]}


def cases():
    """Unit tests by alert: those that expect it, and those that expect it not."""
    raised, silent = set(), set()
    document = yaml.safe_load((DEPLOY / "rules_test.yml").read_text())
    for test in document["tests"]:
        tasks = {task for series in test["input_series"] for task in re.findall(r'task="(\w+)"', series["series"])}
        for case in test["alert_rule_test"]:
            name = case["alertname"]
            if not case["exp_alerts"]:
                silent.add(name)
            else:
                raised.add(name)
                # Of several tasks one is expected, so that the others are twins for which it must not be raised.
                if len(tasks) > len(case["exp_alerts"]):
                    silent.add(name)
    return raised, silent


def test_every_alert_has_a_case_in_which_it_is_raised_and_one_in_which_it_is_not():
    names = {alert.name for alert in alerts.ALERTS}
    assert cases() == (names, names)


@pytest.mark.parametrize("alert", alerts.ALERTS, ids=lambda alert: alert.name)
def test_unit_tests_notice_when_an_alert_is_never_raised(alert, tmp_path):
    require(PROMTOOL)
    made = prometheus.rule_file()
    for rule in made["groups"][1]["rules"]:
        if rule["alert"] == alert.name:
            rule["expr"] = f"({rule['expr']}) and on () vector(1) == 2"
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(made))
    document = yaml.safe_load((DEPLOY / "rules_test.yml").read_text())
    document["tests"] = [test for test in document["tests"] if alert.name in names(test)]
    (tmp_path / "rules_test.yml").write_text(yaml.safe_dump(document))
    status, said = promtool("test", "rules", os.fspath(tmp_path / "rules_test.yml"))
    assert status != 0
    assert f"alertname: {alert.name}" in said


@pytest.mark.parametrize("alert", alerts.ALERTS, ids=lambda alert: alert.name)
def test_every_alert_says_what_to_do(alert):
    assert re.fullmatch(r"Murk([A-Z][a-z]+)+", alert.name)
    assert len(alert.summary) < 120
    assert not alert.summary.endswith(".")
    assert alert.description.endswith(".")
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", alert.anchor)


def test_every_alert_links_to_its_page_on_the_monitor():
    routes = runbook_routes()
    for rule in prometheus.rule_file("https://murk.example.org")["groups"][1]["rules"]:
        base, path = rule["annotations"]["runbook_url"][:24], rule["annotations"]["runbook_url"][24:]
        assert base == "https://murk.example.org"
        status, kind, page = routes[path](Message())
        assert (status, kind) == (200, "text/html; charset=utf-8")
        assert f"<h1>{rule['alert']}</h1>" in page.decode()
        assert f'<a href="{rule["alert"]}">' in routes["/runbook/"](Message()).body.decode()


def test_a_page_says_what_the_document_says():
    page = runbook_routes()["/runbook/MurkNoProgress"](Message()).body.decode()
    text = sections((DEPLOY.parents[1] / "docs" / "recover.md").read_text())["a-partition-makes-no-progress"]
    assert page.count("<li>") == text.count("\n1. ") + 3 == 4
    assert "<code>/api/status</code>" in page
    assert "murk_lag_releases) &gt; 0" in page or "(murk_lag_releases)) &gt; 0" in page
    assert (
        '<a href="MurkStaleGradients">'
        in runbook_routes()["/runbook/MurkIntervalNotShrinking"](Message()).body.decode()
    )


def test_names_and_anchors_are_unique():
    assert (
        len({alert.name for alert in alerts.ALERTS})
        == len({alert.anchor for alert in alerts.ALERTS})
        == len(alerts.ALERTS)
    )


def test_a_rule_cannot_name_what_is_not_exported(monkeypatch):
    monkeypatch.setitem(alerts.RECORDED, alerts.COUNT, "max by (task) (murk_estimates_releases)")
    with pytest.raises(ValueError, match="no metric is called 'murk_estimates_releases'"):
        prometheus.rule_file()


def test_the_services_of_the_deployment_are_scraped():
    def names(service):
        return [service, f"{service}-gradients", f"{service}-examples"]

    jobs = prometheus.configuration()["scrape_configs"]
    targets = {job["job_name"]: job.get("static_configs") or job["dns_sd_configs"] for job in jobs}
    assert targets == {
        "murk-monitor": [{"targets": ["monitor:9464"]}],
        # Every address that the name has: there is one for each learner.
        "murk-learner": [{"names": names("learner"), "type": "A", "port": 9466}],
        "murk-population": [{"names": names("population"), "type": "A", "port": 9465}],
        "murk-gateway": [{"targets": ["gateway:9467"]}],
        "murk-archiver": [{"names": ["archiver"], "type": "A", "port": 9469}],
        "murk-shuffler": [{"names": ["shuffler"], "type": "A", "port": 9468}],
    }


def watched(coefficients, runs=2_000, steps=500, seed=11):
    """The figure that MurkIntervalNotShrinking watches, at the end of runs of random scaling's limit distribution.

    A coefficient's average is a Brownian path over its time, ``W_s / s``, and its squared standard error is
    ``t^-3 sum s^2 (bar_s - bar_t)^2``.
    """
    random, s = np.random.default_rng(seed), np.arange(1, steps + 1)
    squared = np.zeros((runs, steps))
    for _ in range(coefficients):
        path = np.cumsum(random.standard_normal((runs, steps)), axis=1)
        average = path / s
        spread = np.cumsum(path**2, axis=1) - 2 * average * np.cumsum(path * s, axis=1)
        squared += (spread + average**2 * np.cumsum(s**2)) / s**3
    law = np.sqrt(squared * s)[:, steps // 50 :]
    return law[:, -1] / np.quantile(law, alerts.LOWER, axis=1)


def test_chance_alone_seldom_looks_like_intervals_that_do_not_shrink():
    # About 6 and 180 of 2,000 are expected; counts that are Poisson pass these limits with probability 1e-5.
    assert np.mean(watched(3) > alerts.WIDER) < 0.01
    assert 0.06 < np.mean(watched(1) > alerts.WIDER) < 0.13


def test_an_error_that_stands_still_is_seen_once_the_count_has_grown_enough():
    count = np.arange(100, 10_001)
    for growth, seen in ((6.0, False), (6.5, True), (50.0, True)):
        error = 1 / np.sqrt(np.minimum(count, count[-1] / growth))
        law = error * np.sqrt(count)
        assert (law[-1] > alerts.WIDER * np.quantile(law, alerts.LOWER)) == seen
