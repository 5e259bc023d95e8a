"""All tasks of one or several logs behind one gateway: each log has a thread, so that none waits for another's."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from murk.errors import MurkError, UserError, unexpected
from murk.gateway.group_commit import GroupCommit
from murk.gateway.server import GRACE, GatewayServer
from murk.stream.log.interface import Log, check_input_log
from murk.stream.log.open import name_in, open_log
from murk.stream.log.search import TaskSearch, one_line
from murk.task.task import Task

_ERROR_CODE = "MURK-LOG-001"

_SHUFFLED = "MURK-SHUFFLE-001"  # code of errors for a log to which no device may send

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds until a log is opened again after an error, doubling up to the latter

_log = logging.getLogger(__name__)


class LogThread:
    """A thread that holds the log at a URL and appends what a gateway's devices send to its task.

    After an unexpected error, or if the log was deleted or created again, it opens the log again, after growing pauses;
    meanwhile its task's devices are asked to retry. ``is_named`` says whether the log's own URL was given, and not only
    its cluster's. Raises as `open_log` and `GatewayServer.serve`.
    """

    def __init__(self, url: str, gateway: GatewayServer, *, is_named: bool = True) -> None:
        self.url = url
        self._is_named = is_named
        self.error: Exception | None = None  # why the thread has ended
        self._gateway = gateway
        self._appending: GroupCommit | None = None
        self._name = ""
        self._ready, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="murk-gateway-log", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self.error is not None:
            raise self.error

    @property
    def problem(self) -> str | None:
        """Why the log cannot be used at the moment, or None."""
        return None if self._appending is None else self._appending.trouble

    def end(self) -> None:
        """Ask the thread to append the releases that wait, and to end."""
        self._ended.set()

    def join(self, seconds: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(seconds)

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._ended.is_set():
            begun = time.monotonic()
            try:
                self._append()
            except Exception as error:  # noqa: BLE001 - it is shown, and the other tasks must survive it
                appending = self._appending
                if appending is not None:
                    appending.trouble = one_line(error) if isinstance(error, MurkError) else unexpected(error)
                # What a shuffler's log needs, its operator alone can do.
                if appending is None or (isinstance(error, MurkError) and error.code == _SHUFFLED):
                    self.error = error
                    return
                if time.monotonic() - begun > LONGEST_PAUSE:
                    pause = FIRST_PAUSE
                _log.warning("%s: %s; the log is opened again in %g s", self._name, appending.trouble, pause)
                self._ended.wait(pause)
                pause = min(2.0 * pause, LONGEST_PAUSE)
            finally:
                self._ready.set()

    def _append(self) -> None:
        """Open the log and append until the end is asked for; raise what prevents it."""
        with open_log(self.url, create=False) as log:
            task = log.registered_task()
            if self._name not in ("", task.name):
                raise UserError(f"{self.url} carried the task {self._name!r}, and now {task.name!r}: start anew")
            # The task may be another one than when the search found the log.
            if task.shuffle is not None and not self._is_named:
                raise _left_out(self.url, task.name)
            appending = self._gateway.serve(log, task)
            self._appending, self._name = appending, task.name
            self._ready.set()
            try:
                while not self._ended.is_set():
                    if appending.misplaced:
                        check_input_log(log, task)
                    if appending.replaced:
                        raise appending.replaced
                    appending.step()
            finally:
                appending.close()


def _left_out(url: str, name: str) -> UserError:
    return UserError(
        f"{url} is of the shuffled task {name!r}: give the URL of its shuffler's input log as --log, too",
        code=_SHUFFLED,
    )


class GatewayTasks(TaskSearch[LogThread]):
    """Serve all tasks of some logs with one gateway.

    ``urls`` and ``names`` are as for `TaskSearch`. Of a cluster's logs those of shuffled tasks are left out: one of
    them may be where a shuffler will write, and releases appended there would show when each of them came. The input
    log of a shuffled task is served if its own URL is given.
    """

    def __init__(
        self, gateway: GatewayServer, urls: Sequence[str], names: Sequence[str] = (), *, interval: float = 2.0
    ) -> None:
        super().__init__(urls, names, interval=interval)
        self._gateway = gateway
        self._found = set[str]()  # URLs of clusters' logs
        self._left_out: dict[str, str] = {}  # names of shuffled tasks, by the URLs of their clusters' logs

    def begin(self, log: Log, task: Task) -> LogThread:
        """Serve a log's task, with a log of the thread's own."""
        is_named = log.url not in self._found or log.url in self._urls
        thread = LogThread(log.url, self._gateway, is_named=is_named)
        log.close()
        return thread

    def url_of(self, work: LogThread) -> str:
        """Return the URL of a thread's log."""
        return work.url

    def problem_of(self, work: LogThread) -> str | None:
        """Return why a thread's log cannot be used at the moment."""
        return work.problem

    def leaves_out(self, log: Log, task: Task) -> bool:
        """Return whether a cluster's log is that of a shuffled task."""
        self._found.add(log.url)
        if task.shuffle is not None:
            self._left_out[log.url] = task.name
        return task.shuffle is not None

    def find(self, given: str) -> list[str]:
        """Return the URLs of logs that may be new."""
        single = not given.startswith("kafka://") or name_in(given) is not None
        # Its thread knows best about a log that was opened, and a device's rights do not suffice to search for one.
        return [given] if single else [url for url in super().find(given) if url not in self._left_out]

    def search(self) -> dict[str, tuple[Exception, bool]]:
        """Begin new tasks; see `TaskSearch.search`."""
        errors = super().search()
        for url, name in self._left_out.items():
            if name not in self.running and (not self._names or name in self._names):
                error = _left_out(url, name)
                errors[url] = error, False
                self.problems = {**self.problems, url: one_line(error)}
        self._gateway.report_unread(self.unread)
        return errors

    def step(self) -> None:
        """Check the server, search if that is due, and raise the error of a gateway's only log."""
        self._gateway.check()
        self.search_if_due()
        threads = list(self.running.values())
        if len(threads) == 1 and threads[0].error is not None:
            raise threads[0].error

    def close(self) -> None:
        """Answer 503 to further releases, and append those that wait."""
        self._gateway.stop()
        for thread in self.running.values():
            thread.end()
        deadline = time.monotonic() + GRACE
        for thread in self.running.values():
            thread.join(max(0.0, deadline - time.monotonic()))
