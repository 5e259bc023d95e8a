"""Mechanisms of vectors by name, and calibration of the best one for a guarantee."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from murk.errors import UserError
from murk.privacy.guarantees import ApproxDP, Guarantee, PureDP, nearest
from murk.privacy.mechanisms.base import Mechanism

_ERROR_CODE = "MURK-PRIVACY-001"

# Add new mechanisms here. Of equally good mechanisms, the first is preferred. A device imports only the one it uses.
_CLASSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "gaussian": "GaussianMechanism",
        "laplace": "LaplaceMechanism",
        "l2-ball": "L2BallMechanism",
        "privunit": "PrivUnitMechanism",
    }
)
KINDS: Final = tuple(_CLASSES)
"""Kinds of mechanism, in order."""
BEST: Final = "best"
"""Word given in place of a kind: the mechanism of smallest variance among those that have the guarantee."""

# A mechanism is preferred to an earlier one only if its variance is smaller by this factor: a variance's last digits,
# which differ between machines, must not decide the mechanism.
_BETTER = 0.99


def calibrate(
    kind: str | None, guarantee: Guarantee, *, dimension: int, radius: float, method: str = "analytic"
) -> Mechanism:
    """Return the mechanism of a kind that has ``guarantee`` with the least noise.

    With ``kind`` None or ``"best"``, this is the mechanism of smallest variance. For `GaussianDP` and
    `ZeroConcentratedDP` that is always Gaussian noise. For `PureDP` and `ApproxDP` all possible ones are compared by
    their largest mean squared error (``variance``): a pure mechanism often meets an (epsilon, delta), with delta = 0
    and less noise. ``method`` ``"classic"`` is the textbook's Gaussian calibration to `ApproxDP`. Raises `UserError` if
    the kind is unknown or cannot have the guarantee.

    Examples
    --------
    >>> from murk.privacy import ApproxDP, GaussianDP, calibrate
    >>> calibrate(None, GaussianDP(1.0), dimension=3, radius=1.0)
    GaussianMechanism(dimension=3, radius=1.0, steps=524287, stated=None)
    >>> best = calibrate(None, ApproxDP(1.0, 1e-6), dimension=11, radius=1.0)
    >>> best.kind, best.guarantee, round(best.variance, 2)
    ('privunit', PureDP(epsilon=1.0), 6.2)
    """
    if not isinstance(guarantee, Guarantee):
        raise UserError(f"not a guarantee: {guarantee!r}; use PureDP, ApproxDP, GaussianDP or ZeroConcentratedDP")
    if kind is None or kind == BEST:
        if method == "analytic" and isinstance(guarantee, PureDP | ApproxDP):
            return _best(guarantee, dimension, radius)
        kind = plain_kind(guarantee)
    if kind not in KINDS:
        raise UserError(f"unknown mechanism {kind!r}{nearest(kind, KINDS)}; use one of {', '.join(KINDS)}")
    mechanism: Mechanism = _class(kind).calibrate(guarantee, dimension=dimension, radius=radius, method=method)
    return mechanism


def _class(kind: str) -> Any:
    return getattr(import_module(f"murk.privacy.mechanisms.{kind.replace('-', '')}"), _CLASSES[kind])


def plain_kind(guarantee: Guarantee) -> str:
    """Return the kind that the papers use: l2-ball for pure guarantees, else gaussian."""
    pure = isinstance(guarantee, PureDP) or (isinstance(guarantee, ApproxDP) and guarantee.delta == 0)
    return "l2-ball" if pure else "gaussian"


def _best(guarantee: Guarantee, dimension: int, radius: float) -> Mechanism:
    best: Mechanism | None = None
    for kind in KINDS:
        try:
            mechanism: Mechanism = _class(kind).calibrate(guarantee, dimension=dimension, radius=radius)
        except UserError:
            continue
        if best is None or mechanism.variance < _BETTER * best.variance:
            best = mechanism
    if best is None:
        # All fail for the same reason, which the papers' kind explains.
        best = _class(plain_kind(guarantee)).calibrate(guarantee, dimension=dimension, radius=radius)
    return best
