"""A shuffler as commands run it: alone, or in a thread beside a gateway."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from pathlib import Path

from murk.cli.options import begin_on, patiently
from murk.errors import MurkError, UserError
from murk.protocols.device import device_for
from murk.shuffler.shuffler import Shuffler, Totals
from murk.shuffler.store import Store
from murk.stream import open_log
from murk.stream.log.interface import FencedError, Log, UnreachableError
from murk.task import Task

_ERROR_CODE = "MURK-CLI-002"

GRACE = 12.0  # seconds that a thread has for its last step; what it does not finish, the next shuffler does
_SHORTEST, _LONGEST = 0.005, 0.5  # bounds of the pause while nothing arrives, in seconds


class Shuffling:
    """A shuffler of two open logs that restarts when an unreachable log can be reached again."""

    def __init__(self, input_log: Log, log: Log, task: Task, store: Path, *, replace: bool, patience: float) -> None:
        self.task, self.store = task, store
        self.urls = input_log.url, log.url
        self.patience = patience  # seconds for which a log may be unreachable
        self._logs, self._device = (input_log, log), device_for(task)
        self._shuffler = patiently(patience, lambda: self._begin(replace=replace))
        self.totals: Totals = self._shuffler.totals
        self.trouble = ""  # why the shuffler cannot work at the moment
        self.stepped = self._reached = time.monotonic()  # when the last step ended, and the last one that succeeded
        self._pause = _SHORTEST

    def _begin(self, *, replace: bool = False) -> Shuffler:
        input_log, log = self._logs
        document = self.task.document()
        if log.document() != document:
            # Only then, since registering inspects all topics, which takes rights that a shuffler does not need.
            log.register_task(document)
        return Shuffler(input_log, log, self.task, self._device, Store(self.store), replace=replace)

    def step(self) -> bool:
        """Make a step and return whether anything was done; wait for a moment if not.

        Raises ``UnreachableError`` once a log was unreachable for longer than the patience, `UserError` if another
        shuffler has taken over, and `MurkError` as `Shuffler.step` does.
        """
        done = False
        try:
            if self.trouble:
                self._shuffler.close()
                self._shuffler = self._begin()
            done = not self._shuffler.step().idle
            self.totals, self._reached, self.trouble = self._shuffler.totals, time.monotonic(), ""
        except (UnreachableError, FencedError) as error:
            # A broker that comes back may have ended this shuffler's own transactions. A shuffler that was replaced
            # gets an error when it begins again.
            if time.monotonic() - self._reached > self.patience:
                raise
            self.trouble = str(error)
        self.stepped = time.monotonic()
        if done:
            self._pause = _SHORTEST
        else:
            time.sleep(self._pause)
            self._pause = min(_LONGEST, 1.5 * self._pause)
        return done

    def close(self) -> None:
        """Close the shuffler; the logs stay open."""
        self._shuffler.close()


@contextmanager
def shuffling(
    from_url: str, to_url: str, store: str | None, *, replace: bool = False, patience: float, wait: bool = False
) -> Iterator[Shuffling]:
    """Open two logs and begin to shuffle; raise `UserError` if the task is not shuffled, or a log or store is wrong."""
    if from_url == to_url:
        raise UserError(
            f"{from_url} is both the input log and the log of releases: devices need an input log of their own"
        )
    with ExitStack() as stack:
        input_log, task, _ = begin_on(from_url, lambda log, task: None, wait=wait)
        stack.enter_context(input_log)
        if task.shuffle is None:
            raise UserError(f"the task {task.name!r} is not shuffled: add shuffle: {{crowd: 20000}} to its file")
        if wait and to_url.startswith("kafka:"):
            # `murk topics` creates its topics, with rights that a shuffler does not need.
            log = begin_on(to_url, lambda log, task: None, wait=True, name=task.name)[0]
        else:
            log = open_log(to_url, create=not to_url.startswith("kafka:"), name=task.name)
        stack.enter_context(log)
        scheme, _, path = input_log.url.partition(":///")
        opened_store = Path(store or f"{path if scheme == 'sqlite' else task.name}.store")
        running = Shuffling(input_log, log, task, opened_store, replace=replace, patience=patience)
        stack.callback(running.close)
        yield running


@contextmanager
def shuffling_thread(
    from_url: str, to_url: str, store: str | None, *, wait: bool = False
) -> Iterator[tuple[Shuffling, Callable[[], None]]]:
    """Shuffle in a thread with logs of its own, and yield its `Shuffling` and a function that raises its error."""
    begun, ended = threading.Event(), threading.Event()
    made: list[Shuffling] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            with shuffling(from_url, to_url, store, patience=inf if wait else 0.0) as running:
                running.patience = inf  # a gateway outlasts an unreachable log
                made.append(running)
                begun.set()
                while not ended.is_set():
                    running.step()
        except Exception as error:  # noqa: BLE001 - raised in the command's thread
            failed.append(error)
        finally:
            begun.set()

    def check() -> None:
        if failed:
            raise failed[0]
        if not thread.is_alive():
            raise MurkError("the shuffler has ended unexpectedly: start it again")

    thread = threading.Thread(target=run, name="murk-shuffler", daemon=True)
    thread.start()
    try:
        begun.wait()
        check()
        yield made[0], check
    finally:
        ended.set()
        # Before it has begun there is nothing to finish.
        thread.join(GRACE if made else 0.0)
    if failed:
        raise failed[0]
