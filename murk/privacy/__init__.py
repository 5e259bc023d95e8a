"""Guarantees, mechanisms, exact noise and accounting: functions without I/O, in part imported on first use."""

from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports
from murk.privacy.accounting import Accountant, in_parallel
from murk.privacy.central import GaussMixMechanism, GramMechanism, NewtonMechanism
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
    KnownMechanism,
    L2BallMechanism,
    LaplaceMechanism,
    Mechanism,
    PrivacyLoss,
    PrivUnitMechanism,
    RandomizedResponse,
    SimplexGaussian,
    SubsetSelection,
    ThresholdMechanism,
    WindowSelection,
    calibrate,
    cap_of,
    cost_in,
    truncated_cap,
)

if TYPE_CHECKING:
    from murk.privacy.amplification import (
        across_crowds,
        largest_local_epsilon,
        shuffled_curve,
        shuffled_delta,
        shuffled_epsilon,
        shuffled_guarantee,
        smallest_crowd,
    )
    from murk.privacy.central import Gram, GramAccumulator, Newton, NewtonAccumulator, Sketch, SketchAccumulator
    from murk.privacy.noise import NoiseSource, OpenDPNoise, SecureNoise, SimulatedNoise

__all__ = ["Accountant", "in_parallel"]
__all__ += ["ApproxDP", "GaussianDP", "Guarantee", "PureDP", "TruncatedCDP", "ZeroConcentratedDP"]
__all__ += ["guarantee_from_dict", "guarantee_from_text"]
__all__ += ["Amount", "CompositeMechanism", "Currency", "GaussianMechanism", "L2BallMechanism", "LaplaceMechanism"]
__all__ += [
    "KnownMechanism",
    "Mechanism",
    "PrivUnitMechanism",
    "PrivacyLoss",
    "RandomizedResponse",
    "calibrate",
    "cap_of",
    "cost_in",
]
__all__ += ["SimplexGaussian", "SubsetSelection", "ThresholdMechanism", "WindowSelection", "truncated_cap"]
__all__ += ["NoiseSource", "OpenDPNoise", "SecureNoise", "SimulatedNoise"]
__all__ += ["GaussMixMechanism", "Gram", "GramAccumulator", "GramMechanism", "Newton", "NewtonAccumulator"]
__all__ += ["NewtonMechanism", "Sketch", "SketchAccumulator"]
__all__ += ["across_crowds", "largest_local_epsilon", "shuffled_curve", "shuffled_delta", "shuffled_epsilon"]
__all__ += ["shuffled_guarantee", "smallest_crowd"]

_HOMES = {
    **dict.fromkeys(["NoiseSource", "OpenDPNoise", "SecureNoise", "SimulatedNoise"], ".noise"),
    **dict.fromkeys(["Gram", "GramAccumulator", "Newton", "NewtonAccumulator"], ".central"),
    **dict.fromkeys(["Sketch", "SketchAccumulator"], ".central"),
    **dict.fromkeys(["across_crowds", "largest_local_epsilon", "smallest_crowd"], ".amplification"),
    **dict.fromkeys(["shuffled_curve", "shuffled_delta", "shuffled_epsilon", "shuffled_guarantee"], ".amplification"),
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES, tuple(__all__))
