r"""How long an honest payload is: what a receiver holds against a forged one.

A mechanism's payload is a bounded integer vector plus noise of width S = 2^20. Checked coordinate by coordinate, a
forged one may have every coordinate as large as the noise makes one in 1e30; its norm bounds them together. Honest
payloads exceed the squares below with probability at most e^-t, t = `NATS`: that of Gaussian noise eight standard
deviations out. Whole numbers throughout, so that every receiver decides alike, whatever a stranger sends.
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

__all__ = ["FALSE_ALARM", "FORGED", "Reach", "gaussian_square", "laplace_square"]

NATS = 32
"""t, 8^2 / 2."""
FALSE_ALARM = math.exp(-NATS)
"""An honest payload is refused at most so often: 1.3e-14, or once in 8 x 10^13."""

_SURELY = 1.0 - 1e-6
"""Share of a norm's bound below which rounding cannot hide that a payload exceeds it."""

FORGED = "a payload longer than its vector and honest noise can make it"
"""What is said of one that is."""


def gaussian_square(dimension: int, steps: int, nats: int = NATS) -> int:
    r"""The largest squared norm of a payload with discrete Gaussian noise.

    .. math:: d S^2 + c^2 + 2 S \sqrt{t\,(d S^2 + 2 c^2)} + 2 t S^2

    for a vector of norm c at most. Its square is d S^2 + c^2 on average; discrete Gaussian noise is sub-Gaussian of
    variance S^2, so that the square's moment generating function, and with it Chernoff's bound, is at most that of a
    non-central chi-square.

    Parameters
    ----------
    dimension
        d, the length of the payload.
    steps
        c, the integer bound of the vector's l2 norm; 0 where the payload is noise alone.
    nats
        t: it is exceeded with probability at most e^-t.

    References
    ----------
    Birge, "An alternative point of view on Lepski's method", 2001, lemma 8.1; Canonne, Kamath, Steinke, "The discrete
    Gaussian for differential privacy", 2020, lemma 9 (sub-Gaussian).

    Examples
    --------
    >>> from murk.privacy.mechanisms.lattice import WIDTH
    >>> round((gaussian_square(10, WIDTH // 2) / WIDTH**2) ** 0.5, 2)  # as a norm, in widths of the noise
    10.53
    """
    noise, vector = dimension * WIDTH**2, steps**2
    deviation = 2 * _root_up(nats * WIDTH**2 * (noise + 2 * vector))
    return noise + vector + deviation + 2 * nats * WIDTH**2


def laplace_square(dimension: int, steps: int, nats: int = NATS) -> int:
    r"""The largest squared norm of a payload with discrete Laplace noise.

    .. math:: \left(c + S\,(d + \sqrt{2 d t} + t) + d\right)^2

    The l2 norm is at most the l1 norm: that of the vector is c at most, that of the noise a sum of d exponentials, each
    rounded up by less than one step at most.

    Parameters
    ----------
    dimension
        d, the number of coordinates.
    steps
        c, the integer bound of the vector's l1 norm.
    nats
        t: it is exceeded with probability at most e^-t.

    References
    ----------
    Boucheron, Lugosi, Massart, "Concentration inequalities", 2013, section 2.4 (gamma variables).

    Examples
    --------
    >>> from murk.privacy.mechanisms.lattice import WIDTH
    >>> round((laplace_square(10, WIDTH // 2) / WIDTH**2) ** 0.5, 2)
    67.8
    """
    noise = WIDTH * (dimension + nats) + _root_up(2 * dimension * nats * WIDTH**2)
    return (steps + noise + dimension) ** 2


def _root_up(square: int) -> int:
    root = math.isqrt(square)
    return root if root * root == square else root + 1


@dataclass(frozen=True, slots=True)
class Reach:
    """The squared norms that honest payloads have, part by part.

    Parameters
    ----------
    parts
        Of each stretch of coordinates with noise of its own: where it begins and ends, and the largest squared norm.

    Examples
    --------
    >>> reach = Reach(((0, 2, 25),))
    >>> reach.holds([3, -4]), reach.holds([3, 5]), reach.holds([2**61, 2**61])
    (True, False, False)
    """

    parts: tuple[tuple[int, int, int], ...]

    def holds(self, payload: Sequence[int]) -> bool:
        """Whether an honest payload is as short as this one, of Python's integers, which do not overflow."""
        for start, stop, square in self.parts:
            part = payload if stop - start == len(payload) else payload[start:stop]
            # Floats settle most in a third of the time: they err by less than the margin, and not where it is close.
            if math.hypot(*part) > _SURELY * math.sqrt(square) and sum(map(mul, part, part)) > square:
                return False
        return True

    def holds_all(self, payloads: NDArray[np.int64]) -> bool:
        """Whether all rows (m, d) are: by floats where these leave no doubt, and by `holds` where they do."""
        rows = payloads.astype("f8")
        doubtful = False
        for start, stop, square in self.parts:
            part = rows[:, start:stop]
            doubtful = doubtful | ((part * part).sum(axis=1) > square * (1.0 - 1e-6))
        return all(self.holds(row) for row in payloads[doubtful].tolist()) if self.parts else True
