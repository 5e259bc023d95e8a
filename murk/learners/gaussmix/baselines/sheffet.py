"""Sheffet's sketched regression: all of the noise or none, by a test of the least eigenvalue."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from murk.errors import UserError
from murk.learners.gaussmix.baselines.common import Baseline, Draws, Matrix, Vector
from murk.learners.gaussmix.solving.solver import check_rows, least_squares
from murk.privacy.gaussmix.analysis.renyi import smallest_threshold


@dataclass(frozen=True)
class Sheffet(Baseline):
    r"""Linear regression on a Gaussian sketch, its noise decided by a test of the least eigenvalue.

    If ``lambda_min(Z'Z) > gamma + z + 4 C^2 log(1/delta) / epsilon`` with ``z ~ Laplace(4 C^2 / epsilon)`` the sketch
    ``S Z`` is solved as it is, else ``S Z + sqrt(gamma) Xi``: the threshold gamma is a *variance* (the listing
    prints gamma where its root belongs).

    Parameters
    ----------
    budget, feature_bound, target_bound, noise
        As every baseline has them.
    sketch_rows
        k.
    analysis
        ``"published"``: Sheffet's ``gamma = (4 C^2 / epsilon) (sqrt(2 k log(8/delta)) + 2 log(8/delta))``.
        ``"renyi"``: the least gamma by the Renyi curve of GaussMix at (epsilon/2, delta/2), which is smaller.
    printed
        The listings of Lev et al. to the letter: noise of *standard deviation* gamma, and with ``"renyi"`` the sketch
        at delta, not delta/2. For reproductions.

    References
    ----------
    Sheffet 2017, Differentially private ordinary least squares, Algorithm 1; Lev et al., Algorithms 4 and 5. Algorithm
    5 takes the sketch at delta, which leaves nothing for the test: here each has delta/2.

    Examples
    --------
    >>> from murk.privacy import ApproxDP
    >>> budget = ApproxDP(1.0, 1e-5)
    >>> round(Sheffet(budget, feature_bound=0.8, target_bound=0.6, sketch_rows=100).gamma, 1)
    317.3
    >>> Sheffet(budget, feature_bound=0.8, target_bound=0.6, sketch_rows=100, analysis="renyi").gamma < 100
    True
    """

    sketch_rows: int = 400
    analysis: Literal["published", "renyi"] = "published"
    printed: bool = False

    statement: ClassVar[str] = (
        "(epsilon, delta)-DP under zero-out neighbours (3/4 epsilon is used): the test's Laplace noise has epsilon/4, "
        "the sketch (epsilon/2, delta/2), and with probability delta/2 the test passes below the threshold"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.analysis not in ("published", "renyi"):
            raise UserError(f'analysis={self.analysis!r}; known are "published" and "renyi"')

    @property
    def gamma(self) -> float:
        """The threshold on the least eigenvalue, and the variance of the noise, in the units of the records."""
        if self.analysis == "renyi":
            delta = self.delta if self.printed else self.delta / 2.0
            return self.square * smallest_threshold(self.epsilon / 2.0, delta, self.sketch_rows, "mixing")
        size = math.log(8.0 / self.delta)
        return 4.0 * self.square / self.epsilon * (math.sqrt(2.0 * self.sketch_rows * size) + 2.0 * size)

    def variance(self, least: float, draw: float) -> float:
        """Variance of the noise for a least eigenvalue and a standard Laplace ``draw``: gamma (or as printed), or 0."""
        scale = 4.0 * self.square / self.epsilon
        passes = least > self.gamma + scale * draw + scale * math.log(1.0 / self.delta)
        return 0.0 if passes else self.gamma ** (2 if self.printed else 1)

    def release(self, X: Matrix, y: Vector, draws: Draws) -> Vector:
        """The mechanism on bounded records."""
        check_rows(self.sketch_rows, X.shape[1])
        records = np.column_stack([X, y])
        second = records.T @ records
        variance = self.variance(float(np.linalg.eigvalsh(second)[0]), draws.laplace())
        return least_squares(draws.rows(second + variance * np.eye(len(second)), self.sketch_rows))
