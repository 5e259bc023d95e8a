"""The live page of a run in the same process."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from murk.monitoring import Monitor
    from murk.producers.populations.local_run import LocalRun

_EVERY = 0.5


class LivePage:
    """Serve the live page of a run that calls `watch` between blocks; port 0 lets the system choose."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stack = ExitStack()
        self._monitor: Monitor | None = None
        self._due = 0.0
        self.url = ""

    def watch(self, run: LocalRun, last: bool) -> None:
        """Update the page, at most twice a second."""
        if self._monitor is None:
            self._monitor = self._serve(run)
        if last or time.monotonic() >= self._due:
            self._monitor.poll()
            self._due = time.monotonic() + _EVERY

    def stay(self) -> None:
        """Keep serving the last state at a terminal, until Ctrl-C."""
        if self.url and sys.stdin.isatty() and sys.stdout.isatty():
            click.echo(f"The page stays at {self.url}/ until you press Ctrl-C.")
            try:
                while True:
                    time.sleep(3600)
            except KeyboardInterrupt:
                click.echo()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _serve(self, run: LocalRun) -> Monitor:
        from murk.monitoring import Monitor
        from murk.monitoring.web.routes import monitor_routes
        from murk.monitoring.web.server import Server

        monitor = Monitor(run.log, run.task)
        self._stack.callback(monitor.close)
        server = self._stack.enter_context(Server(monitor_routes(monitor), "127.0.0.1", self._port))
        self.url = server.url
        click.echo(f"Live page: {self.url}/", err=True)
        return monitor
