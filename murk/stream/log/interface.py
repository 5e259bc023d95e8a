"""The interface of logs: an ordered, partitioned, replayable stream of one task, and the partitions' states.

A log holds releases in partitions, each partition's newest model and its state with its offset, and dead letters.
Offsets grow along a partition but need not be consecutive.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from murk._internal.atomic_files import warn_if_exposed
from murk.errors import MurkError, UserError
from murk.stream.wire.codec import MAX_MESSAGE, RejectedError, parse
from murk.task.task import Task

if TYPE_CHECKING:
    from murk.stream.wire.duplicates import DuplicateWindow
    from murk.stream.wire.packed import Fetched, Packed

_ERROR_CODE = "MURK-LOG-001"

_PAGE = 4096  # messages read at once by `Log.messages`
NO_LOG = "MURK-LOG-004"  # code of the error for a URL without a log
REMOVED = "MURK-LOG-007"  # code of the error for messages that retention has removed
FIRST_PARTITION = 0  # number of the partition under which the models of all partitions are stored if they share them


def truncate_time(time: float, granularity: int) -> int:
    """Truncate a time to a multiple of the granularity, in seconds since 1970.

    >>> truncate_time(1_700_049_599.9, 86_400)
    1700006400
    """
    seconds = int(time)
    return seconds - seconds % granularity


def segment_seconds(retention: int) -> int:
    """Return the number of seconds after which a broker begins a new segment, from the retention in seconds."""
    return max(600, retention // 8)


class Message(NamedTuple):
    """One message of a partition; ``time`` is when the log appended it, in seconds since 1970."""

    offset: int
    time: int
    value: bytes


class DeadLetter(NamedTuple):
    """A message that was not learned, with its partition and offset, a reason from `REASONS` and a detail."""

    partition: int
    offset: int
    reason: str
    detail: str
    value: bytes


Dead = Sequence[DeadLetter]


class Checkpoint(NamedTuple):
    """State of a partition (None at first), and the first offset whose message the state has not read."""

    state: bytes | None
    offset: int


class PartitionStatus(NamedTuple):
    """A partition's checkpoint, and the partition's end offset, which was read just after the checkpoint."""

    checkpoint: Checkpoint
    end: int

    @property
    def lag(self) -> int:
        """Number of uncommitted offsets; 0 if the partition has lost its newest messages."""
        return max(0, self.end - self.checkpoint.offset)


class CrowdMark(NamedTuple):
    """The shuffler that appends to a log, and the number of crowds that it has appended."""

    shuffler: str
    crowds: int

    @classmethod
    def read(cls, value: bytes | None) -> Self | None:
        """Return the mark that `encoded` wrote; None if there is none."""
        shuffler, _, crowds = (value or b"").decode("ascii", "replace").partition(":")
        return cls(shuffler, int(crowds)) if crowds.isdigit() and crowds.isascii() else None

    @property
    def encoded(self) -> bytes:
        """The mark as a log stores it."""
        return f"{self.shuffler}:{self.crowds}".encode()


class FencedError(MurkError):
    """Another worker owns the partition now; nothing of the refused write was applied."""

    kind = "MURK-LOG-005"


class UnreachableError(MurkError):
    """The log cannot be reached at the moment; the request may be repeated."""

    kind = "MURK-LOG-002"


class Membership(ABC):
    """A process's share of the partitions, among all processes that learn from a log."""

    shared = False  # whether partitions move between processes; otherwise losing one is an error

    @abstractmethod
    def partitions(self) -> frozenset[int]:
        """Return the partitions assigned to this process; call it often, as each call reports that the process lives.

        Two processes may briefly be assigned the same partition: `Log.acquire` decides between them. Raises
        ``UnreachableError`` if the log cannot be reached.
        """

    @abstractmethod
    def close(self, *, for_good: bool = True) -> None:
        """Leave; others then take over, at once if ``for_good``, else only if this one does not restart soon."""


