"""The table of metrics for documents, from their description."""

from __future__ import annotations

from murk.monitoring.metrics.catalogue import METRICS

_FROM = {
    "monitor": "",
    "learner": "Learner: ",
    "process": "Monitor, learner: ",
    "people": "People: ",
    "gateway": "Gateway: ",
    "shuffler": "Shuffler: ",
    "archiver": "Archiver: ",
}
"""Beginning of a metric's line, by the side that exports it."""


def table() -> str:
    """All metrics as a table in Markdown.

    Examples
    --------
    >>> print(table().splitlines()[2])
    | `murk_releases_total` | counter | `task`, `result` | Messages read from the log, by result. |
    """
    lines = ["| metric | kind | labels | what it says |", "|---|---|---|---|"]
    for metric in METRICS:
        words = _FROM[metric.side] + metric.help + (f" Exported {metric.optional}." if metric.optional else "")
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {words} |")
    return "\n".join(lines)
