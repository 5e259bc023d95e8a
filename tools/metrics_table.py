"""The table of metrics for documents, from their description."""

from __future__ import annotations

from murk.monitoring.metrics.catalogue import METRICS

_FROM = {
    "monitor": "",
    "learner": " From the learner's side.",
    "process": " From monitor and learners.",
    "people": " From the people's side.",
    "gateway": " From the HTTP gateway.",
    "shuffler": " From the shuffler.",
}


def table() -> str:
    """All metrics as a table in Markdown.

    Examples
    --------
    >>> print(table().splitlines()[2])
    | `murk_releases_total` | counter | `task`, `result` | Messages read from the log, by result. |
    """
    lines = ["| metric | kind | labels | what it says |", "|---|---|---|---|"]
    for metric in METRICS:
        words = metric.help + (f" Exported {metric.optional}." if metric.optional else "")
        words += _FROM[metric.side]
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {words} |")
    return "\n".join(lines)
