"""Publishing what is learned, as plain JSON beside the states: for dashboards that do not use Prometheus."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from murk.errors import MurkError

if TYPE_CHECKING:
    from murk.learners.estimates.estimate import Estimate
    from murk.learners.problem import Problem
    from murk.stream import Task
    from murk.stream.log.base import Log
    from murk.stream.messages.estimates import CoefficientEstimate

LEVEL = 0.95

_AFTER_FAILURE = 30.0
"""Seconds until the next message, after one could not be made."""

_log = logging.getLogger(__name__)

_SHARE = 50
"""At most one part in so many of a learner's time is spent on it."""


class Estimates:
    """Makes the message about the estimate of all chains, for the worker of the first of them.

    The other chains are as they were last committed; each is decoded again only where it has moved.

    Parameters
    ----------
    log, task, problem
        The log, its task and what is learned there.
    every
        Seconds between two messages at least; more where making one takes more than a fiftieth of them.
    clock
        Seconds.
    """

    def __init__(
        self, log: Log, task: Task, problem: Problem, every: float, clock: Callable[[], float] = monotonic
    ) -> None:
        from murk.stream.worker.committed import CommittedLearners

        self._task = task
        self._problem = problem
        self._others = CommittedLearners(log, task, problem.engine)
        self._told = 0
        self._every, self._clock, self._due = every, clock, -math.inf

    def __call__(self, engine: Any) -> bytes | None:
        """Return the message, with the first chain as it is in this learner; None where none is due, or nothing new.

        None also where another chain's state is none that its learner commits: this chain is learned on.

        Raises
        ------
        UnreachableError
            When the log cannot be reached.
        """
        from murk.stream.log.base import UnreachableError

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
        from murk.learners.problem import plausible

        engines = [engine, *map(self._others, range(1, self._task.log.partitions))]
        releases = sum(one.n_releases for one in engines)
        if releases == self._told:
            return None
        with plausible():
            estimate = self._problem.estimate(engines)
            message = encode(self._task, estimate, releases)
        self._told = releases
        return message


def encode(task: Task, estimate: Estimate, releases: int) -> bytes:
    """Return the message about an estimate: what reports have of it."""
    from murk.learners.estimates.units import effect_name, units
    from murk.learners.results.numbers import finite
    from murk.learners.results.report import report_estimate
    from murk.stream.messages.estimates import EstimateMessage

    # What it would take to learn the rest is a forecast: it takes long, and is the reports' matter.
    found = finite(report_estimate(estimate, task.coefficient_scale, units(task), LEVEL, forecast=False))
    return EstimateMessage(
        task=task.hash,
        name=task.name,
        simulated=task.simulated,
        releases=releases,
        level=LEVEL,
        method=found["interval"]["method"],
        note=found["interval"]["note"],
        scale=effect_name(task),
        standard_error=finite(estimate.standard_error),
        coefficients={name: _coefficient(found, name) for name in estimate.names},
    ).encode()


def _coefficient(found: Mapping[str, Any], name: str) -> CoefficientEstimate:
    from murk.stream.messages.estimates import CoefficientEstimate, Effect

    low, high = found["confidence_intervals"][name]
    effect = found["per_unit"].get(name)
    own = None
    if effect is not None:
        own = Effect(unit=effect["unit"], value=effect["value"], low=effect["interval"][0], high=effect["interval"][1])
    learned = name not in found["not_learned"]
    return CoefficientEstimate(value=found["coefficients"][name], low=low, high=high, learned=learned, effect=own)


def publisher(log: Log, task: Task, problem: Problem, every: float) -> Callable[[Any], bytes | None] | None:
    """Return what makes messages for a log that takes them; None where it does not, or none are wanted."""
    return Estimates(log, task, problem, every) if every > 0 and log.takes_estimates else None
