"""Closing a log comes to its end, whatever the client library waits for."""

import threading

import pytest

from murk.stream.log.kafka.connection import clients as module
from murk.stream.log.kafka.log import KafkaLog


class Client:
    def __init__(self, act=lambda: None):
        self.closed, self.act = 0, act

    def close(self):
        self.closed += 1
        self.act()


def opened(**clients):
    """A log with some clients, of which none has met a broker."""
    log = object.__new__(KafkaLog)
    log.url = "kafka://host:1/x"
    log._admin = log._sending = log._ends = log._table = log._cache = log._crowds = None
    log._state_reader, log._readers = None, ()
    log.__dict__.update(clients)
    return log


def test_a_client_that_never_closes_is_left(monkeypatch, caplog):
    monkeypatch.setattr(module, "CLOSING", 0.05)
    hold = threading.Event()
    stuck, others = Client(hold.wait), [Client() for _ in range(4)]
    log = opened(_admin=others[0], _ends=stuck, _state_reader=others[1], _readers=[others[2]], _cache=others[3])
    log.close()
    assert [one.closed for one in (stuck, *others)] == [1] * 5
    assert [record.getMessage() for record in caplog.records] == [
        "kafka://host:1/x: a client (Client) did not close in time and was abandoned"
    ]
    log.close()
    assert stuck.closed == 1
    hold.set()


def test_what_one_of_them_meets_is_raised_when_all_are_closed():
    def fail():
        raise ValueError("no")

    failing, other = Client(fail), Client()
    log = opened(_admin=other, _ends=failing)
    with pytest.raises(ValueError, match="no"):
        log.close()
    assert (failing.closed, other.closed) == (1, 1)
