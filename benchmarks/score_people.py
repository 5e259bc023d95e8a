"""Generated people of many shapes, and what they release, summed: for the coverage of scores' intervals.

Only sums reach a learner of scores, so that a round's sum can be drawn at once: exactly for Gaussian noise but for its
lattice, and by the central limit theorem, of at least some hundreds of people, for mechanisms that release directions.
"""

import math

import numpy as np

from murk._internal.links import logistic
from murk.privacy.mechanisms.base import direction_spread
from murk.protocols.linear_algebra import flattened
from murk.protocols.rows import Rows
from murk.protocols.scores.engine import ScoreEngine
from murk.protocols.scores.mechanisms import score_mechanisms
from murk.protocols.scores.model import QUERIES, vectors
from murk.protocols.scores.settings import Settings
from murk.protocols.scores.sums import Tally, step_of
from murk.protocols.scores.survey.coordinates import Coordinates

SHAPES = ("normal", "uniform", "correlated", "rare", "skewed", "one-hot", "mixed")
# Shapes that the method was not made with.
OTHERS = ("heavy-tailed", "levels", "piled", "groups", "chained", "coins")
# Errors of a survey: of centres of categories, of other centres over their spreads, and of the logarithm of a spread.
CENTRE_OF_COINS, CENTRE, SPREAD = 0.2, 0.25, 0.27
WRONG = ("turned", "independent", "shifted", "part")


def features(shape, n, p, rng):
    """Coded features of a shape, the constant last."""
    if shape == "normal":
        X = rng.normal(size=(n, p)) / 3
    elif shape == "uniform":
        X = rng.uniform(-1, 1, size=(n, p))
    elif shape == "correlated":  # standard deviations from 1/2 to 1/60, turned: a condition number of 900
        turn = np.linalg.qr(np.random.default_rng(77 + p).normal(size=(p, p)))[0]
        X = np.clip(rng.normal(size=(n, p)) @ (turn * np.geomspace(1, 1 / 30, p)) @ turn.T / 2, -1, 1)
    elif shape == "rare":  # two categories each, the rarer from half of the people to one in a hundred
        X = np.where(rng.random((n, p)) < np.geomspace(0.5, 0.01, p), 1.0, -1.0)
    elif shape == "skewed":
        X = np.clip(np.exp(rng.normal(size=(n, p))) / 4 - 1, -1, 1)
    elif shape == "one-hot":  # one category of p + 1, the rarest some 1% of the people
        share = np.geomspace(1, 0.03, p + 1)
        chosen = rng.choice(p + 1, size=n, p=share / share.sum())
        X = np.where(chosen[:, None] == np.arange(1, p + 1), 1.0, -1.0)
    elif shape == "heavy-tailed":
        X = np.clip(rng.standard_t(3, size=(n, p)) / 4, -1, 1)
    elif shape == "levels":  # three of them
        X = rng.binomial(2, np.linspace(0.1, 0.6, p), size=(n, p)) - 1.0
    elif shape == "piled":  # at one end
        X = 2 * rng.beta(0.3, 1.5, size=(n, p)) - 1
    elif shape == "groups":  # two of them, far apart in all features
        X = np.clip(np.where(rng.random((n, 1)) < 0.2, 0.6, -0.3) + 0.2 * rng.normal(size=(n, p)), -1, 1)
    elif shape == "chained":
        X = np.clip(np.cumsum(rng.normal(size=(n, p)), axis=1) / (2 * np.sqrt(np.arange(1, p + 1))), -1, 1)
    elif shape == "coins":  # correlated ones
        latent = 0.8 * rng.normal(size=(n, 1)) + 0.6 * rng.normal(size=(n, p))
        X = np.where(latent > np.linspace(-0.5, 1.5, p), 1.0, -1.0)
    else:
        half, common = p // 2, rng.normal(size=(n, 1))
        coins = rng.random((n, half)) < logistic(common - np.linspace(0, 3, half))
        X = np.c_[np.where(coins, 1.0, -1.0), np.clip(0.3 * common + 0.2 * rng.normal(size=(n, p - half)), -1, 1)]
    return np.c_[X, np.ones(n)]


