"""The organisation's producer: from a stream of its records to one release a window, and nothing else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from murk._scratch import keep, wiped
from murk.errors import MurkError, UserError
from murk.privacy.noise import identifiers
from murk.producers.base import Releaser
from murk.producers.ledger.requests import Key, ReleaseRequests
from murk.producers.ledger.spelling import number_name, person_name
from murk.producers.receipts import WindowReceipt
from murk.producers.sketches.window import KNOWN, Window, index_of, why_refused
from murk.stream.messages.codec import encode
from murk.stream.messages.releases import truncate_time

if TYPE_CHECKING:
    from murk.learners.sketches.problem import WindowProblem
    from murk.privacy.noise import NoiseSource
    from murk.producers.ledger.ledger import Ledger
    from murk.producers.ledger.transaction import Spending
    from murk.producers.ledger.windows import Ending
    from murk.producers.policy import Policy
    from murk.stream.log.base import Log
    from murk.stream.task.task import Task

ORGANISATION = "organisation"
"""The name of an organisation's account where it was given none."""


class SketchProducer(Releaser["WindowProblem"]):
    """Releases an organisation's records as sketches: one pass, one release a window, records never stored.

    A window opens with its first record, if the organisation's caps have room for its release; that it is open is
    noted in the ledger, and what is accumulated stands in memory alone: O(k p + p^2) numbers, whatever the number of
    records. After ``sketch.window`` records, or with `release`, the sketch's bytes and the debit that pays for it are
    one transaction of the ledger; then they are sent, and sent again until the log has them.

    A window whose process dies is lost: nothing was debited for it, and the one who begins next is informed (``lost``).
    Where the cap has no room a window is refused before any of its records is looked at, and passes by.

    A window that is full and could not be released, since the ledger could not be written, waits in memory: whatever is
    called next tries its release again, with the same bytes, before it takes a record.

    Nothing is counted of what records say, neither values outside their bounds nor rows that were scaled down: the
    organisation holds its records anyway, and to anyone else such a count would be a release of its own.

    It works in the thread that opened its ledger, and refuses to in another before a record is looked at.

    Parameters
    ----------
    task
        The task (``protocol: sketch``), as the log carries it.
    log
        The log.
    ledger
        The organisation's account; each window spends its (epsilon, delta), and they add up.
    organisation
        Name of the account. It stays in the ledger.
    level
        The privacy level of the task that it chose.
    noise
        Where noise comes from. By default `SecureNoise`; a task whose releases are simulated needs a
        `SimulatedNoise`, and only such a task takes one.
    policy
        What the organisation allows. A task's own promise is the cap unless it sets
        ``Policy(lifetime=..., per_task=...)``: by default nothing caps what all tasks together spend.
    clock
        Time in seconds since 1970; it reaches the log truncated to the task's granularity.
    problem
        The task's problem, where it is at hand.
    source
        Digest of the file that the records come from, whose rows then name windows; None for records that come once.

    Attributes
    ----------
    lost
        Windows of the organisation that an earlier process had begun when it died, as found when this was made.
    taken
        Records taken so far, by all windows. After an error it says which are in a window: given again, they would
        stand in it twice.
    next_row
        The row after the last one taken, where records come from a file; rows before it are not taken again.

    Raises
    ------
    UserError
        When the log carries another task, the ledger is tied to another log, the noise is of the other kind, or the
        policy does not allow what the task asks for; for a task of another protocol, an unknown level, or a name that
        cannot be one.

    Examples
    --------
    >>> import tempfile
    >>> from murk.producers import Ledger
    >>> from murk.stream import Task, open_log
    >>> task = Task.parse('''
    ... name: weeks
    ... features: [{name: age, low: 20, high: 40}]
    ... target: {name: weeks, kind: real, low: 0, high: 52}
    ... privacy: {guarantee: {approx: {epsilon: 1.0, delta: 1.0e-6}}}
    ... protocol: sketch
    ... sketch: {rows: 20, window: 100}
    ... ''')
    >>> folder = tempfile.mkdtemp()
    >>> with open_log(f"sqlite:///{folder}/log.db") as log, Ledger(f"{folder}/ledger.db") as ledger:
    ...     log.register_task(task.document())
    ...     producer = SketchProducer(task, log, ledger, organisation="clinic")
    ...     receipts = [producer.add({"age": 20 + day % 20, "weeks": 26}) for day in range(101)]
    >>> [receipt.outcome for receipt in receipts[-3:]]
    ['added', 'released', 'refused']
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
        problem: WindowProblem | None = None,
        source: str | None = None,
    ) -> None:
        super().__init__(task, log, ledger, noise=noise, policy=policy, clock=clock, problem=problem)
        self._check_levels([level])
        self.organisation = person_name(organisation)
        self.level = level
        self._source = source
        assert task.of_organisations
        self._owner_column, self._most_rows = task.block.person, task.block.most_rows
        size = task.block.window
        largest = int(self._problem.mechanisms[level].largest_window)
        self._size = min(size or largest, largest)
        self._windows = ledger.windows(task.hash, source)
        self._window: Window | None = None
        self.taken = self.next_row = 0
        self.lost = self._windows.give_up(self.organisation)

    @property
    def fewest(self) -> int:
        """Records below which a window at the end of a source is left out."""
        return self._problem.fewest

    @property
    def room(self) -> int:
        """Records that the open window still takes; the whole of one where none is open."""
        return self._size - (0 if self._window is None else self._window.records)

    @property
    def records(self) -> int | None:
        """Records of the window that goes on; None where there is none."""
        return None if self._window is None else self._window.records

    @property
    def overdue(self) -> bool:
        """Whether a window should be released before anything else: it is full, or its sketch is made already."""
        return self._window is not None and (self.room <= 0 or self._window.message is not None)

    def open(self, row: int | None = None) -> WindowReceipt:
        """Open a window, if none goes on, and say what became of that; adding a record does so by itself.

        Parameters
        ----------
        row
            The window's first row, where its records come from a file.

        Raises
        ------
        MurkError
            As `add`.
        """
        self._catch_up()
        return (self._window or self._begin(row)).told()

    @wiped
    def add(self, record: Mapping[str, Any]) -> WindowReceipt:
        """Add one record, and release the window if that fills it.

        Parameters
        ----------
        record
            Raw values by column. It is not looked at where the window is refused. What is missing is coded by the
            task's public rule; a record without a usable target is counted, and mixed as zeros. Where the task names a
            column of people (``sketch.person``), a person's records beyond ``sketch.rows_per_person`` of a window, and
            records that name nobody, are mixed as zeros, too.

        Raises
        ------
        MurkError
            When the log was never heard of, or the ledger cannot be written; nothing was released. Whether the record
            was added ``taken`` says: it was if only the release failed of the window that it filled, which `release`
            or the next record tries again.
        """
        self._catch_up()
        window = self._window or self._begin(None)
        if window.accumulator is None:
            return self._take(window, 1, None)
        coded = self.task.coding.encode_record(record)
        targets = keep(np.array([coded.y]))
        if self._owner_column is not None:
            targets = self._blanked(window, targets, [_named(record.get(self._owner_column))])
        return self._take(window, 1, self._problem.records(coded.x[None, :], targets))

    @wiped
    def add_block(
        self, x: NDArray[np.float64], y: NDArray[np.float64], *, rows: Sequence[int] | None = None,
        people: Sequence[str | None] | None = None,
    ) -> list[WindowReceipt]:  # fmt: skip
        """Add coded records in their order, and release every window that they fill.

        Parameters
        ----------
        x, y
            Coded features with the constant last, shape (m, p), and coded targets, NaN where missing, shape (m,).
        rows
            The rows of the file that they stand in, ascending, where there is one. Those that were taken before are
            passed over, so after an error the same block may be given again.
        people
            Whose records they are, where the task bounds a person's records of a window (``sketch.person``). Those
            beyond the bound, and those of None, are counted and mixed as zeros.

        Returns
        -------
        list of WindowReceipt
            One for each window that ended, and one for the window that goes on.

        Raises
        ------
        MurkError
            As `add`; ``taken`` says how many of the records are in.
        """
        if (people is None) != (self._owner_column is None):
            raise UserError("people= names whose records they are where the task has sketch.person, and only there")
        receipts = self._catch_up()
        start = 0 if rows is None else int(np.searchsorted(np.asarray(rows), self.next_row))
        while start < len(x):
            window = self._window or self._begin(None if rows is None else int(rows[start]))
            count = min(self.room, len(x) - start)
            assert count > 0, "a window that is full has ended"
            part = slice(start, start + count)
            targets = y[part] if people is None else self._blanked(window, y[part], people[part])
            mixed = None if window.accumulator is None else self._problem.records(x[part], targets)
            receipts.append(self._take(window, count, mixed, 0 if rows is None else int(rows[part][-1]) + 1))
            start += count
        return receipts

    def _blanked(self, window: Window, y: NDArray[np.float64], people: Sequence[str | None]) -> NDArray[np.float64]:
        """Return the targets of records that count, and NaN for others: these are mixed as zeros.

        So whose the records are decides nothing that anybody sees: neither when a window is full nor what it counts.
        """
        found: NDArray[np.float64] = keep(np.array(y, dtype=np.float64))
        for place, person in enumerate(people):
            if person is None or window.owners[person] >= self._most_rows:
                found[place] = math.nan
            else:
                window.owners[person] += 1
        return found

    @wiped
    def release(self) -> WindowReceipt:
        """Release the window that goes on, whatever its number of records, and send it.

        Returns
        -------
        WindowReceipt
            "released" also when the log could not be reached: the release then waits in the outbox.

        Raises
        ------
        UserError
            When no window is open.
        MurkError
            When the ledger cannot be written. Nothing was released, and `release` may be tried again: the sketch is
            made once.
        """
        window = self._need()
        if window.accumulator is None:
            return self._end(window)
        with self._spending(window) as spend:
            if spend.granted:
                now = self._clock()
                if window.message is None:
                    # Made once: what is tried again after the ledger could not be written is these bytes.
                    window.message = self._sketch(window, now)
                spend.freeze([window.message], [window.chain], [window.since], self._expiry(now), self._day(now))
            ending: Ending = "released" if spend.granted or spend.known else "refused"
            spend.windows.end(window.key, self.organisation, ending, window.records, window.next_row)
        self._window = None
        window.accumulator.wipe()
        if not spend.granted:
            self._pass_by(window, spend)
            return window.told()
        reason = self._delivery.try_send(spend, self._clock())
        return WindowReceipt(
            "released", "queued" if reason else "sent", window.records, reason, self.level, window.chain
        )

    def leave_out(self) -> WindowReceipt:
        """Forget the window that goes on: nothing of it is released, and nothing was debited.

        Raises
        ------
        UserError
            When no window is open.
        """
        window = self._need()
        if window.accumulator is None:
            return self._end(window)
        with self._spending(window) as spend:
            spend.cancel()
            spend.windows.end(window.key, self.organisation, "left out", window.records, window.next_row)
        self._window = None
        window.accumulator.wipe()
        return WindowReceipt("left out", "none", window.records)

    def __repr__(self) -> str:
        return f"SketchProducer({self.task.name!r})"

    def __reduce__(self) -> NoReturn:
        raise MurkError("a window that goes on is neither copied nor stored: make a producer where it is needed")

    def _find_problem(self, task: Task) -> WindowProblem:
        return sketch_problem_for(task)

    def _begin(self, row: int | None) -> Window:
        """Open a window, or find that it is refused, before any of its records is looked at."""
        if (row is None) != (self._source is None):
            raise UserError("records of a file come with their rows, others without: name the file with source=")
        key: Key = f"window {self._windows.count(self.organisation) + 1}" if row is None else row
        # Only simulated draws are distinguished by it.
        index = index_of(self.organisation, key, self._source) if self._noise.simulated else 0
        chain = int(self._chains(np.array([index]))[0])
        window = Window(key, index, chain, self._log.cached_model(chain)[1])
        with self._spending(window) as spend:
            before = spend.windows.state(key, self.organisation)
            if spend.known:
                self._pass_by(window, spend)
            elif before == "refused":
                # It began to pass by in an earlier process, and was counted then.
                self._pass_by(window, spend)
                spend.cancel()
            elif before == "open":
                raise MurkError("another process has just opened this window: one at a time works for an organisation")
            elif spend.refusals:
                self._pass_by(window, spend)
                spend.windows.begin(key, self.organisation, self._today(), "refused")
            else:
                spend.cancel()
                spend.windows.begin(key, self.organisation, self._today(), "open")
        if window.outcome == "added":
            window.accumulator = self._problem.accumulator(self.level, self._noise, index)
        self._window = window
        return window

    def _catch_up(self) -> list[WindowReceipt]:
        """Try the release again that failed before; until it is done nothing more is taken."""
        self._ledger.check_thread()
        return [self.release()] if self.overdue else []

    def _take(self, window: Window, count: int, mixed: NDArray[np.float64] | None, next_row: int = 0) -> WindowReceipt:
        # Booked before anything can fail: a row that stands in a window twice counts twice as much as was stated.
        self.next_row = window.next_row = max(self.next_row, next_row)
        self.taken += count
        window.records += count
        if window.accumulator is not None:
            assert mixed is not None
            try:
                window.accumulator.add_block(mixed)
            except BaseException:
                if window.accumulator.released:
                    # It is wiped, and nothing can be made of it any more.
                    self._window = None
                raise
        return window.told() if self.room > 0 else self.release()

    def _end(self, window: Window) -> WindowReceipt:
        """Let a window that has passed by be over."""
        if window.outcome == "refused":
            with self._spending(window) as spend:
                spend.cancel()
                spend.windows.end(window.key, self.organisation, "refused", window.records, window.next_row)
        self._window = None
        return window.told()

    def _need(self) -> Window:
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
            # It is wiped, and nothing can be made of it any more.
            self._window = None
            raise
        [name] = identifiers(self._noise, np.array([window.index]))
        return encode(self._problem.release(made, id=name, level=self.level, chain=window.chain, **self._fields(now)))

    def _today(self) -> int:
        return truncate_time(self._clock(), self.task.granularity)

    def _pass_by(self, window: Window, spend: Spending) -> None:
        """Say why nothing is released of a window: it was before, or there is no room for it."""
        if spend.known:
            window.outcome, window.reason = "known", KNOWN
        else:
            window.outcome, window.reason = "refused", why_refused(self.task, self.level, spend.refusals.values())


def _named(value: Any) -> str | None:
    """Return whose a record is; None where it names nobody."""
    if type(value) not in (str, int, float, Decimal):
        return None
    try:
        return person_name(str(value) if isinstance(value, str | int) else number_name(value))
    except UserError:
        return None


def sketch_problem_for(task: Task) -> WindowProblem:
    """The problem of a resolved task to which organisations release sketches.

    Raises
    ------
    UserError
        As `murk.learners.problem.problem_for`; and where people release, not organisations.
    """
    if not task.of_organisations:
        raise UserError(
            f"to the task {task.name!r} people release their own records (protocol: {task.protocol}), not "
            "organisations sketches: use Producer"
        )
    from murk.learners.problem import problem_for

    problem: WindowProblem = problem_for(task)  # type: ignore[assignment]
    return problem
