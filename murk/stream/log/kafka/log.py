"""The log on a Kafka cluster, its sender, and the set-up of its topics; transactions write data together."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from time import monotonic, sleep, time
from typing import Any, Self

from kafka import TopicPartition
from kafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError

from murk.errors import MurkError, UserError
from murk.stream.log import interface as base
from murk.stream.log.interface import Checkpoint, CrowdMark, DeadLetter, FencedError, Log, Message, UnreachableError
from murk.stream.log.kafka import transactions
from murk.stream.log.kafka.connection.clients import PATIENCE_MS, Clients, close_in_time
from murk.stream.log.kafka.connection.errors import translate_errors
from murk.stream.log.kafka.connection.network import Address
from murk.stream.log.kafka.connection.records import send_at_once, takes_batches
from murk.stream.log.kafka.connection.settings import Settings
from murk.stream.log.kafka.consumers import Ends, ModelCache, Newest, Reader, Readers, Shared, Table, letters
from murk.stream.log.kafka.membership import KafkaMembership
from murk.stream.log.kafka.topics import Names, Topics, copies_of, find, topics_command
from murk.stream.log.kafka.transactions import TASK, TASK_PLACE, CrowdWriter, KafkaOwnership
from murk.stream.wire.packed import Packed
from murk.task.task import Task, check_task_change

_ERROR_CODE = "MURK-KAFKA-001"

_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0  # seconds between a failed attempt and the next one, doubling up to the latter


class Sending:
    """A producer, created on first use, that pauses after failures: no record waits for an unreachable broker."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._producer: Any = None
        self._at_once = False
        self._not_before, self._pause = 0.0, _FIRST_WAIT

    def deliver(self, topic: str, records: Sequence[tuple[int, bytes]], *, key: bytes | None = None, ms: int) -> None:
        """Send (partition, value) pairs in order until all replicas have them, or raise `UnreachableError`."""
        with self._trying():
            try:
                if key is None and self._at_once:
                    try:
                        self._wait(self._send_batches(topic, records, ms))
                        return
                    except (MessageSizeTooLargeError, RecordListTooLargeError):
                        # The batch exceeds the topic's limit: send with the library, which splits its own batches. A
                        # release that is sent twice counts once.
                        self._at_once = False
                send = self._producer.send
                self._wait([send(topic, value, key=key, partition=part, timestamp_ms=ms) for part, value in records])
            finally:
                # On Python 3.13, an error that passed through a context manager is in a cycle with its frames.
                del records

    def start(self, topic: str, partition: int, value: bytes, key: bytes) -> Any:
        """Send a record without waiting and return a future, or raise `UnreachableError`."""
        with self._trying():
            return self._producer.send(topic, value, key=key, partition=partition)

    def close(self) -> None:
        """Close the producer."""
        if self._producer is not None:
            self._producer.leave(1.0)
            self._producer = None

    def _send_batches(self, topic: str, records: Sequence[tuple[int, bytes]], ms: int) -> list[Any]:
        values: dict[int, list[bytes]] = {}
        for partition, value in records:
            values.setdefault(partition, []).append(value)
        return [
            future
            for partition, messages in values.items()
            for future in send_at_once(self._producer, topic, partition, messages, ms)
        ]

    def _wait(self, futures: Sequence[Any]) -> None:
        try:
            for future in futures:
                future.get(timeout=3 * PATIENCE_MS / 1000)
        except KafkaError as error:
            # The error's traceback refers to the future, which refers to the error: a cycle that keeps megabytes of
            # records alive at each attempt while a broker is away.
            del future, futures
            error.__traceback__ = None
            raise

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Run a request within the block; raise `UnreachableError` at once during the pause after a failure."""
        if monotonic() < self._not_before:
            raise UnreachableError(f"{self._clients.url} could not be reached a moment ago")
        try:
            yield
        except UnreachableError:
            self._not_before = monotonic() + self._pause
            self._pause = min(2.0 * self._pause, _LONGEST_WAIT)
            raise

    @contextmanager
    def _trying(self) -> Iterator[None]:
        with self.pausing():
            if self._producer is None:
                self._producer = self._clients.sender()
                self._at_once = takes_batches(self._producer)
            with translate_errors(self._clients.url, "sending"):
                yield
            # Reset here and not in `pausing`: a topic that accepts no records may still answer where it begins.
            self._pause = _FIRST_WAIT


_REGISTER_TRIES = 10
_LONGEST_PAUSE = 0.5


class KafkaLog(Log):
    """A log on a cluster; see `murk.stream.open_log`.

    ``create`` says whether this process may create topics. Raises `UserError` if the log does not exist and may not be
    created, or the broker refuses the credentials; `UnreachableError` if no server answers.
    """

    readable_by_senders = False

    def __init__(self, url: str, *, create: bool = True, name: str | None = None, model: str | None = None) -> None:
        self._address = Address.parse(url)
        self._settings = Settings.read(servers=self._address.servers)
        self._create = create
        self._name = self._address.name or name
        self.model_name, self._model_partitions = model, 0
        self._known: str | None = None
        self._announced_on: Mapping[str, str] = {}
        self._is_shuffled = False
        # Made on first use.
        self._readers = Readers()
        self._state_reader: Shared | None = None
        self._table: Table | None = None
        self._ends: Ends | None = None
        self._cache: ModelCache | None = None
        self._crowds: CrowdWriter | None = None
        self.url = self._address.url(self._name)
        self._sending = Sending(self._clients)
        self._admin = self._clients.admin()
        try:
            if self._name is None:
                self._discover_name()
            if not create and self._find_identity() is None:
                remedy = f"create its topics with `{topics_command(self.url)}`"
                raise UserError(f"there is no log at {self.url}: {remedy}", code=base.NO_LOG)
        except BaseException:
            self.close()
            raise

    @property
    def identity(self) -> str:
        """Id that the broker drew for the topic of releases."""
        if self._known is None:
            self._known = self._find_identity()
            if self._known is None:
                raise UserError(f"{self.url} has no topics yet: create them with `{topics_command(self.url)}`")
        return self._known

    def prepare(self, document: bytes) -> None:
        task = Task.from_document(document)
        self._take_name(task.name)
        if self._create:
            self._topics.create(task)
            wrong = self._topics.problems(task)
        else:
            described = self._topics.describe(self._names.all)
            have = {topic: len(about["partitions"]) for topic, about in described.items()}
            wrong = [
                f"{topic} has {have.get(topic, 'no')} partitions and the task asks for {task.log.partitions}"
                for topic in self._names.all
                if have.get(topic) != task.log.partitions
            ]
        if wrong:
            raise UserError(f"the topics of {self.url} do not fit the task: {'; '.join(wrong)}")

    def register_task(self, document: bytes) -> None:
        self._take_name(Task.from_document(document).name)
        outcome_unknown = False
        for _ in range(_REGISTER_TRIES):
            standing = self.document()
            task = check_task_change(self.url, standing, document)
            if task is None:
                return
            if standing is None:
                self.prepare(document)
                self._check_beginning(task)
            elif self._create:
                self._topics.repair(task)
            try:
                ids = self._announced_ids() if standing is not None else self._topic_ids()
                transactions.put_document(self._clients, self._names, self._models(), standing, document, ids)
            except FencedError:
                # Another process registers a task: read what it wrote. Without random pauses, several processes would
                # keep ending each other's transactions.
                sleep(random.uniform(0.0, _LONGEST_PAUSE))
                continue
            except UnreachableError:
                # Reading the log shows whether the transaction was committed.
                if outcome_unknown:
                    raise
                outcome_unknown = True
                continue
            self._registered = task
            return
        raise MurkError(f"{self.url}: other processes keep announcing tasks at the same moment: try again")

    def document(self) -> bytes | None:
        if self._name is None:
            self._discover_name()
        if self._name is None or (self._known is None and self._find_identity() is None):
            return None
        return self._newest_models(TASK_PLACE).get(TASK)

    def registered_task(self) -> Task:
        if self._registered is None:
            task, self._registered = super().registered_task(), None
            # From here on this log refers to these topics, not to others of the same name: kept once both are known.
            _ = self.identity
            self._registered = task
        return self._registered

    def append(self, batch: Sequence[tuple[int, bytes]]) -> None:
        base.check_sizes(batch)
        for partition in {partition for partition, _ in batch}:
            base.check_partition(self, partition)
        if not batch:
            return
        # Truncated, so that a record's own time tells no more than its payload; the topic stores the broker's time.
        ms = 1000 * base.truncate_time(time(), self.registered_task().granularity)
        self._sending.deliver(self._names.releases, batch, ms=ms)

    def read(self, partition: int, offset: int, limit: int) -> list[Message]:
        base.check_partition(self, partition)
        try:
            records = self._reader(self._names.releases, partition, committed=self._has_crowds()).read(offset, limit)
        except IndexError:
            self._check_topic_ids()
            base.check_range(self, partition, offset)
            raise MurkError(f"partition {partition} of {self.url} cannot be read at offset {offset}") from None
        return [Message(record.offset, record.timestamp // 1000, record.value or b"") for record in records]

    def skip(self, partition: int, offset: int) -> int:
        if not self._has_crowds():
            return offset
        return max(offset, self._reader(self._names.releases, partition, committed=True).position())

    def crowd_mark(self) -> CrowdMark | None:
        return CrowdMark.read(self._newest_models(TASK_PLACE).get(transactions.MARK))

    def claim(self, shuffler: str, *, replace: bool = False) -> CrowdMark:
        self._check_topic_ids()
        if self._crowds is not None:
            self._crowds.close()
        self._crowds = CrowdWriter(self._clients, self._names, self.crowd_mark)
        return self._crowds.claim(shuffler, replace, any(self.ends()))

    def append_crowd(self, messages: Iterable[tuple[int, Packed]], mark: CrowdMark) -> None:
        if self._crowds is None:
            raise MurkError(f"no shuffler has claimed {self.url}")
        self._check_topic_ids()
        ms = 1000 * base.truncate_time(time(), self.registered_task().granularity)
        self._crowds.append(messages, mark, ms)

    def discard(self, partition: int, offset: int) -> None:
        base.check_partition(self, partition)
        topic_partition = TopicPartition(self._names.releases, partition)
        with translate_errors(self.url, f"deleting from {self._names.releases} what was shuffled"):
            self._admin.delete_records({topic_partition: offset}, timeout_ms=PATIENCE_MS)

    def _has_crowds(self) -> bool:
        """Return whether a shuffler writes to this log, whose transactions its readers must wait for."""
        if not self._is_shuffled and self.registered_task().shuffle is not None:
            self._is_shuffled = self.crowd_mark() is not None
        return self._is_shuffled

    def check_unchanged(self) -> None:
        # Whoever only sends need not see the other topics.
        of = self._names.releases, self._names.models
        found = {topic: str(about["topic_id"]) for topic, about in self._topics.describe(of).items()}
        announced = self._announced()
        transactions.check_same(self.url, {topic: announced[topic] for topic in of}, found)

    def begin(self, partition: int) -> int:
        base.check_partition(self, partition)
        # Each attempt to send from an outbox first reads the beginning.
        with self._sending.pausing():
            topic_partition = TopicPartition(self._names.releases, partition)
            return self._current_ends().begin(topic_partition)[topic_partition]

    def end(self, partition: int) -> int:
        base.check_partition(self, partition)
        return self._current_ends().of(self._names.releases, partition)[0]

    def ends_of(self, partitions: Collection[int]) -> Sequence[int]:
        for partition in partitions:
            base.check_partition(self, partition)
        self._readers.close_unused(self.url)
        return self._current_ends().of(self._names.releases, *partitions)

    def publish(self, partition: int, message: bytes) -> None:
        base.check_partition(self, partition)
        self._sending.deliver(
            self._names.models, [(partition, message)], key=str(partition).encode(), ms=int(1000 * time())
        )

    def model(self, partition: int) -> bytes | None:
        base.check_partition(self, partition)
        return self._newest_models(partition).get(str(partition).encode())

    def cached_model(self, partition: int) -> tuple[bytes | None, int]:
        base.check_partition(self, partition)
        if self._cache is None:
            self._cache = ModelCache(self._clients, self._names, self.partitions)
        cached = self._cache.cached()
        return cached.models.get(str(partition).encode()), cached.ends[partition]

    def time_bounds(self) -> tuple[float, float]:
        # The broker's clock has passed the time that it gave the newest model.
        cached = None if self._cache is None else self._cache.latest
        return (-math.inf if cached is None else cached.appended), math.inf

    def checkpoint(self, partition: int) -> Checkpoint:
        base.check_partition(self, partition)
        record = self._state(partition) if self._has_states_of(partition) else None
        if record is None:
            # A model begins at the oldest message, as it may be fitted long after the first release.
            return Checkpoint(None, 0 if self.model_name is None else self.begin(partition))
        offset = dict(record.headers).get(transactions.OFFSET, b"")
        if not offset.isdigit():
            raise MurkError(
                f"the newest record of {self._names.states}, partition {partition}, has no offset in its headers: it "
                "was not written by Murk. Restore the topic from a copy (docs/recover.md)"
            )
        return Checkpoint(record.value, int(offset))

    @property
    def takes_estimates(self) -> bool:
        """Whether there is a topic of estimates (`murk topics --estimates` creates it) that this user may see."""
        return self._topics.has_estimates()

    def estimate(self) -> bytes | None:
        record = self.takes_estimates and Newest(self._reader(self._names.estimates, 0, committed=True)).record()
        return bytes(record.value) if record else None

    def owners(self) -> Mapping[int, str]:
        records = {partition: self._state(partition) for partition in range(self.partitions)}
        headers = {partition: dict(record.headers) for partition, record in records.items() if record is not None}
        return {
            partition: own.get(transactions.OWNER, b"").decode("utf-8", "replace") for partition, own in headers.items()
        }

    def acquire(self, partition: int) -> base.Ownership:
        base.check_partition(self, partition)
        self._check_topic_ids()
        if not self._has_states_of(partition):
            self._topics.create_for_model(self.registered_task())
            self._model_partitions = self.partitions
        key = str(partition).encode()
        start_model = partial(self._sending.start, self._names.models, partition, key=key)
        return KafkaOwnership(
            self._clients, self._names, partition, self.checkpoint, self._check_topic_ids, start_model
        )

    def join(self, name: str | None = None) -> base.Membership:
        return KafkaMembership(self._clients, self._names, name)

    def dead_letters(self, partition: int | None = None) -> Iterator[DeadLetter]:
        for each in range(self.partitions) if partition is None else [partition]:
            base.check_partition(self, each)
            yield from letters(self._reader(self._names.dead, each, committed=True), each)

    def trim(self, before: float) -> int:
        self.registered_task()
        return 0  # the broker applies the retention

    def close(self) -> None:
        """Close all clients, even if one of them fails, with a time limit for each."""
        readers = self._ends, self._table, self._state_reader, *self._readers, self._cache
        with ExitStack() as stack:
            # The stack closes them in reverse order.
            for client in (self._admin, self._sending, *readers, self._crowds):
                if client is not None:
                    stack.callback(close_in_time, client, self.url)
        self._readers, self._state_reader = Readers(), None
        self._table = self._ends = self._cache = self._admin = self._crowds = None

    @property
    def _clients(self) -> Clients:
        return Clients(self._address, self._settings, self.url)

    @property
    def _names(self) -> Names:
        if self._name is None:
            raise base.without_task(self.url)
        return Names(self._name, self.model_name)

    @property
    def _topics(self) -> Topics:
        return Topics(self._admin, self.url, self._names)

    def _take_name(self, name: str) -> None:
        if self._name is None:
            self._name = name
            self.url = self._address.url(name)

    def _discover_name(self) -> None:
        names = find(self._admin, self.url)
        if len(names) > 1:
            raise UserError(f"{self.url} has several logs: {', '.join(names)}. Name one: {self._address.url(names[0])}")
        if names:
            self._take_name(names[0])
        elif not self._create:
            raise _without_logs(self.url)

    def _find_identity(self) -> str | None:
        return self._topics.identity()

    def _check_topic_ids(self) -> None:
        """Check that the topics are those that the task was registered on and that this log was opened with."""
        transactions.check_same(self.url, self._announced(), self._topic_ids())

    def _announced(self) -> Mapping[str, str]:
        """Return the ids of the topics on which the task was registered, those of this log, as first read."""
        if not self._announced_on:
            registered = self._announced_ids()
            transactions.check_same(self.url, {self._names.releases: self.identity}, registered)
            self._announced_on = registered
        return self._announced_on

    def _announced_ids(self) -> dict[str, str]:
        return transactions.announced_topics(self._models().refresh(TASK_PLACE), self._names)

    def _topic_ids(self) -> dict[str, str]:
        return self._topics.identities()

    def _check_beginning(self, task: Task) -> None:
        """Refuse to begin on topics that have releases but no state, or the state of another task."""
        # Imported here, as devices that only append decode no state.
        from murk.stream.wire.state import decode_state

        for partition in range(task.log.partitions):
            topic_partition, state = TopicPartition(self._names.releases, partition), self._state(partition)
            if state is not None:
                learned = decode_state(state.value, f"partition {partition} of {self.url}").task
                if learned != task.hash:
                    raise UserError(
                        f"{self._names.states} has states of another task than {task.name!r} (hash {learned[:12]}, not "
                        f"{task.hash[:12]}): the topic that carried that task is lost. Give its file, with --simulated "
                        "if its releases were, or begin with a new log (docs/recover.md)"
                    )
            elif self._current_ends().end(topic_partition)[topic_partition]:
                raise UserError(
                    f"{self._names.releases} has releases in partition {partition}, but their task and state are "
                    f"missing: topics of {self.url} were deleted. Restore them, or begin with a new log "
                    "(docs/recover.md)"
                )

    def _has_states_of(self, partition: int) -> bool:
        """Return whether the topic of states has a partition; a model's topic is created with its first fit."""
        if self.model_name is not None and partition >= self._model_partitions:
            self._model_partitions = self._topics.partitions_of(self._names.states)
        return self.model_name is None or partition < self._model_partitions

    def _models(self) -> Table:
        if self._table is None:
            described = self._topics.describe()
            if self._names.models not in described:
                raise UserError(f"{self._names.models} is missing: create it with `{topics_command(self.url)}`")
            partitions = len(described[self._names.models]["partitions"])
            self._table = Table(self._clients, self._names.models, partitions, self._current_ends())
        return self._table

    def _newest_models(self, partition: int) -> Mapping[bytes, bytes]:
        """Read at least one partition's models; raise if their topic is gone, as the library would wait for it."""
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

    def _state(self, partition: int) -> Any | None:
        if self._state_reader is None:
            self._state_reader = Shared(self._clients, self._current_ends(), self._names.states)
        return self._state_reader.record(partition)


