"""Generated people who really release, one by one, to hold a plan's forecasts against."""

import numpy as np

from murk import Task
from murk._internal.links import logistic
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import device_for
from murk.protocols.examples.cells_device import CellDevice
from murk.protocols.population import Population
from murk.protocols.scores.device import ScoreDevice

THETA = np.array([0.8, -0.6, 0.3])
RESIDUAL = 0.3


def task(mu=2.0, *, kind="binary", protocol="scores", public=0, more="", missing=None):
    """Of a mixture mu is its epsilon: it has no Gaussian guarantee."""
    stated = "" if missing is None else f", missing_share: {missing}"
    targets = {"binary": "kind: binary, positive: 'yes'", "real": "kind: real, low: -1, high: 1"}
    aside = f"public: {{set_aside: {public}}}" if public else ""
    budget = f"approx: {{epsilon: {mu}, delta: 1.0e-6}}" if "mixing" in more else f"gdp: {{mu: {mu}}}"
    return Task.parse(
        f"name: t\nfeatures: [{{name: a, low: -1, high: 1}}, {{name: b, categories: [no, yes]}}]\n"
        f"target: {{name: y, {targets[kind]}{stated}}}\nprotocol: {protocol}\n{aside}\n{more}\n"
        f"privacy: {{guarantee: {{{budget}}}}}"
    )


def rows(n, rng):
    """A number and a category of a third of the people, related, and the constant."""
    common = rng.normal(size=n)
    number = np.clip(0.3 * common + 0.3 * rng.normal(size=n), -1.0, 1.0)
    return np.column_stack([number, np.where(common + rng.normal(size=n) > 0.6, 1.0, -1.0), np.ones(n)])


def population(kind="binary", missing=0.0):
    points = rows(1_000, np.random.default_rng(99))
    theta = THETA if kind == "binary" else THETA / 4.0
    return Population("truth", points, np.full(len(points), 1e-3), theta, kind, RESIDUAL, missing)


def records(n, kind, rng):
    X = rows(n, rng)
    if kind == "binary":
        return X, (rng.random(n) < logistic(X @ THETA)).astype(float)
    return X, np.clip(X @ (THETA / 4.0) + RESIDUAL * rng.choice([-1.0, 1.0], size=n), -1.0, 1.0)


def halves(of, n, kind, seed):
    """Half widths after n people whose devices released, each by its own draw of the noise.

    Targets are missing at random, as many as the task states.
    """
    rng = np.random.default_rng(seed)
    if of.public is not None:
        points, counts = np.unique(rows(of.public.set_aside, rng), axis=0, return_counts=True)
        of = of.with_public(points, counts)
    device, noise = device_for(of), SimulatedNoise(seed)
    (X, y), engine = records(n, kind, rng), device.engine()
    if of.target.missing_share:
        y[rng.random(n) < of.target.missing_share] = np.nan
    if isinstance(device, ScoreDevice):
        _answer(device, engine, X, y, noise)
    elif of.protocol == "moments":
        index = np.arange(n)
        engine.learn_payloads(device.mechanisms["default"].randomize(device.vectors(X, y), noise, index), "default")
    elif of.protocol == "examples":
        more = {"table": device.table} if isinstance(device, CellDevice) else {}
        engine = type(engine)(device.settings, device.mechanisms, seed=seed, **more)
        engine.covariates = getattr(device, "covariates", None)
        engine.learn_records(X, y, [device.mechanisms["default"]])
    elif of.protocol == "gradients":
        engine = type(engine)(device.settings, device.mechanisms, seed=seed, covariates=device.covariates)
        engine.learn_records(X, y, [device.mechanisms["default"]])
    else:
        z, size = device.records(X, y), device.settings.window or n
        for window in range(n // size):
            made = device.accumulator("default", noise, window)
            made.add_block(z[window * size : (window + 1) * size])
            engine.learn_window(made.release())
    return device.estimate([engine]).half_widths()


def _answer(device, engine, X, y, noise):
    while engine.n_releases < len(X):
        start, model = engine.n_releases, engine.model.flat
        stop = min(len(X), start + device.block(start))
        index = np.arange(start, stop)
        asked, payloads = np.array(device.draw_query(noise, index, model)), {}
        for query in np.unique(asked).tolist():
            own = index[asked == query]
            V = device.vectors(X[own], y[own], model, query)
            payloads["default", query] = device.mechanism("default", query).randomize(V, noise, own)
        engine.learn_payloads(payloads)
