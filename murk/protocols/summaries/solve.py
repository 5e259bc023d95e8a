r"""Pure functions that compute coefficients and their covariance from sums of Gram matrices or sketches.

*Gram matrices.* With the released ``A = X'X + N_x`` and ``b = X'y + n`` the error of ``A^-1 b`` is ``A^-1 (b - A
theta)``. The records' part of that residual has covariance ``n s^2 E x x'`` (residual variance s^2). The noise's part
has, with v the variance of a diagonal entry of ``N_x`` (v/2 off the diagonal) and a the target's weight in the release,

.. math:: \mathrm{Cov}(n - N_x \theta) = \tfrac{v}{2} \bigl( (|\theta|^2 + a^{-2}) I + \theta \theta' \bigr).

Two corrections of the next order matter in directions whose eigenvalue is near those of the noise (a semicircle of
radius ``sqrt(2 p v)``). ``A^-1`` and ``A theta`` contain the same noise. This stretches theta by ``A^-1 E[N A^-1 N]``,
and it adds to the covariance. Both use ``E[N C N] = v/2 (tr C I + C)``.

*Sketches.* A sketch's row is normal with second moment ``Z'Z + v I`` (Z: the window's records, v: noise variance).
The paper's ``argmin ||Y~ - X~ theta||`` is ridge regression with penalty v. Subtracting the known v first,

.. math:: \hat A = \sum_s w_s (M_s'M_s / k_s - v_s I), \qquad \theta = \hat A_{xx}^{-1} \hat A_{xy},

is consistent, and its variance does not rise with more rows (docs/gaussmix.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Matrix, Vector
from murk.protocols.summaries.sums import GramSums, SketchSums

# Directions with an eigenvalue of X'X below this many times the radius of pure noise's eigenvalues are hidden.
EDGE = 1.5
LOADING = 0.02  # A coefficient with more than this share of its squared length in hidden directions has no interval

# Eigenvalues of the second moment are raised to this many times the fluctuation of pure noise's eigenvalues.
FLOOR = 2.0

# Least excess of rows over coefficients for an interval; with fewer rows it would hold the truth too rarely.
FEWEST = 10
_RELATIVE = 1e-10


@dataclass(frozen=True)
class GramSolution:
    """A least-squares fit from noisy Gram matrices."""

    values: Vector  # (p,); shrunk in hidden directions
    covariance: Matrix  # (p, p), finite: hidden directions have the public scale of a slope
    inverse: Matrix  # inverse of one record's E x x', in the directions that are not hidden, (p, p)
    moment: Matrix  # (d, d), the noisy second moment of one record (x, y)
    hidden: NDArray[np.bool_]  # coefficients that were not learned, (p,)
    directions: int  # number of hidden directions


def solve_gram(sums: GramSums, *, target_weight: float, slope: float, constant: bool = True) -> GramSolution:
    """Return coefficients and their covariance from the sums of any number of windows.

    With the target times ``target_weight`` noise is isotropic; ``slope`` is the public scale of hidden coefficients.
    Without a ``constant``, all records count as having a target.
    """
    p = sums.columns - 1
    unknown = np.full((p, p), math.inf)
    if sums.people <= 0.0:
        everything = np.ones(p, dtype=bool)
        return GramSolution(np.zeros(p), unknown, np.zeros((p, p)), np.zeros((p + 1, p + 1)), everything, p)
    half, rest = sums.noise / 2.0, 1.0 / target_weight**2
    eigenvalues, vectors = np.linalg.eigh(sums.moment[:p, :p])
    # Eigenvalues ascend: the noise in the i weakest directions has a smaller radius than that in all.
    radii = np.sqrt(2.0 * sums.noise * np.arange(1, p + 1))
    below = np.flatnonzero(eigenvalues <= np.maximum(EDGE * radii, _RELATIVE * float(eigenvalues[-1])))
    seen = np.arange(p) >= (below[-1] + 1 if len(below) else 0)
    basis, kept, lost = vectors[:, seen], eigenvalues[seen], vectors[:, ~seen]
    inverse = (basis / kept) @ basis.T
    values = inverse @ sums.moment[:p, p]
    values = values - half * (float(np.sum(1.0 / kept)) * inverse + inverse @ inverse) @ values
    if lost.shape[1] and sums.noise:
        # A hidden coefficient is not learned, but a shrunk guess predicts better than zero.
        floor = EDGE * math.sqrt(2.0 * lost.shape[1] * sums.noise)
        values = values + lost @ (lost.T @ sums.moment[:p, p]) / floor
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


@dataclass(frozen=True)
class Solution:
    """A least-squares fit from sketches."""

    values: Vector  # coefficients, in the units of the records, (p,)
    covariance: Matrix  # (p, p), for residuals of one variance; infinite if ``held`` is not 0
    moment: Matrix  # (d, d), second moment of one record (x, y), the noise subtracted
    held: int  # number of directions that noise hides, along which coefficients are shrunk


def solve(sums: SketchSums, *, debiased: bool = True, constant: bool = True) -> Solution:
    """Return coefficients and their covariance from the sums of any number of sketches.

    The eigenvalues of ``A_xx`` are raised to at least `FLOOR` times ``2 sqrt(p f) + p f / noise``, ``f = sum w^2 v^2 /
    k``, the range of those of pure noise (Marchenko and Pastur's edges), to shrink hidden directions.

    With ``u = (-theta, 1)``, ``rho = u'A u / n`` and ``q = u'u`` the covariance is the sandwich ``A_xx^-1 V A_xx^-1``,
    ``V = square A rho + cross (A q + rho I) + floor (q I + theta theta') + sampled rho A / s`` (A per person), the last
    term for sampling records, a share s of which has a target. It assumes equal second moments in all organisations.

    ``debiased=False`` gives the paper's estimate without subtracting the noise, which has no interval unless there is
    no noise. Without a ``constant`` as last feature, all records count as having a target.
    """
    d = sums.columns
    p = d - 1
    unknown = np.full((p, p), math.inf)
    if sums.people <= 0.0:
        return Solution(np.zeros(p), unknown, np.zeros((d, d)), p)
    noise = sums.noise if debiased else 0.0
    full = sums.moment - noise * np.eye(d)
    eigenvalues, vectors = np.linalg.eigh(full[:p, :p])
    edge = 2.0 * math.sqrt(p * sums.floor) + (p * sums.floor / sums.noise if sums.noise else 0.0)
    # Without noise, only eigenvalues that are zero up to rounding are raised, to infinity: this gives the shortest fit.
    least = FLOOR * edge if debiased else 0.0
    tiny = _RELATIVE * max(float(eigenvalues[-1]), 0.0)
    hidden = eigenvalues < max(least, tiny)
    inverse = np.zeros(p)
    inverse[~hidden] = 1.0 / eigenvalues[~hidden]
    if least > tiny:
        inverse[hidden] = 1.0 / least
    values = vectors @ (inverse * (vectors.T @ full[:p, p]))
    person = full / sums.people
    if hidden.any() or (not debiased and sums.noise > 0.0):
        return Solution(values, unknown, person, int(hidden.sum()))
    if sums.rows - p < FEWEST:
        return Solution(values, unknown, person, 0)
    counted = sums.counted(sums.people * float(person[p - 1, p - 1]) if constant else math.inf)
    covariance = _covariance(sums, values, person, (vectors * inverse) @ vectors.T, counted)
    return Solution(values, covariance, person, 0)


def _covariance(sums: SketchSums, values: Vector, person: Matrix, inverse: Matrix, counted: float) -> Matrix:
    p = len(values)
    direction = np.append(-values, 1.0)
    residual = max(float(direction @ person @ direction), 0.0)
    length = float(direction @ direction)
    features, unit = person[:p, :p], np.eye(p)
    sampled = sums.sampled * sums.people / counted
    middle = (
        (sums.square + sampled) * residual * features
        + sums.cross * (length * features + residual * unit)
        + sums.floor * (length * unit + np.outer(values, values))
    )
    # The fit uses p of the rows' degrees of freedom.
    covariance: Matrix = inverse @ middle @ inverse * (sums.rows / (sums.rows - p))
    return covariance