class AllPartitions(Membership):
    """Membership of a process that learns every partition alone."""

    def __init__(self, partitions: Iterable[int]) -> None:
        self._partitions = frozenset(partitions)

    def partitions(self) -> frozenset[int]:
        """Return all partitions."""
        return self._partitions

    def close(self, *, for_good: bool = True) -> None:
        """Do nothing."""


class Ownership(ABC):
    """The exclusive right to write one partition's state, until another process takes it over and fences this one.

    Comparing offsets would not stop a worker that was suspended from overwriting a newer state.
    """

    partition: int

    @abstractmethod
    def load(self) -> Checkpoint:
        """Read the state and offset of the last commit; raise ``FencedError`` when another owner is known."""

    @abstractmethod
    def commit(
        self, state: bytes, offset: int, dead: Dead = (), model: bytes | None = None, estimate: bytes | None = None
    ) -> None:
        """Write state, offset, dead letters, newest model and newest estimate in one atomic, durable write.

        A commit whose outcome is unknown may be repeated, unless the log raises and the partition must be acquired
        again. Raises ``FencedError``, and writes nothing, if another process owns the partition; `MurkError` if the log
        could not write: either everything was written or nothing.
        """

    def publish_uncommitted(self, model: bytes) -> None:  # noqa: B027 - optional
        """Publish a model before it is committed, without waiting or fencing; it may get lost."""

    @abstractmethod
    def close(self) -> None:
        """Give up the ownership; the committed state stays."""


