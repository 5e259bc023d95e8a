r"""What is learned of so many people's released examples, from the sums that their estimate is computed from.

A few thousand people really release, by the engine, at the fit itself. Of sums whose mean is known (those of ``u u'``
and ``u t`` are unbiased estimates of what records have) n people have n times the mean, and ``sqrt(n / m)`` times what
m people were off by, which has the right covariance; of sums of squares they have ``n / m`` times as much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.learners.estimates.estimate import Estimate
from murk.learners.iwp_sgd import layout as k
from murk.learners.iwp_sgd.directions import parts
from murk.learners.iwp_sgd.engine import IWPEngine
from murk.learners.iwp_sgd.estimation.inference import estimate as estimate_of
from murk.learners.iwp_sgd.outer_engine import engine_of
from murk.learners.iwp_sgd.problem import ExampleProblem
from murk.learners.planning.design import Records
from murk.learners.planning.sums import split

Array = NDArray[np.float64]

_PEOPLE = 8_192
_NEVER = 2**62
# Sums of what is released, and sums of squares.
_SCALARS = (
    k.SUM_WEIGHT, k.SUM_SPREAD, k.LOSS_WEIGHT, k.POLISH_WEIGHT, k.POLISH_SQUARES, k.MEAT_SQUARES, k.BEND_SQUARES,
)  # fmt: skip


def estimate(
    problem: ExampleProblem, records: Records, people: int, levels: Mapping[str, float], chains: int,
    rng: np.random.Generator,
) -> Estimate:  # fmt: skip
    """The estimate of so many people; chains only add up.

    Raises
    ------
    UserError
        Where what is released is not summed linearly.
    """
    settings = problem.settings
    if not settings.polish or not (settings.outer or settings.directed):
        raise UserError(
            "no forecast of examples that are released jointly or separately: a simulated run (--seed) shows it"
        )
    bend, aimed, first = _means(problem, records)
    theta = np.linalg.lstsq(bend + 1e-9 * np.trace(bend) * np.eye(len(bend)), aimed, rcond=None)[0]
    assert settings.radius is not None
    theta *= min(1.0, settings.radius / max(float(np.linalg.norm(theta)), 1e-9))
    whole, lower = engine_of(settings, problem.mechanisms, seed=0), np.tril_indices(settings.features)
    for level, size in split(people, levels).items():
        m = min(_PEOPLE, size)
        engine = _answered(problem, records, m, level, theta, rng)
        weight, root, square = engine.real[k.POLISH_WEIGHT] / m, math.sqrt(size / m), size / m

        def linear(found: Array, mean: Array, m: int = m, weight: float = weight, root: float = root,
                   size: int = size) -> Array:  # fmt: skip
            return np.asarray(size * weight * mean + root * (found - m * weight * mean))

        whole.real[list(_SCALARS)] += square * engine.real[list(_SCALARS)]
        whole.triangles[0] += linear(engine.triangles[0], bend[lower])
        whole.triangles[1] += square * engine.triangles[1]
        whole.rows[k.AIMED] += linear(engine.rows[k.AIMED], aimed)
        if settings.outer:
            whole.rows[k.FIRST] += square * engine.rows[k.FIRST]
        else:
            whole.rows[k.FIRST] += linear(engine.rows[k.FIRST], first)
            whole.rows[k.SECOND] += square * engine.rows[k.SECOND]
        whole.whole[k.COUNT] += size
    whole.rows[k.REFERENCE] = theta
    whole.covariates = problem.covariates
    return estimate_of([whole])


def _answered(
    problem: ExampleProblem, records: Records, people: int, level: str, theta: Array, rng: np.random.Generator
) -> IWPEngine:
    """An engine after so many people, whose residuals are all at the fit."""
    mechanism: Any = problem.mechanisms[level]
    engine = engine_of(problem.settings, problem.mechanisms, seed=int(rng.integers(2**63)))
    engine.whole[k.NEXT_REFRESH] = _NEVER
    engine.rows[k.REFERENCE] = theta
    drawn = rng.choice(len(records.shares), size=people, p=records.shares)
    engine.learn_records(records.X[drawn], records.y[drawn], [mechanism])
    return engine


def _means(problem: ExampleProblem, records: Records) -> tuple[Array, Array, Array]:
    """Of what is released without noise: the mean ``u u'`` (p, p), ``u t`` and u (p,)."""
    p, V, shares = problem.settings.features, problem.vectors(records.X, records.y), records.shares
    if problem.settings.outer:
        whole = (V * shares[:, None]).T @ V
        return whole[:p, :p], whole[:p, p], np.zeros(p)
    u, t = parts(problem.settings.form, V)
    u = u[:, :p]
    return (u * shares[:, None]).T @ u, (shares * t) @ u, shares @ u
