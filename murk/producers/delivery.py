"""Delivery from the outbox to the log, and reports of what a producer did.

Releases are sent unchanged and in order; one that the log is seen to have is not sent again. Reports stay on the device
and hold no value of a record.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from murk.errors import MurkError
from murk.producers.ledger.transaction import Refusal

if TYPE_CHECKING:
    from murk.producers.ledger.ledger import Ledger
    from murk.producers.ledger.outbox import Queued
    from murk.producers.ledger.transaction import Spending
    from murk.stream.log.base import Log


@dataclass(frozen=True, slots=True)
class Receipt:
    """Result of releasing one record.

    ``outcome`` is "released", "refused" (a cap would be exceeded, or the person withdrew) or "known" (the record was
    released before and is not randomized again). ``delivery`` is "sent", "queued" (in the outbox) or "none". ``reason``
    explains in plain words, and is empty if there is nothing to explain. ``level``, ``chain`` and ``version`` (of the
    model) are None unless released.
    """

    outcome: str
    delivery: str
    reason: str = ""
    level: str | None = None
    chain: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class WindowReceipt:
    """Result for a window of an organisation's records, or for a record added to one.

    ``outcome`` is "added" (the window is open), "released", "refused" (a cap would be exceeded, or the organisation
    withdrew: no record is read), "known" (a window of this name was released before) or "left out" (it is too small).
    ``delivery`` is "sent", "queued" (in the outbox) or "none". ``records`` counts the window's records so far.
    ``reason`` explains in plain words, with the remedy. ``level`` and ``chain`` are None unless released.
    """

    outcome: str
    delivery: str
    records: int
    reason: str = ""
    level: str | None = None
    chain: int | None = None


@dataclass(frozen=True, slots=True)
class BlockReport:
    """Result of releasing a block: the number of records by outcome, and the first row of the next block."""

    released: int
    refused: int
    known: int
    next_row: int
    refusals: tuple[Refusal, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class FlushReport:
    """Result of sending the outbox: numbers of releases appended now, already on the log, and deleted as expired."""

    sent: int
    already: int
    expired: int


class Counts:
    """Sums over the coded records, for the device only.

    ``clamped`` and ``missing`` depend on values, so they are never reported to others, not even over many people. A
    second process may count all of these records except one; the difference would disclose that person's values.
    """

    def __init__(self) -> None:
        self.records = self.clamped = self.missing = 0

    def add(self, person: object, clamped: int, missing: int) -> None:
        """Count one record."""
        self.add_many([person], clamped, missing)

    def add_many(self, people: Collection[object], clamped: int, missing: int) -> None:
        """Count one record of each person."""
        self.records += len(people)
        self.clamped += clamped
        self.missing += missing

    def __repr__(self) -> str:
        # A program's log must not reveal values.
        return "Counts()"


BATCH = 10_000
"""Largest number of releases read from the outbox at once."""
SENT = 100
"""The same for a broker; small, so that the backlog of an unreachable broker fills the disk and not the memory."""
BYTES = 64 * 2**20
"""Approximate largest number of bytes read from the outbox at once."""

READ = 4096
_MARGIN = 8
"""A share of 1/8 of the window for duplicates is for what others append while the outbox is sent."""


class Delivery:
    """Sends a task's releases and tells the ledger which of them are on the log.

    ``window`` is the size of the window for duplicates if a shuffler deletes what it has taken in, and otherwise 0.
    """

    def __init__(self, log: Log, ledger: Ledger, task_hash: str, window: int = 0) -> None:
        self._log = log
        self._ledger = ledger
        self._task = task_hash
        self._window = window - window // _MARGIN
        # An earlier process may have sent its releases without receiving the confirmation.
        self._backlog = ledger.pending(task_hash) > 0

    def send(self, spend: Spending) -> None:
        """Append a block's releases to the log; if that raises a MurkError, they wait in the outbox."""
        if not spend.granted:
            return
        # Until the log confirms, they count as backlog.
        backlog, self._backlog = self._backlog, True
        self._log.append(spend.messages)
        self._ledger.confirm(spend.numbers)
        self._backlog = backlog

    def try_send(self, spend: Spending, now: float) -> str:
        """Send the backlog, then a release; return why the release waits in the outbox, or an empty text if sent."""
        try:
            if self._backlog:
                self.flush(now)
            else:
                self.send(spend)
        except (MurkError, OSError) as error:
            return f"the log could not be reached, and the release waits in the outbox: {error}"
        return ""

    def try_flush(self, now: float) -> None:
        """Send the backlog if the log can be reached."""
        try:
            self.flush_backlog(now)
        except (MurkError, OSError):
            # It stays in the outbox, as the receipt says.
            return

    def flush_backlog(self, now: float) -> None:
        """Send the backlog, if there may be one."""
        if self._backlog:
            self.flush(now)

    def flush(self, now: float) -> FlushReport:
        """Send the backlog; see `Producer.flush`.

        The log is searched before anything is sent or expires, so that an account states correctly which were sent.
        """
        self._backlog = True
        sent = already = expired = after = 0
        size = BATCH if self._log.readable_by_senders else SENT
        for first in self._ledger.queued(self._task, 0, 1):
            # A task's releases have about the same size.
            size = max(1, min(size, BYTES // len(first.message)))
        while waiting := self._ledger.queued(self._task, after, size):
            stored = self._stored_on_log(waiting)
            unsent = self._unsent(waiting, stored)
            numbers = {queued.number for queued in unsent}
            self._ledger.confirm([queued.number for queued in waiting if queued.number not in numbers])
            already += len(waiting) - len(unsent)
            if any(queued.expires <= now for queued in unsent):
                expired += self._ledger.expire(self._task, now, through=waiting[-1].number)
            fresh = [queued for queued in unsent if queued.expires > now]
            self._log.append([(queued.chain, queued.message) for queued in fresh])
            self._ledger.confirm([queued.number for queued in fresh])
            sent += len(fresh)
            after = waiting[-1].number
        self._ledger.delete_confirmed()
        self._backlog = False
        return FlushReport(sent, already, expired)

    def _unsent(self, waiting: Sequence[Queued], stored: Collection[bytes]) -> list[Queued]:
        """Return the releases that have certainly not been learned.

        A release is treated as sent if retention has removed the first offset at which the log may have stored it: a
        second copy after the deduplication window would be learned again. Expiry alone does not prevent that if this
        device's clock is ahead of the log's.

        A shuffler deletes whatever it has taken in, and keeps the ids of its window: within that, a second copy counts
        as a duplicate.
        """
        chains = {queued.chain for queued in waiting}
        begins = {chain: self._log.begin(chain) for chain in chains}
        if self._window:
            for chain in chains:
                # This batch may come before the copy.
                caught = self._log.end(chain) + len(waiting) - self._window
                begins[chain] = min(begins[chain], caught)
        return [queued for queued in waiting if queued.message not in stored and queued.since >= begins[queued.chain]]

    def _stored_on_log(self, waiting: Sequence[Queued]) -> set[bytes]:
        """Return the releases that are on the log: a process may have ended before it confirmed them."""
        stored: set[bytes] = set()
        if not self._log.readable_by_senders:
            return stored
        for chain in {queued.chain for queued in waiting}:
            own = [queued for queued in waiting if queued.chain == chain]
            wanted = {queued.message for queued in own}
            end = self._log.end(chain)
            position = max(self._log.begin(chain), min(queued.since for queued in own))
            while position < end:
                messages = self._log.read(chain, position, READ)
                if not messages:
                    break
                stored.update(wanted.intersection(message.value for message in messages))
                position = messages[-1].offset + 1
        return stored
