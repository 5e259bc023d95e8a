"""Progress and health of a process that learns, for its log, health check and metrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ChainVitals:
    """Progress of a chain in this process.

    Parameters
    ----------
    version
        Number of releases learned in all.
    offset
        First offset that is not committed.
    committed
        When this process last committed it, in seconds since 1970, or None.
    lag
        Number of uncommitted offsets when last measured, or None.
    """

    version: int
    offset: int
    committed: float | None = None
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class Vitals:
    """Progress of a process that learns.

    Parameters
    ----------
    chains
        Its chains.
    learned, duplicates, dead
        Messages read since it started, by outcome.
    trouble
        Why nothing can be done at the moment, or None.
    stepped
        When it last made a step, in seconds since 1970.
    """

    chains: Mapping[int, ChainVitals]
    learned: int
    duplicates: int
    dead: int
    trouble: str | None
    stepped: float

    @property
    def read(self) -> int:
        """Number of messages read since it started."""
        return self.learned + self.duplicates + self.dead


class Pulse:
    """Record a process's progress; readable from any thread.

    ``clock`` gives seconds since 1970.

    Examples
    --------
    >>> pulse = Pulse(clock=lambda: 7.0)
    >>> pulse.owns(0, version=10, offset=12)
    >>> pulse.vitals().chains
    {0: ChainVitals(version=10, offset=12, committed=None, lag=None)}
    """

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
        """A step of a chain was committed."""
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
