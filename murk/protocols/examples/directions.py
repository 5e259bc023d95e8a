r"""Directions: an example as a unit vector, which needs less noise than a corner of a box.

For coded features x (constant included, ``x_-`` without it) and a target y in [-1, 1], the device releases

.. math:: (w, a, r, m) = (x_{-} / |x|,\; 1 / |x|,\; y / |x|,\; 0),
    \qquad (0, 0, 0, \sqrt 2) \text{ if the target is missing.}

For a label, w is ``y x_- / |x|``, so that ``(w, r) = y x / |x|``. Points of ``K = {|(w, a)| <= 1, a >= 0, |r| <= a}``
are at most 2 apart, as ``|r - r'| <= a + a'``:

.. math:: |w - w'|^2 + (a - a')^2 + (r - r')^2 \le 2 |w|^2 + 2 |w'|^2 + (a - a')^2 + (a + a')^2 \le 4

and at most 2 from the point of a missing target: ``|w|^2 + a^2 + r^2 + 2 <= 4``. So length, target and presence need no
more noise.

Least squares uses ``u = (w, r)`` and ``t = a`` of a release (labels), or ``u = (w, a)`` and ``t = r`` (real targets):

.. math:: (\theta'u - t)^2 = (\theta'x - y)^2 / |x|^2

so the loss is weighted by ``1/|x|^2``. For noisy ``u~``, ``u~ u~' - s^2 I`` estimates ``u u'`` without bias. As
``|u|^2`` is known (1, or 0 with a missing target), :func:`own_variance` estimates s^2 by ``(|u~|^2 - 1 + m~) / p``,
with m~ the noisy ``m / sqrt 2``. This removes the trace's noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats, Integers
from murk._internal.jit import inlined, jit
from murk._internal.wiping import copied, empty, wiped
from murk.errors import UserError
from murk.privacy import GaussianMechanism, Guarantee
from murk.privacy.mechanisms import lattice
from murk.privacy.mechanisms.base import Wrapped
from murk.privacy.mechanisms.lattice import PayloadBound, gaussian_square
from murk.privacy.noise import NoiseSource
from murk.protocols.examples import layout as k
from murk.protocols.examples.layout import Array

_ERROR_CODE = "MURK-LEARN-001"

BESIDE = 2  # Numbers of a release beyond the features


@jit
def missing_steps(steps: int) -> int:
    """Return m in lattice steps where the target is missing: sqrt 2 times the bound, rounded down."""
    return steps * 1414 // 1000


@jit
def quantise_direction(v: Array, spacing: float, steps: int, out: Array) -> None:
    """Quantise any floats to integers in K: ``|(w, a)| <= steps`` and ``|r| <= a``, or the missing point."""
    size = v.shape[0] - 2
    lattice.quantise_l2(v[:size], spacing, steps, out[:size])
    bound = max(out[size - 1], np.int64(0))
    missing = v[size + 1] > 0.5
    for j in range(size):
        out[j] = 0 if missing else out[j]
    bound = np.int64(0) if missing else bound
    r = v[size] / spacing
    if r != r:
        r = 0.0
    out[size - 1] = bound
    out[size] = bound if r >= bound else -bound if r <= -bound else np.int64(r)
    out[size + 1] = missing_steps(steps) if missing else 0


@jit
def _quantise_all(rows: Array, spacing: float, steps: int, out: Array) -> None:
    for i in range(rows.shape[0]):
        quantise_direction(rows[i], spacing, steps, out[i])


@jit
def read_direction(form: int, payload: Array, unit: float, steps: int, u: Array) -> float:
    """Write the noisy ``u`` of a payload, then the noisy missingness; return the noisy ``t``."""
    p = payload.shape[0] - 2
    for j in range(p - 1):
        u[j] = payload[j] * unit
    target_index, beside = (p, p - 1) if form == k.DIRECTED_LABEL else (p - 1, p)
    u[p - 1], u[p] = payload[target_index] * unit, payload[p + 1] / missing_steps(steps)
    return float(payload[beside] * unit)


@inlined
def own_variance(p: int, square: float, missing: float) -> float:
    """Return an unbiased estimate of s^2 from ``square = |u~|^2`` and ``missing = m~`` (see the module)."""
    return (square - 1.0 + missing) / p


@inlined
def ridge_of(whole: Array, real: Array, constant: float, target: float) -> float:
    """Return an unbiased estimate of ``lambda / |x|^2``, a release's share of the penalty."""
    square = constant * constant
    if whole[k.FORM] == k.DIRECTED_LABEL:
        # With a label, the released target has the size of the constant, 1 / |x|, too: average both squares.
        square = 0.5 * (square + target * target)
    return float(real[k.DIRECTED_RIDGE] * (square - real[k.VARIANCE]))


