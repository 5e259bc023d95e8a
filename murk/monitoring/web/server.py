"""A small web server for known paths that slow or hostile clients cannot block.

Paths are matched exactly, which rules out path traversal. A connection carries one request and has a deadline; when
there are too many connections, the oldest is closed. Only allowed host names are answered, as a defence against DNS
rebinding: a hostile site can resolve its name to an address in its visitor's network and then read responses; the
request's ``Host`` header reveals the name.
"""

import errno
import logging
import re
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from socketserver import TCPServer
from time import monotonic
from typing import Any, NamedTuple, Protocol, Self

from murk.errors import MurkError, UserError, reason_of

_ERROR_CODE = "MURK-MONITOR-001"

ANY = "*"  # allow every name
CLUSTER = (".svc", ".cluster.local")  # suffixes of Kubernetes service names, which no public site can have
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?")
_LONGEST = 300  # a name has at most 253 characters
_HOST = re.compile(r"(\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^:\[\]]*))(:[0-9]*)?")


class Hosts:
    """The host names that a server answers to, by the address that it listens on.

    Addresses and ``localhost`` are always allowed. A server that listens on the network also allows the machine's name,
    names without a dot (services in a composition) and Kubernetes service names. ``allowed`` are further names;
    ``*.example.org`` allows every name below example.org. Raises UserError for an invalid name.
    """

    def __init__(self, listening: str, allowed: Sequence[str] = ()) -> None:
        for name in allowed:
            if name != ANY and not _NAME.fullmatch(name.removeprefix("*.")):
                remedy = "write it without scheme and port, as in monitor.example.org"
                raise UserError(f"{name!r} is not a host name: {remedy}")
        self._any = ANY in allowed
        self._names = {_plain(name) for name in allowed if not name.startswith("*")}
        self._ends = tuple(_plain(name[1:]) for name in allowed if name.startswith("*."))
        self._outside = not is_own(listening)
        if self._outside:
            self._names.add(_plain(socket.gethostname()))
            self._ends += CLUSTER
        elif not _is_address(listening):
            self._names.add(_plain(listening))

    def allows(self, host: str) -> bool:
        """Return whether a request with this ``Host`` header is answered."""
        match = _HOST.fullmatch(host.strip())
        if match is None or len(host) > _LONGEST:
            return False
        if match["six"] is not None:
            return _is_address(match["six"])
        name = _plain(match["name"])
        if not _NAME.fullmatch(name):
            return False
        if self._any or name == "localhost" or name in self._names or _is_address(name):
            return True
        return name.endswith((".localhost", *self._ends)) or (self._outside and "." not in name)


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def is_own(listening: str) -> bool:
    """Return whether only this machine can reach a listening address."""
    return ip_address(listening).is_loopback if _is_address(listening) else _plain(listening) == "localhost"


MOST_CONNECTIONS = 64
STALL_SECONDS = 10.0  # idle time after which a connection is closed
DEADLINE_SECONDS = 30.0  # lifetime of a connection
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


class Routes(Protocol):
    """Routes by path, as a mapping; they may change while they are served."""

    def get(self, path: str, /) -> Route | None:
        """Return the route of a path, if there is one."""


def text(status: int, words: str) -> Response:
    """Return a response with a line of plain text."""
    return Response(status, "text/plain; charset=utf-8", words.encode() + b"\n")


_NO_ADDRESS = "not an address of this machine"


def listening_error(
    error: Exception, host: str, port: int, options: tuple[str, str] = ("--port", "--host")
) -> MurkError | UserError:
    """Return the error for an address that a server cannot listen on; ``options`` names the options to change."""
    kind = MurkError if isinstance(error, OSError) and error.errno == errno.EADDRINUSE else UserError
    remedy = f"choose another {options[0]} (0 lets the system choose)" + (f" or {options[1]}" if options[1] else "")
    return kind(f"cannot listen on {host} port {port} ({reason_of(error, _NO_ADDRESS)}): {remedy}")


class Server:
    """Serve routes, by path, in threads from `start` (or ``with``) until `close`.

    Port 0 lets the system choose. ``options`` are the names of the options for port and host, for messages; ``allowed``
    are further host names (see `Hosts`). Raises UserError if the address is invalid; MurkError if the port is in use.
    """

    def __init__(
        self,
        routes: Routes,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        options: tuple[str, str] = ("--port", "--host"),
        allowed: Sequence[str] = (),
    ) -> None:
        hosts = Hosts(host, allowed)
        try:
            self._listener = _Listener(routes, host, port, hosts)
        except (OSError, OverflowError, UnicodeError) as error:
            raise listening_error(error, host, port, options) from None
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

    def __exit__(self, *error: object) -> None:
        self.close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, routes: Routes, host: str, port: int, hosts: Hosts) -> None:
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
        with suppress(OSError):  # already closed
            # The connection's thread then closes it.
            request.shutdown(socket.SHUT_RDWR)

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
            refusal = text(405, "only GET and HEAD are answered")
            return lambda: self._answer(refusal, Allow="GET, HEAD")
        raise AttributeError(name)

    def _response(self) -> Response:
        # A request without the header is not from a browser.
        if not all(map(self.server.hosts.allows, self.headers.get_all("Host", []))):
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
