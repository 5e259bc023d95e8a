r"""From sums of sketches to coefficients: pure functions.

A sketch's row is normal with mean 0 and second moment ``Z'Z + v I``, Z the records ``(x, y)`` of its window and v the
variance of the added noise. The paper solves ``argmin ||Y~ - X~ theta||``, which is ridge regression with penalty v:
shrunk, and the more so the more rows (v grows with the root of k). Taking the known v off first,

.. math:: \hat A = \sum_s w_s (M_s'M_s / k_s - v_s I), \qquad \theta = \hat A_{xx}^{-1} \hat A_{xy},

is consistent, and its variance falls, or stays, as rows are added (docs/gaussmix.md has the figures).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.learners.gaussmix.windows.sketch_sums import SketchSums

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

FLOOR = 2.0
"""Eigenvalues of the second moment are held at this many times the fluctuation of the noise's own."""

FEWEST = 10
"""Rows beyond the number of coefficients below which there is no interval: nominal 95% ones covered 74 to 90%."""

_RELATIVE = 1e-10


@dataclass(frozen=True)
class Solution:
    """A least-squares fit from sketches.

    Attributes
    ----------
    values
        ``(p,)`` coefficients of the target on the features, in the units of the records.
    covariance
        ``(p, p)``, about the population's best linear fit where residuals have one variance; infinite where
        ``held`` is not 0.
    moment
        ``(d, d)`` second moment of one record ``(x, y)``, the noise taken off.
    held
        Directions whose eigenvalue the noise hides, and which are shrunk instead.
    """

    values: Vector
    covariance: Matrix
    moment: Matrix
    held: int


def least_squares(sketch: Matrix) -> Vector:
    """The paper's estimate from the rows of one sketch: ``argmin ||Y~ - X~ theta||``, the target last.

    Raises
    ------
    UserError
        For fewer rows than features, whose fit would be exact and mean nothing.

    References
    ----------
    Lev et al., The Gaussian Mixing Mechanism, Algorithm 2.

    Examples
    --------
    >>> least_squares(np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 3.0], [1.0, 1.0, 5.0]])).round(6).tolist()
    [2.0, 3.0]
    """
    rows = np.asarray(sketch, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise UserError(f"a sketch is a matrix of features and the target, got shape {rows.shape}")
    check_rows(rows.shape[0], rows.shape[1] - 1)
    return np.asarray(np.linalg.lstsq(rows[:, :-1], rows[:, -1], rcond=None)[0], dtype=np.float64)


def check_rows(rows: int, features: int) -> None:
    """Refuse a sketch with fewer rows than features and one.

    Raises
    ------
    UserError
        Naming both numbers.
    """
    if rows <= features:
        raise UserError(
            f"a sketch of {rows} rows cannot tell {features} coefficients (the constant is one of them); "
            f"take at least {features + 1} rows, better some hundred times as many"
        )


def solve(sums: SketchSums, *, debiased: bool = True, constant: bool = True) -> Solution:
    """Coefficients and their covariance from the sums of any number of sketches.

    Noise-aware repair: the eigenvalues of ``A_xx`` are held at or above `FLOOR` times ``2 sqrt(p f) + p f / noise``,
    ``f = sum w^2 v^2 / k``, the range in which those of pure noise fluctuate (Marchenko and Pastur's edges). So an
    indefinite estimate shrinks its lost directions to about nothing instead of blowing them up.

    With ``u = (-theta, 1)``, ``rho = u'A u / n`` and ``q = u'u`` the covariance is the sandwich ``A_xx^-1 V A_xx^-1``,
    ``V = square A rho + cross (A q + rho I) + floor (q I + theta theta') + sampled rho A / s`` (A per person), the last
    term for the records being a sample, a share s of which has a target. It takes the organisations' second moments as
    alike.

    Parameters
    ----------
    sums
        The sums.
    debiased
        False for the paper's estimate, the noise not taken off; it then has no interval unless there is no noise.
    constant
        Whether the last feature is the constant, which tells how many records have a target.
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
    # Without noise only what arithmetic cannot tell from zero is held, at infinity: the shortest fit.
    least = FLOOR * edge if debiased else 0.0
    tiny = _RELATIVE * max(float(eigenvalues[-1]), 0.0)
    held = eigenvalues < max(least, tiny)
    inverse = np.zeros(p)
    inverse[~held] = 1.0 / eigenvalues[~held]
    if least > tiny:
        inverse[held] = 1.0 / least
    values = vectors @ (inverse * (vectors.T @ full[:p, p]))
    person = full / sums.people
    if held.any() or (not debiased and sums.noise > 0.0):
        return Solution(values, unknown, person, int(held.sum()))
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
    # Degrees of freedom: p of the rows go into the fit.
    covariance: Matrix = inverse @ middle @ inverse * (sums.rows / (sums.rows - p))
    return covariance
