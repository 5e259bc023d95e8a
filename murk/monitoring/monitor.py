"""The monitor, which reads the committed states of a log's partitions."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from murk.errors import MurkError
from murk.monitoring.figures import Figures, Place, figures
from murk.monitoring.history import History, Pace
from murk.monitoring.metrics.exporter import Exporter, Values
from murk.monitoring.metrics.monitor import VALUES
from murk.monitoring.reference import check_reference, half_widths_asked
from murk.monitoring.snapshot import Snapshot
from murk.protocols.device import device_for
from murk.stream.log.interface import Log, UnreachableError, check_carries
from murk.stream.wire.state import StateMessage, decode_state
from murk.task.task import Task

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_ERROR_CODE = "MURK-MONITOR-001"

RATE_SECONDS = 10.0  # window of the rate of releases, in seconds


class Monitor(Exporter):
    """Monitor what is learned from a log, for Prometheus and a page.

    Only `poll` reads the log; everything else reports the last poll and may be called from any thread. All figures are
    functions of releases, states and public settings. Raises UserError if prometheus_client is missing, if the log
    carries no task or another one, or if ``reference`` or ``known_within`` has names that are no coefficients.

    Parameters
    ----------
    log, task
        The log, which is only read, and the task as the log carries it (``Log.document``).
    registry
        Registry for the metrics, also an attribute; by default a new one.
    reference, known_within
        True coefficients, as in a simulation, and half-widths at which coefficients count as known, for the alert: by
        name, in coded units.
    reopen
        Opens the log again after it could not be read, as when a file was deleted and restored.
    clock, patience
        Time in seconds since 1970; seconds without a poll after which the log counts as unreadable.

    Examples
    --------
    >>> import tempfile
    >>> from murk.stream import open_log
    >>> task = Task.parse('''
    ... name: third-child
    ... features: [{name: age, low: 21, high: 35}]
    ... target: {name: third_child, kind: binary, positive: yes, negative: no}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> with open_log(f"sqlite:///{tempfile.mkdtemp()}/log.db") as log:
    ...     log.register_task(task.document())
    ...     monitor = Monitor(log, task)
    ...     monitor.poll()
    True
    >>> monitor.status()["releases"], monitor.status()["estimate"]["names"]
    (0, ['age', 'intercept'])
    """

    side = "monitor"

    def __init__(
        self,
        log: Log,
        task: Task,
        *,
        registry: CollectorRegistry | None = None,
        reference: Mapping[str, float] | None = None,
        known_within: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.time,
        reopen: Callable[[], Log] | None = None,
        patience: float = 60.0,
    ) -> None:
        check_carries(log, task)
        self._log: Log | None = log
        self._task, self._problem = task, device_for(task)
        self._reopen, self._clock, self._patience = reopen, clock, patience
        self._reference = None if reference is None else dict(reference)
        partitions = task.log.partitions
        self._messages: list[StateMessage | None] = [None] * partitions
        self._states: list[bytes | None] = [None] * partitions
        nothing = figures(task, self._problem, self._messages, [Place(0, 0)] * partitions)
        if self._reference is not None:
            check_reference(self._reference, nothing.names)
        self._figures: Figures | None = None
        self._history = History(len(nothing.names))
        self._pace = Pace()
        self._recent: deque[tuple[float, int]] = deque()
        now = clock()
        self._snapshot = Snapshot(
            task=task,
            url=log.url,
            started=now,
            now=now,
            figures=nothing,
            read=False,
            problem="the log has not been read yet",
            rate=0.0,
            grown=now,
            reference=self._reference,
            history=(),
            pace=self._pace.columns(),
            known_within=half_widths_asked([*(known_within or {}).items()], nothing.names),
        )
        super().__init__(task.name, registry)

    def poll(self) -> bool:
        """Read the log once, and return whether that succeeded; if not, the last figures stay."""
        before = self._snapshot
        now = self._clock()
        try:
            snapshot = self._read()
        except Exception as error:  # noqa: BLE001 - the monitor must survive any error
            self.fail(error)
            return False
        rate = self._rate(now, snapshot.releases)
        self._history.add(snapshot, now, rate)
        self._pace.add(now, snapshot.releases, snapshot.lag)
        grew = snapshot.releases > before.figures.releases and before.read
        self._snapshot = replace(
            before,
            now=now,
            figures=snapshot,
            read=True,
            problem=None,
            rate=rate,
            grown=now if grew or not before.read else before.grown,
            history=self._history.whole(snapshot, self._reference),
            pace=self._pace.columns(),
        )
        return True

    def fail(self, error: Exception) -> None:
        """Report why the log cannot be read."""
        self._snapshot = replace(self._snapshot, now=self._clock(), problem=one_line(error))
        if not isinstance(error, UnreachableError):
            # An unreachable broker returns by itself; after other errors, open the log again.
            self._release_log()

    @property
    def snapshot(self) -> Snapshot:
        """Result of the last poll; ``problem`` also reports a log that has not answered for too long."""
        polled = self._snapshot
        silent = self._clock() - polled.now
        if not polled.healthy or silent <= self._patience:
            return polled
        return replace(polled, problem=f"{polled.url} has not answered for {silent:.0f} s")

    @property
    def healthy(self) -> bool:
        """Whether the log can be read."""
        return self.snapshot.healthy

    def status(self) -> dict[str, Any]:
        """Return everything that the page shows as plain JSON data."""
        return self.snapshot.status()

    def values(self) -> Values:
        """Return the metrics' current values."""
        snapshot = self.snapshot
        # Before the first read, a zero would look like a counter reset.
        names = VALUES if snapshot.read else ("murk_log_reachable",)
        return {name: VALUES[name](snapshot) for name in names}

    _values = values

    def close(self) -> None:
        """Unregister the metrics, and close a log that was reopened."""
        self.registry.unregister(self)
        if self._reopen is not None:
            self._release_log()

    def _read(self) -> Figures:
        if self._log is None:
            assert self._reopen is not None
            self._log = self._reopen()
            check_carries(self._log, self._task)
        log, fresh = self._log, self._figures is None
        states, messages, indices = list(self._states), list(self._messages), []
        owners = log.owners()
        for partition in range(self._task.log.partitions):
            (state, offset), end = log.status(partition)
            indices.append(Place(offset, end, owners.get(partition)))
            if state != states[partition]:
                fresh, states[partition] = True, state
                messages[partition] = None if state is None else self._decoded(log, partition, state)
        if fresh or self._figures is None:
            current = figures(self._task, self._problem, messages, indices, self._reference, self._figures)
        else:
            current = self._figures.placed(indices)
        # Assign together, so that a failed poll leaves figures and states unchanged.
        self._states, self._messages, self._figures = states, messages, current
        return current

    def _decoded(self, log: Log, partition: int, state: bytes) -> StateMessage:
        where = f"partition {partition} of {log.url}"
        message = decode_state(state, where)
        if message.identity != log.identity or message.task != self._task.hash or message.partition != partition:
            raise MurkError(
                f"the state of {where} belongs to another log, task or partition: the log was recreated or its files "
                "were mixed up; no learner resumes from it"
            )
        return message

    def _rate(self, now: float, releases: int) -> float:
        recent = self._recent
        if recent and (releases < recent[-1][1] or now < recent[-1][0]):
            # Another log, or a clock that was set back.
            recent.clear()
        recent.append((now, releases))
        while len(recent) > 2 and recent[1][0] <= now - RATE_SECONDS:
            recent.popleft()
        seconds = now - recent[0][0]
        return (releases - recent[0][1]) / seconds if seconds > 0 else 0.0

    def _release_log(self) -> None:
        if self._reopen is None or self._log is None:
            return
        log, self._log = self._log, None
        with suppress(Exception):  # closing a failed log may fail, too
            log.close()


def one_line(error: Exception) -> str:
    """Return why a log cannot be read, in one line."""
    if not isinstance(error, MurkError):
        # The text of an unexpected error may quote a record.
        return f"the log could not be read ({type(error).__name__})"
    return " ".join(str(error).split()) or "the log could not be read"
