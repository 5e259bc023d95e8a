"""The first contact with a cluster: a client that is refused says so at once, and why."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any

from kafka.errors import SaslAuthenticationFailedError, UnsupportedSaslMechanismError

from murk.errors import UserError
from murk.stream.log.kafka.connection.address import Address
from murk.stream.log.kafka.connection.errors import Contacts
from murk.stream.log.kafka.connection.settings import Settings
from murk.stream.log.kafka.connection.sockets import LeakFreeClient

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
