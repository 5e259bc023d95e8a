"""Publish estimates as plain JSON, for dashboards that do not use Prometheus."""

import logging
import math
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from murk._internal.numbers import finite
from murk.errors import MurkError
from murk.inference.confidence_sequences import looks_of, used_count
from murk.inference.estimate import Estimate
from murk.inference.units import units
from murk.protocols.device import Device, loaded_state_arithmetic
from murk.results.report import report_estimate
from murk.stream.log.interface import Log, UnreachableError
from murk.stream.wire.state import CoefficientEstimate, Effect, EstimateMessage
from murk.stream.worker.sharing import CommittedLearners
from murk.task import Task

LEVEL = 0.95

_AFTER_FAILURE = 30.0  # seconds to wait after an estimate could not be made
_SHARE = 50  # messages may take at most 1 / _SHARE of a learner's time

_log = logging.getLogger(__name__)


class Estimates:
    """Messages with the estimate of all partitions, which the worker of the first partition publishes.

    ``every`` is the least number of seconds between two messages, measured by ``clock``; ``shown`` is the task whose
    names and units the messages use, by default the log's.
    """

    def __init__(
        self,
        log: Log,
        task: Task,
        device: Device,
        every: float,
        clock: Callable[[], float] = monotonic,
        shown: Task | None = None,
    ) -> None:
        self._task, self._shown = task, shown or task
        self._device = device
        self._others = CommittedLearners(log, task, device.engine)
        self._published_releases = 0
        self._every, self._clock, self._due = every, clock, -math.inf

    def __call__(self, engine: Any) -> bytes | None:
        """Return the message, or None if none is due or possible; raise `UnreachableError` if the log is away."""
        start = self._clock()
        if start < self._due:
            return None
        try:
            message = self._newest(engine)
        except UnreachableError:
            raise
        except MurkError as error:
            _log.warning("no estimate can be published at the moment: %s", error)
            self._due = self._clock() + max(self._every, _AFTER_FAILURE)
            return None
        end = self._clock()
        self._due = end + max(self._every, _SHARE * (end - start))
        return message

    def _newest(self, engine: Any) -> bytes | None:
        engines = [engine, *map(self._others, range(1, self._task.log.partitions))]
        releases = sum(each.n_releases for each in engines)
        if releases == self._published_releases:
            return None
        with loaded_state_arithmetic():
            estimate = self._device.estimate(engines)
            message = encode(self._shown, estimate, releases, used_count(self._task, estimate, engines))
        self._published_releases = releases
        return message


def encode(task: Task, estimate: Estimate, releases: int, used: int) -> bytes:
    """Return the message of an estimate; ``used`` counts its releases, or an organisation's records."""
    # Readers watch these messages continuously, so intervals hold at every look where they can.
    looks = looks_of(task, estimate, used, live=True)
    # Forecasts take long and belong to reports.
    report = finite(report_estimate(estimate, task.coefficient_scale, units(task), LEVEL, forecast=False, looks=looks))
    return EstimateMessage(
        task=task.hash,
        name=task.name,
        simulated=task.simulated,
        releases=releases,
        level=LEVEL,
        method=report["interval"]["method"],
        note=f"{report['interval']['note']}; {looks.words(LEVEL)}",
        standard_error=finite(estimate.standard_error),
        coefficients={name: _coefficient(report, name) for name in estimate.names},
    ).encode()


def _coefficient(report: Mapping[str, Any], name: str) -> CoefficientEstimate:
    low, high = report["confidence_intervals"][name]
    effect = None
    if (unit := report["per_unit"].get(name)) is not None:
        low_effect, high_effect = unit["interval"]
        effect = Effect(unit=unit["unit"], scale=unit["scale"], value=unit["value"], low=low_effect, high=high_effect)
    learned = name not in report["not_learned"]
    return CoefficientEstimate(value=report["coefficients"][name], low=low, high=high, learned=learned, effect=effect)


def publisher(
    log: Log, task: Task, device: Device, every: float, shown: Task | None = None
) -> Callable[[Any], bytes | None] | None:
    """Return an `Estimates` for a log with a topic of estimates; None if it has none or ``every`` is 0."""
    return Estimates(log, task, device, every, shown=shown) if every > 0 and log.takes_estimates else None
