r"""How far one forged example moves an estimate: by its length, and by the square of its length.

The estimate solves ``A theta = b``, both means of what releases say; one release of weight w moves it by at most
``w |r| / W`` in the residual ``r = g_i`` at the estimate, and A by ``w |H_i| / W``. What is longer than honest noise
makes it is not learned. So with L the longest vector and T the largest target that are, ``|r| <= (L |theta| + T) L +
v |theta|`` and ``|H| <= L^2 + v``, v the variance that is taken off; for outer products, which are linear in what is
released, ``|r| <= L sqrt(|theta|^2 + 1)`` and ``|H| <= L``. Standard errors have the mean square of r, of which the
smallest eigenvalue is what is known in every direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from murk.learners.estimates.forgers import Influence
from murk.learners.iwp_sgd import layout as k
from murk.learners.iwp_sgd.settings import level_rows

if TYPE_CHECKING:
    from murk.learners.iwp_sgd.estimation.chain_sums import ChainSums


def influence_of(engines: Sequence[ChainSums]) -> Influence | None:
    """What one forged example could have done; None where nothing bounds it: for losses that are not quadratic."""
    settings = engines[0].settings
    sums = np.sum([engine.real for engine in engines], axis=0)
    quadratic = settings.outer or settings.directed or settings.loss in ("quadratic", "squared")
    if not settings.polish or not quadratic or not sums[k.POLISH_WEIGHT] > 0.0:
        return None
    p, total = settings.features, float(sums[k.POLISH_WEIGHT])
    free = p - (not settings.intercept)
    bend, meat = (
        np.linalg.eigvalsh(symmetric(np.sum([engine.triangles[row] for engine in engines], axis=0), p)[:free, :free])
        for row in (0, 1)
    )
    least, spread = float(bend[0]) / total + settings.regularization, float(meat[0]) / float(sums[k.MEAT_SQUARES])
    if not (least > 0.0 and spread > 0.0):
        return Influence(math.inf, math.inf)
    theta = max(float(np.linalg.norm(engine.rows[k.REFERENCE])) for engine in engines)
    moved = turned = 0.0
    reals, _ = level_rows(settings, list(engines[0].mechanisms.values()))
    for row in reals:
        length, target, variance, keep = (
            float(row[place - k.UNIT]) for place in (k.LIMIT, k.TARGET_LIMIT, k.VARIANCE, k.KEEP)
        )
        weight = 1.0 / float(row[k.SPREAD - k.UNIT]) if settings.weighting == "inverse-variance" else 1.0
        if settings.outer:
            residual, matrix = length * math.hypot(theta, 1.0), length
        else:
            if settings.directed:
                # It is taken from the length of the release itself.
                variance = max(variance, (length**2 + max(target, 1.0)) / p)
            matrix = length**2 + variance
            residual = (length * theta + max(target, 1.0)) * length + variance * theta
            # A label in randomized response is learned from as itself and as the other one.
            both = abs(keep) + abs(1.0 - keep) if settings.form == k.LABEL else 1.0
            residual, matrix = both * residual, both * matrix
        moved, turned = max(moved, weight * residual), max(turned, weight * matrix)
    return Influence(moved / math.sqrt(float(sums[k.POLISH_SQUARES]) * spread), turned / (total * least))


def symmetric(packed: NDArray[np.float64], p: int) -> NDArray[np.float64]:
    """The symmetric matrix of a packed lower triangle."""
    matrix = np.zeros((p, p))
    matrix[np.tril_indices(p)] = packed
    whole: NDArray[np.float64] = matrix + np.tril(matrix, -1).T
    return whole
