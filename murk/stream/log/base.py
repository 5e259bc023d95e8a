"""Which chains are assigned to which of the processes that learn a log.

The log contract: an ordered, partitioned, replayable stream, and the state that goes with it.

A log carries one task. It holds

- *releases*: messages in partitions, each with an offset and the time at which the log appended it;
- *models*: the newest iterate of each chain (chain ``c`` reads partition ``c``), or of the first one for all;
- *states*: for each chain its learner's state together with the offset up to which it has read;
- *dead letters*: what was on the log and could not be learned, with a reason.

Every implementation passes the same suite of tests. Offsets grow along a partition; they need not be
consecutive, and nobody may count messages by subtracting them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from murk.errors import MurkError, UserError


class Membership(ABC):
    """Which chains this process is to learn, of all that the processes learning a log share among them."""

    shared: bool = False
    """Whether others may come and chains move; else losing one is an error."""

    @abstractmethod
    def chains(self) -> frozenset[int]:
        """Return the chains that are assigned to this process now; to be asked often, since asking says it is alive.

        Two processes may for a moment both be assigned the same chain: `Log.acquire` decides between them.

        Raises
        ------
        UnreachableError
            When the others cannot be heard of at the moment.
        """

    @abstractmethod
    def close(self, *, for_good: bool = True) -> None:
        """Leave, so that others take over at once.

        ``for_good=False`` is for a process that ends by a fault: anyone who looks after it starts it again, and it
        comes back to its chains. Others take them over only if that takes too long.
        """


class AllChains(Membership):
    """Every chain is assigned to this process; on a log that nobody shares."""

    def __init__(self, chains: Iterable[int]) -> None:
        self._chains = frozenset(chains)

    def chains(self) -> frozenset[int]:
        """All of them."""
        return self._chains

    def close(self, *, for_good: bool = True) -> None:
        """Nobody is waiting."""


MAX_MESSAGE = 1_000_000
"""Longest message in bytes that a log takes: what a Kafka broker accepts by default, less its envelope."""

MAX_STATE = 8 * 2**20
"""Longest state of a chain in bytes that every log takes."""


FIRST_CHAIN = 0
"""The chain under whose number models are on the log that all chains share."""


def segment_seconds(retention: int) -> int:
    """How long a segment of a topic is to be written to, where messages are kept for so many seconds.

    A broker deletes whole segments: a message stays for up to so much longer.
    """
    return max(600, retention // 8)


class Message(NamedTuple):
    """One message of a partition: its offset, the log's append time (seconds since 1970), its bytes."""

    offset: int
    time: int
    value: bytes


class DeadLetter(NamedTuple):
    """A message that was not learned, with its place on the log, a reason from a short list, and a detail."""

    partition: int
    offset: int
    reason: str
    detail: str
    value: bytes


class Checkpoint(NamedTuple):
    """State of a chain and the offset of the first message that is not in it; ``state`` is None at first."""

    state: bytes | None
    offset: int


class ChainStanding(NamedTuple):
    """Where a chain stood at one moment: what it had committed, and the end of its partition just after that."""

    checkpoint: Checkpoint
    end: int

    @property
    def lag(self) -> int:
        """Number of offsets on the log that the chain had not committed.

        Never below 0 on a log that only grows, where ends are read after states; on one that lost its end to an
        accident nothing waits.
        """
        return max(0, self.end - self.checkpoint.offset)


class FencedError(MurkError):
    """Somebody else owns the chain now; nothing of the refused write was applied."""

    kind = "MURK-LOG-005"


class UnreachableError(MurkError):
    """The log cannot be reached at the moment; what was asked of it may be asked again."""

    kind = "MURK-LOG-002"


