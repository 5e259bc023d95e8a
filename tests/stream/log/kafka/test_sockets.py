"""No socket of a client is open once it is closed: nobody else would close it."""

import asyncio
import select
import socket
from contextlib import contextmanager

import pytest
from kafka.errors import KafkaConnectionError
from kafka.net.inet import KafkaNetSocket

from deploy.broker.ports import number, reserve
from murk.stream.log.kafka.connection.network import LeakFreeClient


class Loop:
    async def wait_write(self, sock, timeout_at=None):
        select.select([], [sock], [], 30)


@contextmanager
def client(port, **settings):
    # So old a version that a connection is ready without a word from the broker.
    network = LeakFreeClient(bootstrap_servers=[f"127.0.0.1:{port}"], api_version=(0, 9), **settings)
    network._net.start()
    try:
        yield network
    finally:
        network.close()


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def connect(network, unsent=b""):
    """Connect, and leave something to be sent; the socket."""

    async def doing():
        [node] = network.cluster.bootstrap_brokers()
        connection = await network._manager.get_connection(node.node_id)
        if unsent:
            connection.transport.write(unsent)
        return connection.transport._sock

    return network._net.run(doing)


def test_an_attempt_that_fails_leaves_no_open_socket():
    with reserve() as nobody, client(number(nobody)) as network, socket.socket() as sock:
        kind = KafkaNetSocket(network._manager.config["proxy_url"])
        assert type(kind) is not KafkaNetSocket
        sock.setblocking(False)
        with pytest.raises(KafkaConnectionError, match="ECONNREFUSED"):
            asyncio.run(kind.sock_connect(Loop(), sock, ("127.0.0.1", number(nobody))))
        assert sock.fileno() == -1


@pytest.mark.parametrize("unsent", [b"", bytes(2**26)], ids=["idle", "unsent"])
def test_closing_closes_what_is_connected(server, unsent):
    """Also where the other end does not take what there is to be sent: the library would wait for it to do so."""
    with client(server.getsockname()[1]) as network:
        sock = connect(network, unsent)
        assert sock.fileno() != -1
    assert sock.fileno() == -1
    # Once more does no harm.
    network.close()


def test_a_handshake_that_fails_leaves_no_open_socket(server):
    with client(server.getsockname()[1], security_protocol="SSL", ssl_check_hostname=False) as network:
        asked = network._manager.call_soon(network._manager.get_connection, "bootstrap-0")
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"this is no TLS" * 10)
            with pytest.raises(KafkaConnectionError, match="Handshake failed"):
                network._net.run(lambda: asked)
        [sock] = network._sockets
        assert sock.fileno() == -1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_closing_closes_what_a_broken_loop_left(server):
    with client(server.getsockname()[1]) as network:
        sock = connect(network)
        working, loop = network._net._schedule_tasks, network._net._io_thread

        def broken():
            network._net._schedule_tasks = working
            raise RuntimeError("broken")

        network._net._schedule_tasks = broken
        network._net.wakeup()
        loop.join(30)
    assert sock.fileno() == -1


def test_a_client_without_a_thread_is_closed_by_who_drives_it(server):
    network = LeakFreeClient(bootstrap_servers=[f"127.0.0.1:{server.getsockname()[1]}"], api_version=(0, 9))
    sock = connect(network, bytes(2**26))
    network.close()
    assert sock.fileno() == -1
