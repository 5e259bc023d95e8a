"""Count what becomes of a chain's messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from logging import Logger
from time import monotonic
from typing import Any

from murk.stream.messages.block import block_of
from murk.stream.messages.releases import GradientRelease
from murk.stream.messages.state import Counters

GRADIENT = GradientRelease.model_fields["kind"].default


class Tally:
    """Sum up `Counters`, from ``start``."""

    def __init__(self, start: Counters) -> None:
        self._learned = start.learned
        self._duplicates = start.duplicates
        self._dead = Counter(start.dead)
        self._levels = Counter(start.levels)
        self._ages = list(start.staleness)
        self._age_sum = start.staleness_sum

    def learned(self, releases: Sequence[Any], version: int) -> None:
        """Count releases learned in this order by a chain that had learned ``version`` before."""
        if not releases:
            return
        self._learned += len(releases)
        self._levels.update(block_of(releases).levels)
        # Only gradients have an age; a chain's releases are all of one kind.
        if releases[0].kind != GRADIENT:
            return
        ages = [now - release.version for now, release in enumerate(releases, version)]
        self._age_sum += sum(ages)
        for bits, count in Counter(map(int.bit_length, ages)).items():
            self._ages += [0] * (bits + 1 - len(self._ages))
            self._ages[bits] += count

    def duplicate(self) -> None:
        """Count a duplicate."""
        self._duplicates += 1

    def dead(self, reason: str) -> None:
        """Count a dead letter."""
        self._dead[reason] += 1

    def counters(self) -> Counters:
        """Return all sums."""
        return Counters(
            learned=self._learned,
            duplicates=self._duplicates,
            dead=dict(self._dead),
            levels=dict(self._levels),
            staleness=list(self._ages),
            staleness_sum=self._age_sum,
        )


class DeadLetterLog:
    """Log the number of dead letters by reason, at most once in ``seconds``.

    A flood of dead letters does not flood the logger.
    """

    def __init__(self, log: Logger, where: str, seconds: float = 10.0) -> None:
        self._log = log
        self._description = where
        self._seconds = seconds
        self._due = 0.0
        self._unreported: Counter[str] = Counter()

    def add(self, reasons: Iterable[str]) -> None:
        """Count reasons, and log the counts if it is time."""
        self._unreported.update(reasons)
        if monotonic() >= self._due:
            self.report()

    def report(self) -> None:
        """Log what was counted since the last report."""
        if self._unreported:
            counts = ", ".join(f"{reason} {count}" for reason, count in sorted(self._unreported.items()))
            self._log.info("%s: dead letters: %s", self._description, counts)
            self._unreported.clear()
            self._due = monotonic() + self._seconds
