"""Base class for everything that releases data to a task."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.privacy.noise import Purpose, SecureNoise, below
from murk.producers.delivery import Delivery
from murk.producers.ledger.transaction import DAY
from murk.producers.policy import Policy
from murk.stream.messages.releases import truncate_time
from murk.stream.worker.recovery import check_carries

if TYPE_CHECKING:
    from murk.learners.problem import Problem
    from murk.privacy.noise import NoiseSource
    from murk.producers.ledger.ledger import Ledger
    from murk.producers.receipts import FlushReport
    from murk.stream.log.base import Log
    from murk.stream.task.task import Task

P = TypeVar("P", bound="Problem")

CANDIDATES = 64
"""Words from which an integer below n is drawn; all of them fail with a probability below 2^-64."""


class Releaser(ABC, Generic[P]):
    """Base class for everything that releases data to a task.

    It checks the task, books the costs of releases, and sends what was released. Subclasses document the parameters.

    Raises UserError if the log carries another task, the ledger is bound to another log, the noise is of the wrong
    kind, or the policy refuses the task.
    """

    def __init__(
        self,
        task: Task,
        log: Log,
        ledger: Ledger,
        *,
        noise: NoiseSource | None = None,
        policy: Policy | None = None,
        clock: Callable[[], float] = time.time,
        problem: P | None = None,
    ) -> None:
        self.task = task
        self._log = log
        self._ledger = ledger
        self._clock = clock
        self._noise = self._check_noise(noise)
        check_carries(log, task)
        self._problem: P = self._find_problem(task) if problem is None else problem
        self._admission = (policy or Policy()).admit(task, self._problem.mechanisms)
        ledger.bind(log.identity, task.hash, name=task.name, simulated=task.simulated)
        ledger.book(
            task.hash,
            list(self._admission.charges.values()),
            caps=self._admission.caps,
            lifetime=self._admission.lifetime,
        )
        # Shared fields of the releases of the last second.
        self._moment: tuple[int | None, dict[str, Any]] = None, {}
        self._delivery = Delivery(log, ledger, task.hash)

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels of the task that the policy allows."""
        return tuple(self._admission.charges)

    def flush(self) -> FlushReport:
        """Send the releases in the outbox in order, except those that the log has, and delete those that have expired.

        Raises MurkError if the log cannot be reached; the outbox is unchanged.
        """
        return self._delivery.flush(self._clock())

    @abstractmethod
    def _find_problem(self, task: Task) -> P:
        """Return the task's problem, of the kind that is released here."""

    def _check_noise(self, noise: NoiseSource | None) -> NoiseSource:
        if noise is None:
            noise = SecureNoise()
        if noise.simulated and not self.task.simulated:
            raise UserError(
                f"the task {self.task.name!r} is for real releases, and simulated noise protects nobody: "
                "leave the seed out, or announce the task as simulated on a log of its own"
            )
        if self.task.simulated and not noise.simulated:
            raise UserError(
                f"the task {self.task.name!r} is a simulation: give it SimulatedNoise(seed), or announce it "
                "as real on a log of its own"
            )
        return noise

    def _check_levels(self, levels: Sequence[str]) -> None:
        for level in set(levels) - self._admission.charges.keys():
            reason = self._admission.refused.get(level)
            if reason is not None:
                raise UserError(f"this device's policy does not allow the level {level!r}: {reason}")
            levels = ", ".join(self.levels)
            raise UserError(f"the task {self.task.name!r} has no level {level!r}: choose one of {levels}")

    def _draw(self, indices: NDArray[np.int64], n: int, purpose: Purpose) -> NDArray[np.int64]:
        if n == 1:
            return np.zeros(len(indices), dtype=np.int64)
        exact = n.bit_count() == 1
        return below(self._noise.words(indices, 1 if exact else CANDIDATES, purpose), n)

    def _chains(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._draw(indices, self._log.partitions, Purpose.CHAIN)

    def _chain(self, index: NDArray[np.int64]) -> int:
        return 0 if self._log.partitions == 1 else int(self._chains(index)[0])

    def _fields(self, now: float) -> dict[str, Any]:
        """Return the fields that all releases of one moment share."""
        task, second = self.task, int(now)
        if second != self._moment[0]:
            fields = {
                "task": task.hash,
                "time": truncate_time(now, task.granularity),
                "expires": self._expiry(now),
                "simulated": task.simulated,
            }
            self._moment = second, fields
        return dict(self._moment[1])

    def _day(self, now: float) -> int:
        return truncate_time(now, max(DAY, self.task.granularity))

    def _expiry(self, now: float) -> int:
        return truncate_time(now + self.task.expiry, self.task.granularity)
