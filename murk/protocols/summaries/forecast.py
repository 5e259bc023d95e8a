"""Simulated estimates from an organisation's windows, by drawing their sums, and the variance of an effect.

A row of a sketch is normal with second moment ``Z'Z + v I`` (Z: the window's records, v: the noise's variance). So
``M'M`` has Wishart's distribution with k degrees of freedom, and is drawn in one step (Bartlett) for any k and n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.random import Generator

from murk._internal.arrays import Floats
from murk._internal.numbers import many
from murk.errors import UserError
from murk.inference.estimate import Estimate
from murk.privacy import Accountant, ApproxDP, cap_of, cost_in
from murk.privacy.central import GaussMixMechanism, GramMechanism, NewtonMechanism
from murk.privacy.central.newton_step import EDGE
from murk.privacy.mechanisms.costs import Costed
from murk.protocols.population import Records, misfit_variance, moments_variance, one_by_one, split, within_bounds
from murk.protocols.summaries.device import WindowDevice, device_for, windows_cap
from murk.protocols.summaries.engine import GramEngine, NewtonEngine, SketchEngine
from murk.protocols.summaries.newton_fit import model_of
from murk.protocols.summaries.settings import SketchSettings
from murk.protocols.summaries.sums import SketchSums
from murk.task.privacy import DEFAULT_LEVEL
from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"

_MODELS = 8  # largest number of different models in the simulated windows of a level
_WINDOWS: Final = 16  # number of windows of the same records for which a cap is suggested
_DRAWN: Final = 200  # largest number of windows that are drawn one by one; of more, several share a draw of their noise


def estimate(
    device: WindowDevice, records: Records, people: int, levels: Mapping[str, float], partitions: int, rng: Generator
) -> Estimate:
    """Simulate the estimate from releases of ``people`` records, in the task's windows."""
    settings, engine = device.settings, device.engine()
    if isinstance(settings, SketchSettings) and people < min(settings.rows, settings.window or settings.rows):
        note = f"none: a sketch has {settings.rows:,} rows, and fewer records are not released (sketch: rows)"
        return replace(device.estimate([engine]), note=note)
    z = within_bounds(device.records(records.X, records.y), settings.feature_bound, settings.target_bound)
    windows = split(max(people // (settings.window or people), 1), levels)
    size = people // sum(windows.values())
    for level, count in windows.items():
        _LEARN[device.kind](engine, device.mechanisms[level], z, count, size, records, rng)
    return device.estimate([engine])


def _learn_grams(
    engine: GramEngine, mechanism: GramMechanism, z: Floats, count: int, size: int, pool: Records, rng: Generator
) -> None:
    """Learn ``count`` windows of ``size`` records from the population's bounded rows z; all have the same weight."""
    moment = _summed(z, count * size, pool, rng) + noise_of(mechanism, z.shape[1], rng, count)
    weight = engine.settings.weight(mechanism, size)
    engine.sums.add(moment, records=count * size, noise=count * mechanism.scale**2, weight=weight)


def noise_of(mechanism: GramMechanism, d: int, rng: Generator, windows: int = 1) -> Floats:
    """Draw the noise on the sum of the second moments ``(d, d)`` of a number of windows."""
    noise = math.sqrt(windows) * mechanism.scale * np.triu(rng.normal(size=(d, d)))
    noise[np.triu_indices(d, 1)] /= math.sqrt(2.0)
    weights = np.append(np.ones(d - 1), mechanism.target_weight)
    return np.asarray((noise + np.triu(noise, 1).T) / np.outer(weights, weights))


def _learn_steps(
    engine: NewtonEngine, mechanism: NewtonMechanism, z: Floats, count: int, size: int, pool: Records, rng: Generator
) -> None:
    """Learn windows like `_learn_grams`; all windows with one model have the same weight."""
    from murk.privacy.central.accumulators import at_model

    d = z.shape[1]
    own, others = mechanism.parts(size)
    for alike in np.diff(np.linspace(0, count, min(count, _MODELS) + 1).astype(int)).tolist():
        moment = _summed(z, own, pool, rng) + noise_of(mechanism.start, d, rng)
        model = model_of(engine.settings, mechanism.start, moment, own)
        first = _summed(z, alike * own, pool, rng) + noise_of(mechanism.start, d, rng, alike)
        seen = np.zeros_like(z)
        at_model(z, model, mechanism.feature_bound, EDGE, np.zeros((1, d)), seen)
        step = _summed(seen, alike * others, pool, rng) + noise_of(mechanism.step, d, rng, alike)
        engine.learn_matrices(first, step, model=model, records=size, mechanism=mechanism, windows=alike)


def _summed(z: Floats, count: int, pool: Records, rng: Generator) -> Floats:
    """Draw the sum of second moments of a number of records."""
    return np.asarray((z * pool.drawn(count, rng)[:, None]).T @ z)


def _learn_sketches(
    engine: SketchEngine, mechanism: GaussMixMechanism, z: Floats, count: int, size: int, pool: Records, rng: Generator
) -> None:
    """Learn windows like `_learn_grams`."""
    drawn_ones = min(count, _DRAWN)
    for index in range(drawn_ones):
        alike = count // drawn_ones + (index < count % drawn_ones)
        counts = pool.drawn(alike * size, rng) / alike
        drawn = _window((z * counts[:, None]).T @ z, size, alike, engine.settings, mechanism, rng)
        engine.sums = engine.sums.merged(drawn)


_LEARN: Final[Mapping[str, Callable[..., None]]] = {
    "gram": _learn_grams,
    "newton": _learn_steps,
    "sketch": _learn_sketches,
}


def _window(
    moment: Floats, size: int, alike: int, settings: SketchSettings, mechanism: GaussMixMechanism, rng: Generator
) -> SketchSums:
    """Draw the sums of ``alike`` equal windows of ``size`` records with this second moment."""
    eigenvalue = 0.0
    if mechanism.releases_eigenvalue:
        smallest = float(np.linalg.eigvalsh(moment)[0]) / mechanism.bound**2
        eigenvalue = smallest + mechanism.eta * (rng.normal() - mechanism.tau)
    noise = mechanism.noise_variance(mechanism.spread(eigenvalue))
    d, rows = len(moment), settings.rows * alike
    # M'M = L B B' L', where L L' is the mean per row, and B has roots of chi squares on the diagonal, normals below it.
    root = np.linalg.cholesky(moment + noise * np.eye(d))
    below = np.tril(rng.normal(size=(d, d)), -1)
    below[np.diag_indices(d)] = np.sqrt(rng.chisquare(rows - np.arange(d)))
    drawn = root @ below
    sums, weight = SketchSums(settings.columns), settings.weight(size, noise)
    sums.add(drawn @ drawn.T / rows, rows=settings.rows, records=size, noise=noise, weight=weight)
    sums.moment *= alike
    for name in (*sums.scalars, *sums.counts):
        setattr(sums, name, getattr(sums, name) * alike)
    return sums


estimates = one_by_one(estimate)


def effect_variance(device: Any, task: Task, people: int) -> float:
    """Return the variance of an effect per standard deviation of a feature, or raise UserError for mixtures."""
    mechanism = device.mechanisms[DEFAULT_LEVEL]
    if isinstance(mechanism, GramMechanism):
        scale = _local_scale(mechanism)
        if not task.features:
            return float(scale / mechanism.target_weight / people) ** 2 + 1.0 / people
        variance = moments_variance(scale**2 / 2.0 / mechanism.target_weight**2, scale**2 / 2.0, people**2)
        return variance + 1.0 / people + misfit_variance(task)
    if isinstance(mechanism, NewtonMechanism):
        # As for second moments, but the step's Hessian is a quarter of X'X, and the model causes no bias.
        scale, left = _local_scale(mechanism.step), max(people - int(mechanism.first), 1)
        variance = moments_variance(2.0 * scale**2 / mechanism.step.target_weight**2, 8.0 * scale**2, left**2)
        return variance + 1.0 / left
    raise UserError(f"protocol: {task.protocol} with these settings has no rule of thumb for the variance of an effect")


def _local_scale(mechanism: GramMechanism) -> float:
    """Return the noise scale of a guarantee that, like a local one, holds for any two records."""
    return mechanism.scale * (1.0 if mechanism.neighbours == "replace-one" else math.sqrt(2.0))


def remarks(task: Task) -> Iterator[str]:
    """Yield how many windows an organisation's cap allows, or a cap for several windows below their total cost."""
    try:
        mechanisms, guarantee = device_for(task).mechanisms, task.privacy.guarantee
    except UserError as error:
        yield f"{task.protocol}: {error}."
        return
    mechanism = mechanisms["default"]
    if (whole := task.privacy.per_person) is not None:
        cap = cap_of(whole)
        cost = cost_in(mechanism, cap.currency)
        count = cap // cost
        yield f"A cap of {cap} allows an organisation {many(count, 'window')} of {cost}{_joint(mechanism, count)}."
    if isinstance(guarantee, ApproxDP) and (whole is None or whole.kind != "tcdp"):
        with suppress(UserError):
            further = windows_cap(mechanisms, "default", _WINDOWS, guarantee.delta).as_yaml()
            words = f"allows an organisation {_WINDOWS} windows{_joint(mechanism, _WINDOWS)}."
            yield f"privacy: {{per_person: {further}}} {words}"


def _joint(mechanism: Costed, count: int) -> str:
    joint = Accountant().compose(mechanism, count).strongest()
    return "" if joint is None else f"; together they disclose {cap_of(joint).rounded()}"
