"""The Gaussian mixing mechanism: sketches of an organisation's rows, their analysis, and the accumulator.

Central (per organisation), not local: `GaussMixMechanism` says what is promised and to whom.
The accumulator is loaded when it is first asked for, with the compiler: describing a mechanism is quick.
"""

from typing import TYPE_CHECKING, Any

from murk.privacy.gaussmix.analysis import (
    Analysis,
    Method,
    Neighbours,
    eigenvalue_epsilon,
    joint_epsilon,
    joint_settings,
    mixing_epsilon,
    modified_epsilon,
    phi,
    sheffet_threshold,
    smallest_threshold,
    two_steps,
)
from murk.privacy.gaussmix.mechanism import LARGEST_WINDOW, LEAST_SPREAD, GaussMixMechanism

if TYPE_CHECKING:
    from murk.privacy.gaussmix.accumulator import Sketch, SketchAccumulator

__all__ = [
    "LARGEST_WINDOW",
    "LEAST_SPREAD",
    "Analysis",
    "GaussMixMechanism",
    "Method",
    "Neighbours",
    "Sketch",
    "SketchAccumulator",
    "eigenvalue_epsilon",
    "joint_epsilon",
    "joint_settings",
    "mixing_epsilon",
    "modified_epsilon",
    "phi",
    "sheffet_threshold",
    "smallest_threshold",
    "two_steps",
]

_ACCUMULATOR = {"Sketch", "SketchAccumulator"}


def __getattr__(name: str) -> Any:
    if name in _ACCUMULATOR:
        from murk.privacy.gaussmix import accumulator

        return getattr(accumulator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
