"""Mechanisms whose payload encodes a direction, and the spread of what they release."""

from __future__ import annotations

from typing import Any

from murk.privacy.mechanisms.base import Wrapped


def is_directional(mechanism: Any) -> bool:
    """Return whether a payload encodes a direction alone."""
    return hasattr(of_vectors(mechanism), "second_moment")


def of_vectors(mechanism: Any) -> Any:
    """Return the inner mechanism for vectors if there is one, else the mechanism itself."""
    return mechanism.noise if isinstance(mechanism, Wrapped) else mechanism


def direction_spread(mechanism: Any) -> tuple[float, float | None]:
    """Return a coordinate's noise variance, and its excess along the input (None if noise is independent of it)."""
    if not is_directional(mechanism):
        return mechanism.variance, None
    across, along = of_vectors(mechanism).second_moment
    if mechanism.dimension == 1:
        # A sign of fixed size B: its variance is B^2 - m^2 at the mean m, as that of m's own sign and B^2 - 1.
        return along - 1.0, None
    return across, max(0.0, along - across)
