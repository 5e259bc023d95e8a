"""The estimate message: what all chains of a task have learned, as plain JSON for dashboards.

It is a function of the chains' states, hence of releases and public settings alone.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from murk.stream.messages.releases import Count, Schema, TaskHash

KEY = b"estimate"  # key of the newest estimate, on a topic or in a log file
_PLAIN = ConfigDict(defer_build=True, strict=True, frozen=True, extra="forbid", populate_by_name=True)


class Effect(BaseModel):
    """A coefficient per unit of its feature; if it is in log odds, its exponential is the odds ratio.

    Parameters
    ----------
    unit
        Unit of the feature, in words.
    value
        Effect per unit.
    low, high
        Confidence interval; null where unknown.
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
        Confidence interval, in coded units; null where unknown.
    learned
        Whether the coefficient was learned; otherwise noise hides it.
    effect
        The coefficient per unit of its feature; null where it has no unit.
    """

    model_config = _PLAIN

    value: FiniteFloat
    low: FiniteFloat | None
    high: FiniteFloat | None
    learned: bool
    effect: Effect | None


class EstimateMessage(BaseModel):
    """The newest estimate of a task, from all its chains.

    Parameters
    ----------
    task, name
        Hash and name of the task.
    simulated
        Whether the noise was simulated; then nobody's privacy was protected.
    releases
        Number of releases learned; it only grows.
    level, method, note
        Nominal level of the intervals, their origin, and what is known of their coverage; the note ends with the looks
        at which they hold (docs/intervals.md).
    scale
        Scale of an effect per unit; for `odds ratio`, the exponential of the effect is on this scale.
    standard_error
        Root of the coefficients' summed squared standard errors; null where one is unknown.
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
        """Return the message as JSON bytes."""
        return json.dumps(self.model_dump(by_alias=True), allow_nan=False, separators=(",", ":")).encode()
