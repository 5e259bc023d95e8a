"""Create and check a task's topics, for operators of a cluster."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from murk.stream.log.kafka import topics
from murk.stream.log.kafka.connection.clients import Clients
from murk.stream.log.kafka.connection.network import Address
from murk.stream.log.kafka.connection.settings import Settings
from murk.stream.log.kafka.log import KafkaLog
from murk.stream.log.kafka.topics import Names
from murk.stream.task.change import check_task_change
from murk.stream.task.task import Task


class TopicSetup:
    """A task's topics on a cluster.

    Parameters
    ----------
    url
        ``kafka://host:port[/NAME]``.
    replication
        Replication factor; None for the brokers' default.
    estimates
        Whether to create a topic of estimates; an existing one stays.
    """

    def __init__(self, url: str, task: Task, *, replication: int | None = None, estimates: bool = False) -> None:
        address = Address.parse(url)
        name = address.name or task.name
        self.url = address.url(name)
        self._task = task
        self._names = Names(name)
        self._estimates = estimates
        self._replication = -1 if replication is None else replication
        self._admin = Clients(address, Settings.read(), self.url).admin()

    def create(self) -> list[str]:
        """Create missing topics and repair settings; return the names of the new topics."""
        created = topics.create(
            self._admin, self.url, self._names, self._task, self._replication, estimates=self._estimates
        )
        if self.problems():
            topics.repair(self._admin, self.url, self._names, self._task)
        return created

    def problems(self) -> list[str]:
        """Return what does not fit, one sentence each."""
        problems = topics.problems(self._admin, self.url, self._names, self._task, estimates=self._estimates)
        if self._replication > 0:
            for name, topic in topics.describe(self._admin, self.url, self._names).items():
                have = min(len(part["replica_nodes"]) for part in topic["partitions"])
                if have < self._replication:
                    problems.append(
                        f"{name} has {have} copies of a partition and {self._replication} were requested: reassign "
                        "its partitions with Kafka's own tools"
                    )
        return problems

    def settings(self) -> dict[str, tuple[str, dict[str, str] | str]]:
        """Return each topic's name and its retention settings and replication, or why they cannot be read.

        The keys are ``releases``, ``models``, ``states``, ``dead`` and, if there is such a topic, ``estimates``.
        """
        return topics.retention_settings(self._admin, self.url, self._names)

    def register_task(self) -> None:
        """Register the task (see `Log.register_task`), unless its sample is still to be set aside."""
        with KafkaLog(self.url) as log:
            standing = log.document()
            task = self._task if standing is None else self._task.with_defaults_of(Task.from_document(standing))
            if task.public is None or task.covariates is not None:
                log.register_task(task.document())

    def copies(self) -> int:
        """Return the smallest replication factor of the log's topics; 0 if there are none."""
        described = topics.describe(self._admin, self.url, self._names, self._names.all)
        parts = (part for topic in described.values() for part in topic["partitions"])
        return min((len(part["replica_nodes"]) for part in parts), default=0)

    def follow(self) -> bool:
        """Adopt from the log's task, if any, whether releases are simulated; return whether they are."""
        carried = self._registered()
        if carried is not None:
            self._task = self._task.with_simulated(carried.simulated)
        return self._task.simulated

    def announced(self) -> bool:
        """Return whether the log carries this task; raise `UserError` if it carries another task."""
        carried = self._registered()
        if carried is None:
            return False
        own = self._task.with_defaults_of(carried).without_public()
        check_task_change(self.url, carried.without_public().document(), own.document())
        return True

    def _registered(self) -> Task | None:
        if topics.identity(self._admin, self.url, self._names) is None:
            return None
        with KafkaLog(self.url) as log:
            document = log.document()
            return None if document is None else Task.from_document(document)

    def close(self) -> None:
        """Close the client."""
        self._admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
