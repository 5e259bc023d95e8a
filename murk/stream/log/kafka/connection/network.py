"""Connect to a cluster: parse its address, leave no socket open, and explain refused connections."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from murk.errors import UserError
from murk.stream.log.kafka.connection.errors import UNRESOLVED, Contacts
from murk.stream.log.kafka.connection.settings import Settings

_ERROR_CODE = "MURK-KAFKA-001"

_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
_WAIT = 3.0
ADDRESS = "MURK-LOG-008"
# What a server says after its part of the handshake if it rejects the client's certificate or the lack of one.
_OUR_CERTIFICATE = ("CERTIFICATE_REQUIRED", "UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "HANDSHAKE_FAILURE")


@dataclass(frozen=True)
class Address:
    """Bootstrap servers of a cluster, and the log's name if the URL has one.

    >>> Address.parse("kafka://one:9092,two:9092/third-child")
    Address(servers=('one:9092', 'two:9092'), name='third-child')
    >>> Address.parse("kafka://localhost:9092").url("third-child")
    'kafka://localhost:9092/third-child'
    """

    servers: tuple[str, ...]
    name: str | None = None

    @classmethod
    def parse(cls, url: str) -> Address:
        """Parse a URL ``kafka://host:port[,host:port][/NAME]``.

        Raises `UserError` if it is invalid or contains credentials; the message does not repeat what may be a password.
        """
        rest = url.partition("://")[2]
        hosts, slash, name = rest.partition("/")
        if "@" in rest:
            raise UserError(
                "the log URL contains credentials, which would appear in logs and process lists. Remove them, and set "
                "MURK_KAFKA_CONFIG to a properties file (docs/deploy.md)",
                code=ADDRESS,
            )
        servers = hosts.split(",")
        for server in servers:
            matched = _SERVER.fullmatch(server)
            if matched is None or not 0 < int(matched[2]) < 2**16:
                raise UserError("the log URL is invalid: write kafka://HOST:PORT[,HOST:PORT][/NAME]", code=ADDRESS)
        if slash and not _NAME.fullmatch(name):
            remedy = "write lowercase letters, digits and -, as in kafka://HOST:PORT/third-child"
            raise UserError(f"the name in the log URL is invalid: {remedy}", code=ADDRESS)
        return cls(tuple(servers), name or None)

    def url(self, name: str | None) -> str:
        """Return the URL of the log with a name."""
        return f"kafka://{','.join(self.servers)}" + (f"/{name}" if name else "")


class _Direct(KafkaNetSocket):  # type: ignore[misc]
    """Connections without a proxy; unlike the library's, a failed attempt leaves no socket open."""

    SCHEMES = ("murk-direct",)

    async def sock_connect(self, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


class LeakFreeClient(KafkaNetClient):  # type: ignore[misc]
    """The library's network client, with all sockets closed once it is closed.

    The library loses sockets if a connection is closed before all of a request is sent, if the closing thread and the
    event loop handle the same connection at once, and if a handshake fails.
    """

    def __init__(self, **settings: Any) -> None:
        # The library chooses the kind of socket by the proxy's scheme.
        super().__init__(**{**settings, "proxy_url": f"{_Direct.SCHEMES[0]}://"})
        self._sockets: set[socket.socket] = set()
        self._contacts: Contacts | None = None
        self._manager._build_transport = self._build_transport

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        """Connect as the library does, and keep track of the socket."""
        config = self._manager.config
        try:
            options, proxy = config["socket_options"], config["proxy_url"]
            sock = await create_connection(
                self._net, node.host, node.port, options, proxy_url=proxy, timeout_at=timeout_at
            )
        except KafkaConnectionError as error:
            named = re.search(r"\bE[A-Z]{4,}\b", str(error))
            unconnected = f"it cannot be connected to from here ({named[0] if named else 'no answer in time'})"
            self._note_contact(node, UNRESOLVED if "DNS" in str(error) else unconnected)
            raise
        self._note_contact(node, None)
        if self._manager.ssl_enabled:
            encryption = {key: value for key, value in config.items() if key.startswith("ssl_")}
            transport = KafkaSSLTransport(self._net, sock, host=node.host, **encryption)
        else:
            transport = KafkaTCPTransport(self._net, sock, host=node.host)
        self._sockets = {known for known in self._sockets if known.fileno() != -1} | {transport._sock}
        try:
            await transport.handshake()
        except BaseException as error:
            transport.abort(error)
            if isinstance(error, Exception):
                raise KafkaConnectionError(f"Handshake failed: {error}") from error
            raise
        return transport

    def _note_contact(self, node: Any, problem: str | None) -> None:
        if self._contacts is not None:
            host = f"[{node.host}]" if ":" in node.host else node.host
            self._contacts.note(f"{host}:{node.port}", problem)

    def close(self, node_id: Any = None) -> None:
        """Close one connection, or all of them and the event loop."""
        if node_id is not None:
            super().close(node_id)
            return
        with ExitStack() as stack:
            stack.callback(self._close_sockets)
            stack.callback(self._net.close)
            if self._net._io_thread in (None, threading.current_thread()):
                self._manager.close()
                return
            # Close connections within the event loop: otherwise a connection that the loop is about to open would stay
            # open. If the loop has already ended, only sockets are left to close.
            with suppress(Exception):
                self._net.run(self._manager.close)

    def _close_sockets(self) -> None:
        while self._sockets:
            self._sockets.pop().close()


class Network(LeakFreeClient):
    """A network client that does not retry after a refusal that retrying cannot fix.

    The library retries a wrong password or an untrusted certificate until time runs out, and does not report the cause.
    """

    def __init__(self, contacts: Contacts, **settings: Any) -> None:
        super().__init__(**settings)
        self._contacts = contacts
        # The library ignores the clients' setting, and a broker may then create every topic that a request names.
        self._manager.cluster.config["allow_auto_create_topics"] = False
        self._refusal: Exception | None = None
        self._connect = self._manager.get_connection
        self._manager.get_connection = self._get_connection

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at)
        transport._sock_recv = _data_before_error(transport._sock_recv)
        return transport

    def _get_connection(self, node_id: Any, *arguments: Any, **options: Any) -> Any:
        if self._manager.bootstrapped:
            # Brokers that were reached before may be away for a while.
            return self._connect(node_id, *arguments, **options)
        if self._refusal is not None:
            raise self._refusal
        connection = self._connect(node_id, *arguments, **options)
        connection.init_future.add_errback(self._note_refusal)
        return connection

    def _note_refusal(self, error: Exception) -> None:
        if isinstance(error, (SaslAuthenticationFailedError, UnsupportedSaslMechanismError)) or (
            "CERTIFICATE_VERIFY_FAILED" in str(error)
        ):
            self._refusal = error