def parts(form: int, values: Floats) -> tuple[Floats, Floats]:
    """Split decoded releases into ``u`` with the missingness last, (m, p + 1), and ``t``, (m,)."""
    column = -3 if form == k.DIRECTED_LABEL else -2
    return np.delete(values, column, axis=1), values[:, column]


@dataclass(frozen=True)
class ExampleDirections(Wrapped):
    """Gaussian noise on vectors ``(w, a, r, m)``, any two of which are at most 2 apart.

    So are their integers: ``(w, a)`` is quantised to a norm of at most ``steps`` lattice steps, and ``|r|`` to at most
    ``a``. ``noise`` has radius 1 and dimension p + 2, and ``features`` is p, the constant included.
    """

    features: int
    noise: GaussianMechanism

    def __post_init__(self) -> None:
        if self.noise.dimension != self.features + BESIDE or self.noise.radius != 1.0:
            raise UserError(
                f"directions of {self.features} features need noise of dimension {self.features + BESIDE} and "
                f"radius 1, got {self.noise.dimension} and {self.noise.radius:g}"
            )

    @classmethod
    def calibrate(cls, guarantee: Guarantee, *, features: int, method: Any = "analytic") -> ExampleDirections:
        """Return the mechanism with the least noise that has this ``guarantee``."""
        size = features + BESIDE
        return cls(features, GaussianMechanism.calibrate(guarantee, dimension=size, radius=1.0, method=method))

    @property
    def steps(self) -> int:
        """Integer bound on ``|(w, a)|``."""
        return self.noise.steps

    @property
    def spacing(self) -> float:
        """Width of a lattice step."""
        return self.noise.spacing

    @property
    def sensitivity(self) -> float:
        """l2 diameter of K."""
        return 2.0

    @property
    def magnitude(self) -> int:
        """Bound on the numbers in an honest payload, exceeded with probability below 1e-30."""
        return self.noise.magnitude - self.steps + missing_steps(self.steps)

    @property
    def payload_bound(self) -> PayloadBound:
        """Bound on the length of an honest payload: sqrt 2 plus noise. A longer one is forged."""
        longest = math.isqrt(2 * self.steps**2) + 1
        return PayloadBound(((0, self.dimension, gaussian_square(self.dimension, longest)),))

    @wiped
    def randomize(self, vectors: npt.ArrayLike, noise: NoiseSource, records: npt.ArrayLike) -> Integers:
        """Randomize vectors ``(w, a, r, m / sqrt 2)``, (m, p + 2), into payloads, projecting them into K."""
        rows, indices = copied(vectors), np.asarray(records, dtype=np.int64)
        if rows.ndim != 2 or rows.shape[1] != self.dimension or indices.shape != (len(rows),):
            raise UserError(
                f"directions of shape (m, {self.dimension}) need m record indices, got {rows.shape} and {indices.shape}"
            )
        steps = empty(rows.shape, np.int64)
        _quantise_all(rows, self.spacing, self.steps, steps)
        return np.asarray(steps + noise.gaussian(indices, self.dimension))

    def decode(self, payload: npt.ArrayLike) -> Floats:
        """Turn payloads (m, p + 2) into unbiased estimates of ``(w, a, r, m / sqrt 2)``."""
        values = self.noise.decode(payload)
        values[:, -1] = np.asarray(payload)[:, -1] / missing_steps(self.steps)
        return values

    def to_dict(self) -> dict[str, Any]:
        """Return the public parameters and derived values as plain data."""
        return {**self.noise.to_dict(), "features": self.features, "release": "directions"}