class Ownership(ABC):
    """The right to write one chain's state, until somebody else takes it over.

    Taking it over fences the previous owner: whatever that one tries to commit afterwards is refused as a
    whole. This, and not a comparison of offsets, is what keeps a worker that was long asleep from putting an
    old state over a newer one.
    """

    chain: int

    @abstractmethod
    def load(self) -> Checkpoint:
        """Read the state and the offset that were committed last.

        Raises
        ------
        FencedError
            When somebody else is known to own the chain.
        """

    @abstractmethod
    def commit(
        self,
        state: bytes,
        offset: int,
        dead: Sequence[DeadLetter] = (),
        model: bytes | None = None,
        estimate: bytes | None = None,
    ) -> None:
        """Write state, offset, dead letters, newest model and newest estimate in one atomic, durable write.

        Repeating a commit whose outcome is unknown is safe: a dead letter is identified by its place. Where a
        log cannot have it repeated, it says so, and the chain must be acquired again.

        Raises
        ------
        FencedError
            When somebody else owns the chain; nothing was written.
        MurkError
            When the log could not write (a full disk, a broker gone). Either all of it was written or nothing.
        """

    def publish_uncommitted(self, model: bytes) -> None:  # noqa: B027 - not every log has a use for it
        """Show devices a model before it is committed, without waiting; it may get lost.

        A log whose commit follows within moments need not. It is not fenced: such a model is a function of the log,
        and an older one only makes some gradients a little older.
        """

    @abstractmethod
    def close(self) -> None:
        """Give up the ownership; the committed state stays."""


