"""Routes of the monitor's web server: page, metrics, health, status and runbook."""

from __future__ import annotations

from email.message import Message
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from murk.monitoring.runbook import runbook_routes
from murk.monitoring.web.server import Response, Route, text

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from murk.monitoring.monitor import Monitor

PAGE = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


def monitor_routes(monitor: Monitor, page: Path = PAGE) -> dict[str, Route]:
    """Return the routes of a monitor; ``/healthz`` answers 503 while the log cannot be read."""

    def healthz(headers: Message) -> Response:
        problem = monitor.snapshot.problem
        return text(200, "ok") if problem is None else text(503, problem)

    def status(headers: Message) -> Response:
        return Response(200, "application/json", monitor.snapshot.body)

    return {
        **files(page),
        **runbook_routes(),
        "/metrics": partial(metrics, monitor.registry),
        "/healthz": healthz,
        "/api/status": status,
    }


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


def _fixed(response: Response, headers: Message) -> Response:
    return response
