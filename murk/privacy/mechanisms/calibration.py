"""The mechanism that fits a guarantee."""

from typing import Any

from murk.errors import UserError
from murk.privacy.guarantee_base import nearest
from murk.privacy.guarantees import Guarantee, PureDP
from murk.privacy.mechanisms.base import Mechanism
from murk.privacy.mechanisms.gaussian import GaussianMechanism
from murk.privacy.mechanisms.l2ball import L2BallMechanism
from murk.privacy.mechanisms.laplace import LaplaceMechanism

__all__ = ["calibrate"]

# A new mechanism is one entry here.
_KINDS: dict[str, Any] = {cls.kind: cls for cls in (GaussianMechanism, LaplaceMechanism, L2BallMechanism)}


def calibrate(
    kind: str | None, guarantee: Guarantee, *, dimension: int, radius: float, method: str = "analytic"
) -> Mechanism:
    """The mechanism of a kind that gives ``guarantee`` with the least noise.

    Parameters
    ----------
    kind
        ``"gaussian"``, ``"laplace"``, ``"l2-ball"``; None for the best for the guarantee: l2-ball for `PureDP`,
        gaussian for the others.
    guarantee
        What one release promises.
    dimension
        Length of the vectors.
    radius
        Public bound of their l2 norm.
    method
        ``"classic"`` for the textbook's Gaussian calibration to `ApproxDP`.

    Raises
    ------
    UserError
        If the kind is unknown or cannot give the guarantee; the message says why and what can.

    Examples
    --------
    >>> from murk.privacy import GaussianDP, calibrate
    >>> calibrate(None, GaussianDP(1.0), dimension=3, radius=1.0)
    GaussianMechanism(dimension=3, radius=1.0, steps=524287, stated=None)
    """
    if not isinstance(guarantee, Guarantee):
        raise UserError(f"not a guarantee: {guarantee!r}; use PureDP, ApproxDP, GaussianDP or ZeroConcentratedDP")
    if kind is None:
        pure = isinstance(guarantee, PureDP) or getattr(guarantee, "delta", None) == 0
        kind = L2BallMechanism.kind if pure else GaussianMechanism.kind
    if kind not in _KINDS:
        raise UserError(f"unknown mechanism {kind!r}{nearest(kind, _KINDS)}; one of {', '.join(_KINDS)}")
    mechanism: Mechanism = _KINDS[kind].calibrate(guarantee, dimension=dimension, radius=radius, method=method)
    return mechanism
