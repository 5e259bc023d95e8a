"""The newest models, read in the background for devices that must not wait for the network."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from kafka import TopicPartition

from murk.errors import MurkError
from murk.stream.log.base import UnreachableError
from murk.stream.log.kafka.connection.clients import PATIENCE_MS, Clients
from murk.stream.log.kafka.consumers import Ends, Table
from murk.stream.log.kafka.topics import Names

_WAIT_MS = 500
_PAUSE = 0.5


@dataclass(frozen=True)
class CachedModels:
    """The newest model by chain, and the ends of the partitions of releases just after that was read."""

    models: Mapping[bytes, bytes] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)


class ModelCache:
    """A thread that keeps a log's newest models."""

    def __init__(self, clients: Clients, names: Names, partitions: int) -> None:
        self._clients = clients
        self._names = names
        self._partitions = partitions
        self._cached: CachedModels | None = None
        self._error: MurkError | None = None
        self._first = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="murk-models", daemon=True)
        self._thread.start()

    def cached(self) -> CachedModels:
        """Return what was last read; wait only the first time.

        Raises `MurkError` if nothing was ever read.
        """
        if self._cached is None:
            self._first.wait(2 * PATIENCE_MS / 1000)
            if self._cached is None:
                raise self._error or UnreachableError(f"{self._clients.url} cannot be reached (reading models)")
        return self._cached

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self._thread.join(2 * PATIENCE_MS / 1000)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except MurkError as error:
                # Devices go on with what was read before; `cached` raises the error if there is nothing.
                self._error = error
                self._first.set()
                self._stop.wait(_PAUSE)

    def _follow(self) -> None:
        releases = [TopicPartition(self._names.releases, number) for number in range(self._partitions)]
        with ExitStack() as stack:
            ends = Ends(self._clients)
            stack.callback(ends.close)
            table = Table(self._clients, self._names.models, self._partitions, ends)
            stack.callback(table.close)
            models = table.refresh()
            while not self._stop.is_set():
                # After the models: no model may have more releases than its partition.
                current = {place.partition: end for place, end in ends.end(*releases).items()}
                self._cached = CachedModels(dict(models), current)
                self._first.set()
                table.poll(_WAIT_MS)
