"""Connections of the client library."""

import asyncio
import select
import socket

import pytest
from kafka.errors import KafkaConnectionError
from kafka.net.inet import KafkaNetSocket

from deploy.broker.ports import number, reserve
from murk.stream.kafka.network import Network


class Loop:
    async def wait_write(self, sock, timeout_at=None):
        select.select([], [sock], [], 30)


def test_an_attempt_that_fails_leaves_no_open_socket():
    network = Network(bootstrap_servers=["127.0.0.1:1"])
    try:
        kind = KafkaNetSocket(network._manager.config["proxy_url"])
    finally:
        network.close()
    assert type(kind) is not KafkaNetSocket
    with reserve() as nobody, socket.socket() as sock:
        sock.setblocking(False)
        with pytest.raises(KafkaConnectionError, match="ECONNREFUSED"):
            asyncio.run(kind.sock_connect(Loop(), sock, ("127.0.0.1", number(nobody))))
        assert sock.fileno() == -1