def unlike(how, X, rng):
    """Public rows that are not like the people: made from rows that are."""
    X, p = X.copy(), X.shape[1] - 1
    if how == "turned":  # each feature's own distribution, and other correlations
        load = np.random.default_rng(99 + p).normal(size=(p, max(1, p // 2)))
        covariance = load @ load.T + 0.5 * np.eye(p)
        ranks = np.argsort(np.argsort(rng.normal(size=(len(X), p)) @ np.linalg.cholesky(covariance).T, axis=0), axis=0)
        X[:, :p] = np.take_along_axis(np.sort(X[:, :p], axis=0), ranks, axis=0)
    elif how == "independent":
        for j in range(p):
            X[:, j] = rng.permutation(X[:, j])
    elif how == "shifted":
        X[:, :p] = np.clip(0.7 * X[:, :p] + 0.2, -1, 1)
    else:  # those with more of the first feature come more often
        first = (X[:, 0] - X[:, 0].mean()) / max(X[:, 0].std(), 1e-9)
        X = X[rng.choice(len(X), size=len(X), p=logistic(first) / logistic(first).sum())]
    return X


def covariates_of(X):
    """Rows as public covariates."""
    points, counts = np.unique(X, axis=0, return_counts=True)
    return Rows.counted(points, counts.astype(np.int64))


def surveyed(X, rng):
    """Coordinates as a survey publishes them: with its errors, and a spread that is rather too small.

    A column of -1 and 1, and 0 where missing, is a category, whose spread is 1 by convention. The constant is last.
    """
    X = X[:, :-1]
    coins = np.all(np.isin(X, (-1.0, 0.0, 1.0)), axis=0)
    centre, spread = X.mean(axis=0), np.where(coins, 1.0, X.std(axis=0))
    error = np.where(coins, CENTRE_OF_COINS, CENTRE * spread)
    logs = np.where(coins, 0.0, SPREAD)
    drawn = spread * np.exp(logs * rng.normal(size=len(spread)) - logs / 4.0)
    return Coordinates(np.clip(centre + error * rng.normal(size=len(spread)), -1, 1), drawn, error, logs)


def exact(X):
    """Coordinates of exact centres and spreads, stated as well as known."""
    X = X[:, :-1]
    coins = np.all(np.isin(X, (-1.0, 0.0, 1.0)), axis=0)
    few = np.full(X.shape[1], 0.01)
    return Coordinates(X.mean(axis=0), np.where(coins, 1.0, X.std(axis=0)), few, np.where(coins, 0.0, few))


def _released(mechanism, V, rng, squared=False):
    """The sum of the integers that people release who are given V (m, d), or its rows' outer products."""
    across, along = direction_spread(mechanism)
    if squared and along is not None:
        V, squared = flattened(V[:, :, None] * V[:, None, :]), False
    total = flattened((V.T @ V)[None])[0] if squared else V.sum(axis=0)
    total += rng.normal(size=len(total)) * math.sqrt(len(V) * across)
    if along is not None:
        length = np.sqrt(np.einsum("ij,ij->i", V, V))[:, None]
        unit = V / np.where(length > 0, length, 1.0)
        values, vectors = np.linalg.eigh(along * unit.T @ unit - V.T @ V)
        total = total + vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.normal(size=len(values)))
    return [round(value) for value in (total / step_of(mechanism)).tolist()]


def learned(X, y, guarantee, rng, *, public=None, binary=True, pair=None, once=False, line=True, coordinates=None):
    """The estimate of people who answer one round after another, as devices do; or all at once, as directions."""
    p = X.shape[1]
    names = (*(f"x{j}" for j in range(p - 1)), "intercept")
    settings = Settings(
        names, binary, None if public is None else covariates_of(public), once=once, line=line, coordinates=coordinates
    )
    pair = score_mechanisms("best", guarantee, p, matrices=settings.matrices) if pair is None else pair
    engine = ScoreEngine(settings, {"default": pair})
    answer(engine, X, y, rng)
    return engine.estimate()


def answer(engine, X, y, rng):
    """Let people answer, one round after another."""
    pair, done = engine.mechanisms["default"], 0
    while done < len(X):
        start, model = done, engine.model
        done = stop = min(len(X), start + engine.settings.round_end(engine.n_releases) - engine.n_releases)
        sums = {}
        asked = np.searchsorted(
            [model.scatter, model.scatter + model.curvature], rng.random(stop - start), side="right"
        )
        for query, place in zip(QUERIES, (2, 0, 1), strict=True):
            own = start + np.flatnonzero(asked == place)
            if not len(own):
                continue
            V = vectors(X[own], y[own], model, engine.settings.response, query)
            total = _released(pair.mechanism(query), V, rng, squared=query != "score")
            sums["default", query] = Tally(len(own), total)
        engine.learn_sums(sums)
