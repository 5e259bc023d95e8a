"""Mechanisms: frozen public descriptions of how a release is randomized."""

from murk.privacy.mechanisms.base import WIDTH, Costed, Mechanism, Randomizer
from murk.privacy.mechanisms.caps import cost_in, truncated_cap
from murk.privacy.mechanisms.composite import CompositeMechanism, divided
from murk.privacy.mechanisms.gaussian import GaussianMechanism
from murk.privacy.mechanisms.known import KnownMechanism
from murk.privacy.mechanisms.l2ball import L2BallMechanism
from murk.privacy.mechanisms.laplace import LaplaceMechanism
from murk.privacy.mechanisms.privacy_loss import Amount, Currency, PrivacyLoss, cap_of
from murk.privacy.mechanisms.privunit import PrivUnitMechanism
from murk.privacy.mechanisms.randomized_response import RandomizedResponse
from murk.privacy.mechanisms.registry import BEST, KINDS, VECTOR_MECHANISMS, calibrate, plain_kind
from murk.privacy.mechanisms.selection import SubsetSelection, WindowSelection
from murk.privacy.mechanisms.simplex import SimplexGaussian
from murk.privacy.mechanisms.thresholds import ThresholdMechanism

__all__ = [
    "BEST",
    "KINDS",
    "VECTOR_MECHANISMS",
    "WIDTH",
    "Amount",
    "CompositeMechanism",
    "Costed",
    "Currency",
    "GaussianMechanism",
    "KnownMechanism",
    "L2BallMechanism",
    "LaplaceMechanism",
    "Mechanism",
    "PrivUnitMechanism",
    "PrivacyLoss",
    "RandomizedResponse",
    "Randomizer",
    "SimplexGaussian",
    "SubsetSelection",
    "ThresholdMechanism",
    "WindowSelection",
    "calibrate",
    "cap_of",
    "cost_in",
    "divided",
    "plain_kind",
    "truncated_cap",
]
