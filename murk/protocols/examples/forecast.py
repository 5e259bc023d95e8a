"""Simulated estimates from n people's examples, by simulating the sums from which estimates are computed.

The engine learns from m people, a few thousand, with the fit itself as coefficients. Its sums are then scaled to n
people: sums with a known mean (unbiased Hessians and gradients) become n times that mean plus ``sqrt(n / m)`` times
their error, and sums of squares are multiplied by ``n / m``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from murk._internal.arrays import Floats
from murk.inference.estimate import Estimate
from murk.protocols import population as design
from murk.protocols.examples import layout as k
from murk.protocols.examples.cells import CellTable, note_of, rounded_names
from murk.protocols.examples.cells_device import CellDevice
from murk.protocols.examples.device import ExampleDevice, settings_of
from murk.protocols.examples.directions import parts
from murk.protocols.examples.engine import IWPEngine, OuterEngine, engine_of
from murk.protocols.examples.estimate import estimate_of_sums
from murk.protocols.examples.newton import factors, to_estimate
from murk.protocols.examples.settings import POLISHED
from murk.protocols.population import Records
from murk.task.privacy import DEFAULT_LEVEL
from murk.task.task import Task

_PEOPLE: Final = 8_192
_NEVER: Final = 2**62
_STEPS: Final = 20
_NEAR: Final = 1e-4
_UNPOLISHED: Final = (
    f"none: for more than {POLISHED} coefficients only SGD's average is kept, which has no interval. examples: "
    "{release: outer}, for the quadratic and squared losses, and protocol: moments have intervals"
)
# Entries of ``real`` that are sums of weights or squares: multiplied by ``n / m``.
_SCALARS = (
    k.SUM_WEIGHT,
    k.SUM_SPREAD,
    k.LOSS_WEIGHT,
    k.POLISH_WEIGHT,
    k.POLISH_SQUARES,
    k.MEAT_SQUARES,
    k.BEND_SQUARES,
)


def estimate(
    device: ExampleDevice | CellDevice,
    records: Records,
    people: int,
    levels: Mapping[str, float],
    partitions: int,
    rng: np.random.Generator,
) -> Estimate:
    """Simulate the estimate from a number of people. Partitions make no difference, as their sums add up."""
    if isinstance(device, CellDevice):
        return _of_cells(device, records, people, levels, rng)
    settings = device.settings
    if not settings.newton:
        return replace(device.engine().estimate(), note=_UNPOLISHED)
    bend, aimed, first, theta = _means(device, records)
    whole, lower = engine_of(settings, device.mechanisms, seed=0), np.tril_indices(settings.features)
    exact: list[tuple[float, OuterEngine]] = []
    for level, size in design.split(people, levels).items():
        m = min(_PEOPLE, size)
        engine = _simulated(device, records, m, level, theta, rng)
        weight, root, square = engine.real[k.POLISH_WEIGHT] / m, math.sqrt(size / m), size / m

        def linear(
            drawn: Floats, mean: Floats, m: int = m, weight: float = weight, root: float = root, size: int = size
        ) -> Floats:
            return np.asarray(size * weight * mean + root * (drawn - m * weight * mean))

        whole.real[list(_SCALARS)] += square * engine.real[list(_SCALARS)]
        whole.triangles[0] += linear(engine.triangles[0], bend[lower])
        if isinstance(engine, OuterEngine) and settings.exact:
            exact.append((square, engine))
        else:
            whole.triangles[1] += square * engine.triangles[1]
        whole.rows[k.AIMED] += linear(engine.rows[k.AIMED], aimed)
        if settings.outer:
            whole.rows[k.FIRST] += square * engine.rows[k.FIRST]
        elif settings.directed:
            whole.rows[k.FIRST] += linear(engine.rows[k.FIRST], first)
            whole.rows[k.SECOND] += square * engine.rows[k.SECOND]
        whole.whole[k.COUNT] += size
    whole.rows[k.REFERENCE] = theta
    if exact:
        # Residuals from exact sums are those at the estimate, in which noise hides directions.
        to_estimate(whole.whole, whole.real, whole.rows[k.AVERAGE], whole.rows[k.REFERENCE], math.inf)
        for square, engine in exact:
            engine.summarize(whole.rows[k.REFERENCE])
            whole.triangles[1] += square * engine.triangles[1]
    whole.covariates = device.covariates
    return estimate_of_sums([whole])


def _of_cells(
    device: CellDevice, records: Records, people: int, levels: Mapping[str, float], rng: np.random.Generator
) -> Estimate:
    """Simulate the estimate from cells, by drawing how many people release each cell."""
    cells, engine = device.settings.cells, device.engine()
    assert cells is not None
    true = np.array(records.shares @ cells.shares(device.vectors(records.X, records.y)))
    for level, size in design.split(people, levels).items():
        mechanism = device.mechanisms[level]
        released = mechanism.other + true / mechanism.gain
        engine.add(mechanism, rng.multinomial(size, released / released.sum()))
    return engine.estimate()


def _simulated(
    device: ExampleDevice, records: Records, people: int, level: str, theta: Floats, rng: np.random.Generator
) -> IWPEngine:
    """Return an engine that has learned from ``people``, with all residuals at the fit ``theta``."""
    mechanism: Any = device.mechanisms[level]
    engine: IWPEngine = engine_of(device.settings, device.mechanisms, seed=int(rng.integers(2**63)))
    engine.whole[k.NEXT_REFRESH] = _NEVER
    engine.rows[k.REFERENCE] = theta
    drawn = rng.choice(len(records.shares), size=people, p=records.shares)
    engine.learn_records(records.X[drawn], records.y[drawn], [mechanism])
    if isinstance(engine, OuterEngine) and engine.settings.exact:
        engine.summarize(theta)
    return engine


def _means(device: ExampleDevice, records: Records) -> tuple[Floats, Floats, Floats, Floats]:
    """Return mean Hessian (p, p), right-hand side, mean u and fit, for releases without noise."""
    settings, V, shares = device.settings, device.vectors(records.X, records.y), records.shares
    p, first = settings.features, np.zeros(settings.features)
    if not settings.weighted:
        bend, aimed, theta = _fit(device, V, records)
        return bend, aimed, first, theta
    if settings.outer:
        whole = (V * shares[:, None]).T @ V
        bend, aimed = whole[:p, :p], whole[:p, p]
    else:
        u, t = parts(settings.form, V)
        u = u[:, :p]
        bend, aimed, first = (u * shares[:, None]).T @ u, (shares * t) @ u, shares @ u
    return bend, aimed, first, _solved(device, bend, aimed)


def _fit(device: ExampleDevice, V: Floats, records: Records) -> tuple[Floats, Floats, Floats]:
    """Minimise the loss of records without noise by Newton steps; return Hessian, right side and minimiser."""
    settings, shares = device.settings, records.shares
    engine = device.engine()
    whole, real = engine.whole.copy(), engine.real.copy()
    real[k.KEEP] = 1.0
    missing = np.isnan(records.y)
    targets = np.where(missing, 0.0, records.y if settings.form == k.REAL else 2.0 * records.y - 1.0)
    u = V if settings.form == k.PRODUCT else records.X.copy()
    if settings.form != k.PRODUCT:
        # The constant is not released, and so is never missing.
        u[missing, :-1] = 0.0
    if settings.form == k.LABEL and missing.any():
        # The label of a record without a target is a fair coin.
        u, shares = np.tile(u, (2, 1)), np.tile(shares / 2.0, 2)
        targets = np.concatenate([np.where(missing, coin, targets) for coin in (1.0, -1.0)])
    theta = np.zeros(settings.features)
    for _ in range(1 if settings.loss in ("quadratic", "squared") else _STEPS):
        pairs = [factors(whole, real, z, 0.0, t)[:3:2] for z, t in zip(u @ theta, targets, strict=True)]
        pull, outer = np.array(pairs).T
        bend = (u * (shares * outer)[:, None]).T @ u
        aimed = bend @ theta - (shares * pull) @ u
        before, theta = theta, _solved(device, bend, aimed)
        if np.max(np.abs(theta - before)) < _NEAR:
            break
    return bend, aimed, theta


def _solved(device: ExampleDevice, bend: Floats, aimed: Floats) -> Floats:
    """Return the minimiser, scaled into the ball; the shortest one if there are several."""
    settings = device.settings
    assert settings.radius is not None
    free = settings.features - (not settings.intercept)
    ridge = 1e-9 * np.trace(bend) + settings.regularization * (1.0 if not settings.weighted else 0.0)
    theta = np.zeros(settings.features)
    theta[:free] = np.linalg.lstsq(bend[:free, :free] + ridge * np.eye(free), aimed[:free], rcond=None)[0]
    return np.asarray(theta * min(1.0, settings.radius / max(float(np.linalg.norm(theta)), 1e-9)))


estimates = design.one_by_one(estimate)

# For outer products the factor grows with the number of coefficients, as noise hides more directions.
_OUTER: Final = 0.45


def effect_variance(device: ExampleDevice | CellDevice, task: Task, people: int) -> float:
    """Return the variance of an effect per standard deviation of a feature, for a target coded to -1 and +1."""
    p, public = task.coding.size, task.public is not None
    mechanism: Any = device.mechanisms[DEFAULT_LEVEL]
    if isinstance(device, CellDevice):
        return float(mechanism.gain**2) / people
    noise = mechanism.variance
    if device.settings.outer:
        # Numbers off the diagonal have half of the noise variance; records are divided by 1 + their squared length.
        variance = noise / 2.0 * (2.0 + design.VARIANCE * (p - 1)) ** 2
        return (_OUTER * p) ** 2 * design.moments_variance(variance, variance, people) + design.misfit_variance(task)
    if public:
        return 4.5**2 * design.vectors_variance(p, noise, people)
    length = 1.0 + design.VARIANCE * (p - 1)
    variance = design.moments_variance((noise**2 + noise) * length**2, noise**2 * length**2, people)
    return 2.6**2 * variance + design.misfit_variance(task)


def bias(task: Task) -> str:
    """Return, in words, the bias that half-widths do not include; empty if there is none."""
    rounded = () if (cells := settings_of(task).cells) is None else CellTable.of(cells).rounded
    return f"the bias of examples, whose devices round {rounded_names(task.coding.names, rounded)}" if rounded else ""


def remarks(task: Task) -> Iterator[str]:
    """Yield the remark that half-widths do not include the bias from rounding numbers on devices."""
    settings = settings_of(task)
    if settings.cells and (note := note_of(settings.names, CellTable.of(settings.cells).rounded)):
        yield f"examples: {note.removeprefix('; ')}. Half-widths do not show this bias (docs/iwp-sgd.md)."
