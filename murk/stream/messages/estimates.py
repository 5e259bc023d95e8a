"""What a worker tells everybody of its task: the estimate of all chains, as plain JSON, for dashboards and neighbours.

It is a function of the chains' states, hence of releases and public settings alone.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from murk.stream.messages.releases import Count, Schema, TaskHash

KEY = b"estimate"
"""The key under which the newest estimate stands, on a topic or in a log's file."""

_PLAIN = ConfigDict(defer_build=True, strict=True, frozen=True, extra="forbid", populate_by_name=True)


class Effect(BaseModel):
    """A coefficient per unit of its feature; of log odds, its exponential is the odds ratio.

    Parameters
    ----------
    unit
        What a unit of the feature is, in words.
    value
        The effect per unit.
    low, high
        Its confidence interval; null where nothing is known.
    """

    model_config = _PLAIN

    unit: str
    value: FiniteFloat
    low: FiniteFloat | None
    high: FiniteFloat | None


class CoefficientEstimate(BaseModel):
    """One coefficient.

    Parameters
    ----------
    value
        The coefficient, in coded units.
    low, high
        Its confidence interval, in coded units; null where nothing is known.
    learned
        Whether it was learned: otherwise noise hides it, and its value says nothing.
    effect
        The same per unit of its feature; null where a coefficient has none.
    """

    model_config = _PLAIN

    value: FiniteFloat
    low: FiniteFloat | None
    high: FiniteFloat | None
    learned: bool
    effect: Effect | None


class EstimateMessage(BaseModel):
    """The newest estimate of a task, by all its chains together.

    Parameters
    ----------
    task
        Hash of the task.
    name
        Name of the task.
    simulated
        Whether the noise was simulated; then nobody's privacy was protected.
    releases
        Number of releases learned; it only grows.
    level
        Nominal level of the intervals.
    method
        Where the intervals come from.
    note
        What is known of their true coverage, in words.
    scale
        What an effect per unit is: of `odds ratio` its exponential is meant.
    standard_error
        Root of the summed squared standard errors of the coefficients; null where one is not known.
    coefficients
        Coefficients by name.
    """

    model_config = _PLAIN

    schema_: Schema = 1
    kind: Literal["estimate"] = "estimate"
    task: TaskHash
    name: str
    simulated: bool
    releases: Count
    level: Annotated[FiniteFloat, Field(gt=0, lt=1)]
    method: str
    note: str
    scale: Literal["odds ratio", "chance", "effect"]
    standard_error: FiniteFloat | None
    coefficients: dict[str, CoefficientEstimate]

    def encode(self) -> bytes:
        """Return the message's bytes."""
        return json.dumps(self.model_dump(by_alias=True), allow_nan=False, separators=(",", ":")).encode()
