"""Panels of a Grafana dashboard as plain JSON, and the grid that they are laid on.

Every query goes through `tools.promql.query`, so that a dashboard cannot ask for what is not exported.
Colours are Grafana's own named ones, which it adapts to its dark and light themes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from tools.promql import query

Json = dict[str, Any]

DATASOURCE: Final[Json] = {"type": "prometheus", "uid": "murk-prometheus"}
"""The provisioned data source, by the fixed name that every panel uses."""
WIDTH: Final = 24
# Each step begins at its value; the first holds for everything below the second.
Steps = Sequence[tuple[float | None, str]]
PLAIN: Final[Steps] = ((None, "text"),)


def target(expr: str, legend: str = "", *, now: bool = False, form: str = "time_series") -> Json:
    """Make one query of a panel; ``now=True`` asks for the newest value alone.

    Examples
    --------
    >>> target("sum by (task) (murk_outbox_pending)", "{{task}}")["expr"]
    'sum by (task) (murk_outbox_pending)'
    """
    return {
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query(expr, legend=legend),
        "format": form,
        "instant": now,
        "range": not now,
        "legendFormat": legend or "__auto",
    }


def override(series: str, **properties: Any) -> Json:
    """Set properties of one series by the name in its legend; ``__`` in a keyword stands for a dot."""
    return {
        "matcher": {"id": "byName", "options": series},
        "properties": [{"id": name.replace("__", "."), "value": value} for name, value in properties.items()],
    }


def band(middle: str) -> list[Json]:
    """Draw the series ``low`` and ``high`` as a band around the series ``middle``."""
    edge = {"mode": "fixed", "fixedColor": "light-blue"}
    return [
        override(middle, color={"mode": "fixed", "fixedColor": "blue"}),
        override("low", color=edge, custom__lineWidth=1),
        override("high", color=edge, custom__lineWidth=1, custom__fillBelowTo="low", custom__fillOpacity=15),
    ]


def timeseries(
    title: str, description: str, *targets: Json, unit: str = "short", log: bool = False, stack: bool = False,
    steps: Steps = PLAIN, lines: bool = False, least: float | None = None, most: float | None = None,
    overrides: Iterable[Json] = (), empty: str = "", style: Json | None = None,
) -> Json:  # fmt: skip
    """Draw queries over time, on a linear or (``log``) a logarithmic scale; ``lines`` draws the thresholds."""
    custom: Json = {
        "drawStyle": "line",
        "lineWidth": 2,
        "fillOpacity": 25 if stack else 0,
        "showPoints": "never",
        "spanNulls": False,
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
        "stacking": {"mode": "normal" if stack else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if lines else "off"},
    }
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    limits = {key: value for key, value in (("min", least), ("max", most)) if value is not None}
    panel = _panel("timeseries", title, description, targets, options, unit=unit, steps=steps, empty=empty)
    panel["fieldConfig"]["defaults"] |= limits | {
        "color": {"mode": "palette-classic"}, "custom": custom | (style or {}),
    }  # fmt: skip
    panel["fieldConfig"]["overrides"] = list(overrides)
    return panel


def stat(
    title: str, description: str, expr: str, *, unit: str = "short", steps: Steps = PLAIN, empty: str = "",
    spark: bool = True, mappings: Sequence[Json] = (), decimals: int | None = None,
) -> Json:  # fmt: skip
    """Show one number, with its recent course behind it unless ``spark`` is false."""
    options = {
        "colorMode": "value",
        "graphMode": "area" if spark else "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    panel = _panel("stat", title, description, [target(expr)], options, unit=unit, steps=steps, empty=empty)
    panel["fieldConfig"]["defaults"] |= {"color": {"mode": "thresholds"}, "mappings": list(mappings)}
    if decimals is not None:
        panel["fieldConfig"]["defaults"]["decimals"] = decimals
    return panel


def words(meanings: dict[str, tuple[str, str]]) -> list[Json]:
    """Show values as words: from ``{"0": ("no", "red")}``."""
    return [
        {
            "type": "value",
            "options": {
                value: {"text": text, "color": colour, "index": place}
                for place, (value, (text, colour)) in enumerate(meanings.items())
            },
        }
    ]


def buckets(title: str, description: str, expr: str, *, unit: str = "short", empty: str = "") -> Json:
    """Show a histogram as it stands: one bar a bucket, labelled with the bucket's upper bound.

    The format ``heatmap`` makes Grafana take the next lower bucket off each cumulative one.
    """
    options = {
        "displayMode": "basic",
        "orientation": "horizontal",
        "valueMode": "text",
        "namePlacement": "auto",
        "showUnfilled": True,
        "sizing": "auto",
        "minVizHeight": 10,
        "minVizWidth": 8,
        "maxVizHeight": 300,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    asked = [target(expr, "{{le}}", now=True, form="heatmap")]
    panel = _panel("bargauge", title, description, asked, options, unit=unit, steps=((None, "blue"),), empty=empty)
    panel["fieldConfig"]["defaults"] |= {"color": {"mode": "thresholds"}, "min": 0}
    return panel


def heatmap(title: str, description: str, expr: str, *, unit: str = "short", empty: str = "") -> Json:
    """Show a histogram over time: columns are moments, rows are buckets, colour is how many fell into each."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "cellValues": {"unit": "short"},
        # Opacity of one colour reads the same on a dark and on a light background.
        "color": {
            "mode": "opacity", "fill": "blue", "scale": "exponential", "exponent": 0.5,
            "scheme": "Blues", "steps": 64, "reverse": False,
        },
        "exemplars": {"color": "orange"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": True},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }  # fmt: skip
    asked = [target(expr, "{{le}}", form="heatmap")]
    return _panel("heatmap", title, description, asked, options, unit=unit, empty=empty)


def table(title: str, description: str, columns: dict[str, str], key: str) -> Json:
    """Show the newest values of several queries side by side, one row for each value of the label ``key``."""
    asked = [target(expr, now=True, form="table") for expr in columns.values()]
    panel = _panel("table", title, description, asked, {"showHeader": True, "cellHeight": "sm"}, unit="short")
    letters = [one["refId"] for one in panel["targets"]]
    panel["fieldConfig"]["defaults"]["decimals"] = 4
    panel["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {"Time": True},
                "indexByName": {key: 0} | {f"Value #{letter}": place for place, letter in enumerate(letters, 1)},
                "renameByName": dict(zip((f"Value #{letter}" for letter in letters), columns, strict=True)),
            },
        },
    ]
    return panel


def text(title: str, description: str, markdown: str) -> Json:
    """Show words."""
    options = {
        "mode": "markdown",
        "content": markdown,
        "code": {"language": "plaintext", "showLineNumbers": False, "showMiniMap": False},
    }
    return {"type": "text", "title": title, "description": description, "options": options}


def _panel(
    kind: str, title: str, description: str, targets: Sequence[Json], options: Json, *, unit: str,
    steps: Steps = PLAIN, empty: str = "",
) -> Json:  # fmt: skip
    defaults: Json = {
        "unit": unit,
        "thresholds": {"mode": "absolute", "steps": [{"color": colour, "value": value} for value, colour in steps]},
    }
    if empty:
        defaults["noValue"] = empty
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "targets": [{"refId": chr(ord("A") + place)} | one for place, one in enumerate(targets)],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }
