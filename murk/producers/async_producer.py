"""A producer for services: handlers on any event loop or thread release through one ledger, in durable groups."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from murk.errors import MurkError
from murk.producers.ledger.ledger import Ledger
from murk.producers.producer import Producer, Receipt, ReleaseCall, without_frames
from murk.stream.log.open import open_log

if TYPE_CHECKING:
    from murk.privacy.noise import NoiseSource
    from murk.producers.producer import Policy

_ERROR_CODE = "MURK-LEDGER-001"

GROUP = 256  # largest number of records that one transaction releases
WAITING = 10_000  # largest number of records that wait; further ones are refused
PATIENCE = 0.25  # share of the last group's time for which the next one waits to become as large
RETRY = 5.0  # seconds between attempts to send what the log has not confirmed, and looks for held records that are due


@dataclass(slots=True)
class _Waiting:
    call: ReleaseCall
    is_held: bool = False  # whether the record is held for its window
    receipt: Future[Receipt] = field(default_factory=Future)


class AsyncProducer:
    """Release records from an event loop or from several threads, as `Producer` does in one thread.

    A thread of its own holds the log and the ledger. Records that arrive while the thread writes form the next group:
    one ledger transaction and one append, in random order. Only where answers are repeated (``repeat: same``) are
    records released one by one. A receipt is given once the debit and the release are durable. If the log cannot be
    reached, releases wait in the ledger's outbox until it can. Any number of processes may use one ledger, each with a
    producer opened after a fork.

    >>> import asyncio, tempfile
    >>> from murk import Task
    >>> from murk.stream import open_log
    >>> task = Task.parse('''
    ... name: weeks
    ... features: [{name: age, low: 20, high: 40}]
    ... target: {name: worked, kind: binary, positive: "yes"}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> folder = tempfile.mkdtemp()
    >>> with open_log(f"sqlite:///{folder}/log.db") as log:
    ...     log.register_task(task.document())
    >>> async def main():
    ...     async with AsyncProducer(f"sqlite:///{folder}/log.db", f"{folder}/ledger.db") as producer:
    ...         record = {"age": 31, "worked": "yes"}
    ...         return await asyncio.gather(*(producer.release(record, person=name) for name in ("ann", "bob", "ann")))
    >>> sorted(receipt.outcome for receipt in asyncio.run(main()))
    ['refused', 'released', 'released']

    Parameters
    ----------
    log, ledger
        URL of a log that carries its task (`open_log`), and path of the accounts.
    policy
        What this service allows. By default the only cap is the one that the task promises; none holds over all tasks.
    noise
        Source of noise: `SecureNoise`, or for simulated tasks, and only for them, `SimulatedNoise`.
    """

    def __init__(
        self, log: str, ledger: str | Path, *, policy: Policy | None = None, noise: NoiseSource | None = None
    ) -> None:
        self._places, self._policy, self._noise = (log, ledger), policy, noise
        self._waiting: deque[_Waiting] = deque()
        self._arrived = threading.Condition()
        # A group waits until it is as large as the last one, but only for a share of the time that the last one took.
        self._wanted, self._patience = 1, 0.0
        self._thread: threading.Thread | None = None
        self._process = 0
        self._is_open = False

    def open(self) -> None:
        """Open log and ledger and begin to release; ``with`` and ``async with`` do so.

        Raises as `open_log`, `Ledger` and `Producer` do.
        """
        if self._thread is not None:
            raise MurkError("this producer was opened before: make another one")
        ready: Future[None] = Future()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="murk-producer", daemon=True)
        self._thread.start()
        ready.result()

    async def release(
        self,
        record: Mapping[str, Any],
        *,
        person: str = "me",
        key: str | None = None,
        level: str = "default",
        at: datetime | None = None,
    ) -> Receipt:
        """Release one record as `Producer.release` does, without blocking the event loop.

        If the caller is cancelled, the record may or may not be released; with a ``key`` it can safely be given again.
        Raises as `Producer.release`, and MurkError if the producer is closed or too many records wait; then nothing was
        debited.
        """
        return await asyncio.wrap_future(self.submit(record, person=person, key=key, level=level, at=at))

    def submit(
        self,
        record: Mapping[str, Any],
        *,
        person: str = "me",
        key: str | None = None,
        level: str = "default",
        at: datetime | None = None,
    ) -> Future[Receipt]:
        """Queue one record from any thread, and return the future of its receipt; see `release`."""
        return self._queue(_Waiting(ReleaseCall(record, person, key, level, at)))

    async def hold(
        self, record: Mapping[str, Any], *, person: str = "me", level: str = "default", at: datetime | None = None
    ) -> Receipt:
        """Hold a record until the window of ``at`` ends, as `Producer.hold` does, without blocking the event loop.

        While the producer is open, it releases one of each person's records of a window once that is due. Raises as
        `Producer.hold`, and MurkError as `release`.
        """
        return await asyncio.wrap_future(self.submit_held(record, person=person, level=level, at=at))

    def submit_held(
        self, record: Mapping[str, Any], *, person: str = "me", level: str = "default", at: datetime | None = None
    ) -> Future[Receipt]:
        """Queue one record to be held, from any thread, and return the future of its receipt; see `hold`."""
        return self._queue(_Waiting(ReleaseCall(record, person, None, level, at), is_held=True))

    def _queue(self, waiting: _Waiting) -> Future[Receipt]:
        # Before the lock, which another thread may have held at a fork.
        if self._process != os.getpid():
            raise _closed()
        with self._arrived:
            if not self._is_open:
                raise _closed()
            if len(self._waiting) >= WAITING:
                raise MurkError(f"{WAITING:,} records wait already, so this one was not accepted: try again later")
            self._waiting.append(waiting)
            if len(self._waiting) in (1, self._wanted):
                self._arrived.notify()
        return waiting.receipt

    def close(self) -> None:
        """Release the records that wait, and close log and ledger. Closing twice is allowed."""
        if self._thread is None or self._process != os.getpid():
            return
        with self._arrived:
            self._is_open = False
            self._arrived.notify()
        self._thread.join()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.open)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.close)

    def _serve(self, ready: Future[None]) -> None:
        """Open and serve until closed; the log and the ledger belong to this thread."""
        url, path = self._places
        try:
            with open_log(url, create=False) as log, Ledger(path) as ledger:
                producer = Producer(log.registered_task(), log, ledger, policy=self._policy, noise=self._noise)
                self._is_open = True
                ready.set_result(None)
                self._release_groups(producer, ledger)
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            if not ready.done():
                ready.set_exception(error)
        finally:
            self._abandon()

    def _release_groups(self, producer: Producer, ledger: Ledger) -> None:
        due = 0.0
        while (group := self._take(due)) is not None:
            if group:
                self._release(producer, group)
            if time.monotonic() >= due:
                with suppress(MurkError, OSError):
                    # Releases of an earlier process, or of a time when the log could not be reached.
                    if ledger.pending(producer.task.hash):
                        producer.flush()
                    producer.release_held()
                due = time.monotonic() + RETRY

    def _take(self, due: float) -> list[_Waiting] | None:
        """Wait until records arrive or ``due`` has come, and return the next group; None once closed and empty."""
        with self._arrived:
            if not self._waiting:
                if not self._is_open:
                    return None
                self._arrived.wait(max(0.0, due - time.monotonic()))
            if 0 < len(self._waiting) < self._wanted and self._is_open:
                # Clients of one group send their next records together, but the first to arrive would form a group
                # alone.
                self._arrived.wait(self._patience)
            taken = [self._waiting.popleft() for _ in range(min(GROUP, len(self._waiting)))]
        # From here on a cancelled caller's record is released all the same.
        return [each for each in taken if each.receipt.set_running_or_notify_cancel()]

    def _release(self, producer: Producer, group: list[_Waiting]) -> None:
        began = time.monotonic()
        held = [each for each in group if each.is_held]
        released = [each for each in group if not each.is_held]
        results = [*_results(producer.hold_group, held), *_results(producer.release_group, released)]
        self._wanted, self._patience = len(group), PATIENCE * (time.monotonic() - began)
        for each, result in zip(held + released, results, strict=True):
            if isinstance(result, Receipt):
                each.receipt.set_result(result)
            else:
                each.receipt.set_exception(result)

    def _abandon(self) -> None:
        with self._arrived:
            self._is_open = False
            left = list(self._waiting)
            self._waiting.clear()
        for each in left:
            if each.receipt.set_running_or_notify_cancel():
                each.receipt.set_exception(MurkError("the producer was closed: this record was not released"))


def _results(
    work: Callable[[Sequence[ReleaseCall]], list[Receipt | Exception]], group: Sequence[_Waiting]
) -> list[Receipt | Exception]:
    try:
        return work([each.call for each in group]) if group else []
    except Exception as error:  # noqa: BLE001 - it is the callers'
        return [without_frames(error)] * len(group)


def _closed() -> MurkError:
    return MurkError(
        "this producer is not open in this process: nothing was released. Open it with `async with`, after any fork"
    )
