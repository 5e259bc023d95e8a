"""Queries that can only speak of what Murk exports: every metric, label and kind is looked up when they are made."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from murk.monitoring.metrics.catalogue import METRICS, PREFIX, Metric

BY_NAME: Final = {metric.name: metric for metric in METRICS}
SCRAPE_LABELS: Final = frozenset({"job", "instance"})
"""What Prometheus itself adds to every series."""
_FOREIGN: Final = {"up": SCRAPE_LABELS}
_PARTS: Final = ("_bucket", "_sum", "_count")
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR: Final = re.compile(r"(?<![\w:$])([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")
_NAME: Final = re.compile(rf"(?<![\w:$])(?:[a-zA-Z_]\w*:)?{PREFIX}[\w:]*")
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_LEGEND: Final = re.compile(r"\{\{\s*([^}\s]+)\s*\}\}")
_COUNTING: Final = re.compile(rf"\b(rate|increase|irate)\s*\(\s*({PREFIX}\w+)")


def find(name: str) -> Metric:
    """Return the described metric that a series' name belongs to.

    Raises
    ------
    ValueError
        For a name that is not described, or a histogram without ``_bucket``, ``_sum`` or ``_count``.

    Examples
    --------
    >>> find("murk_staleness_releases_bucket").name
    'murk_staleness_releases'
    """
    whole = next((name.removesuffix(part) for part in _PARTS if name.endswith(part)), name)
    metric = BY_NAME.get(whole)
    if metric is not None and metric.kind == "histogram":
        if whole == name:
            raise ValueError(f"{name} is a histogram: ask for one of {', '.join(name + part for part in _PARTS)}")
        return metric
    if name in BY_NAME:
        return BY_NAME[name]
    raise ValueError(f"no metric is called {name!r}; see murk.monitoring.metrics.catalogue")


def labels_of(name: str) -> frozenset[str]:
    """Return all labels that a series of that name can have, Prometheus' own included."""
    if name in _FOREIGN:
        return _FOREIGN[name]
    return frozenset(find(name).labels) | SCRAPE_LABELS | ({"le"} if name.endswith("_bucket") else frozenset())


def names(text: str) -> list[str]:
    """Return the names of Murk's series in a query, in order."""
    return _NAME.findall(_STRING.sub('""', text))


def query(text: str, *, legend: str = "", recorded: Iterable[str] = ()) -> str:
    r"""Return the query unchanged, once everything it names is known to exist.

    Parameters
    ----------
    text
        PromQL; Grafana's variables (``$task``) may be in it.
    legend
        Grafana's legend for it; its ``{{label}}`` must survive the query's groupings.
    recorded
        Names that recording rules make, of series with the label ``task``.

    Raises
    ------
    ValueError
        For an unknown metric or label, a rate of something that does not count, a selector on a label that its
        metric lacks, or a legend that names a label which the query has summed away.

    Examples
    --------
    >>> query('sum by (result) (rate(murk_releases_total{task="$task"}[1m]))', legend="{{result}}")
    'sum by (result) (rate(murk_releases_total{task="$task"}[1m]))'
    >>> query("murk_releases")
    Traceback (most recent call last):
    ...
    ValueError: no metric is called 'murk_releases'; see murk.monitoring.metrics.catalogue
    """
    recorded = frozenset(recorded)
    bare = _STRING.sub('""', text)
    used = [name for name in _NAME.findall(bare) if name not in recorded]
    known = frozenset().union(*(labels_of(name) for name in used)) if used else SCRAPE_LABELS | {"task"}
    for name, matchers in _SELECTOR.findall(bare):
        _within(_matched(matchers), {"task"} if name in recorded else labels_of(name), f"{name} in {text!r}")
    for function, name in _COUNTING.findall(bare):
        if find(name).kind == "gauge":
            raise ValueError(f"{function}() of {name}, which is a gauge, in {text!r}")
    groups = [_listed(inside) for inside in _GROUPING.findall(bare)]
    for group in groups:
        _within(group, known, repr(text))
    _within(_LEGEND.findall(legend), set().union(*groups) if groups else known, f"the legend {legend!r} of {text!r}")
    return text


def _listed(inside: str) -> list[str]:
    return [label.strip() for label in inside.split(",") if label.strip()]


def _matched(matchers: str) -> list[str]:
    return [re.split(r"[=!]", matcher, maxsplit=1)[0].strip() for matcher in _listed(matchers)]


def _within(labels: Iterable[str], known: Iterable[str], where: str) -> None:
    for label in labels:
        if label not in known:
            raise ValueError(f"there is no label {label!r} for {where}; there are {', '.join(sorted(known))}")
