r"""From sums of noisy Gram matrices to coefficients and their covariance: pure functions.

With the released ``A = X'X + N_x``, ``b = X'y + n`` the estimate ``A^-1 b`` misses the coefficients by
``A^-1 (b - A theta)``, and of that residual everything is known but theta: the records' own part has covariance
``n s^2 E x x'`` (residuals of one variance s^2), and the noise's, v the variance of a diagonal entry of ``N_x``
(twice that of the others) and a the target's weight in the release,

.. math:: \mathrm{Cov}(n - N_x \theta) = \tfrac{v}{2} \bigl( (|\theta|^2 + a^{-2}) I + \theta \theta' \bigr).

Two corrections of the next order, for directions whose eigenvalue is not far above the noise's own (a semicircle of
radius ``sqrt(2 p v)``): the noise in ``A^-1`` and that in ``A theta`` are the same, which stretches theta by
``A^-1 E[N A^-1 N]``, and adds to the covariance what it is multiplied with. ``E[N C N] = v/2 (tr C I + C)`` for both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from murk.learners.gaussmix.windows.gram_sums import GramSums

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

EDGE = 1.5
"""Eigenvalues of X'X below so many radii of the noise's own are taken for hidden."""

LOADING = 0.02
"""A coefficient of whose squared length more lies in hidden directions has no interval: it was not learned."""

_RELATIVE = 1e-10


@dataclass(frozen=True)
class GramSolution:
    """A least-squares fit from noisy Gram matrices.

    Attributes
    ----------
    values
        ``(p,)``; shrunk in hidden directions.
    covariance
        ``(p, p)``, finite: what is not known in hidden directions stands in it by a slope's public scale.
    inverse
        ``(p, p)``: of one record's ``E x x'``, in the directions that are seen.
    moment
        ``(d, d)``: the noisy second moment of one record ``(x, y)``.
    hidden
        ``(p,)``: coefficients that were not learned.
    directions
        Number of hidden directions.
    """

    values: Vector
    covariance: Matrix
    inverse: Matrix
    moment: Matrix
    hidden: NDArray[np.bool_]
    directions: int


def solve_gram(sums: GramSums, *, target_weight: float, slope: float, constant: bool = True) -> GramSolution:
    """Coefficients and their covariance from the sums of any number of windows.

    Parameters
    ----------
    sums
        The sums.
    target_weight
        a: what the target is multiplied by where the noise is isotropic.
    slope
        Public scale of a coefficient, for what hidden directions may add to those that are learned.
    constant
        Whether the last feature is the constant, which tells how many records have a target.
    """
    p = sums.columns - 1
    unknown = np.full((p, p), math.inf)
    if sums.people <= 0.0:
        everything = np.ones(p, dtype=bool)
        return GramSolution(np.zeros(p), unknown, np.zeros((p, p)), np.zeros((p + 1, p + 1)), everything, p)
    half, rest = sums.noise / 2.0, 1.0 / target_weight**2
    eigenvalues, vectors = np.linalg.eigh(sums.moment[:p, :p])
    # Ascending: the noise in the i weakest directions, which mixes them, has a radius of its own.
    radii = np.sqrt(2.0 * sums.noise * np.arange(1, p + 1))
    below = np.flatnonzero(eigenvalues <= np.maximum(EDGE * radii, _RELATIVE * float(eigenvalues[-1])))
    seen = np.arange(p) >= (below[-1] + 1 if len(below) else 0)
    basis, kept, lost = vectors[:, seen], eigenvalues[seen], vectors[:, ~seen]
    inverse = (basis / kept) @ basis.T
    values = inverse @ sums.moment[:p, p]
    values = values - half * (float(np.sum(1.0 / kept)) * inverse + inverse @ inverse) @ values
    if lost.shape[1] and sums.noise:
        # Not learned, but a guess near zero predicts better than zero.
        held = EDGE * math.sqrt(2.0 * lost.shape[1] * sums.noise)
        values = values + lost @ (lost.T @ sums.moment[:p, p]) / held
    person = sums.moment / sums.people
    residual = np.append(-values, 1.0)
    counted = sums.counted(float(sums.moment[p - 1, p - 1]) if constant else math.inf)
    scatter = max(float(residual @ sums.moment @ residual), 0.0) / max(counted - p, 1.0)
    away = slope * slope * lost @ lost.T
    unit = np.eye(p)
    noisy = half * ((float(values @ values) + rest) * unit + np.outer(values, values))
    first = inverse @ noisy @ inverse + sums.sampled / sums.people * scatter * inverse + away
    covariance = first + half * inverse @ (float(np.trace(first)) * unit + first) @ inverse
    hidden = np.einsum("ij,ij->i", lost, lost) > LOADING
    return GramSolution(values, covariance, sums.people * inverse, person, hidden, int(lost.shape[1]))
