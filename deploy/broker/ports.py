"""Ports that stay ours while nobody listens on them."""

from __future__ import annotations

import socket

from deploy.broker.errors import BrokerError


def reserve(port: int | None = None) -> socket.socket:
    """Bind a port of the loopback address without listening; a free one when ``port`` is None.

    As long as the socket is open, the system gives the port to nobody who asks for just any, neither to a server
    nor, which would be worse, to a client that keeps trying to reach a broker that is down and so would reach
    itself. A server that asks for this very port gets it: like Java, it sets SO_REUSEADDR, and nobody listens here.

    Raises
    ------
    BrokerError
        Somebody listens on the port, or it is not ours to take.
    """
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind(("127.0.0.1", port or 0))
    except OSError as error:
        held.close()
        raise BrokerError(
            f"port {port} cannot be had ({error.strerror}): stop what listens there, or choose another with --port"
        ) from error
    return held


def number(held: socket.socket) -> int:
    """The port that a socket is bound to."""
    return int(held.getsockname()[1])