class Log(ABC):
    """An ordered, partitioned, replayable stream of one task, for many processes; each object is for one thread."""

    url: str  # the log's URL without credentials, for messages to users
    model_name: str | None = None  # model whose states this object uses; None: the task's own learner
    _registered: Task | None = None
    # Whether a sender that does not know if a release arrived looks for it on the log. Otherwise it sends it again.
    readable_by_senders: bool = True

    @property
    @abstractmethod
    def identity(self) -> str:
        """Random name drawn when the log's streams were created; `UserError` when they do not exist yet."""

    @abstractmethod
    def prepare(self, document: bytes) -> None:
        """Create the streams that a task needs, without registering it; raise `UserError` if they do not fit it."""

    @abstractmethod
    def register_task(self, document: bytes) -> None:
        """Create the task's streams and store its document, once among concurrent processes.

        Registering the same task again only updates its retention. Raises `UserError` if the log carries another task.
        """

    @abstractmethod
    def document(self) -> bytes | None:
        """Return the registered task's document, or None."""

    def registered_task(self) -> Task:
        """Return the registered task, read once; raise `UserError` if the log carries none."""
        if self._registered is None:
            from murk.task.task import Task

            document = self.document()
            if document is None:
                raise without_task(self.url)
            self._registered = Task.from_document(document, f"the task on {self.url}")
        return self._registered

    @property
    def partitions(self) -> int:
        """Number of the log's partitions."""
        return self.registered_task().log.partitions

    @property
    def simulated(self) -> bool:
        """Whether the log takes only simulated releases; otherwise it takes only real ones."""
        return self.registered_task().simulated

    @abstractmethod
    def append(self, batch: Sequence[tuple[int, bytes]]) -> None:
        """Append (partition, message) pairs in order; all of them are durable on return.

        After an error, a log in a file has appended no message, and a broker may have appended some. Sending all of
        them again is safe, since a release counts once. Raises `UserError`, and appends nothing, for an unknown
        partition or a message longer than ``MAX_MESSAGE`` bytes; `MurkError` if the log could not write.
        """

    def crowd_mark(self) -> CrowdMark | None:
        """Return which shuffler appends to this log; None if none does."""
        return None

    def claim(self, shuffler: str, *, replace: bool = False) -> CrowdMark:
        """Reserve the log for a shuffler and return its mark; with ``replace``, take it over from another shuffler.

        Raises `UserError` if another shuffler appends to the log, if the log holds unshuffled releases, or if this
        kind of log does not support crowds.
        """
        raise _without_crowds(self.url)

    def append_crowd(self, messages: Iterable[tuple[int, Packed]], mark: CrowdMark) -> None:
        """Append a crowd's messages (by partition, in order) and write the mark, in one atomic, durable write.

        Raises ``FencedError``, and appends nothing, unless the log's current mark has the same shuffler and one crowd
        fewer than ``mark``; `MurkError` if the log could not write: either everything was written or nothing.
        """
        raise _without_crowds(self.url)

    def discard(self, partition: int, offset: int) -> None:
        """Delete a partition's messages before an offset; a file overwrites them, a broker may still store some."""
        raise _without_crowds(self.url)

    def fetch(self, partition: int, offset: int, limit: int) -> Fetched:
        """Read messages like `read`, packed into one piece of bytes."""
        import numpy as np

        from murk.stream.wire.packed import Fetched, Packed

        offsets, times, values = [*zip(*self.read(partition, offset, limit), strict=True)] or [()] * 3
        return Fetched(np.array(offsets, np.int64), np.array(times, np.int64), Packed.of(values))

    @abstractmethod
    def read(self, partition: int, offset: int, limit: int) -> list[Message]:
        """Read at most ``limit`` messages from ``offset`` on, in order; an empty list only if there are none yet.

        Raises `MurkError` if retention has removed the message at ``offset``, or the log never reached it.
        """

    def messages(self, partition: int, begin: int, end: int) -> Iterator[Message]:
        """Iterate over the messages of a partition from one offset up to another, read a page at a time."""
        while begin < end and (page := self.read(partition, begin, min(_PAGE, end - begin))):
            begin = page[-1].offset + 1
            yield from (message for message in page if message.offset < end)

    def exposed(self) -> str:
        """Return a clause that says who else can read the log's file, as far as that is known; see ``exposure``."""
        return ""

    def first_since(self, partition: int, time: float) -> int:
        """Return the offset of the first message appended at or after a time, in seconds since 1970."""
        begin, end = self.begin(partition), self.end(partition)
        while begin < end:
            middle = (begin + end) // 2
            message = next(iter(self.read(partition, middle, 1)), None)
            if message is None or message.time >= time:
                end = middle
            else:
                begin = message.offset + 1
        return begin

    def skip(self, partition: int, offset: int) -> int:
        """Return where to continue after an empty `read` from ``offset``: after records that hold no message."""
        return offset

    def releases(self, partition: int | None = None) -> Iterator[Any]:
        """Iterate over the releases of one partition or of all, each once, in the order in which a learner learns them.

        These are the messages of the log's task that came before their expiry and repeat no earlier release. Size and
        magnitude are checked by a learner's ``learn_release``, which raises RejectedError for releases that no honest
        device sends. Reading spends no privacy budget. Raises `UserError` if the log carries no task.
        """
        from murk.stream.wire.duplicates import DuplicateWindow, Unexpired

        task = self.registered_task()
        for number in range(self.partitions) if partition is None else [partition]:
            messages = self.messages(number, self.begin(number), self.end(number))
            unexpired = Unexpired.of(self.identity, task.expiry, task.granularity)
            yield from _learnable(messages, task, number, DuplicateWindow(task.duplicates, unexpired))

    def check_unchanged(self) -> None:  # noqa: B027 - other logs cannot be replaced while they are open
        """Raise `MurkError` if releases and task are no longer where this log found them: deleted, or created again."""

    @abstractmethod
    def begin(self, partition: int) -> int:
        """Return the offset of the oldest message; equal to `end` when there is none."""

    @abstractmethod
    def end(self, partition: int) -> int:
        """Return the offset of the next message."""

    def ends(self) -> Sequence[int]:
        """Return the offset of the next message of each partition."""
        return self.ends_of(range(self.partitions))

    def ends_of(self, partitions: Collection[int]) -> Sequence[int]:
        """Return the offset of the next message of each of these partitions, in their order."""
        return [self.end(partition) for partition in partitions]

    @abstractmethod
    def publish(self, partition: int, message: bytes) -> None:
        """Replace a partition's newest model."""

    @abstractmethod
    def model(self, partition: int) -> bytes | None:
        """Return a partition's newest model, or None."""

    def cached_model(self, partition: int) -> tuple[bytes | None, int]:
        """Return a partition's newest model and its end offset, for devices, even while a log is unreachable.

        Both may be a moment old. The model is never newer than the end.
        """
        return self.model(partition), self.end(partition)

    def time_bounds(self) -> tuple[float, float]:
        """Return the earliest and the latest time that the log's own clock may show now, in seconds since 1970.

        The log judges expiry by this clock. A log that cannot tell returns bounds that include every time.
        """
        return -math.inf, math.inf

    @property
    def takes_estimates(self) -> bool:
        """Whether commits may carry an estimate."""
        return False

    def estimate(self) -> bytes | None:
        """Return the newest published estimate, or None."""
        return None

    def owners(self) -> Mapping[int, str]:
        """Return which process ("host:process") committed each partition last; empty where unknown."""
        return {}

    def join(self, name: str | None = None) -> Membership:
        """Join the processes that share the partitions; a process that rejoins under its ``name`` keeps its partitions.

        On a log in a file, the newest process learns all partitions.
        """
        return AllPartitions(range(self.partitions))

    @abstractmethod
    def checkpoint(self, partition: int) -> Checkpoint:
        """Read a partition's committed state and offset without owning it."""

    def status(self, partition: int) -> PartitionStatus:
        """Read a partition's checkpoint and then the end of its partition."""
        checkpoint = self.checkpoint(partition)
        # In the other order, messages that arrive and are learned in between would make the lag negative.
        return PartitionStatus(checkpoint, self.end(partition))

    @abstractmethod
    def acquire(self, partition: int) -> Ownership:
        """Take over a partition and fence its previous owner."""

    @abstractmethod
    def dead_letters(self, partition: int | None = None) -> Iterator[DeadLetter]:
        """Iterate over the dead letters of one partition or of all, in order."""

    @abstractmethod
    def trim(self, before: float) -> int:
        """Delete messages and dead letters appended before a time (seconds since 1970); return the number of messages.

        Messages that are not committed, or that the window for duplicates may need, are kept. A log that applies its
        retention itself does nothing, nor does a log opened for a model.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the log; closing twice is allowed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _learnable(messages: Iterable[Message], task: Task, partition: int, window: DuplicateWindow) -> Iterator[Any]:
    """Iterate over the releases among messages that a learner of a task would learn, in order."""
    from murk.stream.wire.duplicates import lifetime_of

    kind, task_hash, levels, lifetime = task.release_kind, task.hash, task.privacy.levels, lifetime_of(task.expiry)
    for offset, appended, value in messages:
        try:
            release = parse(value, kind)
        except RejectedError:
            continue
        if release.task != task_hash or release.simulated is not task.simulated or release.level not in levels:
            continue
        is_late = release.expires > appended + lifetime
        if release.partition != partition or appended > release.expires or (is_late and task.shuffle is not None):
            continue
        if not window.seen(offset, release.id, 0 if is_late else release.expires):
            yield release


def check_sizes(batch: Sequence[tuple[int, bytes]]) -> None:
    """Raise `UserError` if a message of a batch has more than ``MAX_MESSAGE`` bytes."""
    check_size(max((len(value) for _, value in batch), default=0))


def check_size(longest: int) -> None:
    """Raise `UserError` if the longest message of a batch has more than ``MAX_MESSAGE`` bytes."""
    if longest > MAX_MESSAGE:
        raise UserError(f"a message has {longest} bytes, and a log takes at most {MAX_MESSAGE}: nothing was appended")


def check_partition(log: Log, partition: int) -> None:
    """Raise `UserError` if a log has no such partition."""
    if not 0 <= partition < log.partitions:
        raise UserError(f"{log.url} has no partition {partition}: they are numbered from 0 to {log.partitions - 1}")


def check_range(log: Log, partition: int, offset: int) -> None:
    """Raise `MurkError` if an offset is before the beginning of a partition or after its end."""
    begin, end = log.begin(partition), log.end(partition)
    if offset < begin:
        raise MurkError(
            f"partition {partition} of {log.url} begins at offset {begin}, and offset {offset} was requested: "
            "retention has removed earlier messages",
            code=REMOVED,
        )
    if offset > end:
        raise MurkError(
            f"partition {partition} of {log.url} ends at offset {end}, and offset {offset} was requested: "
            "the log is not the one that was read before, or has lost its newest messages",
            code="MURK-LOG-006",
        )


def without_task(url: str) -> UserError:
    """Return the error for a log whose task is needed and not registered yet."""
    words = f"{url} carries no task yet: `murk topics`, `murk run` or `murk produce` announces one"
    return UserError(words, code="MURK-LOG-003")


def _without_crowds(url: str) -> UserError:
    return UserError(f"a shuffler cannot use {url}: give a log in a file (sqlite:) or on a cluster (kafka:)")


def not_an_input_log(url: str) -> UserError:
    """Return the error for devices that send to the log that a shuffler writes to."""
    return UserError(
        f"{url} is the log that a shuffler writes to, where others would know when each release came: send to the "
        "shuffler's input log (its --from)",
        code="MURK-SHUFFLE-001",
    )


def check_mark(url: str, found: CrowdMark | None, wanted: CrowdMark) -> None:
    """Raise ``FencedError`` unless ``found``, a log's mark, has the shuffler of ``wanted`` and one crowd fewer."""
    if found is None or found.shuffler != wanted.shuffler or found.crowds != wanted.crowds - 1:
        words = f"another shuffler has taken {url} over; this one stops and appended nothing. Run one shuffler per log"
        raise FencedError(words)