class Log(ABC):
    """An ordered, partitioned, replayable stream of one task.

    One object serves one thread of one process. Any number of processes may open the same log.
    """

    url: str
    """Where the log is, for messages; without credentials."""

    readable_by_senders: bool = True
    """Whether a sender who cannot tell if its release arrived looks for it on the log; else it sends it again,
    and the window for duplicates drops the second."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Random name that the log was given when its streams were made; a log created again has another.

        Raises
        ------
        UserError
            When its streams are not made yet.
        """

    @abstractmethod
    def prepare(self, document: bytes) -> None:
        """Make the streams that a task needs, without announcing it; from then on the log has its identity.

        Raises
        ------
        UserError
            When there are streams that do not fit the task, or they are another's to make.
        """

    @abstractmethod
    def register_task(self, document: bytes) -> None:
        """Create the task's streams and fix its document (`Task.document`).

        Announcing the same task again does nothing, except that a changed retention is taken over. Of several
        processes that announce at once, exactly one creates the streams.

        Raises
        ------
        UserError
            When the log already carries another task; the message says which keys differ.
        """

    @abstractmethod
    def document(self) -> bytes | None:
        """Return the announced task's document, or None before a task was announced."""

    @property
    @abstractmethod
    def partitions(self) -> int:
        """Number of partitions, which is the number of chains."""

    @property
    @abstractmethod
    def simulated(self) -> bool:
        """Whether the log takes simulated releases (and only those), or real ones (and only those)."""

    @abstractmethod
    def append(self, batch: Sequence[tuple[int, bytes]]) -> None:
        """Append (partition, message) pairs in order; all of them are durable on return.

        A log in a file appends all or none. On a broker an error leaves open which of them are stored in the log,
        and sending them again is safe: a release counts once.

        Raises
        ------
        UserError
            For a partition the task does not have, or a message of more than ``MAX_MESSAGE`` bytes; nothing
            was appended.
        MurkError
            When the log could not write.
        """

    @abstractmethod
    def read(self, partition: int, offset: int, limit: int) -> list[Message]:
        """Read at most ``limit`` messages from ``offset`` on, in order.

        It may give fewer, so that memory stays bounded whatever the messages' size; it gives none only when
        there is none at or after ``offset`` yet.

        Raises
        ------
        MurkError
            When retention has removed the message at ``offset``, or the log never reached it.
        """

    @abstractmethod
    def begin(self, partition: int) -> int:
        """Offset of the oldest message kept; equal to `end` when there is none."""

    @abstractmethod
    def end(self, partition: int) -> int:
        """Offset that the next message will get."""

    def ends(self) -> Sequence[int]:
        """Offset that the next message of each partition will get."""
        return self.ends_of(range(self.partitions))

    def ends_of(self, partitions: Collection[int]) -> Sequence[int]:
        """Offset that the next message of each of these partitions will get, in their order."""
        return [self.end(partition) for partition in partitions]

    @abstractmethod
    def publish(self, chain: int, message: bytes) -> None:
        """Put a chain's newest model on the log, in place of the one before."""

    @abstractmethod
    def model(self, chain: int) -> bytes | None:
        """Return a chain's newest model, or None before there is one."""

    def cached_model(self, chain: int) -> tuple[bytes | None, int]:
        """Return a chain's newest model and the end of its partition as they were last heard of.

        For devices: it may be a moment old, and where the log is far away it is answered even while the log
        cannot be reached. Nothing on the log was younger than the end when the model was published.
        """
        return self.model(chain), self.end(chain)

    @property
    def takes_estimates(self) -> bool:
        """Whether commits may carry an estimate for everybody to read."""
        return False

    def estimate(self) -> bytes | None:
        """Return the newest published estimate, or None before there is one."""
        return None

    def owners(self) -> Mapping[int, str]:
        """Who committed each chain's state last ("host:process"); empty where the log does not know."""
        return {}

    def join(self, name: str | None = None) -> Membership:
        """Share the chains with all who join; on a log in a file all are assigned to the one who came last.

        Under the same ``name`` a learner comes back to the chains that it had.
        """
        return AllChains(range(self.partitions))

    @abstractmethod
    def checkpoint(self, chain: int) -> Checkpoint:
        """Read a chain's committed state and offset without owning it: for status and monitor."""

    def standing(self, chain: int) -> ChainStanding:
        """Read a chain's checkpoint and then the end of its partition, so that the lag is that of one moment."""
        checkpoint = self.checkpoint(chain)
        # The other way round, what arrives and is learned in between would be a lag below zero.
        return ChainStanding(checkpoint, self.end(chain))

    @abstractmethod
    def acquire(self, chain: int) -> Ownership:
        """Take over a chain and fence its previous owner."""

    @abstractmethod
    def dead_letters(self, partition: int | None = None) -> Iterator[DeadLetter]:
        """Iterate over the dead letters of one partition or of all, in the order of their places."""

    @abstractmethod
    def trim(self, before: float) -> int:
        """Delete messages and dead letters appended before a time (seconds since 1970).

        Kept whatever their age: messages that the chain's committed offset has not passed, and the messages
        before that offset which the window for duplicates may still need. A log that applies its retention
        by itself does nothing. What was appended together may leave the disk together, with the last of it.

        Returns
        -------
        int
            Number of messages that can be read no more.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the log; closing twice is allowed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_sizes(batch: Sequence[tuple[int, bytes]]) -> None:
    """Refuse a batch with a message that is longer than a log takes.

    Raises
    ------
    UserError
        Before anything of the batch is appended.
    """
    longest = max((len(value) for _, value in batch), default=0)
    if longest > MAX_MESSAGE:
        raise UserError(
            f"a message of {longest} bytes is longer than a log takes ({MAX_MESSAGE}): nothing of the batch was "
            "appended"
        )


def check_range(log: Log, partition: int, offset: int) -> None:
    """Refuse to read where the log has nothing any more, or never had.

    Raises
    ------
    MurkError
        When ``offset`` is before the beginning of the partition or after its end.
    """
    begin, end = log.begin(partition), log.end(partition)
    if offset < begin:
        raise MurkError(
            f"partition {partition} of {log.url} begins at offset {begin}, and offset {offset} is asked for: "
            "retention has removed what stood there",
            code="MURK-LOG-007",
        )
    if offset > end:
        raise MurkError(
            f"partition {partition} of {log.url} ends at offset {end}, and offset {offset} is asked for: "
            "the log is not the one that was read before, or has lost its end",
            code="MURK-LOG-006",
        )
