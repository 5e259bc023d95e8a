"""Generated people to whom each protocol is put, and what its engine learns of them: no pipe, no log, no ledger.

Releases that are only ever added up are drawn as their sum: exactly for Gaussian noise but for its lattice.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.pipe import learn
from benchmarks.score_people import answer, covariates_of, features
from murk import Task
from murk._internal.links import logistic
from murk.inference.units import effect_units, fits_probabilities, on_logit_scale
from murk.privacy.central.accumulators import at_model
from murk.privacy.central.newton_step import EDGE
from murk.protocols.device import device_for
from murk.protocols.examples import layout as k
from murk.protocols.examples.device import ExampleDevice
from murk.protocols.examples.engine import engine_of
from murk.protocols.examples.estimate import estimate_of_sums
from murk.protocols.examples.public_fit import acting
from murk.protocols.gradients.device import GradientDevice
from murk.protocols.linear_algebra import symmetric
from murk.protocols.moments import kernels
from murk.protocols.moments.estimate import fit
from murk.protocols.moments.mechanisms import Level
from murk.protocols.moments.sums import MomentSums
from murk.protocols.population import released_sum
from murk.protocols.scores.device import ScoreDevice
from murk.protocols.summaries.device import GramDevice, NewtonDevice
from murk.protocols.summaries.forecast import noise_of
from murk.protocols.summaries.newton_fit import model_of
from murk.results.report import average_effects

TEST = 20_000
# An organisation hides which record it was, as local guarantees do.
SKETCHES = {
    "summaries": "summaries: {neighbours: replace-one}",
    "newton": "summaries: {method: newton, neighbours: replace-one}",
}
_BLOCK = 2**16


@dataclass(frozen=True)
class Setting:
    """One cell: the kind of target, d features beside the constant, n people, mu, public rows, and missing targets."""

    kind: str
    d: int
    n: int
    mu: float
    rows: int
    missing: float = 0.0  # share of the targets, which the task states

    def task(self, protocol, more=""):
        """The task of one protocol."""
        names = ", ".join(f"{{name: x{j}, low: -1, high: 1}}" for j in range(self.d))
        target = "kind: binary, positive: 'yes'" if self.kind == "binary" else "kind: real, low: -1, high: 1"
        if self.missing:
            target += f", missing_share: {self.missing}"
        if protocol in SKETCHES:
            protocol, more = "summaries", SKETCHES[protocol]
        elif protocol == "once":
            protocol, more = ("scores", f"{more}\nscores: {{interactive: false}}") if self.rows else ("moments", more)
        if self.rows and protocol != "summaries":
            more += f"\npublic: {{set_aside: {self.rows}}}"
        return Task.parse(
            f"name: cell\nfeatures: [{names}]\ntarget: {{name: y, {target}}}\nprotocol: {protocol}\n{more}\n"
            f"privacy: {{guarantee: {{gdp: {{mu: {self.mu}}}}}}}"
        )


def drawn(setting, rng):
    """Records of n people, public rows and rows to predict, and the truth: half coins, half numbers, correlated."""
    X = features("mixed", setting.n + setting.rows + TEST, setting.d, rng)
    theta = rng.normal(size=setting.d + 1)
    people, public, test = np.split(X, [setting.n, setting.n + setting.rows])
    if setting.kind == "binary":
        theta /= math.sqrt(np.var(test @ theta))
        y = (rng.random(setting.n) < logistic(people @ theta)).astype(float)
    else:
        theta *= 0.8 / np.max(np.abs(X @ theta))
        y = people @ theta + rng.uniform(-0.2, 0.2, size=setting.n)
    return people, y, public, test, theta


def summed_moments(device, X, y, rng):
    """The estimate of released second moments."""
    layout, mechanism = device.layout, device.mechanisms["default"]
    vectors, n = device.vectors(X, y), float(len(X))
    if layout.observed:
        total = released_sum(mechanism, vectors, np.ones(len(X)), rng)
    else:
        total = vectors.sum(axis=0) + math.sqrt(n * mechanism.variance) * rng.normal(size=layout.dimension)
    level = Level.of(mechanism, layout)
    weights, variances = level.weights, level.variances
    sums = np.zeros(kernels.SUMS)
    for part in (0, 1):
        sums[kernels.WEIGHTS + part] = n * weights[part]
        sums[kernels.NOISE + part] = n * weights[part] ** 2 * variances[part]
        sums[kernels.SQUARES + part] = n * weights[part] ** 2
    total *= np.repeat(weights, [layout.cross, layout.size])
    return fit(device.model, MomentSums(total, sums, len(X)), layout).estimate


def summed_gram(device, X, y, rng):
    """The estimate of an organisation's one window."""
    mechanism, engine = device.mechanisms["default"], device.engine()
    z = device.records(X, y)
    noise = noise_of(mechanism, z.shape[1], rng)
    engine.sums.add(z.T @ z + noise, records=len(X), noise=mechanism.scale**2, weight=1.0)
    return engine.estimate()


def summed_steps(device, X, y, rng):
    """The estimate of an organisation's one window by a Newton step from its first records."""
    mechanism, engine = device.mechanisms["default"], device.engine()
    z = device.records(X, y)
    d = z.shape[1]
    own, _ = mechanism.parts(len(z))
    first = z[:own].T @ z[:own] + noise_of(mechanism.start, d, rng)
    model = model_of(device.settings, mechanism.start, first, own)
    step = noise_of(mechanism.step, d, rng)
    for start in range(own, len(z), _BLOCK):
        rows = z[start : start + _BLOCK]
        seen = np.zeros_like(rows)
        at_model(rows, model, mechanism.feature_bound, EDGE, np.zeros((1, d)), seen)
        step += seen.T @ seen
    engine.learn_matrices(first, step, model=model, records=len(z), mechanism=mechanism)
    return engine.estimate()


