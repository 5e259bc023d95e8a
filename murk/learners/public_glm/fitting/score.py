r"""Beyond the paper: the model's own equations, of which the private data are only one side.

Maximum likelihood of a GLM solves ``E x f(x'w) = E x y``. Its right side is what people release, and its left side is
known of public covariates for every w. So

.. math:: \frac1m \sum_j x_j f(x_j'w) = \widehat{E\,x y}

needs neither Stein's identity nor ``x x'``: it is consistent whatever the features' distribution, where the factor of
the paper's method is so for normal ones only. What it takes is public covariates that are like the private ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from murk.learners.public_glm.fitting.curves import Curve
from murk.learners.public_glm.fitting.root import NoRootError
from murk.learners.public_glm.public import Covariates

Floats = NDArray[np.float64]

_STEPS = 200
_LONGEST = 50.0


def solve_score(curve: Curve, public: Covariates, cross: Floats, start: Floats) -> Floats:
    """The coefficients w with ``mean x f(x'w) = cross``, by Newton steps that only ever go downhill.

    Parameters
    ----------
    curve
        The mean function; it grows, so there is at most one solution.
    public
        Public covariates.
    cross
        ``E x y``, (p,), y the response.
    start
        Where to begin.

    Raises
    ------
    NoRootError
        If there is none: noise has put ``cross`` where no coefficients lead.

    Examples
    --------
    >>> from murk.learners.public_glm.fitting.curves import LOSSES
    >>> X = np.column_stack([np.linspace(-1, 1, 201), np.ones(201)])
    >>> public = Covariates(X, np.full(201, 1 / 201), 201.0, X.T @ X / 201)
    >>> cross = X.T @ LOSSES["logistic"].mean(X @ np.array([2.0, -1.0])) / 201
    >>> solve_score(LOSSES["logistic"], public, cross, np.zeros(2)).round(6).tolist()
    [2.0, -1.0]
    """
    X, shares = public.points, public.shares

    def miss(w: Floats) -> Floats:
        return np.asarray(X.T @ (shares * curve.mean(X @ w)) - cross)

    w, gap = start, miss(start)
    tiny = 1e-12 * (1.0 + float(np.linalg.norm(cross)))
    for _ in range(_STEPS):
        size = float(np.linalg.norm(gap))
        if size <= tiny:
            return w
        hessian = hessian_of(curve, public, w)
        damping = 1e-10 * float(np.trace(hessian)) + 1e-300
        step = np.linalg.solve(hessian + damping * np.eye(len(w)), gap)
        share = 1.0
        while share > 1e-8:
            new = w - share * step
            found = miss(new)
            if np.all(np.isfinite(found)) and float(np.linalg.norm(found)) < (1.0 - 1e-4 * share) * size:
                break
            share /= 2.0
        else:
            if size <= 1e4 * tiny:
                return w
            break
        w, gap = new, found
        bounded = np.isfinite(curve.high - curve.low)
        if bounded and float(shares @ (X @ w) ** 2) > _LONGEST**2:
            break
    raise NoRootError(
        f"no coefficients of {curve.name} have the moments that the releases tell: the noise still outweighs them, or "
        "the response is a function of the features. The direction of least squares is kept"
    )


def hessian_of(curve: Curve, public: Covariates, w: Floats) -> Floats:
    """``mean f'(x'w) x x'``, (p, p)."""
    X = public.points
    return np.asarray((X * (public.shares * curve.slope(X @ w))[:, None]).T @ X)


def score_covariance(curve: Curve, public: Covariates, w: Floats, middle: float, own: Floats) -> Floats:
    """Covariance of the solution, where ``own`` is that of the private side, (p, p)."""
    X = public.points
    sides = X * (curve.mean(X @ w) - middle)[:, None]
    centred = sides - public.shares @ sides
    theirs = (centred * public.shares[:, None]).T @ centred / public.people
    inverse = np.linalg.inv(hessian_of(curve, public, w))
    return np.asarray(inverse @ (own + theirs) @ inverse)
