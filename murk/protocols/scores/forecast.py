"""Forecasts of estimates by scores, from simulated sums, and the variance of an effect by a rule of thumb."""

from __future__ import annotations

from typing import Any

from murk.protocols.population import vectors_variance
from murk.protocols.scores.device import ScoreDevice
from murk.protocols.scores.forecasting import estimates
from murk.task.privacy import DEFAULT_LEVEL
from murk.task.task import Task

__all__ = ["effect_variance", "estimates"]


def effect_variance(device: ScoreDevice, task: Task, people: int) -> float:
    """Return the variance of an effect per standard deviation of a feature, for a target coded to -1 and +1."""
    factor = 2.7 if task.public is None else 1.7
    if task.predictions is not None:
        people = round(people * (1.0 - task.predictions.share))
    mechanism: Any = device.mechanisms[DEFAULT_LEVEL]
    return factor**2 * vectors_variance(task.coding.size, mechanism.score.variance, people)
