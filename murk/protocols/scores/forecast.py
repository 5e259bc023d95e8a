"""Forecasts of scores' estimates: the engine itself, run on simulated sums; an effect's variance by a rule of thumb."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from murk._internal.arrays import Floats
from murk.inference.estimate import Estimate
from murk.protocols.linear_algebra import flattened
from murk.protocols.population import Records, released_sum, split, vectors_variance
from murk.protocols.scores.device import ScoreDevice
from murk.protocols.scores.engine import ScoreEngine, SharedScoreEngine
from murk.protocols.scores.model import Query, directions, vectors
from murk.protocols.scores.settings import NEVER
from murk.protocols.scores.sums import Tally, step_of
from murk.task.privacy import DEFAULT_LEVEL
from murk.task.task import Task

_FORGOTTEN = 2  # multiple of the kept releases after which a forgetting partition has settled


def effect_variance(device: ScoreDevice, task: Task, people: int) -> float:
    """Return the variance of an effect per standard deviation of a feature, for a target coded to -1 and +1."""
    factor = 2.7 if task.public is None else 1.7
    if task.predictions is not None:
        people = round(people * (1.0 - task.predictions.share))
    mechanism: Any = device.mechanisms[DEFAULT_LEVEL]
    return factor**2 * vectors_variance(task.coding.size, mechanism.score.variance, people)


def estimates(
    device: ScoreDevice,
    records: Records,
    counts: Sequence[int],
    levels: Mapping[str, float],
    partitions: int,
    rng: np.random.Generator,
) -> Iterator[Callable[[], Estimate]]:
    """Yield functions that return the estimate after each number of people, in order, spread over partitions."""
    # Partitions at the same models are simulated as one.
    partitions = partitions if device.interactive and not device.settings.shared else 1
    engines = [device.engine() for _ in range(partitions)]
    kept = device.settings.forget

    def after(people: int) -> Estimate:
        each = max(people // partitions, 1)
        if kept is not None:
            each = min(each, _FORGOTTEN * kept)
        for engine in engines:
            _learn(engine, records, each, levels, rng)
        return device.estimate(engines)

    for people in counts:
        yield partial(after, people)


def _learn(
    engine: ScoreEngine, records: Records, people: int, levels: Mapping[str, float], rng: np.random.Generator
) -> None:
    """Learn until ``people`` have answered in all."""
    while engine.now.count < people:
        done = engine.now.count
        end = engine.settings.round_end(done)
        size = (people if end == NEVER else min(people, end)) - done
        model = engine.model
        shares = model.shares
        asked = {query: _answers(engine, records, query) for query, share in shares.items() if share}
        sums = {}
        for level, answering in split(size, levels).items():
            counts = split(answering, {query: shares[query] for query in asked})
            for query, V in asked.items():
                if query not in counts:
                    continue
                mechanism = engine.mechanisms[level].mechanism(query)
                total = released_sum(mechanism, V, records.drawn(counts[query], rng), rng)
                integers = [round(value) for value in (total / step_of(mechanism)).tolist()]
                sums[level, query] = Tally(counts[query], integers)
        engine.learn_sums(sums)
        if isinstance(engine, SharedScoreEngine):
            engine.begin_round([])


def _answers(engine: ScoreEngine, records: Records, query: Query) -> Floats:
    """Return each record's answer without noise, as `murk.protocols.scores.model` defines it, (m, d)."""
    X, y, model, response = records.X, records.y, engine.model, engine.settings.response
    known = np.isfinite(y)[:, None]
    if query == "covered" or model.survey or (query == "score" and response.classes):
        return vectors(X, y, model, response, query, engine.settings.coverage)
    logit = X @ model.origin[: X.shape[1]]
    if query == "score":
        high, low = response.answers(logit, model.exponent)
        coded = np.clip((y - model.middle) / model.width, -1.0, 1.0)
        scores = directions(X, model) * (np.where(y > 0.5, high, low) if response.binary else coded)[:, None]
        return np.where(known, scores, 0.0)
    Z, clipping_norm = X @ model.transform.T, model.matrix_clipping_norm
    weight = response.weights(logit, model.exponent) if query == "curvature" else np.full(len(X), 0.5)
    reached = directions(X, model, clipping_norm) * (2.0 * weight / clipping_norm)[:, None]
    answers = flattened(reached[:, :, None] * Z[:, None, :])
    return np.where(known, answers, 0.0) if query == "curvature" else answers
