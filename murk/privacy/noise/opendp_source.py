"""OpenDP's exact samplers with Murk's interface."""

from typing import Any

import numpy as np
import numpy.typing as npt

from murk.errors import UserError
from murk.privacy.noise.distributions import NoiseDistribution
from murk.privacy.noise.kernels import Integers
from murk.privacy.noise.philox import Purpose, Words
from murk.privacy.noise.sources import DrawnNoise, SecureNoise


class OpenDPNoise(DrawnNoise):
    """Noise of the same distributions and width as `SecureNoise`, drawn by OpenDP: independent code, much slower.

    Coins and identifiers come from the operating system. There is no state, so copies do not repeat noise.

    Examples
    --------
    >>> OpenDPNoise().gaussian([0, 1], size=3).shape
    (2, 3)
    """

    __slots__ = ()
    simulated = False

    def __init__(self) -> None:
        _measurements()

    def _draw(self, distribution: NoiseDistribution, records: npt.ArrayLike, size: int) -> Integers:
        count = len(np.asarray(records))
        return opendp_draw(distribution.kind, distribution.scale, count * size).reshape(count, size)

    def words(self, records: npt.ArrayLike, size: int, purpose: Purpose) -> Words:
        """Draw uniform 64-bit words (m, size) of the operating system."""
        return SecureNoise().words(records, size, purpose)

    def __repr__(self) -> str:
        return "OpenDPNoise()"


def opendp_draw(kind: str, scale: int, count: int) -> Integers:
    """Draw ``count`` integers of a distribution with OpenDP (its mechanism applied to zeros)."""
    if count == 0:
        return np.empty(0, dtype=np.int64)
    domains, measurements, metrics = _measurements()
    vectors = domains.vector_domain(domains.atom_domain(T="i64"))
    if kind == "gaussian":
        mechanism = measurements.make_gaussian(vectors, metrics.l2_distance(T="f64"), float(scale))
    else:
        mechanism = measurements.make_laplace(vectors, metrics.l1_distance(T="i64"), float(scale))
    return np.array(mechanism([0] * count), dtype=np.int64)


def _measurements() -> tuple[Any, Any, Any]:
    try:
        from opendp import domains, measurements, metrics
        from opendp.mod import enable_features
    except ImportError as missing:
        raise UserError(
            'noise by OpenDP needs the package: pip install "murk[opendp]"', code="MURK-CLI-003"
        ) from missing
    enable_features("contrib")
    return domains, measurements, metrics
