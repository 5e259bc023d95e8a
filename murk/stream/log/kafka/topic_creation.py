"""Setting up and checking a task's topics, for those who run a cluster."""

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
    task
        The task.
    replication
        Copies of each partition; None leaves it to the brokers.
    estimates
        Whether the log is to have a topic of estimates; one that has it keeps it.
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
        """Create what is missing and set what settings can fix; give the names of the new topics."""
        created = topics.create(
            self._admin, self.url, self._names, self._task, self._replication, estimates=self._estimates
        )
        if self.problems():
            topics.repair(self._admin, self.url, self._names, self._task)
        return created

    def problems(self) -> list[str]:
        """Say what does not fit, one sentence each; nothing when all is well."""
        found = topics.problems(self._admin, self.url, self._names, self._task, estimates=self._estimates)
        if self._replication > 0:
            for name, topic in topics.describe(self._admin, self.url, self._names).items():
                have = min(len(part["replica_nodes"]) for part in topic["partitions"])
                if have < self._replication:
                    found.append(
                        f"{name} has {have} copies of a partition and {self._replication} are asked for: reassign "
                        "its partitions with Kafka's own tools"
                    )
        return found

    def settings(self) -> dict[str, tuple[str, dict[str, str] | str]]:
        """How long each topic keeps what, and in how many copies, as the broker says; or why that cannot be read.

        Returns
        -------
        dict
            ``releases``, ``models``, ``states``, ``dead`` and, where there is one, ``estimates`` -> topic, and its
            settings or the reason.
        """
        return topics.retention_settings(self._admin, self.url, self._names)

    def register_task(self) -> None:
        """Put the task on the log; see `Log.register_task`. One with a sample set aside is not known yet, and waits."""
        with KafkaLog(self.url) as log:
            standing = log.document()
            task = self._task if standing is None else self._task.with_defaults_of(Task.from_document(standing))
            if task.public is None or task.covariates is not None:
                log.register_task(task.document())

    def copies(self) -> int:
        """Fewest copies of any partition of the log's topics; 0 where there are none."""
        described = topics.describe(self._admin, self.url, self._names, self._names.all)
        return min((len(part["replica_nodes"]) for one in described.values() for part in one["partitions"]), default=0)

    def follow(self) -> bool:
        """Take from the log's task, where it carries one, whether releases are simulated; return whether they are."""
        carried = self._carried()
        if carried is not None:
            self._task = self._task.with_simulated(carried.simulated)
        return self._task.simulated

    def announced(self) -> bool:
        """Whether the log carries this task.

        Raises
        ------
        UserError
            When it carries another one.
        """
        carried = self._carried()
        if carried is None:
            return False
        own = self._task.with_defaults_of(carried).without_public()
        check_task_change(self.url, carried.without_public().document(), own.document())
        return True

    def _carried(self) -> Task | None:
        """The log's task."""
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