def _data_before_error(receive: Callable[[], tuple[bytes, Any]]) -> Callable[[], tuple[bytes, Any]]:
    """Deliver received data before the error that closed the connection, such as the refusal of a password."""
    pending: list[Any] = []

    def receive_in_order() -> tuple[bytes, Any]:
        if pending:
            return b"", pending[0]
        data, error = receive()
        if data and error:
            pending.append(error)
            return data, None
        return data, error

    return receive_in_order


def explain(address: Address, settings: Settings, url: str) -> UserError | None:
    """Return why connecting to all servers failed, or None if the settings do not seem to be the cause."""
    for server in address.servers:
        host, _, port = server.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_WAIT) as connection:
                encrypted = settings.encrypted
                problem = _encrypted_problem(connection, host, settings) if encrypted else _plain_problem(connection)
        except OSError:
            continue  # no answer: not a matter of settings
        if problem is not None:
            return UserError(f"{url}: {problem}")
    return None


def _plain_problem(connection: socket.socket) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Only the handshake is sent: the server's identity does not matter.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with context.wrap_socket(connection):
            pass
    except OSError:
        return None
    return "this port speaks TLS: set security.protocol to SSL or SASL_SSL (docs/deploy.md)"


def _encrypted_problem(connection: socket.socket, host: str, settings: Settings) -> str | None:
    try:
        with settings.context().wrap_socket(connection, server_hostname=host.strip("[]")) as secured:
            # A server that requires a certificate says so only after its part of the handshake.
            secured.recv(1)
    except TimeoutError:
        return None
    except ssl.SSLError as error:
        if any(words in str(error.reason) for words in _OUR_CERTIFICATE):
            return "the broker requires a certificate that it trusts: check ssl.certificate.file and ssl.key.file"
        remedy = "For one without TLS, set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
        return f"the TLS handshake failed: is this the port of a TLS listener? {remedy}"
    return None
