"""Members of the learners' consumer group, with cooperative partition assignment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import time
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
from kafka.errors import FencedInstanceIdError, LeaderNotAvailableError
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

UNFINISHED = b"unfinished"  # user data of an assignment that leaves some partition unassigned
REBALANCE_MS = 2_000  # time that a rebalance waits for a member; a static member that is late keeps its partitions
_JOIN_MS = 500


def share(partitions: Sequence[int], owned: Mapping[str, Collection[int]]) -> dict[str, list[int]]:
    """Distribute partitions evenly with as few moves as possible.

    A partition that moves is left unassigned until the next rebalance, so that its owner releases it. ``owned`` has the
    partitions of each member, longest-running member first. Free partitions go to members in that order, so that one
    that restarts again and again is the last to get more. Here a third member joins, and one partition moves:

    >>> share([0, 1, 2], {"old": [0], "new": [1]})
    {'old': [0, 2], 'new': [1]}
    >>> share([0, 1, 2], {"old": [0, 2], "new": [1], "newest": []})
    {'old': [0], 'new': [1], 'newest': []}
    >>> share([0, 1, 2], {"old": [0], "new": [1], "newest": []})
    {'old': [0], 'new': [1], 'newest': [2]}
    """
    free = set(partitions)
    kept: dict[str, list[int]] = {}
    for member, have in owned.items():
        # If two members claim a partition, the older one keeps it.
        kept[member] = sorted(free & set(have))
        free -= set(have)
    # Members with the most partitions get the larger shares; ties go to the oldest.
    order = sorted(owned, key=lambda member: -len(kept[member]))
    least, more = divmod(len(partitions), len(order))
    room = {member: least + (rank < more) for rank, member in enumerate(order)}
    shares = {member: have[: room[member]] for member, have in kept.items()}
    for partition in sorted(free):
        member = min((name for name in owned if len(shares[name]) < room[name]), key=lambda name: len(shares[name]))
        shares[member].append(partition)
    return {member: sorted(have) for member, have in shares.items()}


class Assignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """Cooperative assignor by `share`; ``owned`` returns this member's partitions, ``again`` requests a rebalance."""

    name = "cooperative-sticky"
    version = 1

    def __init__(self, owned: Callable[[], Iterable[TopicPartition]], again: Callable[[], object] = bool) -> None:
        self._owned, self._again, self._is_new = owned, again, True
        self._since = str(int(time())).encode()

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Return the cooperative protocol."""
        return [RebalanceProtocol.COOPERATIVE]

    def metadata(self, topics: Collection[str]) -> Any:
        """Return this member's partitions and the time at which it started."""
        have: dict[str, list[int]] = {}
        for owned in self._owned():
            have.setdefault(owned.topic, []).append(owned.partition)
        entry = ConsumerProtocolSubscription.TopicPartition
        return ConsumerProtocolSubscription(
            version=self.version,
            topics=sorted(topics),
            user_data=self._since,
            owned_partitions=[entry(topic=topic, partitions=sorted(numbers)) for topic, numbers in have.items()],
        )

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        """Assign partitions to all members, which subscribe to the same single topic."""
        topic = members[0].metadata.topics[0]
        partitions = cluster.partitions_for_topic(topic)
        if not partitions:
            # A broker that is starting may know of none yet. If a leader assigned nothing and died, it would return
            # under its name to the same empty assignment, and no rebalance would follow.
            cluster.request_update()
            raise LeaderNotAvailableError("no partition is known yet")
        ordered = sorted(members, key=lambda member: (_since(member.metadata.user_data), member.member_id))
        owned = {
            each.member_id: [number for entry in each.metadata.owned_partitions or () for number in entry.partitions]
            for each in ordered
        }
        shares = share(sorted(partitions), owned)
        user_data = b"" if sum(map(len, shares.values())) == len(partitions) else UNFINISHED
        return {
            member: ConsumerProtocolAssignment(self.version, [(topic, numbers)] if numbers else [], user_data)
            for member, numbers in shares.items()
        }

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Request another rebalance if the first assignment after a start was left unfinished."""
        # Whoever must release a partition requests a rebalance. If it died in between and came back under its name, it
        # gets the same assignment again, and nobody else would request a rebalance.
        is_new, self._is_new = self._is_new, False
        if is_new and assignment.user_data == UNFINISHED:
            self._again()


def _since(data: bytes | None) -> float:
    return float(data) if data is not None and data.isdigit() else time()


class Member(KafkaConsumer):  # type: ignore[misc]
    """A consumer that is a member of a group and reads nothing."""

    def __init__(self, **settings: Any) -> None:
        patience = settings.pop("patience_ms")  # how long heartbeats go on without a poll
        # Lambdas, since the base class has not set these attributes yet.
        assignor = Assignor(
            lambda: self._subscription.assigned_partitions(),  # noqa: PLW0108
            lambda: self._coordinator.request_rejoin(),  # noqa: PLW0108
        )
        super().__init__(**settings, max_poll_interval_ms=REBALANCE_MS, partition_assignment_strategy=[assignor])
        coordinator = self._coordinator
        coordinator.heartbeat.config["max_poll_interval_ms"] = patience
        self.settled = False
        self._superseded: FencedInstanceIdError | None = None
        self._handle_response = coordinator._handle_heartbeat_response
        coordinator._handle_heartbeat_response = self._note_fencing

    def _note_fencing(self, *answer: Any) -> Any:
        # The library's heartbeat thread ends at this error without reporting it.
        try:
            return self._handle_response(*answer)
        except FencedInstanceIdError as error:
            self._superseded = error
            raise

    def assigned(self) -> Collection[int]:
        """Poll the group's coordinator, return this member's partitions, and set ``settled`` to whether its join ended.

        Raises `FencedInstanceIdError` if another member has joined under this member's name; `KafkaError` if the broker
        refuses.
        """
        # It waits only during a rebalance, since the library restarts a join whose end it did not wait for. The
        # consumer's own poll would also fetch records and join twice.
        self.settled = self._coordinator.poll(timeout_ms=_JOIN_MS)
        if self._superseded is not None:
            raise self._superseded
        return frozenset(assigned.partition for assigned in self.assignment())

    def leave(self, *, for_good: bool) -> None:
        """Close. With ``for_good``, leave the group, so that others get this member's partitions now."""
        if for_good:
            # The library lets a static member's session time out instead.
            self._coordinator.is_dynamic_member = lambda: True
        self.close(autocommit=False, timeout_ms=2000)
