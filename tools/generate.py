"""Write everything that is made from the code: ``python -m tools.generate [FOLDER] [--monitor-url URL]``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from murk.errors import UserError
from tools import gallery, task_file
from tools.grafana import DASHBOARDS, dashboard_provider, data_source
from tools.prometheus import MONITOR_URL, check_monitor_url, configuration, rule_file
from tools.wire import asyncapi, schemas
from tools.wire import page as wire

ROOT: Final = Path(__file__).parents[1]
ASYNCAPI: Final = "# Made by `make generate` from tools/wire: change these instead.\n"
HEADER: Final = "# Made by `make generate` from murk/monitoring and tools: change these instead.\n"


def files(monitor_url: str = MONITOR_URL) -> Iterator[tuple[str, str]]:
    """Return every generated file: its path in the repository and its text.

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
    >>> [path for path, text in files() if path.startswith("docs")]
    ['docs/gallery.md', 'docs/task-file.md', 'docs/wire.md']
    """
    yield "docs/gallery.md", gallery.page()
    yield "docs/task-file.md", task_file.page()
    yield "docs/wire.md", wire.page()
    for name, schema in schemas.files().items():
        yield f"deploy/schemas/{name}", wire.pretty(schema) + "\n"
    yield "deploy/asyncapi.yaml", ASYNCAPI + yaml.safe_dump(asyncapi.document(), sort_keys=False, width=110)
    for name, make in DASHBOARDS.items():
        yield f"deploy/grafana/dashboards/{name}.json", json.dumps(make(), indent=2, ensure_ascii=False) + "\n"
    yield "deploy/grafana/provisioning/datasources/murk.yml", _yaml(data_source())
    yield "deploy/grafana/provisioning/dashboards/murk.yml", _yaml(dashboard_provider())
    yield "deploy/prometheus/prometheus.yml", _yaml(configuration())
    yield "deploy/prometheus/shuffled.yml", _yaml(configuration(is_shuffled=True))
    yield "deploy/prometheus/rules.yml", _yaml(rule_file(monitor_url))


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
    """Write into the repository, or below another folder."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.generate", description="Write the reference pages, dashboards and alert rules."
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", nargs="?", default=ROOT,
                        help="write below this folder (default: the repository)")  # fmt: skip
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
