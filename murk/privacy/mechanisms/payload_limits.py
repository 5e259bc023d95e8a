"""Bounds of an honest payload's norm, by which a receiver detects forged payloads.

A payload is a bounded integer vector plus noise of width S = 2^20. Bounds of single coordinates would allow a forged
payload with every coordinate at its bound; the norm bounds them together. An honest payload exceeds the squares below
with probability at most e^-t, t = `NATS`, as for eight standard deviations of a normal. Everything is computed in
integers, so all receivers decide alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import TYPE_CHECKING

from murk.privacy.mechanisms.lattice import WIDTH

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NATS = 32
"""t = 8^2 / 2."""
FALSE_ALARM = math.exp(-NATS)
"""Bound of the probability that an honest payload is refused, 1.3e-14."""
_SURELY = 1.0 - 1e-6
"""A payload whose norm in floats is below this share of the bound certainly does not exceed the bound."""
FORGED = "a payload longer than its vector and honest noise can make it"
"""Reason given for a payload that is too long."""


def gaussian_square(dimension: int, steps: int, nats: int = NATS) -> int:
    r"""Return the largest squared norm of a payload with discrete Gaussian noise.

    .. math:: d S^2 + c^2 + 2 S \sqrt{t\,(d S^2 + 2 c^2)} + 2 t S^2

    for d = ``dimension``, a vector of norm at most c = ``steps`` (0: noise alone) and t = ``nats``. The mean is d S^2 +
    c^2. Discrete Gaussian noise is sub-Gaussian of variance S^2, so the square's moment generating function, and
    Chernoff's bound, is at most that of a non-central chi-square.

    Reference: Birge, "An alternative point of view on Lepski's method", 2001, lemma 8.1; Canonne, Kamath, Steinke, "The
    discrete Gaussian for differential privacy", 2020, lemma 9 (sub-Gaussian).
    """
    noise, vector = dimension * WIDTH**2, steps**2
    deviation = 2 * _root_up(nats * WIDTH**2 * (noise + 2 * vector))
    return noise + vector + deviation + 2 * nats * WIDTH**2


def laplace_square(dimension: int, steps: int, nats: int = NATS) -> int:
    r"""Return the largest squared norm of a payload with discrete Laplace noise.

    .. math:: \left(c + S\,(d + \sqrt{2 d t} + t) + d\right)^2

    The l2 norm is at most the l1 norm. The vector's l1 norm is at most c = ``steps``; the noise's l1 norm is a sum of d
    exponentials, each rounded up by less than one step.

    Reference: Boucheron, Lugosi, Massart, "Concentration inequalities", 2013, section 2.4 (gamma variables).
    """
    noise = WIDTH * (dimension + nats) + _root_up(2 * dimension * nats * WIDTH**2)
    return (steps + noise + dimension) ** 2


def _root_up(square: int) -> int:
    root = math.isqrt(square)
    return root if root * root == square else root + 1


@dataclass(frozen=True, slots=True)
class PayloadBound:
    """Bounds of the squared norms of an honest payload, part by part.

    >>> payload_bound = PayloadBound(((0, 2, 25),))
    >>> payload_bound.holds([3, -4]), payload_bound.holds([3, 5]), payload_bound.holds([2**61, 2**61])
    (True, False, False)
    """

    parts: tuple[tuple[int, int, int], ...]  # start, stop and largest squared norm of each range of coordinates

    def shifted(self, places: int) -> PayloadBound:
        """Return the bounds of payloads with ``places`` further numbers, without a bound, before these."""
        return PayloadBound(tuple((places + start, places + stop, square) for start, stop, square in self.parts))

    def holds(self, payload: Sequence[int]) -> bool:
        """Return whether a payload of Python integers, which do not overflow, is within the bounds."""
        for start, stop, square in self.parts:
            part = payload if stop - start == len(payload) else payload[start:stop]
            # Floats are faster and err by less than the margin; integers decide close cases.
            if math.hypot(*part) > _SURELY * math.sqrt(square) and sum(map(mul, part, part)) > square:
                return False
        return True

    def holds_all(self, payloads: NDArray[np.int64]) -> bool:
        """Return whether all rows (m, d) are within the bounds."""
        rows = payloads.astype("f8")
        doubtful = False
        for start, stop, square in self.parts:
            part = rows[:, start:stop]
            doubtful = doubtful | ((part * part).sum(axis=1) > square * (1.0 - 1e-6))
        return all(self.holds(row) for row in payloads[doubtful].tolist()) if self.parts else True
