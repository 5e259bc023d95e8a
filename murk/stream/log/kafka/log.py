"""The log on a Kafka cluster: four topics, and the broker's transactions for what must be written together."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from time import sleep, time
from typing import Any

from kafka import TopicPartition

from murk.errors import MurkError, UserError
from murk.stream.log.base import (
    Checkpoint,
    DeadLetter,
    FencedError,
    Log,
    Membership,
    Message,
    Ownership,
    UnreachableError,
    check_range,
    check_sizes,
)
from murk.stream.log.kafka import topics
from murk.stream.log.kafka.connection.clients import Clients, close_in_time
from murk.stream.log.kafka.connection.network import Address
from murk.stream.log.kafka.connection.settings import Settings
from murk.stream.log.kafka.consumers import Ends, Newest, Reader, Readers, Shared, Table, letters
from murk.stream.log.kafka.membership import KafkaMembership
from murk.stream.log.kafka.model_cache import ModelCache
from murk.stream.log.kafka.ownership import OFFSET, OWNER, KafkaOwnership
from murk.stream.log.kafka.sender import Sending
from murk.stream.log.kafka.task_record import TASK, TASK_PLACE, announced_topics, check_same, put_document
from murk.stream.log.kafka.topics import Names
from murk.stream.messages.releases import truncate_time
from murk.stream.task.change import check_task_change
from murk.stream.task.task import Task

_ANNOUNCE_TRIES = 10
_ASIDE = 0.5


class KafkaLog(Log):
    """A log on a cluster; `murk.stream.open_log` opens it by URL.

    Parameters
    ----------
    url
        ``kafka://host:port[,host:port][/NAME]``.
    create
        Whether this process may create topics. One that may not, such as a device, finds them or is refused.
    name
        The log's name where the URL does not give it: that of its task.

    Raises
    ------
    UserError
        When there is no such log and it may not be created, or the broker refuses the credentials.
    UnreachableError
        When no server answers.
    """

    readable_by_senders = False

    def __init__(self, url: str, *, create: bool = True, name: str | None = None) -> None:
        self._address = Address.parse(url)
        self._settings = Settings.read()
        self._create = create
        self._name = self._address.name or name
        self._task: Task | None = None
        self._known: str | None = None
        self._announced_on: Mapping[str, str] = {}
        self._readers = Readers()
        self._state_reader: Shared | None = None
        self._table: Table | None = None
        self._ends: Ends | None = None
        self._cache: ModelCache | None = None
        self.url = self._address.url(self._name)
        self._sending = Sending(self._clients)
        self._admin = self._clients.admin()
        try:
            if self._name is None:
                self._discover_name()
            if not create and self._find_identity() is None:
                raise UserError(
                    f"there is no log at {self.url}: `murk topics TASK --log {self._address.url(None)}` creates its "
                    "topics",
                    code="MURK-LOG-004",
                )
        except BaseException:
            self.close()
            raise

    # What it carries

    @property
    def identity(self) -> str:
        """The id that the broker drew for the topic of releases."""
        if self._known is None:
            self._known = self._find_identity()
            if self._known is None:
                raise UserError(f"{self.url} has no topics yet: `murk topics` creates them")
        return self._known

    def prepare(self, document: bytes) -> None:
        """Create missing topics, and make sure that all fit the task."""
        task = Task.from_document(document)
        self._take_name(task.name)
        if self._create:
            topics.create(self._admin, self.url, self._names, task)
            wrong = topics.problems(self._admin, self.url, self._names, task)
        else:
            described = topics.describe(self._admin, self.url, self._names, self._names.all)
            wrong = [
                f"{topic} has {len(described[topic]['partitions']) if topic in described else 'no'} partitions and the "
                f"task asks for {task.log.partitions}"
                for topic in self._names.all
                if topic not in described or len(described[topic]["partitions"]) != task.log.partitions
            ]
        if wrong:
            raise UserError(f"the topics of {self.url} do not fit the task: {'; '.join(wrong)}")

    def register_task(self, document: bytes) -> None:
        """Put the task's document on the log, in a transaction that only one of several can win."""
        self._take_name(Task.from_document(document).name)
        unheard = False
        for _ in range(_ANNOUNCE_TRIES):
            standing = self.document()
            task = check_task_change(self.url, standing, document)
            if task is None:
                return
            if standing is None:
                self.prepare(document)
                self._check_beginning(task)
            elif self._create:
                topics.repair(self._admin, self.url, self._names, task)
            try:
                put_document(self._clients, self._names, self._models(), standing, document, self._ids(standing))
            except FencedError:
                # Another one announces at this moment: look at what it has put there. In step, several would go on
                # ending each other's transactions.
                sleep(random.uniform(0.0, _ASIDE))
                continue
            except UnreachableError:
                # What became of the transaction is not known: what is on the log says it, if the broker answers.
                if unheard:
                    raise
                unheard = True
                continue
            self._task = task
            return
        raise MurkError(f"{self.url}: others keep announcing tasks at the same moment: try again")

    def document(self) -> bytes | None:
        """Return the announced task's document."""
        if self._name is None:
            self._discover_name()
        if self._name is None or (self._known is None and self._find_identity() is None):
            return None
        return self._newest_models(TASK_PLACE).get(TASK)

    @property
    def partitions(self) -> int:
        """Number of partitions, from the announced task."""
        return self._announced().log.partitions

    @property
    def simulated(self) -> bool:
        """Whether releases are simulated, from the announced task."""
        return self._announced().simulated

    # Releases

    def append(self, batch: Sequence[tuple[int, bytes]]) -> None:
        """Send a batch and wait until all replicas have it; see `Log.append`."""
        check_sizes(batch)
        for partition in {partition for partition, _ in batch}:
            self._check(partition)
        if not batch:
            return
        # A record's own time tells no more than its payload does; the topic keeps the broker's in its place.
        moment = 1000 * truncate_time(time(), self._announced().granularity)
        self._sending.deliver(self._names.releases, batch, ms=moment)

    def read(self, partition: int, offset: int, limit: int) -> list[Message]:
        """Read messages, as many as one fetch brings at the most; see `Log.read`."""
        self._check(partition)
        try:
            found = self._reader(self._names.releases, partition, committed=False).read(offset, limit)
        except IndexError:
            self._check_topic_ids()
            check_range(self, partition, offset)
            raise MurkError(f"partition {partition} of {self.url} cannot be read at offset {offset}") from None
        return [Message(record.offset, record.timestamp // 1000, record.value or b"") for record in found]

    def begin(self, partition: int) -> int:
        """Offset of the oldest message kept."""
        self._check(partition)
        # Each send of what waits asks for it first.
        with self._sending.pausing():
            return self._current_ends().begin(place := TopicPartition(self._names.releases, partition))[place]

    def end(self, partition: int) -> int:
        """Offset that the next message will get."""
        self._check(partition)
        return self._current_ends().of(self._names.releases, partition)[0]

    def ends_of(self, partitions: Collection[int]) -> Sequence[int]:
        """Offsets of next messages, asked for at once; readers of partitions that nobody reads now are closed."""
        for partition in partitions:
            self._check(partition)
        self._readers.close_unused(self.url)
        return self._current_ends().of(self._names.releases, *partitions)

    # Models

    def publish(self, chain: int, message: bytes) -> None:
        """Put a chain's newest model on its topic."""
        self._check(chain)
        self._sending.deliver(self._names.models, [(chain, message)], key=str(chain).encode(), ms=int(1000 * time()))

    def _tell(self, chain: int, message: bytes) -> Any:
        return self._sending.start(self._names.models, chain, message, str(chain).encode())

    def model(self, chain: int) -> bytes | None:
        """Return a chain's newest model, as it is stored in the log now."""
        self._check(chain)
        return self._newest_models(chain).get(str(chain).encode())

    def cached_model(self, chain: int) -> tuple[bytes | None, int]:
        """Return what a thread in the background has heard last; see `Log.cached_model`."""
        self._check(chain)
        if self._cache is None:
            self._cache = ModelCache(self._clients, self._names, self.partitions)
        heard = self._cache.cached()
        return heard.models.get(str(chain).encode()), heard.ends[chain]

    # Chains

    def checkpoint(self, chain: int) -> Checkpoint:
        """Read a chain's committed state and offset."""
        self._check(chain)
        record = self._state(chain)
        if record is None:
            return Checkpoint(None, 0)
        offset = dict(record.headers).get(OFFSET, b"")
        if not offset.isdigit():
            raise MurkError(
                f"the newest record of {self._names.states}, partition {chain}, has no offset in its headers: somebody "
                "else has written there. Bring the topic back from a copy (docs/recover.md)"
            )
        return Checkpoint(record.value, int(offset))

    @property
    def takes_estimates(self) -> bool:
        """Whether there is a topic for them (`murk topics --estimates` creates it) that this user may see."""
        return topics.has_estimates(self._admin, self.url, self._names)

    def estimate(self) -> bytes | None:
        """Return the newest published estimate."""
        found = self.takes_estimates and Newest(self._reader(self._names.estimates, 0, committed=True)).record()
        return bytes(found.value) if found else None

    def owners(self) -> Mapping[int, str]:
        """Who committed each chain's state last."""
        found = {}
        for chain in range(self.partitions):
            record = self._state(chain)
            if record is not None:
                found[chain] = dict(record.headers).get(OWNER, b"").decode("utf-8", "replace")
        return found

    def acquire(self, chain: int) -> Ownership:
        """Take over a chain: the newest producer of its transactional id is its owner."""
        self._check(chain)
        self._check_topic_ids()
        return KafkaOwnership(self._clients, self._names, chain, self.checkpoint, self._check_topic_ids, self._tell)

    def join(self, name: str | None = None) -> Membership:
        """Join the consumer group of the learners; a broker that is away is waited for when chains are asked for."""
        return KafkaMembership(self._clients, self._names, name)

    def dead_letters(self, partition: int | None = None) -> Iterator[DeadLetter]:
        """Iterate over dead letters; what a repeated commit wrote twice is given once."""
        chains = range(self.partitions) if partition is None else [partition]
        for chain in chains:
            self._check(chain)
            yield from letters(self._reader(self._names.dead, chain, committed=True), chain)

    def trim(self, before: float) -> int:
        """Do nothing: the broker applies its topics' retention by itself."""
        self._announced()
        return 0

    def close(self) -> None:
        """Close all clients, also where one of them fails; none is waited for for ever."""
        made = [self._admin, self._sending, self._ends, self._table, self._state_reader, *self._readers]
        with ExitStack() as clients:
            # The last one that is put here is the first to be closed.
            for one in (*made, self._cache):
                if one is not None:
                    clients.callback(close_in_time, one, self.url)
        self._readers, self._state_reader = Readers(), None
        self._table = self._ends = self._cache = self._admin = None

    # What it is made of

    @property
    def _clients(self) -> Clients:
        return Clients(self._address, self._settings, self.url)

    @property
    def _names(self) -> Names:
        if self._name is None:
            raise self._without_task()
        return Names(self._name)

    def _without_task(self) -> UserError:
        words = f"{self.url} carries no task yet: announce one first, with `murk topics` or `murk run`"
        return UserError(words, code="MURK-LOG-003")

    def _take_name(self, name: str) -> None:
        if self._name is None:
            self._name = name
            self.url = self._address.url(name)

    def _discover_name(self) -> None:
        """Take the only log that is there."""
        found = topics.find(self._admin, self.url)
        if len(found) > 1:
            raise UserError(
                f"{self.url} has several logs: {', '.join(found)}. Name one of them: {self._address.url(found[0])}"
            )
        if found:
            self._take_name(found[0])
        elif not self._create:
            words = f"there is no log at {self.url} that this user may see: `murk topics TASK --log {self.url}` creates"
            raise UserError(f"{words} one", code="MURK-LOG-004")

    def _find_identity(self) -> str | None:
        return topics.identity(self._admin, self.url, self._names)

    def _check_topic_ids(self) -> None:
        """Make sure that the topics are those that the task was announced on, and that this log was opened with."""
        if not self._announced_on:
            found = announced_topics(self._models().refresh(TASK_PLACE), self._names)
            check_same(self.url, {self._names.releases: self.identity}, found)
            self._announced_on = found
        check_same(self.url, self._announced_on, topics.identities(self._admin, self.url, self._names))

    def _ids(self, standing: bytes | None) -> dict[str, str]:
        """Ids to be announced: those that are, however often the task's retention changes."""
        if standing is not None:
            return announced_topics(self._models().refresh(TASK_PLACE), self._names)
        return topics.identities(self._admin, self.url, self._names)

    def _check_beginning(self, task: Task) -> None:
        """Refuse to begin where others have, and what they learned is gone."""
        for chain in range(task.log.partitions):
            place = TopicPartition(self._names.releases, chain)
            if self._current_ends().end(place)[place] and self._state(chain) is None:
                raise UserError(
                    f"{self._names.releases} holds releases of partition {chain}, of which neither the task nor a "
                    f"state is there any more: topics of {self.url} were deleted. Bring them back, or begin with a "
                    "new log (docs/recover.md)"
                )

    def _announced(self) -> Task:
        if self._task is None:
            document = self.document()
            if document is None:
                raise self._without_task()
            # From here on this log is about these topics, and no others of their name.
            _ = self.identity
            self._task = Task.from_document(document)
        return self._task

    def _check(self, partition: int) -> None:
        if not 0 <= partition < self.partitions:
            raise UserError(
                f"{self.url} has no partition {partition}: its partitions are numbered from 0 to {self.partitions - 1}"
            )

    def _models(self) -> Table:
        if self._table is None:
            described = topics.describe(self._admin, self.url, self._names)
            if self._names.models not in described:
                raise UserError(f"{self._names.models} is missing: create it with `murk topics`")
            partitions = len(described[self._names.models]["partitions"])
            self._table = Table(self._clients, self._names.models, partitions, self._current_ends())
        return self._table

    def _newest_models(self, partition: int) -> Mapping[bytes, bytes]:
        """Read the models on a partition at least, or say that their topic is gone.

        Asked for the end of a topic that is not there the library asks again until time runs out: anyone who then
        waited for a broker that answers would wait for ever.
        """
        try:
            return self._models().refresh(partition)
        except UnreachableError:
            if self._announced_on:
                self._check_topic_ids()
            raise

    def _reader(self, topic: str, partition: int, *, committed: bool) -> Reader:
        return self._readers.get(self._clients, self._current_ends(), topic, partition, committed=committed)

    def _current_ends(self) -> Ends:
        if self._ends is None:
            self._ends = Ends(self._clients)
        return self._ends

    def _state(self, chain: int) -> Any | None:
        if self._state_reader is None:
            self._state_reader = Shared(self._clients, committed=True)
        return self._state_reader.newest(self._current_ends(), self._names.states, chain).record()
