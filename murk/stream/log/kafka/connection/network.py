"""Where a log on a cluster is: its servers and its name.

A network client that leaves no socket open behind, however it comes to its end.

The first contact with a cluster: a client that is refused says so at once, and why.
"""

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

_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")


@dataclass(frozen=True)
class Address:
    """Servers to ask first, and the log's name where it is known.

    Examples
    --------
    >>> Address.parse("kafka://one:9092,two:9092/third-child")
    Address(servers=('one:9092', 'two:9092'), name='third-child')
    >>> Address.parse("kafka://localhost:9092").url("third-child")
    'kafka://localhost:9092/third-child'
    """

    servers: tuple[str, ...]
    name: str | None = None

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read a URL.

        Raises
        ------
        UserError
            When it is not ``kafka://host:port[,host:port][/NAME]``, or holds credentials. The URL is not
            repeated in the message: it may hold a password.
        """
        rest = url.partition("://")[2]
        where, slash, name = rest.partition("/")
        if "@" in rest:
            raise UserError(
                "a log's URL holds no credentials: it ends up in logs and in the list of processes. Leave them out, "
                "and name a file of settings in MURK_KAFKA_CONFIG (docs/deploy.md)",
                code="MURK-LOG-008",
            )
        servers = where.split(",")
        for server in servers:
            matched = _SERVER.fullmatch(server)
            if matched is None or not 0 < int(matched[2]) < 2**16:
                raise UserError(
                    "a log on Kafka is named kafka://HOST:PORT[,HOST:PORT][/NAME], and this URL is not so",
                    code="MURK-LOG-008",
                )
        if slash and not _NAME.fullmatch(name):
            raise UserError(
                "the name at the end of a Kafka log's URL has small letters, digits and -: kafka://HOST:PORT/third-child",
                code="MURK-LOG-008",
            )
        return cls(tuple(servers), name or None)

    def url(self, name: str | None) -> str:
        """Return the URL of a log of that name."""
        return f"kafka://{','.join(self.servers)}" + (f"/{name}" if name else "")


class _Direct(KafkaNetSocket):  # type: ignore[misc]
    """Connections without a proxy, whose attempts leave no open socket behind when they fail, as the library's do."""

    SCHEMES = ("murk-direct",)

    async def sock_connect(self, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


def _why(error: Exception) -> str:
    """The system's own name of an error, as the library hands it on."""
    found = re.search(r"\bE[A-Z]{4,}\b", str(error))
    return found[0] if found else "no answer in time"


class LeakFreeClient(KafkaNetClient):  # type: ignore[misc]
    """The library's network client, of which nothing is left open once it is closed.

    The library loses sockets: where a connection is closed before all of a request is out, and the loop that was
    to send the rest is stopped; where the thread that closes and the loop's come upon the same connection in the
    same moment; and where a handshake fails.
    """

    def __init__(self, **settings: Any) -> None:
        # The library picks the kind of socket by a proxy's scheme.
        super().__init__(**{**settings, "proxy_url": f"{_Direct.SCHEMES[0]}://"})
        self._sockets: set[socket.socket] = set()
        self._contacts: Contacts | None = None
        self._manager._build_transport = self._build_transport

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        """Connect, as the library does."""
        config = self._manager.config
        try:
            sock = await create_connection(
                self._net,
                node.host,
                node.port,
                config["socket_options"],
                proxy_url=config["proxy_url"],
                timeout_at=timeout_at,
            )
        except KafkaConnectionError as error:
            self._note_contact(
                node, UNRESOLVED if "DNS" in str(error) else f"it cannot be connected to from here ({_why(error)})"
            )
            raise
        self._note_contact(node, None)
        if self._manager.ssl_enabled:
            encryption = {key: value for key, value in config.items() if key.startswith("ssl_")}
            transport = KafkaSSLTransport(self._net, sock, host=node.host, **encryption)
        else:
            transport = KafkaTCPTransport(self._net, sock, host=node.host)
        self._sockets = {one for one in self._sockets if one.fileno() != -1} | {transport._sock}
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
        """Close one connection, or all of them and the loop."""
        if node_id is not None:
            super().close(node_id)
            return
        with ExitStack() as last:
            last.callback(self._close_sockets)
            last.callback(self._net.close)
            if self._net._io_thread in (None, threading.current_thread()):
                self._manager.close()
                return
            # Connections are the loop's: closed from here, one that it is about to open would stay open. Of a loop
            # that has ended, by an error of its own or in an earlier close, nothing is left but the sockets.
            with suppress(Exception):
                self._net.run(self._manager.close)

    def _close_sockets(self) -> None:
        while self._sockets:
            self._sockets.pop().close()


_WAIT = 3.0
# What a server says after its part of the handshake, when it does not like our certificate or the lack of one.
_OUR_CERTIFICATE = ("CERTIFICATE_REQUIRED", "UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "HANDSHAKE_FAILURE")


class Network(LeakFreeClient):
    """The library's network client, which makes no second attempt after a refusal that will not change.

    By itself it tries a wrong password, or a certificate that is not to be trusted, again until time runs out,
    and then tells nobody what it was. Topics are never created by asking about them.

    Parameters
    ----------
    contacts
        Where it is noted how connections fare.
    settings
        The library's.
    """

    def __init__(self, contacts: Contacts, **settings: Any) -> None:
        super().__init__(**settings)
        self._contacts = contacts
        # The library does not hand the clients' setting on to where it is used, and a broker may be one that
        # makes a topic of every name it is asked about.
        self._manager.cluster.config["allow_auto_create_topics"] = False
        self._refusal: Exception | None = None
        self._connect = self._manager.get_connection
        self._manager.get_connection = self._get_connection

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at)
        transport._sock_recv = _last_words(transport._sock_recv)
        return transport

    def _get_connection(self, node_id: Any, *arguments: Any, **options: Any) -> Any:
        if self._manager.bootstrapped:
            # Brokers that were reached once may be away for a while.
            return self._connect(node_id, *arguments, **options)
        if self._refusal is not None:
            raise self._refusal
        connection = self._connect(node_id, *arguments, **options)
        connection.init_future.add_errback(self._note)
        return connection

    def _note(self, error: Exception) -> None:
        if isinstance(error, (SaslAuthenticationFailedError, UnsupportedSaslMechanismError)) or (
            "CERTIFICATE_VERIFY_FAILED" in str(error)
        ):
            self._refusal = error


def _last_words(receive: Callable[[], tuple[bytes, Any]]) -> Callable[[], tuple[bytes, Any]]:
    """Hand over what has arrived before the news that the connection was closed.

    A broker that refuses a password says so and hangs up. Where both are seen at once, the library takes notice
    of the hanging up alone.
    """
    ended: list[Any] = []

    def heard() -> tuple[bytes, Any]:
        if ended:
            return b"", ended[0]
        data, error = receive()
        if data and error:
            ended.append(error)
            return data, None
        return data, error

    return heard


def explain(address: Address, settings: Settings, url: str) -> UserError | None:
    """Look why none of the servers could be spoken to; None where it is none of the settings, as far as one sees.

    Parameters
    ----------
    address, settings
        What was tried.
    url
        The log's URL, for the message.
    """
    for server in address.servers:
        host, _, port = server.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_WAIT) as connection:
                found = _encrypted(connection, host, settings) if settings.encrypted else _plain(connection)
        except OSError:
            # Nobody there, or nobody who answers: that is no matter of settings.
            continue
        if found is not None:
            return UserError(f"{url}: {found}")
    return None


def _plain(connection: socket.socket) -> str | None:
    """What keeps a client without encryption out."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is sent here but the greeting: it does not matter who answers it.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with context.wrap_socket(connection):
            pass
    except OSError:
        return None
    return "this port speaks TLS: set security.protocol to SSL or SASL_SSL (docs/deploy.md)"


def _encrypted(connection: socket.socket, host: str, settings: Settings) -> str | None:
    """What keeps a client with encryption out."""
    try:
        with settings.context().wrap_socket(connection, server_hostname=host.strip("[]")) as secured:
            # A server that wants a certificate says so only after its own handshake.
            secured.recv(1)
    except TimeoutError:
        return None
    except ssl.SSLError as error:
        if any(words in str(error.reason) for words in _OUR_CERTIFICATE):
            return (
                "the broker asks for a client's certificate that it trusts, and security.protocol=SSL: check "
                "ssl.certificate.file and ssl.key.file"
            )
        return (
            "no encrypted connection is established: is this the port of a listener with TLS? Without it, "
            "security.protocol is PLAINTEXT or SASL_PLAINTEXT"
        )
    return None
