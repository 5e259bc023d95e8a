"""Progress and health of a process that learns, for its log, health check and metrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ChainVitals:
    """Progress of a chain in this process."""

    version: int  # number of releases learned in all
    offset: int  # first offset that is not committed
    committed: float | None = None  # when this process last committed it, in seconds since 1970
    lag: int | None = None  # number of uncommitted offsets when last measured


@dataclass(frozen=True, slots=True)
class Vitals:
    """Progress of a process that learns; messages are counted since it started."""

    chains: Mapping[int, ChainVitals]
    learned: int
    duplicates: int
    dead: int
    trouble: str | None  # why nothing can be done at the moment
    stepped: float  # when it last made a step, in seconds since 1970

    @property
    def read(self) -> int:
        """Number of messages read since it started."""
        return self.learned + self.duplicates + self.dead


class Pulse:
    """Record a process's progress; readable from any thread. ``clock`` gives seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._chains: dict[int, ChainVitals] = {}
        self._counts = (0, 0, 0)
        self._trouble: str | None = None
        self._stepped = clock()

    def owns(self, chain: int, *, version: int, offset: int) -> None:
        """Record that a chain was taken over."""
        with self._lock:
            self._chains[chain] = ChainVitals(version, offset)

    def dropped(self, chain: int) -> None:
        """Record that a chain was released."""
        with self._lock:
            self._chains.pop(chain, None)

    def stepped(self, chain: int, *, version: int, offset: int, learned: int, duplicates: int, dead: int) -> None:
        """Record that a step of a chain was committed."""
        with self._lock:
            before = self._chains[chain]
            lag = None if before.lag is None else max(0, before.lag - (offset - before.offset))
            self._chains[chain] = ChainVitals(version, offset, self._clock(), lag)
            counts = self._counts
            self._counts = (counts[0] + learned, counts[1] + duplicates, counts[2] + dead)

    def measured(self, chain: int, lag: int) -> None:
        """Record a chain's lag."""
        with self._lock:
            self._chains[chain] = replace(self._chains[chain], lag=max(0, lag))

    def beat(self, trouble: str | None) -> None:
        """Record the end of a step of the process, and its trouble."""
        with self._lock:
            self._trouble, self._stepped = trouble, self._clock()

    def vitals(self) -> Vitals:
        """Return the current progress."""
        with self._lock:
            learned, duplicates, dead = self._counts
            return Vitals(dict(self._chains), learned, duplicates, dead, self._trouble, self._stepped)