def check_claim(url: str, found: CrowdMark | None, shuffler: str, replace: bool, released: bool) -> bool:
    """Return whether a shuffler's claim to a log must be written; raise `UserError` if it is refused."""
    if found is None and released:
        raise UserError(
            f"{url} already has unshuffled releases, whose arrival times are visible: pass a new log as --to, to "
            "which only the shuffler writes",
            code="MURK-SHUFFLE-001",
        )
    if found is not None and found.shuffler != shuffler and not replace:
        raise UserError(
            f"another shuffler appends to {url}: give its --store. If this file is lost, --replace takes the log over "
            "and gives up the releases in the file",
            code="MURK-SHUFFLE-001",
        )
    return found is None or found.shuffler != shuffler


def taken_over(partition: int, url: str) -> FencedError:
    """Return the error for a commit by a worker whose partition another worker has taken over."""
    return FencedError(
        f"another worker has taken over partition {partition} of {url}; this one stops, and what it had not committed "
        "was discarded. Run one worker for each partition"
    )


def check_carries(log: Log, task: Task) -> None:
    """Raise `UserError` if a log carries no task or another one."""
    document = log.document()
    if document is None:
        raise UserError(f"{log.url} carries no task yet: announce {task.name!r} on it first", code="MURK-LOG-003")
    carried = Task.from_document(document)
    if carried.hash != task.hash:
        raise UserError(
            f"{log.url} carries the task {carried.name!r} ({carried.hash[:12]}), not {task.name!r} "
            f"({task.hash[:12]}): use the task as it was announced, or another log",
            code="MURK-TASK-003",
        )


def check_input_log(log: Log, task: Task) -> None:
    """Raise `UserError` if a task is shuffled and the log to which devices would send is one that a shuffler writes."""
    if task.shuffle is None:
        return
    if log.crowd_mark() is not None:
        raise not_an_input_log(log.url)
    warn_of_readers(log)


def warn_of_readers(input_log: Log) -> None:
    """Warn if other users can read an input log in a file, since they would know who sent what."""
    if input_log.exposed():
        warn_if_exposed(input_log.url.removeprefix("sqlite:///"), "who sent what, and when")