def summed_outer(device, X, y, rng):
    """The engine of released outer products, after one partition of people with Gaussian noise.

    Squares of noise in the covariance of what was released are at their mean.
    """
    mechanism, p, n = device.mechanisms["default"], device.settings.features, len(X)
    engine, v = engine_of(device.settings, device.mechanisms, seed=0), device.vectors(X, y)
    variance = mechanism.variance
    noise = symmetric(math.sqrt(n * variance) * rng.normal(size=mechanism.dimension), p + 1)
    total = v.T @ v + noise
    real, lower = engine.real, np.tril_indices(p)
    real[[k.POLISH_WEIGHT, k.POLISH_SQUARES, k.MEAT_SQUARES]] = n
    squares = np.square(v[:, :p]).sum(axis=1)
    real[k.BEND_SQUARES] = np.square(squares).sum() + n * variance * p * (p + 1) / 2
    real[[k.SUM_WEIGHT, k.SUM_SPREAD]] = n
    engine.whole[k.COUNT] = n
    engine.rows[k.AIMED], engine.rows[k.FIRST, :2] = total[:p, p], n * variance
    engine.triangles[0] = total[:p, :p][lower]
    engine.triangles[1] = (n * np.eye(p))[lower]
    # In the coordinates of the releases, as are their residuals.
    engine.settings = replace(device.settings, coordinates=None)
    theta = estimate_of_sums([engine]).values
    engine.settings = device.settings
    theta = theta * min(1.0, device.settings.radius / max(np.linalg.norm(theta), 1e-9))
    pulled = v[:, :p] * (v @ np.append(theta, -1.0))[:, None]
    own = acting(theta)
    engine.triangles[1] = (pulled.T @ pulled + n * variance * (0.5 * np.eye(p) + own @ own.T))[lower]
    engine.rows[k.REFERENCE] = theta
    engine.covariates = device.covariates
    return engine


def estimate_of(task, X, y, public, rng):
    """What people's releases of one protocol tell its learner."""
    if len(public):
        covariates = covariates_of(public)
        task = task.with_public(covariates.points, covariates.counts) if task.public else task
    device, seed = device_for(task), int(rng.integers(2**31))
    if isinstance(device, ScoreDevice):
        engine = device.engine()
        answer(engine, X, y, rng)
        return engine.estimate()
    if isinstance(device, GradientDevice):
        return device.estimate([learn(device, X, y, np.zeros(len(X), dtype=np.int64), seed)])
    if isinstance(device, ExampleDevice) and device.settings.outer:
        return estimate_of_sums([summed_outer(device, X, y, rng)])
    if isinstance(device, ExampleDevice):
        engine = engine_of(device.settings, device.mechanisms, seed=seed)
        engine.covariates = device.covariates
        engine.learn_records(X, y, [device.mechanisms["default"]])
        return engine.estimate()
    if isinstance(device, NewtonDevice):
        return summed_steps(device, X, y, rng)
    return (summed_gram if isinstance(device, GramDevice) else summed_moments)(device, X, y, rng)


def predictions(task, values, X, exact=False):
    """Predicted probabilities or means; ``exact`` where a binary target's coefficients are log odds."""
    scores = X @ values[: X.shape[1]]
    if task.target.kind == "binary" and (exact or on_logit_scale(task)):
        return logistic(scores)
    if task.target.kind == "binary" and fits_probabilities(task):
        return np.clip((1.0 + scores) / 2.0, 0.0, 1.0)
    return np.clip(scores, -1.0, 1.0)


def outcome(task, estimate, theta, test):
    """Errors of effects of a standard deviation of each feature and of predictions, in points; and their intervals.

    A point is a hundredth of a probability, or of a real target's range. Effects for which no interval is known have
    the coefficient's own, times the true mean slope.
    """
    binary, spread = task.target.kind == "binary", test[:, :-1].std(axis=0)
    truth = logistic(test @ theta) if binary else test @ theta
    slope = float(np.mean(truth * (1.0 - truth))) if binary else 1.0
    points = (100.0 if binary else 50.0) * spread
    values, halves = estimate.values[: len(theta)], estimate.half_widths()[: len(theta)]
    effects = average_effects(task.coefficient_scale, effect_units(task), estimate, 0.95)
    if effects is not None:
        unit = 100.0 if binary else 1.0
        found = np.array([effects[name]["value"] for name in task.coding.names[:-1]]) / unit
        wide = np.array([np.ptp(effects[name]["interval"]) / 2 for name in task.coding.names[:-1]]) / unit
    else:
        found, wide = values[:-1] * slope, halves[:-1] * slope
    predicted = predictions(task, values, test)
    missed = points * (found - slope * theta[:-1])
    return {
        "effects": missed.tolist(),
        "halves": (points * wide).tolist(),
        "size": float(np.sqrt(np.mean((points * slope * theta[:-1]) ** 2))),
        "prediction": (100.0 if binary else 50.0) * float(np.sqrt(np.mean((predicted - truth) ** 2))),
    }
