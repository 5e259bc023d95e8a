"""Write what Grafana and Prometheus read: ``python -m murk.monitoring.generate deploy``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from murk.monitoring.grafana import DASHBOARDS, dashboard_provider, data_source
from murk.monitoring.rules import prometheus, rules

HEADER = "# Made by `python -m murk.monitoring.generate deploy`. Change murk/monitoring instead.\n"


def files() -> Iterator[tuple[str, str]]:
    """Give every generated file: its path below ``deploy`` and its text.

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
    yield "prometheus/rules.yml", _yaml(rules())


def write(folder: Path) -> list[Path]:
    """Write every file below ``folder`` and give their paths."""
    written = []
    for name, text in files():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _yaml(document: dict[str, Any]) -> str:
    return HEADER + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)


def main(arguments: Sequence[str]) -> int:
    """Write below the one folder that is named."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m murk.monitoring.generate FOLDER\n")
        return 2
    for path in write(Path(arguments[0])):
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
