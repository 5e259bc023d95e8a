"""Central mechanisms: an organisation releases a summary of a window. Accumulators are imported on first use."""

from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports
from murk.privacy.central.gaussian_sketch import LARGEST_WINDOW, LEAST_SPREAD, GaussMixMechanism
from murk.privacy.central.gram_matrix import GramMechanism
from murk.privacy.central.newton_step import NewtonMechanism
from murk.privacy.central.sketch_renyi import (
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

if TYPE_CHECKING:
    from murk.privacy.central.accumulators import (
        Gram,
        GramAccumulator,
        Newton,
        NewtonAccumulator,
        Sketch,
        SketchAccumulator,
    )

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
    "Newton",
    "NewtonAccumulator",
    "NewtonMechanism",
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

_ACCUMULATORS = ("Gram", "GramAccumulator", "Newton", "NewtonAccumulator", "Sketch", "SketchAccumulator")
_HOMES = dict.fromkeys(_ACCUMULATORS, "murk.privacy.central.accumulators")
__getattr__, __dir__ = lazy_exports(__name__, _HOMES, tuple(__all__))
