"""Sending does not wait again with every record for what is not there, and keeps nothing of what it could not send."""

import gc
import weakref
from types import SimpleNamespace

import pytest
from kafka.errors import KafkaTimeoutError
from kafka.future import Future

from murk.stream.log.interface import UnreachableError
from murk.stream.log.kafka.log import Sending


class Nowhere:
    """A producer that waits for its topic in vain."""

    def __init__(self):
        self.asked = 0

    def send(self, *arguments, **options):
        self.asked += 1
        raise KafkaTimeoutError


def test_after_a_failure_nobody_waits_again():
    producer = Nowhere()
    sending = Sending(SimpleNamespace(url="kafka://nowhere", sender=lambda: producer))
    for _ in range(20):
        with pytest.raises(UnreachableError):
            sending.start("models", 0, b"x", b"0")
        with pytest.raises(UnreachableError):
            sending.deliver("models", [(0, b"x")], ms=0)
    assert producer.asked == 1


class Failing(Future):
    """A record's future that its producer gave up, as the library gives it: it raises the error that it holds."""

    def __init__(self):
        super().__init__()
        self.failure(KafkaTimeoutError("6000 ms have passed"))

    def get(self, timeout):
        raise self.exception


class Records(list):
    """A batch that can be watched."""


def test_a_batch_that_failed_is_freed_at_once():
    sending = Sending(
        SimpleNamespace(url="kafka://nowhere", sender=lambda: SimpleNamespace(send=lambda *_, **__: Failing()))
    )
    records = Records([(0, b"x"), (1, b"y")])
    gone = weakref.ref(records)
    gc.disable()
    try:
        with pytest.raises(UnreachableError):
            sending.deliver("releases", records, ms=0)
        del records
        assert gone() is None
    finally:
        gc.enable()
