r"""Directions of labels where covariates are public: the fit by the mean direction alone.

The mean of ``u = y x / |x|`` is linear in the fit, with a matrix that public rows tell:

.. math:: E[u] = E[x x' / |x|]\, \theta

so that ``theta^ = A_1^-1 mean u~`` takes no product of noise with noise. Its error is that of the mean, with noise of
variance s^2 and not s^4, and that of the rows. It is the fit weighted by ``1/|x|``, and it needs rows like the
people's: their second moment of ``x / |x|`` is compared with the released one, as far as noise lets see it, at one
false alarm in 10,000.

It is another fit than the one without rows, so which one is learned must not depend on what is released:
:func:`rows_are_used` decides by the task and the rows alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from murk.learners.estimates.estimate import Estimate, PublicCovariates
from murk.learners.estimates.misfit import MOST_NUMBERS, UNLIKE, misfit
from murk.learners.iwp_sgd import layout as k
from murk.learners.iwp_sgd.estimation.rows import Rows
from murk.learners.scores.layout import flattened, matrix_size, symmetric
from murk.stream.task.protocols.examples import LOUD, ROWS_OF_EACH

if TYPE_CHECKING:
    from murk.learners.iwp_sgd.settings import ExampleSettings

PUBLIC_ROWS = "public rows"
UNUSED = "public rows are not used: they are unlike the people's"
_LEAST = 1e-6


def rows_are_used(settings: ExampleSettings, covariates: PublicCovariates, noise: float) -> bool:
    """Whether the fit is the one by public rows, by what is public before anybody releases anything.

    It is for labels, where noise is at least 1 in variance (mu <= 2), so that its square would be more, and there are
    20 rows for each coefficient, so that they can be compared. ``noise`` is the variance at the noisiest level.
    """
    enough = float(covariates.counts.sum()) >= ROWS_OF_EACH * settings.features
    return settings.form == k.DIRECTED_LABEL and noise >= (2.0 / LOUD) ** 2 and enough


def with_public(
    found: Estimate, settings: ExampleSettings, covariates: PublicCovariates, sums: NDArray[np.float64],
    bend: NDArray[np.float64], first: NDArray[np.float64], second: NDArray[np.float64],
) -> Estimate:  # fmt: skip
    """The fit by public rows, or ``found``, from the releases alone, where rows are unlike the people or degenerate.

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
    noise = max(float(np.sum(second)) - squares * known, 0.0) / p / total**2
    if matrix_size(p) <= MOST_NUMBERS:
        theirs = Rows.of(covariates, p, 0.0)
        off = flattened(bend) / known - theirs.alpha
        spread = _noise_of_products(p, noise, total**2 / squares, known, symmetric(theirs.alpha, p))
        people = total**2 / squares
        if misfit(off, spread / known**2 + (1.0 / count + 1.0 / people) * theirs.gamma) > UNLIKE:
            return replace(found, note=f"{found.note}; {UNUSED}", alike=False)
    matrix = ((rows * (share * inverse)[:, None]).T @ rows)[:free, :free]
    values, vectors = np.linalg.eigh(matrix)
    if not values[0] > _LEAST * values[-1]:
        return replace(found, alike=True)
    back = (vectors / values) @ vectors.T
    theta = back @ (first[:free] / known)
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
    return Estimate(
        found.names, np.append(theta, np.zeros(p - free)), PUBLIC_ROWS, error, note, found.chains, found.n_releases,
        covariance, alike=True,
    )  # fmt: skip


def _noise_of_products(
    p: int, noise: float, people: float, known: float, directions: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Covariance of the noise in the numbers of mean ``u~ u~' - own_variance I``, of directions u.

    ``u~ u~' = u u' + (u n' + n u') + n n'``: with noise n of variance s^2 the last has 2 s^4 in every number, and the
    other is linear in ``u u'``. The trace is taken out.
    """
    square = noise * people
    found = 2.0 * square**2 * np.eye(matrix_size(p))
    values, vectors = np.linalg.eigh(known * directions)
    for value, vector in zip(values, vectors.T, strict=True):
        crossed = np.array([flattened(np.outer(vector, one) + np.outer(one, vector)) for one in np.eye(p)])
        found += square * max(float(value), 0.0) * crossed.T @ crossed
    ones = flattened(np.eye(p))
    project = np.eye(len(ones)) - np.outer(ones, ones) / p
    return np.asarray(project @ found @ project.T / people)
