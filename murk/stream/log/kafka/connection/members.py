"""The cooperative rebalance of a consumer group: which partition is assigned to which member, by one for all.

A static member of a consumer group: it is known by a name, and says when another one has joined under that name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import time
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
from kafka.errors import FencedInstanceIdError, LeaderNotAvailableError
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription


def share(partitions: Sequence[int], owned: Mapping[str, Collection[int]]) -> dict[str, list[int]]:
    """Share partitions out evenly, with as few moves as that allows.

    A partition that moves is unassigned first, so that its owner releases it, and is assigned in the next rebalance.

    Parameters
    ----------
    partitions
        All of them.
    owned
        What each member has, longest-running member first. Partitions without an owner go to them in this order: a
        member that is restarted again and again is the last to be given more.

    Returns
    -------
    dict
        The partitions of each member.

    Examples
    --------
    Of three, one is nobody's; then a third member comes, and one moves:

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
        # Where two say that they have it, the older one does.
        kept[member] = sorted(free & set(have))
        free -= set(have)
    # The one who has most keeps most, and of those who have as much the oldest one.
    order = sorted(owned, key=lambda member: -len(kept[member]))
    least, more = divmod(len(partitions), len(order))
    room = {member: least + (place < more) for place, member in enumerate(order)}
    found = {member: have[: room[member]] for member, have in kept.items()}
    for partition in sorted(free):
        member = min((one for one in owned if len(found[one]) < room[one]), key=lambda one: len(found[one]))
        found[member].append(partition)
    return {member: sorted(have) for member, have in found.items()}


UNFINISHED = b"unfinished"
"""Said to all with an assignment that gives some partition to nobody yet."""


class Assignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """`share` as the library asks for it; one by one (cooperatively), while the others are learned on.

    Members that share out otherwise, as those of an older version may, understand what is said here.

    Parameters
    ----------
    owned
        Tells which partitions this member has.
    again
        Asks that all be shared out again.
    """

    name = "cooperative-sticky"
    version = 1

    def __init__(self, owned: Callable[[], Iterable[TopicPartition]], again: Callable[[], object] = bool) -> None:
        self._owned = owned
        self._again = again
        self._is_new = True
        self._since = str(int(time())).encode()

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Keep what one has while the others are shared out."""
        return [RebalanceProtocol.COOPERATIVE]

    def metadata(self, topics: Collection[str]) -> Any:
        """Tell the others since when this one runs, and what it has."""
        have: dict[str, list[int]] = {}
        for place in self._owned():
            have.setdefault(place.topic, []).append(place.partition)
        entry = ConsumerProtocolSubscription.TopicPartition
        return ConsumerProtocolSubscription(
            version=self.version,
            topics=sorted(topics),
            user_data=self._since,
            owned_partitions=[entry(topic=topic, partitions=sorted(numbers)) for topic, numbers in have.items()],
        )

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        """Share out for all, who are subscribed to the same one topic."""
        topic = members[0].metadata.topics[0]
        partitions = cluster.partitions_for_topic(topic)
        if not partitions:
            # A broker that is starting may know of none yet. Who then shared out nothing, and died before it looked
            # again, would come back to the same nothing under its name, and nobody would look.
            cluster.request_update()
            raise LeaderNotAvailableError("no partition is known yet")
        ordered = sorted(members, key=lambda member: (_since(member.metadata.user_data), member.member_id))
        owned = {
            member.member_id: [
                number for entry in member.metadata.owned_partitions or () for number in entry.partitions
            ]
            for member in ordered
        }
        shares = share(sorted(partitions), owned)
        said = b"" if sum(map(len, shares.values())) == len(partitions) else UNFINISHED
        return {
            member: ConsumerProtocolAssignment(self.version, [(topic, numbers)] if numbers else [], said)
            for member, numbers in shares.items()
        }

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Ask again where a sharing was left unfinished.

        A member that must release a partition does so and asks for a new sharing. Where it died in between and came
        back under its name, it gets the answer that it got before, and nobody else would ever ask.
        """
        is_new, self._is_new = self._is_new, False
        if is_new and assignment.user_data == UNFINISHED:
            self._again()


def _since(data: bytes | None) -> float:
    return float(data) if data is not None and data.isdigit() else time()


REBALANCE_MS = 2_000
"""How long a rebalance waits for a member; one with a name keeps its chains without
it, and one that is frozen is missed for no longer."""

_JOIN_MS = 500


class Member(KafkaConsumer):  # type: ignore[misc]
    """A consumer in a group, of which only the membership is of use: it reads nothing."""

    def __init__(self, **settings: Any) -> None:
        # How long heartbeats go on without a poll: the caller judges that.
        patience = settings.pop("patience_ms")
        assignor = Assignor(
            lambda: self._subscription.assigned_partitions(), lambda: self._coordinator.request_rejoin()
        )
        super().__init__(**settings, max_poll_interval_ms=REBALANCE_MS, partition_assignment_strategy=[assignor])
        coordinator = self._coordinator
        coordinator.heartbeat.config["max_poll_interval_ms"] = patience
        self.settled = False
        self._superseded: FencedInstanceIdError | None = None
        self._heard = coordinator._handle_heartbeat_response
        coordinator._handle_heartbeat_response = self._hear

    def _hear(self, *answer: Any) -> Any:
        # The library's heart stops at this answer, and nobody is notified.
        try:
            return self._heard(*answer)
        except FencedInstanceIdError as error:
            self._superseded = error
            raise

    def assigned(self) -> Collection[int]:
        """Poll the group's coordinator, and return the partitions that are assigned to this member.

        Without a rebalance that takes no time at all. Else it waits: the library begins a join again
        whose end it was not there to see. ``settled`` says whether it has seen it.

        Raises
        ------
        FencedInstanceIdError
            When another one has joined under this member's name.
        KafkaError
            When the broker refuses.
        """
        # The coordinator's own, and not the consumer's: that would fetch what others read, and join twice in one go.
        self.settled = self._coordinator.poll(timeout_ms=_JOIN_MS)
        if self._superseded is not None:
            raise self._superseded
        return frozenset(place.partition for place in self.assignment())

    def leave(self, *, for_good: bool) -> None:
        """Close; where it is for good, the group is notified, and others get what this member had at once."""
        if for_good:
            # The library leaves it to the session's time-out once a member has a name.
            self._coordinator.is_dynamic_member = lambda: True
        self.close(autocommit=False, timeout_ms=2000)
