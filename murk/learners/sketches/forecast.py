"""Forecasts of an organisation's estimate from drawn sums of its windows, and the variance of an effect.

A row of a sketch is normal with second moment ``Z'Z + v I``, Z the window's records and v the noise's variance, so that
``M'M`` has Wishart's distribution with k degrees of freedom. It is drawn at once (Bartlett), whatever k and n are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.learners.core.design import Records
from murk.learners.core.forecasting import misfit_variance, moments_variance, one_by_one, split, within_bounds
from murk.learners.estimates.estimate import Estimate
from murk.learners.sketches.newton import model_of
from murk.learners.sketches.problem import GramProblem, NewtonProblem, SketchProblem
from murk.learners.sketches.settings import SketchSettings
from murk.learners.sketches.sums import SketchSums, gram_precision, sketch_precision
from murk.privacy.sketches import GaussMixMechanism, GramMechanism, NewtonMechanism
from murk.privacy.sketches.newton import EDGE
from murk.stream.task.privacy import DEFAULT_LEVEL
from murk.stream.task.task import Task


def gram_estimate(
    problem: GramProblem, records: Records, people: int, levels: Mapping[str, float], chains: int,
    rng: np.random.Generator,
) -> Estimate:  # fmt: skip
    """Return the estimate from released second moments of ``people`` records, in the task's windows."""
    engine, settings = problem.engine(), problem.settings
    z = within_bounds(problem.records(records.X, records.y), settings.feature_bound, settings.target_bound)
    d = z.shape[1]
    windows = split(max(people // (settings.window or people), 1), levels)
    for name, count in windows.items():
        mechanism, size = problem.mechanisms[name], people // sum(windows.values())
        variance = mechanism.scale**2
        # Windows of a level have one weight, and their noise adds up.
        moment = (z * records.drawn(count * size, rng)[:, None]).T @ z + noise_of(mechanism, d, rng, count)
        weight = 1.0
        if settings.weighting == "inverse-variance":
            weight = gram_precision(records=size, noise=variance, square=settings.feature_bound**2)
        engine.sums.add(moment, records=count * size, noise=count * variance, weight=weight)
    return engine.estimate()


def noise_of(mechanism: GramMechanism, d: int, rng: np.random.Generator, windows: int = 1) -> NDArray[np.float64]:
    """The noise on the sum of so many windows' second moments ``(d, d)``, drawn at once."""
    noise = math.sqrt(windows) * mechanism.scale * np.triu(rng.normal(size=(d, d)))
    noise[np.triu_indices(d, 1)] /= math.sqrt(2.0)
    weights = np.append(np.ones(d - 1), mechanism.target_weight)
    found: NDArray[np.float64] = (noise + np.triu(noise, 1).T) / np.outer(weights, weights)
    return found


_MODELS = 8
"""Different models, at the most, that a level's windows are taken at."""


def newton_estimate(
    problem: NewtonProblem, records: Records, people: int, levels: Mapping[str, float], chains: int,
    rng: np.random.Generator,
) -> Estimate:  # fmt: skip
    """Return the estimate from released Newton steps of ``people`` records, in the task's windows."""
    engine, settings = problem.engine(), problem.settings
    z = within_bounds(problem.records(records.X, records.y), settings.feature_bound, settings.target_bound)
    d = z.shape[1]
    windows = split(max(people // (settings.window or people), 1), levels)
    size = people // sum(windows.values())
    for name, count in windows.items():
        mechanism = problem.mechanisms[name]
        own, others = mechanism.parts(size)
        for alike in np.diff(np.linspace(0, count, min(count, _MODELS) + 1).astype(int)).tolist():
            # Windows of one model have one weight, and their noise adds up.
            tried = _summed(z, own, records, rng) + noise_of(mechanism.start, d, rng)
            model = model_of(settings, mechanism.start, tried, own)
            first = _summed(z, alike * own, records, rng) + noise_of(mechanism.start, d, rng, alike)
            seen = _seen(z, model, mechanism)
            step = _summed(seen, alike * others, records, rng) + noise_of(mechanism.step, d, rng, alike)
            engine.learn_matrices(first, step, model=model, records=size, mechanism=mechanism, windows=alike)
    return engine.estimate()


def _summed(z: NDArray[np.float64], count: int, records: Records, rng: np.random.Generator) -> NDArray[np.float64]:
    """Second moments of so many records drawn."""
    found: NDArray[np.float64] = (z * records.drawn(count, rng)[:, None]).T @ z
    return found


def _seen(z: NDArray[np.float64], model: NDArray[np.float64], mechanism: NewtonMechanism) -> NDArray[np.float64]:
    """Rows as they look from a model."""
    from murk.privacy.sketches.accumulators import at_model

    seen = np.zeros_like(z)
    at_model(z, model, mechanism.feature_bound, EDGE, np.zeros((1, z.shape[1])), seen)
    return seen


Array = NDArray[np.float64]

_DRAWN: Final = 200
"""Windows that are drawn one by one; of more, several that are alike share what is drawn of their noise."""


def sketch_estimate(
    problem: SketchProblem, records: Records, people: int, levels: Mapping[str, float], chains: int,
    rng: np.random.Generator,
) -> Estimate:  # fmt: skip
    """Return the estimate from released mixtures of ``people`` records, in the task's windows."""
    settings = problem.settings
    engine = problem.engine()
    if people < min(settings.rows, settings.window or settings.rows):
        words = f"none: a sketch has {settings.rows:,} rows, and fewer records are not released (sketch: rows)"
        return replace(engine.estimate(), note=words)
    z = within_bounds(problem.records(records.X, records.y), settings.feature_bound, settings.target_bound)
    windows = split(max(people // (settings.window or people), 1), levels)
    size = people // sum(windows.values())
    for name, count in windows.items():
        for alike in _shared(count):
            counts = records.drawn(alike * size, rng) / alike
            one = _window((z * counts[:, None]).T @ z, size, alike, settings, problem.mechanisms[name], rng)
            engine.sums = engine.sums.merged(one)
    return engine.estimate()


def _shared(count: int) -> list[int]:
    """How many windows stand behind each that is drawn."""
    drawn = min(count, _DRAWN)
    return [count // drawn + (place < count % drawn) for place in range(drawn)]


def _window(
    moment: Array, size: int, alike: int, settings: SketchSettings, mechanism: GaussMixMechanism,
    rng: np.random.Generator,
) -> SketchSums:  # fmt: skip
    """The sums of so many windows that are alike, of so many records each and with this second moment."""
    eigenvalue = 0.0
    if mechanism.releases_eigenvalue:
        smallest = float(np.linalg.eigvalsh(moment)[0]) / mechanism.bound**2
        eigenvalue = smallest + mechanism.eta * (rng.normal() - mechanism.tau)
    noise = mechanism.noise_variance(mechanism.spread(eigenvalue))
    d, rows = len(moment), settings.rows * alike
    # M'M = L B B' L', L L' its mean per row: B has normal numbers below the roots of chi squares.
    root = np.linalg.cholesky(moment + noise * np.eye(d))
    below = np.tril(rng.normal(size=(d, d)), -1)
    below[np.diag_indices(d)] = np.sqrt(rng.chisquare(rows - np.arange(d)))
    drawn = root @ below
    weight = 1.0
    if settings.weighting == "inverse-variance":
        weight = sketch_precision(rows=settings.rows, records=size, noise=noise, unit=settings.signal)
    sums = SketchSums(settings.columns)
    sums.add(drawn @ drawn.T / rows, rows=settings.rows, records=size, noise=noise, weight=weight)
    return _times(sums, alike)


def _times(sums: SketchSums, factor: int) -> SketchSums:
    sums.moment *= factor
    for name in (*sums.scalars, *sums.counts):
        setattr(sums, name, getattr(sums, name) * factor)
    return sums


_ESTIMATES: Final[Mapping[str, Callable[..., Estimate]]] = {
    "gram": gram_estimate, "newton": newton_estimate, "sketch": sketch_estimate,
}  # fmt: skip


def estimates(
    problem: Any, records: Records, counts: Sequence[int], levels: Mapping[str, float], chains: int,
    rng: np.random.Generator,
) -> Iterator[Callable[[], Estimate]]:  # fmt: skip
    """Yield the estimate after each number of records."""
    return one_by_one(_ESTIMATES[problem.kind])(problem, records, counts, levels, chains, rng)


def effect_variance(problem: Any, task: Task, people: int) -> float:
    """Return the variance of the effect of a standard deviation of a feature, for a target coded to -1 and +1.

    Raises
    ------
    UserError
        For mixtures, which have no such rule.
    """
    mechanism = problem.mechanisms[DEFAULT_LEVEL]
    if isinstance(mechanism, GramMechanism):
        scale = _local_scale(mechanism)
        own = moments_variance(scale**2 / 2.0 / mechanism.target_weight**2, scale**2 / 2.0, people**2)
        return own + 1.0 / people + misfit_variance(task)
    if isinstance(mechanism, NewtonMechanism):
        # The same of the step, whose Hessian is a quarter of X'X, and without the model's bias.
        scale, left = _local_scale(mechanism.step), max(people - int(mechanism.first), 1)
        own = moments_variance(2.0 * scale**2 / mechanism.step.target_weight**2, 8.0 * scale**2, left**2)
        return own + 1.0 / left
    raise UserError(f"protocol: {task.protocol} with these settings is not among those compared")


def _local_scale(mechanism: GramMechanism) -> float:
    """Return the noise scale that hides any record among any other, as local guarantees do."""
    return mechanism.scale * (1.0 if mechanism.neighbours == "replace-one" else math.sqrt(2.0))
