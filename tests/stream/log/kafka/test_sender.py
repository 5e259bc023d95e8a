"""Sending does not wait again with every record for what is not there."""

from types import SimpleNamespace

import pytest
from kafka.errors import KafkaTimeoutError

from murk.stream.log.base import UnreachableError
from murk.stream.log.kafka.sender import Sending


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
