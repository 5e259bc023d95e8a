"""Guarantees, mechanisms, exact noise and accounting: functions without I/O, in part imported on first use."""

from typing import TYPE_CHECKING

from murk._lazy import lazy_exports
from murk.privacy.accounting import Accountant, in_parallel
from murk.privacy.guarantees import (
    ApproxDP,
    GaussianDP,
    Guarantee,
    PureDP,
    TruncatedCDP,
    ZeroConcentratedDP,
    guarantee_from_dict,
    guarantee_from_text,
)
from murk.privacy.mechanisms import (
    Amount,
    CompositeMechanism,
    Currency,
    GaussianMechanism,
    L2BallMechanism,
    LaplaceMechanism,
    Mechanism,
    PrivacyLoss,
    PrivUnitMechanism,
    RandomizedResponse,
    calibrate,
    cap_of,
)
from murk.privacy.sketches import GaussMixMechanism, GramMechanism, NewtonMechanism

if TYPE_CHECKING:
    from murk.privacy.noise import NoiseSource, OpenDPNoise, SecureNoise, SimulatedNoise
    from murk.privacy.shuffling import (
        across_crowds,
        largest_local_epsilon,
        shuffled_curve,
        shuffled_delta,
        shuffled_epsilon,
        shuffled_guarantee,
        smallest_crowd,
    )
    from murk.privacy.sketches import Gram, GramAccumulator, Newton, NewtonAccumulator, Sketch, SketchAccumulator

__all__ = [
    "Accountant",
    "Amount",
    "ApproxDP",
    "CompositeMechanism",
    "Currency",
    "GaussMixMechanism",
    "GaussianDP",
    "GaussianMechanism",
    "Gram",
    "GramAccumulator",
    "GramMechanism",
    "Guarantee",
    "L2BallMechanism",
    "LaplaceMechanism",
    "Mechanism",
    "Newton",
    "NewtonAccumulator",
    "NewtonMechanism",
    "NoiseSource",
    "OpenDPNoise",
    "PrivUnitMechanism",
    "PrivacyLoss",
    "PureDP",
    "RandomizedResponse",
    "SecureNoise",
    "SimulatedNoise",
    "Sketch",
    "SketchAccumulator",
    "TruncatedCDP",
    "ZeroConcentratedDP",
    "across_crowds",
    "calibrate",
    "cap_of",
    "guarantee_from_dict",
    "guarantee_from_text",
    "in_parallel",
    "largest_local_epsilon",
    "shuffled_curve",
    "shuffled_delta",
    "shuffled_epsilon",
    "shuffled_guarantee",
    "smallest_crowd",
]

_NOISE = ("NoiseSource", "OpenDPNoise", "SecureNoise", "SimulatedNoise")
_SKETCHES = ("Gram", "GramAccumulator", "Newton", "NewtonAccumulator", "Sketch", "SketchAccumulator")
_SHUFFLING = (
    "across_crowds",
    "largest_local_epsilon",
    "shuffled_curve",
    "shuffled_delta",
    "shuffled_epsilon",
    "shuffled_guarantee",
    "smallest_crowd",
)
_HOMES = {
    **dict.fromkeys(_NOISE, ".noise"),
    **dict.fromkeys(_SKETCHES, ".sketches"),
    **dict.fromkeys(_SHUFFLING, ".shuffling"),
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES, tuple(__all__))
