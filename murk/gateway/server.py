"""The server of a gateway: it answers in a thread of its own, and the log stays with the thread that opened it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any, Self

from murk._internal.lazy import bounding
from murk.errors import MurkError, UserError, reason_of
from murk.gateway.app import GatewayApp, ServedTask, Settings
from murk.gateway.group_commit import GroupCommit
from murk.monitoring.metrics.exporter import Values, families, new_registry
from murk.monitoring.web.server import Hosts, Route, listening_error, local_url
from murk.stream.log.interface import Log, check_input_log
from murk.stream.wire.codec import REASONS
from murk.task.task import Task

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client import Metric as Family

_ERROR_CODE = "MURK-LOG-001"

LOOK = 1.0  # seconds between two looks at the files of a certificate
GRACE = 12.0  # seconds at the end for requests that are being answered

_BACKLOG = 1_024
_NO_CERTIFICATE = "not a certificate with its key"
_log = logging.getLogger(__name__)


class GatewayMetrics:
    """Collector of a gateway's counts since its start, in a new ``registry``."""

    def __init__(self, door: GatewayApp) -> None:
        self._door = door
        self.registry = new_registry()
        self.registry.register(self)

    def describe(self) -> Iterator[Family]:
        """Return the metrics without values, for the registry."""
        return families("gateway", {})

    def collect(self) -> Iterator[Family]:
        """Return the metrics of all tasks, for the registry."""
        tasks = self._door.tasks
        requests: dict[str, dict[str, int]] = {}
        for (name, status), number in sorted(dict(self._door.requests).items()):
            # Requests that name no task, such as those for the list of tasks, are a single task's.
            of_task = requests.setdefault(name or (next(iter(tasks)) if len(tasks) == 1 else ""), {})
            of_task[str(status)] = of_task.get(str(status), 0) + number
        values: dict[str, Values] = {name: {"murk_gateway_log_reachable": 0} for name in sorted(self._door.unread)}
        values |= {name: _values(served) for name, served in tasks.items()}
        for name, by_status in requests.items():
            values[name] = {**values.get(name, {}), "murk_gateway_requests_total": by_status}
        return families("gateway", values)


def _values(served: ServedTask) -> Values:
    appending, counts = served.appending, served.appending.counts
    return {
        "murk_gateway_releases_total": counts.accepted,
        "murk_gateway_levels_total": {level: counts.levels[level] for level in bounding(served.task.privacy.levels)},
        "murk_gateway_refusals_total": {reason: counts.refused[reason] for reason in REASONS},
        "murk_gateway_waiting_releases": appending.waiting,
        "murk_gateway_log_reachable": appending.trouble is None,
    }


class Certificate:
    """A certificate and its key in files, which may be renewed while the server runs, for new connections."""

    def __init__(self, certificate: str, key: str | None, context: ssl.SSLContext | None) -> None:
        self._files, self._context = (certificate, key), context
        self._seen = self._signature()
        self._trouble = ""
        self._due = 0.0

    def follow(self, *, now: bool = False) -> str:
        """Read changed files again, at most once in `LOOK` seconds, or any files ``now``; return what was done."""
        if not now and time.monotonic() < self._due:
            return ""
        self._due = time.monotonic() + LOOK
        signature = self._signature()
        if signature == self._seen and not now:
            return ""
        certificate, key = self._files
        try:
            # Load into an unused context first: a certificate without its own key must not replace one that works.
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._context):
                if context is not None:
                    context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError, ValueError) as error:
            reason = reason_of(error, _NO_CERTIFICATE)
            words = f"the renewed certificate or its key cannot be used ({reason}): the former stays in use"
            if words != self._trouble:
                _log.warning("%s", words)
            self._trouble = words
            return words
        self._seen, self._trouble = signature, ""
        words = f"the certificate {certificate} was read again"
        _log.info("%s", words)
        return words

    def _signature(self) -> tuple[tuple[int, int, int] | None, ...]:
        def look(path: str | None) -> tuple[int, int, int] | None:
            try:
                status = os.stat(path or self._files[0])
            except OSError:
                return None
            return status.st_mtime_ns, status.st_ino, status.st_size

        return tuple(map(look, self._files))


