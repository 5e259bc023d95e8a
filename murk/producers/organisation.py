"""The organisation's producer: releases a stream of records as one sketch per window."""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.wiping import track, wiped
from murk.errors import MurkError, UserError
from murk.privacy import ApproxDP
from murk.privacy.noise import identifiers
from murk.producers.ledger.names import Key, ReleaseRequests, name_of, person_name
from murk.producers.producer import ANOTHER_TASK, BaseProducer, WindowReceipt
from murk.stream.log.interface import truncate_time
from murk.stream.wire.codec import encode

if TYPE_CHECKING:
    from murk.privacy.central.window import WindowAccumulator
    from murk.privacy.noise import NoiseSource
    from murk.producers.ledger.ledger import Ledger
    from murk.producers.ledger.spending import Ending, Spending
    from murk.producers.producer import Policy
    from murk.protocols.summaries.device import WindowDevice
    from murk.stream.log.interface import Log
    from murk.task.task import Task

_ERROR_CODE = "MURK-DATA-001"

KNOWN = "this window was released before"
REFUSED_BEFORE = "it was refused when it began, and stays so (`murk ledger` shows the caps)"
STAYS = (
    "The windows of this file that were refused stay so: another task (name and log) can release them from a file of "
    "their own"
)


@dataclass
class Window:
    """An open window. A window without an accumulator is refused: its records are counted and not read.

    ``key`` identifies the window in the ledger, ``index`` selects its simulated draws. ``since`` is the end offset of
    the window's partition when the window was opened, ``next_row`` the row after its last one, ``message`` its sketch
    once that is made. ``accumulator`` and ``owners`` (number of records by person, if the task bounds it) are in memory
    only.
    """

    key: Key
    index: int
    partition: int
    since: int
    outcome: Literal["added", "refused", "known"] = "added"
    reason: str = ""
    accumulator: WindowAccumulator[Any] | None = field(default=None, repr=False)
    records: int = 0
    next_row: int = 0
    message: bytes | None = field(default=None, repr=False)
    owners: Counter[str] = field(default_factory=Counter, repr=False)

    def receipt(self) -> WindowReceipt:
        """Return a receipt for the window's current state."""
        return WindowReceipt(self.outcome, "none", self.records, self.reason)


def index_of(organisation: str, key: Key, source: str | None) -> int:
    """Return a number in [0, 2^62) that identifies an organisation's window."""
    name = f"{source or ''}\0{organisation}\0{key}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 2


_FURTHER = 10  # number of windows that a proposed cap allows beyond those that were released


def remedy(task: Task, level: str, spent: int = 0) -> str:
    """Return what to do if another window would exceed an organisation's cap for a task, after ``spent`` windows."""
    from murk.protocols.summaries.device import windows_cap

    guarantee = task.privacy.levels[level]
    # n windows compose to sqrt(n) mu in GDP, and otherwise to n times the budget, or less in tcdp.
    count = spent + _FURTHER
    share = math.sqrt(count) * (1 + 1e-6) if guarantee.kind == "gdp" else count
    amounts = ", ".join(f"{name}: {share * value:.7g}" for name, value in guarantee.to_dict()[guarantee.kind].items())
    cap = f"{{{guarantee.kind}: {{{amounts}}}}}"
    with suppress(UserError):
        if isinstance(guarantee, ApproxDP):
            cap = windows_cap(window_device_for(task).mechanisms, level, count, guarantee.delta).as_yaml()
    return (
        f"the costs of windows add up: to allow an organisation {count:,} windows ({spent:,} spent), for example, set "
        f"privacy.per_person: {cap}, or use larger windows (summaries.window). That {ANOTHER_TASK}"
    )


ORGANISATION = "organisation"  # default name of an organisation's account


