"""Guarantees, mechanisms, exact noise and accounting, all without I/O; some names are imported on first use."""

from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports

if TYPE_CHECKING:
    from murk.privacy.accounting import Accountant as Accountant
    from murk.privacy.amplification import across_crowds as across_crowds
    from murk.privacy.amplification import largest_local_epsilon as largest_local_epsilon
    from murk.privacy.amplification import shuffled_delta as shuffled_delta
    from murk.privacy.amplification import shuffled_epsilon as shuffled_epsilon
    from murk.privacy.amplification import shuffled_guarantee as shuffled_guarantee
    from murk.privacy.amplification import smallest_crowd as smallest_crowd
    from murk.privacy.central import GaussMixMechanism as GaussMixMechanism
    from murk.privacy.central import Gram as Gram
    from murk.privacy.central import GramAccumulator as GramAccumulator
    from murk.privacy.central import GramMechanism as GramMechanism
    from murk.privacy.central import Newton as Newton
    from murk.privacy.central import NewtonAccumulator as NewtonAccumulator
    from murk.privacy.central import NewtonMechanism as NewtonMechanism
    from murk.privacy.central import Sketch as Sketch
    from murk.privacy.central import SketchAccumulator as SketchAccumulator
    from murk.privacy.guarantees import ApproxDP as ApproxDP
    from murk.privacy.guarantees import GaussianDP as GaussianDP
    from murk.privacy.guarantees import Guarantee as Guarantee
    from murk.privacy.guarantees import PureDP as PureDP
    from murk.privacy.guarantees import TruncatedCDP as TruncatedCDP
    from murk.privacy.guarantees import ZeroConcentratedDP as ZeroConcentratedDP
    from murk.privacy.guarantees import guarantee_from_dict as guarantee_from_dict
    from murk.privacy.guarantees import guarantee_from_text as guarantee_from_text
    from murk.privacy.mechanisms import CompositeMechanism as CompositeMechanism
    from murk.privacy.mechanisms import Currency as Currency
    from murk.privacy.mechanisms import DrawnMechanism as DrawnMechanism
    from murk.privacy.mechanisms import GaussianMechanism as GaussianMechanism
    from murk.privacy.mechanisms import KnownMechanism as KnownMechanism
    from murk.privacy.mechanisms import L2BallMechanism as L2BallMechanism
    from murk.privacy.mechanisms import LaplaceMechanism as LaplaceMechanism
    from murk.privacy.mechanisms import Mechanism as Mechanism
    from murk.privacy.mechanisms import PrivacyLoss as PrivacyLoss
    from murk.privacy.mechanisms import PrivUnitMechanism as PrivUnitMechanism
    from murk.privacy.mechanisms import RandomizedResponse as RandomizedResponse
    from murk.privacy.mechanisms import SimplexGaussian as SimplexGaussian
    from murk.privacy.mechanisms import SubsetSelection as SubsetSelection
    from murk.privacy.mechanisms import ThresholdMechanism as ThresholdMechanism
    from murk.privacy.mechanisms import WindowSelection as WindowSelection
    from murk.privacy.mechanisms import calibrate as calibrate
    from murk.privacy.mechanisms import cap_of as cap_of
    from murk.privacy.mechanisms import cost_in as cost_in
    from murk.privacy.mechanisms import truncated_cap as truncated_cap
    from murk.privacy.noise import NoiseSource as NoiseSource
    from murk.privacy.noise import SecureNoise as SecureNoise
    from murk.privacy.noise import SimulatedNoise as SimulatedNoise

__all__, __getattr__, __dir__ = lazy_exports(__name__)
