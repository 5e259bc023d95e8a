"""Mechanisms that make a vector of what they are given, and have another one add the noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from murk.privacy.guarantees import Guarantee
from murk.privacy.mechanisms.base import Mechanism
from murk.privacy.mechanisms.payload_limits import Reach
from murk.privacy.mechanisms.privacy_loss import Currency, PrivacyLoss

__all__ = ["Wrapped"]


class Wrapped:
    """Delegates to an inner mechanism whatever a subclass does not override.

    Attributes
    ----------
    noise
        The inner mechanism, whose noise and guarantee this is.
    """

    noise: Mechanism

    @property
    def kind(self) -> str:
        """That of the inner mechanism."""
        return self.noise.kind

    @property
    def dimension(self) -> int:
        """Numbers in a release."""
        return self.noise.dimension

    @property
    def unit(self) -> float:
        """What decoding multiplies by."""
        return self.noise.unit

    @property
    def variance(self) -> float:
        """Variance of a number of a decoded release."""
        return self.noise.variance

    @property
    def guarantee(self) -> Guarantee:
        """What one release promises."""
        return self.noise.guarantee

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """Everything that is known of one release."""
        return self.noise.guarantees

    @property
    def magnitude(self) -> int:
        """No number of an honest payload exceeds it, up to a probability below 1e-30."""
        return self.noise.magnitude

    @property
    def reach(self) -> Reach:
        """How long an honest payload is; a longer one is forged."""
        return self.noise.reach

    def cost(self, currency: Currency) -> PrivacyLoss:
        """What one release costs an account, rounded up."""
        return self.noise.cost(currency)

    def decode(self, payload: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Turn payloads (m, d) into unbiased estimates (m, d)."""
        return self.noise.decode(payload)

    def to_dict(self) -> dict[str, Any]:
        """The public parameters and what follows from them, as plain data."""
        return self.noise.to_dict()
