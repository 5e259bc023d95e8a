"""What a process that learns has done and how it is, for its log, its health and its metrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ChainVitals:
    """How a chain is that this process learns.

    Parameters
    ----------
    version
        Number of releases that it has learned in all.
    offset
        First offset that is not committed.
    committed
        When this process last committed it, in seconds since 1970; None where it has not yet.
    lag
        Offsets on the log that it has not committed, when that was last looked at; None where it was not.
    """

    version: int
    offset: int
    committed: float | None = None
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class Vitals:
    """How a process that learns is.

    Parameters
    ----------
    chains
        Those that fall to it.
    learned, duplicates, dead
        Messages that it has read since it started, by what became of them.
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
        """Messages that it has read since it started."""
        return self.learned + self.duplicates + self.dead


class Pulse:
    """Takes down what a process does; what it says may be asked from any thread.

    Parameters
    ----------
    clock
        Seconds since 1970.

    Examples
    --------
    >>> pulse = Pulse(clock=lambda: 7.0)
    >>> pulse.owns(0, version=10, offset=12)
    >>> pulse.stepped(0, version=13, offset=16, learned=3, duplicates=1, dead=0)
    >>> pulse.vitals().chains
    {0: ChainVitals(version=13, offset=16, committed=7.0, lag=None)}
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._chains: dict[int, ChainVitals] = {}
        self._counts = (0, 0, 0)
        self._trouble: str | None = None
        self._stepped = clock()

    def owns(self, chain: int, *, version: int, offset: int) -> None:
        """A chain was assigned to this process, and stands there."""
        with self._lock:
            self._chains[chain] = ChainVitals(version, offset)

    def dropped(self, chain: int) -> None:
        """A chain was released."""
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
        """A chain's lag was looked at."""
        with self._lock:
            self._chains[chain] = replace(self._chains[chain], lag=max(0, lag))

    def beat(self, trouble: str | None) -> None:
        """A step of the process is over, and that stood in its way."""
        with self._lock:
            self._trouble, self._stepped = trouble, self._clock()

    def vitals(self) -> Vitals:
        """How the process is now."""
        with self._lock:
            learned, duplicates, dead = self._counts
            return Vitals(dict(self._chains), learned, duplicates, dead, self._trouble, self._stepped)
