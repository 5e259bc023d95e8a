"""Generated people for the tests of scores: coded records, and their answers learned by the device's own code."""

from __future__ import annotations

import numpy as np

from murk.privacy import GaussianDP
from murk.privacy.noise import SimulatedNoise
from murk.protocols.linear_algebra import flattened
from murk.protocols.rows import Rows
from murk.protocols.scores.device import ScoreDevice
from murk.protocols.scores.engine import ScoreEngine
from murk.protocols.scores.mechanisms import score_mechanisms
from murk.protocols.scores.model import QUERIES, probability
from murk.protocols.scores.settings import Settings
from murk.protocols.scores.sums import Tally


def device_of(p, mu, *, binary=True, covariates=None, guarantee=None, **more):
    """A device of p coded features and the constant, with one level."""
    names = (*(f"x{j}" for j in range(p)), "intercept")
    settings = Settings(names, binary and "labels" not in more, covariates, **more)
    pair = score_mechanisms("best", guarantee or GaussianDP(mu), p + 1, settings.contrasts, bits=settings.bits)
    return ScoreDevice(settings, {"default": pair})


def features(rng, n, p):
    """Coded features in the box, correlated and uneven, the constant last."""
    common = rng.normal(size=(n, 1))
    spread = np.clip(0.3 * common + rng.normal(size=(n, p)) * np.linspace(0.2, 0.6, p), -1.0, 1.0)
    spread[:, 0] = np.where(common[:, 0] + rng.normal(size=n) > 1.0, 1.0, -1.0)
    return np.concatenate([spread, np.ones((n, 1))], axis=1)


def outcomes(rng, X, theta):
    """Binary outcomes of a logistic model."""
    return (rng.random(len(X)) < probability(X @ theta)).astype(float)


def class_outcomes(rng, X, theta):
    """Outcomes of a softmax model with coefficients theta (K, p), as numbers of classes."""
    odds = np.exp(X @ theta.T)
    edges = np.cumsum(odds / odds.sum(axis=1, keepdims=True), axis=1)
    return (rng.random(len(X))[:, None] > edges).sum(axis=1).clip(0, len(theta) - 1).astype(float)


def public(X):
    """Public covariates."""
    points, counts = np.unique(X, axis=0, return_counts=True)
    return Rows.counted(points, counts.astype(np.int64))


def learn_sums(device, X, y, seed) -> ScoreEngine:
    """The same at once: Gaussian noise on a round's sums, of the same distribution but for the lattice.

    A survey's rounds are few people, who answer one by one.
    """
    survey = device.settings.survey
    engine = device.engine() if survey is None else learn(device, X[: survey.end], y[: survey.end], seed)
    rng = np.random.default_rng(seed + 10_000)
    while engine.n_releases < len(X):
        start, model = engine.n_releases, engine.model
        size = min(len(X), device.settings.round_end(start)) - start
        shares = [1.0 - model.scatter - model.curvature, model.scatter, model.curvature]
        asked, sums = rng.choice(3, size=size, p=shares), {}
        for query in QUERIES[: 3 if device.settings.matrices else 1]:
            own = start + np.flatnonzero(asked == QUERIES.index(query))
            if len(own):
                mechanism = device.mechanism("default", query)
                V = device.vectors(X[own], y[own], model.flat, query)
                total = V.sum(axis=0) if query == "score" else flattened(V.T @ V)
                total = total + rng.normal(size=len(total)) * np.sqrt(len(own) * mechanism.variance)
                whole = [round(value) for value in (total / mechanism.unit).tolist()]
                sums["default", query] = Tally(len(own), whole)
        engine.learn_sums(sums)
    return engine


def learn(device, X, y, seed, noise=None) -> ScoreEngine:
    """Let people answer one round after another, as devices do, and learn."""
    engine, noise = device.engine(), SimulatedNoise(seed) if noise is None else noise
    while engine.n_releases < len(X):
        start = engine.n_releases
        indices = np.arange(start, min(len(X), device.settings.round_end(start)), dtype=np.int64)
        flat = engine.model.flat
        asked = np.array(device.draw_query(noise, indices, flat))
        answers = {}
        for query in sorted(set(asked.tolist())):
            own = indices[asked == query]
            vectors = device.vectors(X[own], y[own], flat, query)
            answers["default", query] = device.mechanism("default", query).randomize(vectors, noise, own)
        engine.learn_payloads(answers)
    return engine
