"""Put the sum of many people's releases into a learner's state, drawn at once.

The figures need millions of releases for each point, but learners use only their sum. The sum of n Gaussian noises is
Gaussian with n times the variance; the sum of n directions (PrivUnit) is Gaussian up to terms of order 1/n, with the
mechanism's mean and covariance. The sum is drawn from that distribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk.learners import PublicGLMClassifier, PublicGLMRegressor, ScoreClassifier, ScoreRegressor
from murk.privacy.mechanisms.base import Randomizer, direction_spread
from murk.privacy.mechanisms.outer_product import outer
from murk.protocols.moments.engine import MomentEngine
from murk.protocols.moments.mechanisms import Level
from murk.protocols.moments.statistics import Statistics
from murk.protocols.scores.in_process import InProcessScores
from murk.protocols.scores.model import QUERIES, drawn_queries, vectors, with_constant
from murk.protocols.scores.sums import step_of
from murk.stream.wire.state import pack

Floats = NDArray[np.float64]
OfMoments = PublicGLMClassifier | PublicGLMRegressor
Learner = OfMoments | ScoreClassifier | ScoreRegressor

_BLOCK = 20_000


@dataclass(frozen=True)
class Moments:
    """Means over ``people`` without noise.

    Parameters
    ----------
    square
        Mean of ``z z'`` (p + 1, p + 1), z being the features and a constant.
    cross
        Mean of ``z y`` (p + 1,).
    """

    people: int
    square: Floats
    cross: Floats

    @classmethod
    def of(cls, X: Floats, y: Floats) -> Moments:
        """Return the moments of rows (n, p) and their targets."""
        Z = np.column_stack([X, np.ones(len(X))])
        return cls(len(X), Z.T @ Z / len(X), Z.T @ y / len(X))

    def plus(self, more: Moments) -> Moments:
        """Return the moments of both groups together."""
        n = self.people + more.people
        own, other = self.people / n, more.people / n
        return Moments(n, own * self.square + other * more.square, own * self.cross + other * more.cross)


def release_moments(
    learner: OfMoments, people: Moments, rng: np.random.Generator | None, variances: tuple[float, float] | None = None
) -> None:
    """Put the releases of people within the bounds into a new learner of second moments.

    Parameters
    ----------
    rng
        Generator of the noise; None for no noise.
    variances
        Variances of the noise on coded ``x x'`` and ``x y``, in place of the mechanism's.
    """
    engine = learner._require()
    assert isinstance(engine, MomentEngine)
    layout, response = engine.layout, engine.model.response
    scale = np.append(np.full(len(people.cross) - 1, learner._gain), 1.0)
    keep = layout.size
    middle = response.middle if layout.constant else 0.0
    cross = scale * (people.cross - middle * people.square[:, -1]) / response.half
    square = people.square * np.outer(scale, scale)
    total = _numbers(layout, square[:keep, :keep], cross[:keep])
    noise = np.zeros(2)
    if rng is not None:
        (level,) = [Level.of(mechanism, layout) for mechanism in engine.mechanisms.values()]
        assert not level.ball
        noise = np.array(level.variances if variances is None else variances)
        parts = np.repeat(np.sqrt(noise / people.people), [layout.cross, layout.size])
        total = total + parts * rng.normal(size=layout.dimension)
    _put_moments(learner, engine, people.people, total, noise)


def release_moments_of(learner: OfMoments, X: Floats, y: Floats, rng: np.random.Generator) -> None:
    """Put the releases of rows into a new learner of second moments, by any mechanism; y is coded."""
    engine = learner._require()
    assert isinstance(engine, MomentEngine)
    (mechanism,) = engine.mechanisms.values()
    level = Level.of(mechanism, engine.layout)
    blocks = (
        engine.layout.vectors(learner._coded(X[i : i + _BLOCK]), y[i : i + _BLOCK]) for i in range(0, len(X), _BLOCK)
    )
    n, total = summed(mechanism, blocks, rng)
    _put_moments(learner, engine, n, total / n, np.array(level.variances))


def _numbers(layout: Statistics, square: Floats, cross: Floats) -> Floats:
    """Return the numbers of a release from both matrices, the inverse of `Statistics.matrices`."""
    whole = square * np.where(np.eye(layout.size, dtype=bool), 1.0, layout.root)
    return np.concatenate([whole[np.triu_indices(layout.size)][: layout.cross], layout.weight * cross])


def _put_moments(learner: OfMoments, engine: MomentEngine, n: int, mean: Floats, noise: Floats) -> None:
    # Every release has weight 1.
    counts = np.array([n, n, n * noise[0], n * noise[1], n, n], dtype=np.float64)
    fold = {**engine.state_dict(), "n_releases": n, "total": pack(n * mean), "sums": pack(counts)}
    learner.load_state_dict({**learner.state_dict(), "fold": fold})


def release_scores(learner: ScoreClassifier | ScoreRegressor, X: Floats, y: Floats, rng: np.random.Generator) -> None:
    """Put the releases of people into a new learner of scores; y is 0 or 1, or coded to [-1, 1]."""
    engine = learner._require()
    assert isinstance(engine, InProcessScores)
    state = engine.state_dict()
    (pair,), round_ = engine.mechanisms.values(), engine.now.rounds[-1]
    model, response = round_.model, engine.settings.response
    queries = drawn_queries(rng.integers(2**64, size=len(X), dtype=np.uint64), model)
    tallies = []
    for place, query in enumerate(QUERIES):
        own = np.flatnonzero(queries == place)
        if not len(own):
            continue
        mechanism: Any = pair.mechanism(query)
        given = (
            vectors(with_constant(X[rows]), y[rows], model, response, query)
            for rows in (own[i : i + _BLOCK] for i in range(0, len(own), _BLOCK))
        )
        blocks = given if query == "score" else (outer(v, model.transform.shape[0]) for v in given)
        n, total = summed(mechanism, blocks, rng)
        whole = [round(value) for value in (total / step_of(mechanism)).tolist()]
        tallies.append({"level": "default", "query": query, "count": n, "total": whole})
    fold = {**state, "n_releases": len(X), "rounds": [{**round_.to_state(), "tallies": tallies}], "shown": None}
    learner.load_state_dict({**learner.state_dict(), "fold": fold})


def summed(mechanism: Randomizer, blocks: Iterator[Floats], rng: np.random.Generator) -> tuple[int, Floats]:
    """Return the number of rows and the sum of their decoded releases, drawn from its mean and covariance.

    Parameters
    ----------
    mechanism
        Adds noise of one variance, or releases a direction.
    blocks
        Rows (m, d) within the mechanism's bound.
    """
    across, excess = direction_spread(mechanism)
    d = mechanism.dimension
    n, mean, spread = 0, np.zeros(d), np.zeros((d, d))
    for rows in blocks:
        n += len(rows)
        mean += rows.sum(axis=0)
        if excess is not None:
            # Each row adds excess u u' - r r', where u = r / |r|.
            squares = np.maximum(np.einsum("ij,ij->i", rows, rows), 1e-300)
            spread += (rows * (excess / squares - 1.0)[:, None]).T @ rows
    spread += n * across * np.eye(d)
    values, axes = np.linalg.eigh(spread)
    return n, mean + axes @ (np.sqrt(np.maximum(values, 0.0)) * rng.normal(size=d))


def coefficients(learner: Learner) -> Floats:
    """Return slopes in the features' units; without a root, the direction for short scores."""
    learner._require()
    if isinstance(learner, ScoreClassifier | ScoreRegressor):
        return np.asarray(learner.estimate().values[: len(learner._names)])
    values = learner._require().fitted().values
    return np.asarray(values[: len(learner._names)] * learner._gain)
