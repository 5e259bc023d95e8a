"""Base class of mechanisms that compute a vector from their input and delegate the noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from murk.errors import UserError
from murk.privacy.guarantees import Guarantee
from murk.privacy.mechanisms.base import Mechanism
from murk.privacy.mechanisms.payload_limits import Reach
from murk.privacy.mechanisms.privacy_loss import Currency, PrivacyLoss

__all__ = ["Wrapped", "check_room"]


class Wrapped:
    """Delegates to an inner mechanism, ``noise``, everything that a subclass does not override."""

    noise: Mechanism

    @property
    def kind(self) -> str:
        """Kind of the inner mechanism."""
        return self.noise.kind

    @property
    def dimension(self) -> int:
        """Number of integers in a release."""
        return self.noise.dimension

    @property
    def unit(self) -> float:
        """Factor that decodes a payload."""
        return self.noise.unit

    @property
    def variance(self) -> float:
        """Variance of a number of a decoded release."""
        return self.noise.variance

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of one release."""
        return self.noise.guarantee

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """All known guarantees of one release."""
        return self.noise.guarantees

    @property
    def magnitude(self) -> int:
        """Bound of an integer of an honest payload, exceeded with probability below 1e-30."""
        return self.noise.magnitude

    @property
    def reach(self) -> Reach:
        """Bound of an honest payload's norm; a longer one is forged."""
        return self.noise.reach

    def cost(self, currency: Currency) -> PrivacyLoss:
        """Return the cost of one release to an account, rounded up."""
        return self.noise.cost(currency)

    def decode(self, payload: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Decode payloads (m, d) into unbiased estimates (m, d)."""
        return self.noise.decode(payload)

    def to_dict(self) -> dict[str, Any]:
        """Return the public parameters and derived figures as plain data."""
        return self.noise.to_dict()


def check_room(noise: Mechanism, room: float, numbers: str = "numbers") -> None:
    """Raise UserError if rounding leaves so few of the lattice's steps that the noise would not be enough."""
    if room < noise.steps:
        raise UserError(
            f"{noise.guarantee!r} is less than a lattice can express for {noise.dimension} {numbers}; give a larger "
            f"budget (a mu of {4e-6 * math.sqrt(noise.dimension) + 8e-6:.2g} or more)"
        )
