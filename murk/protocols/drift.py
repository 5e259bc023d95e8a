"""Drift tests of a protocol: its own comparison, or the path of estimates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from murk.inference.drift import CurvePoint, Drift, drift_of_curve
from murk.inference.estimate import Estimate
from murk.protocols.device import Device


def drift_of(
    device: Device, engines: Sequence[Any], estimate: Estimate, curve: Sequence[CurvePoint], most: int = 1
) -> Drift | None:
    """Test for changed coefficients by the device's own comparison, or else the path; None without standard errors.

    There is no test if one person may answer more than once (``most`` > 1): answers at different times may then be of
    the same people.
    """
    if most > 1:
        return None
    compare: Callable[[Sequence[Any]], Drift] | None = getattr(device, "drift", None)
    return drift_of_curve(estimate, curve) if compare is None else compare(engines)
