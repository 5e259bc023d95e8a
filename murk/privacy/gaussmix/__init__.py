"""What an organisation releases of a window of rows: a Gaussian mixture of them, or their noisy Gram matrix.

Central (per organisation), not local: `GaussMixMechanism` and `GramMechanism` say what is promised and to whom.
The accumulators are loaded when they are first asked for, with the compiler: describing a mechanism is quick.
"""

from importlib import import_module
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
from murk.privacy.gaussmix.gram import GramMechanism
from murk.privacy.gaussmix.mechanism import LARGEST_WINDOW, LEAST_SPREAD, GaussMixMechanism

if TYPE_CHECKING:
    from murk.privacy.gaussmix.accumulator import Sketch, SketchAccumulator
    from murk.privacy.gaussmix.totals import Gram, GramAccumulator

__all__ = [
    "LARGEST_WINDOW",
    "LEAST_SPREAD",
    "Analysis",
    "GaussMixMechanism",
    "Gram",
    "GramAccumulator",
    "GramMechanism",
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

_ACCUMULATORS = {
    "Sketch": "accumulator",
    "SketchAccumulator": "accumulator",
    "Gram": "totals",
    "GramAccumulator": "totals",
}


def __getattr__(name: str) -> Any:
    if name in _ACCUMULATORS:
        return getattr(import_module(f"murk.privacy.gaussmix.{_ACCUMULATORS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
