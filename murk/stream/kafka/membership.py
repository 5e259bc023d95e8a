"""Sharing the chains among all learners: a consumer group that says who learns what."""

from __future__ import annotations

from typing import Any

from kafka.structs import MemberState

from murk.stream.kafka.client import Clients
from murk.stream.kafka.faults import reaching
from murk.stream.kafka.topics import Names
from murk.stream.membership import Membership

JOIN_MS = 500
"""Longest wait for the others while chains are shared out anew; what is learned here waits, too."""


class KafkaMembership(Membership):
    """One learner's place in the consumer group of a log.

    The group only says which chains fall to whom; partitions move one by one (cooperatively), while the
    others are learned on. Reading, and what has been read, is each chain's own business: its state holds its
    offset, and a group's offsets can be reset by anybody with the tools for it.

    Parameters
    ----------
    clients, names
        Whose group.
    """

    shared = True

    def __init__(self, clients: Clients, names: Names) -> None:
        self._url = clients.url
        self._clients = clients
        self._names = names
        # Made when it is first asked for: a broker that is away at that moment is waited for like at any other.
        self._consumer: Any = None

    def chains(self) -> frozenset[int]:
        """Chains that fall to this process; asking takes part in the group's life."""
        if self._consumer is None:
            self._consumer = self._clients.member(self._names.group)
            self._consumer.subscribe([self._names.releases])
        with reaching(self._url, "sharing the chains"):
            assigned = self._consumer.assignment()
            # Others read; fetching here as well would double the traffic.
            self._consumer.pause(*assigned)
            # Joining takes a few exchanges, and is begun anew if it is not done when the time is up.
            stable = self._consumer.group_metadata().state == MemberState.STABLE
            self._consumer.poll(timeout_ms=0 if stable else JOIN_MS, max_records=1)
            return frozenset(place.partition for place in self._consumer.assignment())

    def close(self) -> None:
        """Leave the group, so that others need not wait for the session to run out."""
        if self._consumer is not None:
            self._consumer.close(autocommit=False, timeout_ms=2000)
