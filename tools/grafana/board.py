"""A dashboard: variables, links to the other dashboards, and panels laid on Grafana's grid of 24 columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from tools.grafana.panels import DATASOURCE, WIDTH, Json
from tools.promql import query

TAG = "murk"
# Schema of Grafana 12.0; newer servers migrate it when they load it.
SCHEMA_VERSION = 41


@dataclass(frozen=True, slots=True)
class Line:
    """Panels side by side.

    Parameters
    ----------
    panels
        From left to right.
    height
        In grid units of 30 pixels.
    widths
        Of each panel, 24 in all; equal ones where none are given.
    """

    panels: Sequence[Json]
    height: int = 8
    widths: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of panels under a heading; a folded one holds what many tasks do not have, until it is opened."""

    title: str
    lines: Sequence[Line]
    folded: bool = False


def label_values(metric: str, label: str) -> str:
    """Ask Grafana for a label's values; metric and label must be described.

    Examples
    --------
    >>> label_values("murk_log_reachable", "task")
    'label_values(murk_log_reachable, task)'
    """
    query(metric, legend=f"{{{{{label}}}}}")
    return f"label_values({metric}, {label})"


def variable(name: str, label: str, description: str, asked: str, *, several: bool = False) -> Json:
    """Make a template variable whose values Prometheus knows; with ``several``, all are chosen at first."""
    found: Json = {
        "type": "query",
        "name": name,
        "label": label,
        "description": description,
        "datasource": DATASOURCE,
        "definition": asked,
        "query": asked,
        "refresh": 2,  # whenever the time range changes: parameters appear while a run starts
        "sort": 1,
        "hide": 0,
        "skipUrlSync": False,
        "multi": several,
        "includeAll": several,
    }
    if several:
        found["current"] = {"selected": True, "text": ["All"], "value": ["$__all"]}
    return found


def dashboard(uid: str, title: str, description: str, sections: Sequence[Section], variables: Sequence[Json]) -> Json:
    """Lay sections one below the other and give the whole dashboard."""
    panels: list[Json] = []
    numbers = count(1)
    y = 0
    for section in sections:
        row: Json = {"id": next(numbers), "type": "row", "title": section.title, "collapsed": section.folded,
                     "panels": [], "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}}  # fmt: skip
        panels.append(row)
        y += 1
        inside = y
        for line in section.lines:
            x = 0
            for panel, width in zip(line.panels, _widths(line), strict=True):
                at = {"x": x, "y": inside, "w": width, "h": line.height}
                (row["panels"] if section.folded else panels).append({"id": next(numbers)} | panel | {"gridPos": at})
                x += width
            inside += line.height
        y = y if section.folded else inside
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "fiscalYearStartMonth": 0,
        "templating": {"list": [*variables]},
        "annotations": {"list": []},
        "links": [_links()],
        "panels": panels,
    }


def _widths(line: Line) -> Sequence[int]:
    widths = line.widths or [WIDTH // len(line.panels)] * len(line.panels)
    if sum(widths) != WIDTH:
        raise ValueError(f"panels {[panel['title'] for panel in line.panels]} fill {sum(widths)} of {WIDTH} columns")
    return widths


def one_task() -> Json:
    """Make the variable of the task to look at."""
    return variable("task", "Task", "The task to look at.", label_values("murk_log_reachable", "task"))


def _links() -> Json:
    return {
        "type": "dashboards",
        "title": "Murk",
        "tags": [TAG],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "The other dashboards, for the same time",
        "url": "",
    }
