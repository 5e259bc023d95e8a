"""A network client that leaves no socket open behind, however it comes to its end."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import ExitStack, suppress
from typing import Any

from kafka.errors import KafkaConnectionError
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from murk.stream.log.kafka.connection.errors import UNRESOLVED, Contacts


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
