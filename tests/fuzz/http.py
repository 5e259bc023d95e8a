"""Raw bytes on a connection to the monitor's web server."""

import atexit
import logging
import socket
import struct
import tempfile
import threading
from pathlib import Path
from random import Random

from murk.monitoring import Monitor
from murk.monitoring.web.routes import monitor_routes
from murk.monitoring.web.server import MOST_CONNECTIONS, Server
from murk.stream import open_log
from tests.cli.harness import WORD
from tests.fuzz.mutate import spoil, strange
from tests.fuzz.targets import FindingError, Target
from tests.fuzz.wire import task_of

ANSWER_SECONDS = 60.0
"""How long any answer may take: far more than it does, also on a busy machine."""
# Python's own reader of requests knows these, and says so.
STATUSES = frozenset({200, 400, 404, 405, 414, 421, 431, 505})

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PATCH", "get", "", "G E T", "GET\0")
PATHS = (
    "/", "/metrics", "/healthz", "/api/status", "/index.html", "//", "/../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd",
    "/metrics?x=1", "/api/status#a", "*", "http://example.org/metrics", "/\0", "/" + "a" * 300, "", "/é", "\\metrics",
)  # fmt: skip
VERSIONS = ("HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/9.9", "HTTP/1.999999999999", "HTTP/-1", "HTTP", "")
HEADERS = (
    "Host: murk", "Host: 127.0.0.1", "Host: localhost:9464", "Host: evil.example", "Host: localhost.evil.example",
    "Host: 127.0.0.1.evil.example", "Host: evil.example:9464", "Host: [::1]:9464", "Host: [evil.example]", "Host: ",
    "Host: localhost@evil.example", "Host: localhost,evil.example", "Host: evil.example#.localhost",
    "Accept: */*", "Accept: text/plain;version=0.0.4",
    "Accept: application/openmetrics-text;version=1.0.0",
    "Accept: application/openmetrics-text; version=x; q=nan", "Accept: ;;;,,,=", "Accept: text/plain;version=\xff",
    "Content-Length: 5", "Content-Length: -1", "Content-Length: 99999999999999999999", "Transfer-Encoding: chunked",
    "Expect: 100-continue", "Connection: keep-alive", "Connection: upgrade", "Upgrade: websocket", "Range: bytes=0-",
    "If-None-Match: *", "If-Modified-Since: yesterday", "Cookie: " + "a=b;" * 50, " folded", ":", "Name", "A" * 400,
    "Accept-Encoding: gzip", "Accept: " + "text/plain," * 200,
)  # fmt: skip


class Words(logging.Handler):
    """Keeps what the server says in its log: of no request it may say that it failed."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def make(rng: Random) -> bytes:
    """A request, or what looks like one."""
    end = rng.choice(("\r\n", "\r\n", "\r\n", "\n", "\r"))
    line = (
        f"{rng.choice(METHODS)} {rng.choice(PATHS)} {rng.choice(VERSIONS)}" if rng.random() < 0.7 else "GET / HTTP/1.1"
    )
    chosen = [rng.choice(HEADERS) for _ in range(rng.choice((0, 1, 2, 3, 5, 120 if rng.random() < 0.05 else 4)))]
    if rng.random() < 0.3:
        chosen.append(f"Accept: {strange(rng)}")
    chosen.append(f"X-Secret: {WORD}")
    request = end.join([line, *chosen, "", ""]).encode("latin-1", "replace")
    if rng.random() < 0.1:
        request += WORD.encode() * rng.choice((1, 1000))
    return spoil(rng, request) if rng.random() < 0.5 else request


def requests() -> Target:
    """A monitor of a log, and its server, in threads of this process."""
    folder = Path(tempfile.mkdtemp())
    task = task_of("gradient")
    log = open_log(f"sqlite:///{folder}/log.db")
    log.register_task(task.document())
    monitor = Monitor(log, task, patience=1e9)
    monitor.poll()
    server = Server(monitor_routes(monitor))
    server.start()
    atexit.register(server.close)
    words = Words()
    logging.getLogger("murk.monitoring.web.server").addHandler(words)

    def take(data: bytes) -> str:
        answer = _asked(server, data)
        if WORD.encode() in answer:
            raise FindingError("an answer that repeats what was sent")
        if words.said:
            raise FindingError(f"the server's log says: {words.said.pop()}")
        if not answer:
            return "closed"
        if not answer.startswith(b"HTTP/1."):
            # HTTP 0.9 knows no headers.
            return "without headers"
        status = int(answer.split(b" ", 2)[1])
        if status not in STATUSES:
            raise FindingError(f"status {status}")
        return str(status)

    def check() -> None:
        if b" 200 " not in _asked(server, b"GET /healthz HTTP/1.1\r\n\r\n")[:20]:
            raise FindingError("the server does not answer any more")
        if threading.active_count() > MOST_CONNECTIONS + 8:
            raise FindingError(f"{threading.active_count()} threads")

    return Target(make, take, check)


def _asked(server: Server, data: bytes) -> bytes:
    found = []
    # Closed without waiting: otherwise every request would keep a port for a minute.
    with socket.create_connection((server.host, server.port), ANSWER_SECONDS) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65_536):
                found.append(part)
        except TimeoutError:
            raise FindingError(f"no end of the answer within {ANSWER_SECONDS} s") from None
        except OSError:
            # What comes after a refusal is not read, and then the connection is reset.
            pass
    return b"".join(found)