class OrganisationProducer(BaseProducer["WindowDevice"]):
    """Release an organisation's records as sketches: one pass, one release per window, records never stored.

    A window opens with its first record if the organisation's caps have room for the window's release; otherwise the
    window is refused, and none of its records is read. A window's state, O(k p + p^2) numbers, is in memory only. After
    ``summaries.window`` records, or with `release`, the sketch and its debit are written in one transaction, and the
    sketch is sent until the log has it. If the ledger cannot be written, the next call tries the same bytes again
    before it takes a record. If the process dies, its open window is lost: nothing was debited, and the next producer
    reports the window as ``lost``. No count depends on the records' values, because to publish such a count would be
    another release.

    The producer works only in the thread that opened its ledger. ``taken`` counts the records taken so far: after an
    error it shows which records must not be added again. ``next_row`` is the row after the last one taken from a file;
    earlier rows are skipped. Raises UserError if the log carries another task, the ledger is bound to another log, the
    noise is of the wrong kind, or the policy refuses the task; for a task of another protocol, an unknown level, or an
    invalid name.

    >>> import tempfile
    >>> from murk.producers import Ledger
    >>> from murk import Task
    >>> from murk.stream import open_log
    >>> task = Task.parse('''
    ... name: weeks
    ... features: [{name: age, low: 20, high: 40}]
    ... target: {name: weeks, kind: real, low: 0, high: 52}
    ... privacy: {guarantee: {approx: {epsilon: 1.0, delta: 1.0e-6}}}
    ... protocol: summaries
    ... summaries: {rows: 20, window: 100}
    ... ''')
    >>> folder = tempfile.mkdtemp()
    >>> with open_log(f"sqlite:///{folder}/log.db") as log, Ledger(f"{folder}/ledger.db") as ledger:
    ...     log.register_task(task.document())
    ...     producer = OrganisationProducer(task, log, ledger, organisation="clinic")
    ...     receipts = [producer.add({"age": 20 + day % 20, "weeks": 26}) for day in range(101)]
    >>> [receipt.outcome for receipt in receipts[-3:]]
    ['added', 'released', 'refused']

    Parameters
    ----------
    task, log
        The task (``protocol: summaries``), as the log carries it, and the log.
    ledger, organisation
        The ledger and the name of the account in it; each window spends its (epsilon, delta), and they add up.
    level
        The privacy level that the organisation chose.
    noise
        Source of noise: `SecureNoise`, or for simulated tasks, and only for them, `SimulatedNoise`.
    policy
        What the organisation allows. By default the only cap is the one that the task promises.
    clock, device
        Function of the time in seconds since 1970 (releases carry it truncated to the task's granularity); the task's
        device, if it was made before.
    source
        Digest of the file of the records; the first row of a window then identifies it. None for records from no file.
    """

    def __init__(
        self,
        task: Task,
        log: Log,
        ledger: Ledger,
        *,
        organisation: str = ORGANISATION,
        level: str = "default",
        noise: NoiseSource | None = None,
        policy: Policy | None = None,
        clock: Callable[[], float] = time.time,
        device: WindowDevice | None = None,
        source: str | None = None,
    ) -> None:
        super().__init__(task, log, ledger, noise=noise, policy=policy, clock=clock, device=device)
        self._check_levels([level])
        self.organisation = person_name(organisation)
        self.level = level
        self._source = source
        assert task.of_organisations
        self._owner_column, self._most_rows = task.block.person, task.block.most_rows
        size = task.block.window
        largest = int(self._device.mechanisms[level].largest_window)
        self._size = min(size or largest, largest)
        self._windows = ledger.windows(task.hash, source)
        self._window: Window | None = None
        self.taken = self.next_row = 0
        self.lost = self._windows.give_up(self.organisation)

    @property
    def fewest(self) -> int:
        """Least number of records for which the last window of a source is released; a smaller window is left out."""
        return self._device.fewest

    @property
    def room(self) -> int:
        """Number of records for which the open (or next) window still has room."""
        return self._size - (0 if self._window is None else self._window.records)

    @property
    def records(self) -> int | None:
        """Number of records in the open window; None without one."""
        return None if self._window is None else self._window.records

    @property
    def overdue(self) -> bool:
        """Whether the open window must be released before more records, as it is full or its sketch was made."""
        return self._window is not None and (self.room <= 0 or self._window.message is not None)

    def open(self, row: int | None = None) -> WindowReceipt:
        """Open a window (at ``row`` of a file), as `add` does, unless one is open; return the window's receipt."""
        self._catch_up()
        return (self._window or self._begin(row)).receipt()

    @wiped
    def add(self, record: Mapping[str, Any]) -> WindowReceipt:
        """Add one record, and release the window if it is then full.

        Missing values are coded by the task's public rule. A record is counted but mixed as zeros if it has no usable
        target, or, with ``summaries.person``, if it names nobody or exceeds its person's ``summaries.rows_per_person``.
        Raises MurkError if the log was never reached, or the ledger cannot be written: nothing was released. ``taken``
        then counts the record if only the release failed.
        """
        self._catch_up()
        window = self._window or self._begin(None)
        if window.accumulator is None:
            return self._add_rows(window, 1, None)
        coded = self.task.coding.encode_record(record)
        targets = track(np.array([coded.y]))
        if self._owner_column is not None:
            owner = None
            with suppress(UserError):
                owner = name_of(record.get(self._owner_column))
            targets = self._blank_targets(window, targets, [owner])
        return self._add_rows(window, 1, self._device.records(coded.x[None, :], targets))

    @wiped
    def add_block(
        self, x: Floats, y: Floats, *, rows: Sequence[int] | None = None, people: Sequence[str | None] | None = None
    ) -> list[WindowReceipt]:
        """Add coded records in order; return a receipt for each window that they fill, and one for the open window.

        ``x`` are coded features, the constant last, shape (m, p); ``y`` coded targets, NaN if missing, shape (m,).
        ``rows`` are their rows in the file, ascending; rows taken before are skipped, so after an error the same block
        may be given again. ``people`` are the records' owners, if the task has ``summaries.person``; records beyond a
        person's bound, and records without an owner (None), are counted and mixed as zeros.
        """
        if (people is None) != (self._owner_column is None):
            raise UserError(
                "people= (the owners of the records) is required with summaries.person, and only allowed then"
            )
        receipts = self._catch_up()
        start = 0 if rows is None else int(np.searchsorted(np.asarray(rows), self.next_row))
        while start < len(x):
            window = self._window or self._begin(None if rows is None else int(rows[start]))
            count = min(self.room, len(x) - start)
            assert count > 0, "a window that is full has ended"
            part = slice(start, start + count)
            targets = y[part] if people is None else self._blank_targets(window, y[part], people[part])
            mixed = None if window.accumulator is None else self._device.records(x[part], targets)
            receipts.append(self._add_rows(window, count, mixed, 0 if rows is None else int(rows[part][-1]) + 1))
            start += count
        return receipts

    def _blank_targets(self, window: Window, y: Floats, people: Sequence[str | None]) -> Floats:
        """Return the targets, NaN for records that are mixed as zeros because of their owner."""
        targets: Floats = track(np.array(y, dtype=np.float64))
        for index, person in enumerate(people):
            if person is None or window.owners[person] >= self._most_rows:
                targets[index] = math.nan
            else:
                window.owners[person] += 1
        return targets

    @wiped
    def release(self) -> WindowReceipt:
        """Release the open window, however many records it has, and send the sketch, now or later from the outbox.

        Raises UserError if no window is open, and MurkError if the ledger cannot be written. In both cases nothing was
        released; after a MurkError, `release` may be called again for the same sketch.
        """
        window = self._need_window()
        if window.accumulator is None:
            return self._end_unreleased(window)
        with self._spending(window) as spend:
            if spend.granted:
                now = self._now()
                if window.message is None:
                    # Made once: a retry after a failed write sends the same bytes.
                    window.message = self._sketch(window, now)
                spend.freeze([window.message], [window.partition], [window.since], self._expiry(now), self._day(now))
            ending: Ending = "released" if spend.granted or spend.known else "refused"
            spend.windows.end(window.key, self.organisation, ending, window.records, window.next_row)
        self._window = None
        window.accumulator.wipe()
        if not spend.granted:
            self._set_refused(window, spend)
            return window.receipt()
        reason = self._delivery.try_send(spend)
        return WindowReceipt(
            "released", "queued" if reason else "sent", window.records, reason, self.level, window.partition
        )

    def leave_out(self) -> WindowReceipt:
        """Discard the open window: nothing is released or debited for it. Raise a UserError if no window is open."""
        window = self._need_window()
        if window.accumulator is None:
            return self._end_unreleased(window)
        with self._spending(window) as spend:
            spend.cancel()
            spend.windows.end(window.key, self.organisation, "left out", window.records, window.next_row)
        self._window = None
        window.accumulator.wipe()
        return WindowReceipt("left out", "none", window.records)

    def __repr__(self) -> str:
        return f"OrganisationProducer({self.task.name!r})"

    def __reduce__(self) -> NoReturn:
        raise MurkError("a producer of sketches cannot be copied or pickled: make one where it is needed")

    def _find_problem(self, task: Task) -> WindowDevice:
        return window_device_for(task)

    def _begin(self, row: int | None) -> Window:
        """Open a window, or refuse it, before any of its records is read."""
        if (row is None) != (self._source is None):
            raise UserError("rows are required for records of a file (source=), and not allowed for other records")
        key: Key = f"window {self._windows.count(self.organisation) + 1}" if row is None else row
        # Only simulated draws use the index.
        index = index_of(self.organisation, key, self._source) if self._noise.simulated else 0
        partition = int(self._partitions(np.array([index]))[0])
        window = Window(key, index, partition, self._log.cached_model(partition)[1])
        with self._spending(window) as spend:
            before = spend.windows.state(key, self.organisation)
            if not spend.known and before == "open":
                raise MurkError("another process has just opened this window: run one process per organisation")
            if spend.known or before == "refused" or spend.refusals:
                self._set_refused(window, spend)
            if not spend.known and before != "refused":
                today = truncate_time(self._now(), self.task.granularity)
                spend.windows.begin(key, self.organisation, today, "refused" if spend.refusals else "open")
            # If an earlier process refused this window, it has counted the refusal.
            if before == "refused" or not spend.refusals:
                spend.cancel()
        if window.outcome == "added":
            window.accumulator = self._device.accumulator(self.level, self._noise, index)
        self._window = window
        return window

    def _catch_up(self) -> list[WindowReceipt]:
        self._ledger.check_thread()
        return [self.release()] if self.overdue else []

    def _add_rows(self, window: Window, count: int, mixed: Floats | None, next_row: int = 0) -> WindowReceipt:
        # Count before anything can fail: a row added to a window twice would exceed its stated sensitivity.
        self.next_row = window.next_row = max(self.next_row, next_row)
        self.taken += count
        window.records += count
        if window.accumulator is not None:
            assert mixed is not None
            try:
                window.accumulator.add_block(mixed)
            except BaseException:
                if window.accumulator.released:
                    self._window = None  # Its accumulator is wiped.
                raise
        return window.receipt() if self.room > 0 else self.release()

    def _end_unreleased(self, window: Window) -> WindowReceipt:
        if window.outcome == "refused":
            with self._spending(window) as spend:
                spend.cancel()
                spend.windows.end(window.key, self.organisation, "refused", window.records, window.next_row)
        self._window = None
        return window.receipt()

    def _need_window(self) -> Window:
        self._ledger.check_thread()
        if self._window is None:
            raise UserError("no window is open: add records first")
        return self._window

    def _spending(self, window: Window) -> AbstractContextManager[Spending]:
        requests = ReleaseRequests([window.key], [self.organisation], [self.level], source=self._source)
        return self._ledger.spending(self.task.hash, requests)

    def _sketch(self, window: Window, now: float) -> bytes:
        assert window.accumulator is not None
        try:
            made = window.accumulator.release()
        except BaseException:
            self._window = None  # Its accumulator is wiped.
            raise
        [name] = identifiers(self._noise, np.array([window.index]))
        return encode(
            self._device.release(made, id=name, level=self.level, partition=window.partition, **self._fields(now))
        )

    def _set_refused(self, window: Window, spend: Spending) -> None:
        if spend.known:
            window.outcome, window.reason = "known", KNOWN
            return
        window.outcome = "refused"
        window.reason = REFUSED_BEFORE
        for refusal in spend.refusals.values():
            paid = spend.windows.released(self.organisation)
            window.reason = self._explain(refusal, partial(remedy, self.task, self.level, paid))
            if self._source is not None and refusal.scope == "lifetime":
                window.reason += f". {STAYS}"


def window_device_for(task: Task) -> WindowDevice:
    """Return the device of a resolved task of summaries; raise a UserError if people release to the task."""
    if not task.of_organisations:
        raise UserError(
            f"in the task {task.name!r} (protocol: {task.protocol}) people release their own records, not "
            "organisations: use Producer"
        )
    from murk.protocols.device import device_for

    device: WindowDevice = device_for(task)  # type: ignore[assignment]
    return device
