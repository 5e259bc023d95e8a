"""Mechanisms: frozen public descriptions of how a release is randomized."""

from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports

if TYPE_CHECKING:
    from murk.privacy.mechanisms.base import WIDTH as WIDTH
    from murk.privacy.mechanisms.base import Mechanism as Mechanism
    from murk.privacy.mechanisms.base import Randomizer as Randomizer
    from murk.privacy.mechanisms.composite import CompositeMechanism as CompositeMechanism
    from murk.privacy.mechanisms.composite import divided as divided
    from murk.privacy.mechanisms.costs import Costed as Costed
    from murk.privacy.mechanisms.costs import Currency as Currency
    from murk.privacy.mechanisms.costs import PrivacyLoss as PrivacyLoss
    from murk.privacy.mechanisms.costs import cap_of as cap_of
    from murk.privacy.mechanisms.costs import cost_in as cost_in
    from murk.privacy.mechanisms.costs import truncated_cap as truncated_cap
    from murk.privacy.mechanisms.drawn import DrawnMechanism as DrawnMechanism
    from murk.privacy.mechanisms.gaussian import GaussianMechanism as GaussianMechanism
    from murk.privacy.mechanisms.known import KnownMechanism as KnownMechanism
    from murk.privacy.mechanisms.l2ball import L2BallMechanism as L2BallMechanism
    from murk.privacy.mechanisms.laplace import LaplaceMechanism as LaplaceMechanism
    from murk.privacy.mechanisms.privunit import PrivUnitMechanism as PrivUnitMechanism
    from murk.privacy.mechanisms.randomized_response import RandomizedResponse as RandomizedResponse
    from murk.privacy.mechanisms.registry import BEST as BEST
    from murk.privacy.mechanisms.registry import KINDS as KINDS
    from murk.privacy.mechanisms.registry import calibrate as calibrate
    from murk.privacy.mechanisms.registry import plain_kind as plain_kind
    from murk.privacy.mechanisms.selection import SubsetSelection as SubsetSelection
    from murk.privacy.mechanisms.selection import WindowSelection as WindowSelection
    from murk.privacy.mechanisms.simplex import SimplexGaussian as SimplexGaussian
    from murk.privacy.mechanisms.thresholds import ThresholdMechanism as ThresholdMechanism

__all__, __getattr__, __dir__ = lazy_exports(__name__)