class GatewayServer:
    """Serve tasks over HTTP from `start` (or ``with``) until `close`.

    Each log belongs to the thread that opened it, which calls `serve` with it, one thread at a time, and then
    `GroupCommit.step` again and again. One thread calls `check`. Port 0 lets the system choose; ``connections`` is the
    largest number of open connections. ``certificate`` and ``key`` are files in PEM for TLS, both or neither; ``pages``
    are further paths to serve, for a page on the gateway's own origin; ``options`` name the options for port and host
    in messages. Raises UserError if the address or a file is invalid, or uvicorn is not installed; MurkError if the
    port is in use.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        settings: Settings | None = None,
        connections: int = 1_000,
        certificate: str | None = None,
        key: str | None = None,
        pages: Mapping[str, Route] | None = None,
        options: tuple[str, str] = ("--port", "--host"),
    ) -> None:
        try:
            import uvicorn

            from murk.gateway.connection import connection
        except ModuleNotFoundError as error:
            from murk._internal.extras import missing_extra

            raise missing_extra("a gateway needs uvicorn and httptools", "gateway") from error
        settings = settings or Settings()
        self._door = GatewayApp(settings, pages or {}, Hosts(host))
        self.metrics = GatewayMetrics(self._door)
        config = uvicorn.Config(
            self._door,
            http=connection(connections, settings.each, settings.relays),
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            timeout_graceful_shutdown=int(GRACE),
        )
        # The library's lines quote nothing, but its tracebacks might.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        try:
            config.load()
        except (OSError, ssl.SSLError, ValueError) as error:
            reason = reason_of(error, _NO_CERTIFICATE)
            raise UserError(
                f"the certificate or its key cannot be used ({reason}): name files in PEM that belong together"
            ) from None
        self._certificate = None if certificate is None else Certificate(certificate, key, config.ssl)
        self._server = uvicorn.Server(config)
        self._socket = _listen(host, port, options)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._scheme = "http" if certificate is None else "https"
        self._thread = threading.Thread(target=self._serve, name="murk-gateway", daemon=True)

    @property
    def url(self) -> str:
        """URL for a client on this machine."""
        return local_url(self._scheme, self.host, self.port)

    @property
    def registry(self) -> CollectorRegistry:
        """Registry of the gateway's metrics."""
        return self.metrics.registry

    def start(self) -> None:
        """Start answering."""
        self._thread.start()

    def serve(self, log: Log, task: Task) -> GroupCommit:
        """Answer requests about a log's task, too, and return what appends its releases.

        Raises `UserError` if a shuffler writes to the log, and `MurkError` if the log cannot be read.
        """
        check_input_log(log, task)
        document = log.document()
        assert document is not None
        appending = GroupCommit(log, task, self._door.resolve)
        former = self._door.tasks.get(task.name)
        if former is not None:
            appending.counts = former.appending.counts
        self._door.serve(ServedTask(task, document, appending))
        return appending

    def report_unread(self, names: Set[str]) -> None:
        """Name tasks whose logs could not be opened in metrics and in answers about health."""
        self._door.unread = names

    def check(self) -> None:
        """Read a renewed certificate; raise `MurkError` if the server has ended."""
        if not self._thread.is_alive():
            raise MurkError("the server of the gateway has ended unexpectedly: start it again")
        if self._certificate is not None:
            self._certificate.follow()

    def reload(self) -> str:
        """Read the certificate and its key again, and return what was done."""
        if self._certificate is None:
            return "nothing to read again: the gateway has no certificate"
        return self._certificate.follow(now=True)

    def stop(self) -> None:
        """Answer 503 to further releases; those that wait may still be appended."""
        self._door.stop()

    def close(self) -> None:
        """End."""
        self.stop()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(GRACE + 3.0)
        self._socket.close()

    def _serve(self) -> None:
        try:
            asyncio.run(self._server.serve([self._socket]))
        except Exception as error:  # noqa: BLE001 - the log's thread notices
            _log.warning("the server failed: %s", type(error).__name__)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Gateway(GatewayServer):
    """Serve one log's task; the thread that opened the log calls `step` again and again.

    ``settings`` are those of `GatewayServer`. Raises as `GatewayServer` and its `serve`.
    """

    def __init__(self, log: Log, task: Task, host: str = "127.0.0.1", port: int = 0, **settings: Any) -> None:
        super().__init__(host, port, **settings)
        self._log, self._task = log, task
        try:
            self.appending = self.serve(log, task)
        except BaseException:
            super().close()
            raise

    def step(self) -> int:
        """Append the releases that wait, and return the number of their requests; see `GroupCommit.step`.

        Raises `MurkError` if the server has ended or the log was replaced, and `UserError` once a shuffler writes to
        the log.
        """
        self.check()
        if self.appending.misplaced:
            check_input_log(self._log, self._task)
        if self.appending.replaced:
            raise self.appending.replaced
        return self.appending.step()

    def close(self) -> None:
        """Answer 503 to further releases, append those that wait, and end."""
        self.stop()
        self.appending.close()
        super().close()


def _listen(host: str, port: int, options: tuple[str, str]) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # The event loop disables the delay of small writes for this protocol number only.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            # Clients that connect before the server has started wait.
            listening.listen(_BACKLOG)
        except BaseException:
            listening.close()
            raise
        return listening
    except (OSError, OverflowError, UnicodeError) as error:
        raise listening_error(error, host, port, options) from None
