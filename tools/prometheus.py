"""Prometheus: what is scraped, and the rule file that is made from the alerts."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from murk.errors import UserError
from murk.monitoring.metrics.alerts import ALERTS, MONITOR_JOB, RECORDED, RUNBOOK, Alert
from tools.promql import query

Json = dict[str, Any]

LEARNER_JOB: Final = "murk-learner"
PEOPLE_JOB: Final = "murk-population"
GATEWAY_JOB: Final = "murk-gateway"
SHUFFLER_JOB: Final = "murk-shuffler"
ARCHIVER_JOB: Final = "murk-archiver"
LEARNERS: Final = ["learner", "learner-gradients", "learner-examples"]
"""Services of ``compose.yaml`` that learn, one for each task; other deployments have the first alone."""
POPULATIONS: Final = ["population", "population-gradients", "population-examples"]
INTERVAL: Final = "5s"
MONITOR_URL: Final = "http://127.0.0.1:9464"
"""Where a browser finds the monitor: as ``compose.yaml`` and the documents have it."""


def rule_file(monitor_url: str = MONITOR_URL) -> Json:
    """Make the rule file of Prometheus; alerts link to the runbook of the monitor at ``monitor_url``.

    Raises
    ------
    ValueError
        When an expression names what is not exported.
    """
    recorded = [{"record": name, "expr": query(expr, recorded=RECORDED)} for name, expr in RECORDED.items()]
    return {
        "groups": [
            {"name": "murk-recorded", "rules": recorded},
            {"name": "murk-alerts", "rules": [_rule(alert, monitor_url) for alert in ALERTS]},
        ]
    }


def _rule(alert: Alert, monitor_url: str) -> Json:
    return {
        "alert": alert.name,
        "expr": query(alert.expr, recorded=RECORDED),
        "for": alert.wait,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{monitor_url}{RUNBOOK}/{alert.name}",
        },
    }


def configuration(*, is_shuffled: bool = False) -> Json:
    """Make Prometheus' configuration: the services of ``compose.yaml`` that export figures, and the rules.

    With ``is_shuffled`` it is that of ``compose.shuffled.yaml`` for whoever reads the log of releases: the gateway and
    the population count what arrives, which only the shuffler's organisation may see.
    """
    arrivals = [
        {"job_name": PEOPLE_JOB, "dns_sd_configs": [{"names": POPULATIONS, "type": "A", "port": 9465}]},
        {"job_name": GATEWAY_JOB, "static_configs": [{"targets": ["gateway:9467"]}]},
    ]
    archiver = {"job_name": ARCHIVER_JOB, "dns_sd_configs": [{"names": ["archiver"], "type": "A", "port": 9469}]}
    shuffler = {"job_name": SHUFFLER_JOB, "dns_sd_configs": [{"names": ["shuffler"], "type": "A", "port": 9468}]}
    return {
        "global": {"scrape_interval": INTERVAL, "scrape_timeout": "4s", "evaluation_interval": "15s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {"job_name": MONITOR_JOB, "static_configs": [{"targets": ["monitor:9464"]}]},
            # There are several of the same name, and each is asked; names that are not there are no targets.
            {"job_name": LEARNER_JOB, "dns_sd_configs": [{"names": LEARNERS, "type": "A", "port": 9466}]},
            *([shuffler] if is_shuffled else [*arrivals, archiver, shuffler]),
        ],
    }


def check_monitor_url(url: str) -> str:
    """Return an address of a monitor as links begin with it, without a slash at the end.

    Raises
    ------
    UserError
        When it is not an absolute address that a browser can open.

    Examples
    --------
    >>> check_monitor_url("https://murk.example.org/")
    'https://murk.example.org'
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise UserError(
            f"{url!r} is not the address of a monitor: write it as people's browsers reach it, as in "
            "https://murk.example.org"
        )
    return url.rstrip("/")
