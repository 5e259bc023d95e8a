"""Routes of the monitor's web server: page, metrics, health, status, and a runbook for alerts (``docs/recover.md``)."""

from __future__ import annotations

import re
from collections.abc import Callable
from email.message import Message
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from murk.monitoring.metrics.alerts import ALERTS, RUNBOOK
from murk.monitoring.web.server import Response, Route, text

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from murk.monitoring.monitor import Monitor

_PACKAGED = Path(__file__).parents[1] / "recover.md"
_SOURCE = Path(__file__).parents[3] / "docs" / "recover.md"
_INLINE = (
    (re.compile(r"`([^`]+)`"), r"<code>\1</code>"),
    (re.compile(r"\*\*([^*]+)\*\*"), r"<strong>\1</strong>"),
    (re.compile(r"\*([^*]+)\*"), r"<em>\1</em>"),
)
_LINK = re.compile(r"\[([^]]+)\]\(([^)#]*)#?([^)]*)\)")
_PAGE = Path(__file__).with_name("runbook.html").read_text(encoding="utf-8")


def runbook_routes() -> dict[str, Route]:
    """Return the page of every alert, and their list at ``/runbook/``."""
    texts = sections((_PACKAGED if _PACKAGED.is_file() else _SOURCE).read_text(encoding="utf-8"))
    pages = {}
    for alert in ALERTS:
        body = (
            f'<p class="note">{alert.severity}; raised when this has held for {alert.wait}:</p>\n'
            f'<pre class="card"><code>{escape(alert.expr)}</code></pre>\n{html(texts[alert.anchor])}'
        )
        pages[alert.name] = _PAGE.format(title=alert.name, body=body)
    items = [f'<li><a href="{alert.name}">{alert.name}</a> ({alert.severity})</li>' for alert in ALERTS]
    pages[""] = _PAGE.format(title="Alerts", body=f"<ul>{''.join(items)}</ul>")
    responses = {name: Response(200, TYPES[".html"], page.encode()) for name, page in pages.items()}
    return {f"{RUNBOOK}/{name}": partial(_fixed, response) for name, response in responses.items()}


def sections(text: str) -> dict[str, str]:
    """Return the sections of a Markdown document by the anchor of their heading.

    >>> sections("# Top\\n## The disk is full\\nFree some.\\n")
    {'top': '', 'the-disk-is-full': 'Free some.'}
    """
    _, *parts = re.split(r"^#+ (.+)\n", text, flags=re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-"): body.strip()
        for heading, body in zip(parts[::2], parts[1::2], strict=True)
    }


def html(text: str) -> str:
    """Convert paragraphs, numbered lists, code, emphasis and links between alerts to HTML; drop other links.

    >>> html("Is *it* up? Ask `/healthz`.")
    '<p>Is <em>it</em> up? Ask <code>/healthz</code>.</p>'
    """
    pages = {alert.anchor: alert.name for alert in ALERTS}

    def link(found: re.Match[str]) -> str:
        words, page, anchor = found.groups()
        return f'<a href="{pages[anchor]}">{words}</a>' if not page and anchor in pages else words

    blocks = []
    for block in text.split("\n\n"):
        words = _LINK.sub(link, escape(block, quote=False))
        for pattern, replacement in _INLINE:
            words = pattern.sub(replacement, words)
        items = re.split(r"^\d+\. ", words, flags=re.MULTILINE)
        listed = "".join(f"<li>{item.strip()}</li>" for item in items[1:])
        blocks.append(f"<ol>{listed}</ol>" if listed else f"<p>{words}</p>")
    return "\n".join(blocks)


PAGE = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


def monitor_routes(monitor: Monitor) -> dict[str, Route]:
    """Return the routes of a monitor; ``/healthz`` answers 503 while the log cannot be read."""
    return {**files(PAGE), **runbook_routes(), **own_routes(monitor)}


def own_routes(monitor: Monitor) -> dict[str, Route]:
    """Return the routes of a task's figures."""
    status = partial(json_response, lambda: monitor.snapshot.body)
    return {**health_routes(monitor.registry, lambda: monitor.snapshot.problem), "/api/status": status}


def health_routes(registry: CollectorRegistry, trouble: Callable[[], str | None]) -> dict[str, Route]:
    """Return ``/metrics``, and ``/healthz``, which answers 503 with the reason while something is wrong."""

    def healthz(headers: Message) -> Response:
        problem = trouble()
        return text(200, "ok") if problem is None else text(503, problem)

    return {"/metrics": partial(metrics, registry), "/healthz": healthz}


def files(folder: Path) -> dict[str, Route]:
    """Return the current files of a folder by path; ``index.html`` is also ``/``."""
    routes: dict[str, Route] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in TYPES and path.is_file():
            response = Response(200, TYPES[path.suffix], path.read_bytes())
            routes["/" + path.relative_to(folder).as_posix()] = partial(_fixed, response)
    if "/index.html" in routes:
        routes["/"] = routes["/index.html"]
    return routes


def metrics(registry: CollectorRegistry, headers: Message) -> Response:
    """Return a registry's metrics in the format that the client prefers."""
    from prometheus_client.exposition import choose_encoder, generate_latest

    try:
        encode, kind = choose_encoder(headers.get("Accept", ""))
    except (ValueError, TypeError):
        # Invalid version in the Accept header: answer in the plain format.
        encode, kind = generate_latest, "text/plain; version=0.0.4; charset=utf-8"
    return Response(200, kind, encode(registry))


def json_response(body: Callable[[], bytes], headers: Message) -> Response:
    """Return JSON that is made for each request."""
    return Response(200, "application/json", body())


def _fixed(response: Response, headers: Message) -> Response:
    return response