def find_urls(url: str, names: Sequence[str] = ()) -> list[str]:
    """Return the URLs of the logs at a URL that this user may see; of a cluster's logs only ``names``, if given."""
    address = Address.parse(url)
    admin = Clients(address, Settings.read(servers=address.servers), url).admin()
    try:
        if address.name is None:
            urls = find(admin, url)
            logs = [address.url(name) for name in urls if not names or name in names]
            exists = bool(logs or names)
        else:
            # Unlike the list of all topics, this raises an error if the log is there and may not be seen.
            logs = [url]
            exists = Topics(admin, url, Names(address.name)).identity() is not None
    finally:
        close_in_time(admin, url)
    if not exists:
        raise _without_logs(url)
    return logs


def _without_logs(url: str) -> UserError:
    remedy = f"create one with `{topics_command(url)}`"
    return UserError(f"there is no log at {url} that this user may see: {remedy}", code=base.NO_LOG)


class TopicSetup:
    """A task's topics on a cluster, at ``kafka://host:port[/NAME]``.

    ``replication`` is the replication factor, None for the brokers' default; ``estimates`` asks for their topic.
    """

    def __init__(self, url: str, task: Task, *, replication: int | None = None, estimates: bool = False) -> None:
        address = Address.parse(url)
        name = address.name or task.name
        self.url = address.url(name)
        self._task, self._estimates = task, estimates
        self._replication = -1 if replication is None else replication
        self._admin = Clients(address, Settings.read(servers=address.servers), self.url).admin()
        self._names = Names(name)
        self.topics = Topics(self._admin, self.url, self._names)

    def create(self) -> list[str]:
        """Create missing topics, repair settings and add partitions; return the names of the new topics.

        Raises `UserError` if the log carries a task that cannot become this one.
        """
        if not self.announced():
            self._check_not_lost()
        created = self.topics.create(self._task, self._replication, estimates=self._estimates)
        if self.problems():
            self.topics.repair(self._task)
            # A broker may show the former settings for a moment.
            deadline = monotonic() + 5.0
            while self.problems() and monotonic() < deadline:
                sleep(0.05)
        return created

    def _check_not_lost(self) -> None:
        """Raise `UserError` if partitions would be added although the topic that carried the task is lost."""
        found = self.topics.describe(self._names.all)
        have = len(found.get(self._names.releases, {}).get("partitions", ()))
        if self._names.models not in found and 0 < have < self._task.log.partitions:
            raise UserError(
                f"{self._names.models}, which carried the task, is missing, so it is unknown whether {self.url} can "
                f"have more than its {have} partitions: set log.partitions to {have}, run "
                f"`{topics_command(self.url)}`, and then add partitions"
            )

    def problems(self) -> list[str]:
        """Return what does not fit, one sentence each."""
        problems = self.topics.problems(self._task, estimates=self._estimates)
        if self._replication > 0:
            for name, topic in self.topics.describe().items():
                if (have := copies_of(topic)) < self._replication:
                    problems.append(
                        f"{name} has {have} copies of a partition and {self._replication} were requested: reassign "
                        "its partitions with Kafka's own tools"
                    )
        return problems

    def register_task(self) -> None:
        """Register the task (see `Log.register_task`), unless its public sample has not been set aside yet."""
        with KafkaLog(self.url) as log:
            if self._task.public is None or self._task.covariates is not None:
                log.register_task(self._task.document())

    def follow(self) -> bool:
        """Take over from the log's task, if any, whether releases are simulated; return whether they are."""
        carried = self._registered()
        if carried is not None:
            self._task = self._task.with_simulated(carried.simulated)
        return self._task.simulated

    def announced(self) -> bool:
        """Return whether the log carries this task; raise `UserError` if it carries another task."""
        carried = self._registered()
        if carried is None:
            return False
        task = self._task.without_public()
        check_task_change(self.url, carried.without_public().document(), task.document())
        return True

    def _registered(self) -> Task | None:
        # A lost topic of models, which carries the task, is created like others that are missing.
        if {self._names.releases, self._names.models} - self.topics.identities().keys():
            return None
        with KafkaLog(self.url) as log:
            document = log.document()
            return None if document is None else Task.from_document(document)

    def close(self) -> None:
        """Close the client."""
        self._admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
