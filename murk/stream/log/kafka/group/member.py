"""A static member of a consumer group: it is known by a name, and says when another one has joined under that name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import FencedInstanceIdError

from murk.stream.log.kafka.group.assignment import Assignor

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
