"""A small web server for fixed paths that slow or hostile clients cannot block.

Paths are matched exactly, which rules out path traversal. A connection carries one request and has a deadline; when
there are too many connections, the oldest is closed.
"""

import errno
import logging
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from time import monotonic
from types import TracebackType
from typing import Any, NamedTuple, Self

from murk.errors import MurkError, UserError
from murk.monitoring.web.hosts import Hosts

MOST_CONNECTIONS = 64
STALL_SECONDS = 10.0
"""Idle time after which a connection is closed."""
DEADLINE_SECONDS = 30.0
"""Lifetime of a connection."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

_log = logging.getLogger(__name__)


class Response(NamedTuple):
    """Response to a request: status, content type, body."""

    status: int
    type: str
    body: bytes


Route = Callable[[Message], Response]
"""Function that returns the response to a request with the given headers; called from many threads."""


def text(status: int, words: str) -> Response:
    """Return a response with a line of plain text."""
    return Response(status, "text/plain; charset=utf-8", words.encode() + b"\n")


class Server:
    """Serve routes in threads from `start` (or ``with``) until `close`.

    Raises UserError if the address is invalid; MurkError if the port is in use.

    Parameters
    ----------
    routes
        Routes by path.
    host, port
        Listening address; port 0 lets the system choose.
    options
        Names of the options for port and host, for messages.
    allowed
        Further host names that the server answers to; see `Hosts`.

    Examples
    --------
    >>> from urllib.request import urlopen
    >>> with Server({"/hello": lambda headers: text(200, "hello")}) as server:
    ...     urlopen(server.url + "/hello").read()
    b'hello\\n'
    """

    def __init__(
        self, routes: Mapping[str, Route], host: str = "127.0.0.1", port: int = 0, *,
        options: tuple[str, str] = ("--port", "--host"), allowed: Sequence[str] = (),
    ) -> None:  # fmt: skip
        hosts = Hosts(host, allowed)
        try:
            self._listener = _Listener(dict(routes), host, port, hosts)
        except (OSError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "not an address of this machine"
            kind = MurkError if getattr(error, "errno", None) == errno.EADDRINUSE else UserError
            raise kind(
                f"cannot listen on {host} port {port} ({reason}): choose another {options[0]} (0 lets the system "
                f"choose) or {options[1]}"
            ) from None
        self.host, self.port = host, int(self._listener.server_address[1])
        self._thread = threading.Thread(target=self._listener.serve_forever, name="murk-http", daemon=True)

    @property
    def url(self) -> str:
        """URL for a browser on this machine."""
        return local_url("http", self.host, self.port)

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening and close all connections."""
        if self._thread.is_alive():
            self._listener.shutdown()
            self._thread.join()
        self._listener.server_close()
        self._listener.cut()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, routes: dict[str, Route], host: str, port: int, hosts: Hosts) -> None:
        self.routes, self.hosts = routes, hosts
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._since: dict[Any, float] = {}
        self._lock = threading.Lock()
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # HTTPServer would resolve this machine's name, which may take long.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            crowded = len(self._since) >= MOST_CONNECTIONS
            oldest = next(iter(self._since)) if crowded else None
        if oldest is not None:
            self._cut(oldest)
        with self._lock:
            self._since[request] = monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._since.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        self.cut(monotonic() - DEADLINE_SECONDS)

    def cut(self, before: float = float("inf")) -> None:
        """Close the connections opened before a time."""
        with self._lock:
            late = [request for request, since in self._since.items() if since < before]
        for request in late:
            self._cut(request)

    def _cut(self, request: Any) -> None:
        with self._lock:
            self._since.pop(request, None)
        try:
            # The connection's thread then closes it.
            request.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # already closed

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):  # not a client that disconnected
            _log.warning("a request failed: %s", type(error).__name__)


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    server_version = "murk"
    sys_version = ""
    timeout = STALL_SECONDS

    def do_GET(self) -> None:
        self._answer(self._response())

    do_HEAD = do_GET  # noqa: N815 - the base class's name

    def __getattr__(self, name: str) -> Any:
        # The base class looks up do_POST and all other methods.
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def _refuse(self) -> None:
        self._answer(text(405, "only GET and HEAD are answered"), Allow="GET, HEAD")

    def _response(self) -> Response:
        if not self.server.hosts.allow_all(self.headers.get_all("Host", [])):
            return text(421, "this server does not answer to that host name: use its address, or see --allowed-host")
        route = self.server.routes.get(self.path.partition("?")[0])
        if route is None:
            return text(404, "not found")
        try:
            return route(self.headers)
        except Exception as error:  # noqa: BLE001 - a failing request must not affect others
            _log.warning("%s failed: %s", self.command, type(error).__name__)
            return text(500, "internal error; see the log of the monitor")

    def _answer(self, response: Response, **more: str) -> None:
        self.close_connection = True
        self.send_response(response.status)
        for name, value in {**HEADERS, **more}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", response.type)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse an invalid request without quoting it."""
        self._answer(text(code, HTTPStatus(code).phrase))

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests, since clients' addresses are private."""


def local_url(scheme: str, host: str, port: int) -> str:
    """Return the URL for a client on this machine of a server that listens on a host.

    >>> local_url("http", "0.0.0.0", 8080), local_url("https", "::", 8443)
    ('http://127.0.0.1:8080', 'https://[::1]:8443')
    """
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
