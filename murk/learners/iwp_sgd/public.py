r"""Directions of labels where covariates are public: the fit by the mean direction alone.

The mean of ``u = y x / |x|`` is linear in the fit, with a matrix that public rows tell:

.. math:: E[u] = E[x x' / |x|]\, \theta

so that ``theta^ = A_1^-1 mean u~`` takes no product of noise with noise. Its error is that of the mean, with noise of
variance s^2 and not s^4, and that of the rows. It is the fit weighted by ``1/|x|``, and it needs rows like the
people's: their second moment of ``x / |x|`` is compared with the released one, as far as noise lets see it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from murk.learners.estimate import Estimate, PublicCovariates
from murk.learners.iwp_sgd import layout as k

if TYPE_CHECKING:
    from murk.learners.iwp_sgd.settings import ExampleSettings

PUBLIC_ROWS = "public rows"
_LEAST = 1e-6
_UNLIKE = 8.0


def with_public(
    found: Estimate, settings: ExampleSettings, covariates: PublicCovariates, sums: NDArray[np.float64],
    bend: NDArray[np.float64], first: NDArray[np.float64], second: NDArray[np.float64],
) -> Estimate:  # fmt: skip
    """The fit by public rows where its standard errors are smaller than those of ``found``, from the releases alone.

    Parameters
    ----------
    found
        The fit without public rows.
    settings, covariates
        Of the task.
    sums, bend, first, second
        Of all chains: the sums of `layout`; mean ``u u'`` and mean ``u~`` by weight; ``sum q^2 u~_j^2``.
    """
    p, free = settings.features, settings.features - (not settings.intercept)
    total, squares, known = sums[k.POLISH_WEIGHT], sums[k.POLISH_SQUARES], float(np.trace(bend))
    share = covariates.counts / covariates.counts.sum()
    rows, count = covariates.points, float(covariates.counts.sum())
    inverse = 1.0 / np.linalg.norm(rows, axis=1)
    if not known > 0.1:  # next to no targets, as far as can be told
        return found
    unit = rows * inverse[:, None]
    theirs = (unit * share[:, None]).T @ unit
    # Squared distances of noise are no more than a few of their means; k = p (p + 1) / 2 - 1 of them are added up.
    expected = sums[k.BEND_SQUARES] / (total * known) ** 2 + (1.0 - float(np.sum(theirs**2))) / count
    bound = expected * (1.0 + _UNLIKE * math.sqrt(2.0 / max(p * (p + 1) / 2 - 1, 1)))
    if float(np.sum((bend / known - theirs) ** 2)) > bound:
        note = f"{found.note}; public rows are not used: they are unlike the people's"
        return replace(found, note=note, alike=False)
    matrix = ((rows * (share * inverse)[:, None]).T @ rows)[:free, :free]
    values, vectors = np.linalg.eigh(matrix)
    if not values[0] > _LEAST * values[-1]:
        return replace(found, alike=True)
    back = (vectors / values) @ vectors.T
    theta = back @ (first[:free] / known)
    noise = max(float(np.sum(second)) - squares * known, 0.0) / p / total**2
    spread = (bend - np.outer(first, first) / known) * squares / total**2
    meat = (spread[:free, :free] + noise * np.eye(free)) / known**2
    pulled = rows[:, :free] * (inverse * (rows[:, :free] @ theta))[:, None]
    mean = share @ pulled
    meat += ((pulled * share[:, None]).T @ pulled - np.outer(mean, mean)) / count
    covariance = np.zeros((p, p))
    covariance[:free, :free] = back @ meat @ back + np.outer(theta, theta) * noise / (2.0 * known**2)
    note = (
        f"of the fit weighted by 1/|x|, by the mean direction and {int(count):,} public rows, which must be like the "
        "people's (docs/iwp-sgd.md)"
    )
    error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    made = Estimate(
        found.names, np.append(theta, np.zeros(p - free)), PUBLIC_ROWS, error, note, found.chains, found.n_releases,
        covariance, alike=True,
    )  # fmt: skip
    return made if made.standard_error < found.standard_error else replace(found, alike=True)
