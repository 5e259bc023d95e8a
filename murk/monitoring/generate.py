"""Write what Grafana and Prometheus read: ``python -m murk.monitoring.generate deploy [--monitor-url URL]``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from murk.errors import UserError
from murk.monitoring.grafana import DASHBOARDS, dashboard_provider, data_source
from murk.monitoring.rules import MONITOR_URL, prometheus, rules
from murk.monitoring.runbook import check_monitor_url

HEADER = "# Made by `python -m murk.monitoring.generate deploy`. Change murk/monitoring instead.\n"


def files(monitor_url: str = MONITOR_URL) -> Iterator[tuple[str, str]]:
    """Return every generated file: its path below ``deploy`` and its text.

    Parameters
    ----------
    monitor_url
        Where the people who read alerts reach the monitor: alerts link to its runbook.

    Raises
    ------
    ValueError
        When a query names a metric or a label that is not described.

    Examples
    --------
    >>> [path for path, text in files() if path.startswith("prometheus")]
    ['prometheus/prometheus.yml', 'prometheus/rules.yml']
    """
    for name, make in DASHBOARDS.items():
        yield f"grafana/dashboards/{name}.json", json.dumps(make(), indent=2, ensure_ascii=False) + "\n"
    yield "grafana/provisioning/datasources/murk.yml", _yaml(data_source())
    yield "grafana/provisioning/dashboards/murk.yml", _yaml(dashboard_provider())
    yield "prometheus/prometheus.yml", _yaml(prometheus())
    yield "prometheus/rules.yml", _yaml(rules(monitor_url))


def write(folder: Path, monitor_url: str = MONITOR_URL) -> list[Path]:
    """Write every file below ``folder`` and return their paths."""
    written = []
    for name, text in files(monitor_url):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _yaml(document: dict[str, Any]) -> str:
    return HEADER + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)


def main(arguments: Sequence[str]) -> int:
    """Write below the one folder that is named."""
    parser = argparse.ArgumentParser(
        prog="python -m murk.monitoring.generate", description="Write what Grafana and Prometheus read."
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="write below this folder")
    parser.add_argument("--monitor-url", default=MONITOR_URL, metavar="URL",
                        help="where the people who read alerts reach the monitor (default: %(default)s)")  # fmt: skip
    options = parser.parse_args(arguments)
    try:
        written = write(options.folder, check_monitor_url(options.monitor_url))
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for path in written:
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
