"""Error and coverage of scores in epochs: ``python -m benchmarks.scores``.

Two tables. *Accuracy*: logistic models with standard normal features, all coefficients and the intercept 1,
n = 300,000, mean squared distance to the truth. *Coverage*: how often nominal 95% intervals hold the truth on generated
tasks of many shapes, of the coefficients that were learned, and how many were. ``--replications`` for more of each.
"""

import argparse
import math

import numpy as np

from murk.learners.inference import PublicCovariates
from murk.learners.scores.layout import epoch_end
from murk.learners.scores.mechanism import menu_of
from murk.learners.scores.model import chance
from murk.learners.scores.problem import ScoreProblem
from murk.learners.scores.settings import Settings
from murk.privacy import ApproxDP, GaussianDP
from murk.privacy.noise import SimulatedNoise

SHAPES = ("normal", "uniform", "correlated", "rare", "skewed", "one-hot", "mixed")
SIZES = ((2, 0.5, 100_000), (5, 1.0, 100_000), (8, 2.0, 100_000), (12, 4.0, 30_000), (5, 8.0, 20_000))


def features(shape, n, p, rng):
    """Coded features of a shape, the constant last."""
    if shape == "normal":
        X = rng.normal(size=(n, p)) / 3
    elif shape == "uniform":
        X = rng.uniform(-1, 1, size=(n, p))
    elif shape == "correlated":  # standard deviations from 1/2 to 1/60, turned
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
    else:
        half, common = p // 2, rng.normal(size=(n, 1))
        coins = rng.random((n, half)) < chance(common - np.linspace(0, 3, half))
        X = np.c_[np.where(coins, 1.0, -1.0), np.clip(0.3 * common + 0.2 * rng.normal(size=(n, p - half)), -1, 1)]
    return np.c_[X, np.ones(n)]


def learned(X, y, guarantee, seed, public=None):
    """The estimate of people who answer one epoch after another, as devices do."""
    covariates = None
    if public is not None:
        points, counts = np.unique(public, axis=0, return_counts=True)
        covariates = PublicCovariates(points, counts.astype(np.int64))
    p = X.shape[1]
    settings = Settings((*(f"x{j}" for j in range(p - 1)), "intercept"), True, covariates)
    problem = ScoreProblem(settings, {"default": menu_of("best", guarantee, p)})
    engine, noise = problem.engine(), SimulatedNoise(seed)
    while engine.n_releases < len(X):
        start = engine.n_releases
        people = np.arange(start, min(len(X), epoch_end(start)), dtype=np.int64)
        flat, answers = engine.model.flat, {}
        asked = np.array(problem.ask(noise, people, flat))
        for question in problem.questions:
            own = people[asked == question]
            if len(own):
                vectors = problem.vectors(X[own], y[own], flat, question)
                answers["default", question] = problem.mechanism("default", question).randomize(vectors, noise, own)
        engine.learn_payloads(answers)
    return engine.estimate()


def accuracy(replications, n=300_000, rows=5_000):
    print("\n| logistic, n = 300,000 | public rows | mean squared error | covered |\n|---|---|---|---|")
    for p, guarantee in (
        (5, GaussianDP(2.0)),
        (10, GaussianDP(1.0)),
        (20, GaussianDP(1.0)),
        (5, ApproxDP(1.0, 1e-6)),
    ):
        for public in (rows, 0):
            errors, held = [], []
            for seed in range(replications):
                rng = np.random.default_rng(seed)
                X = np.c_[rng.normal(size=(n + rows, p)), np.ones(n + rows)]
                theta = np.ones(p + 1)
                y = (rng.random(n) < chance(X[:n] @ theta)).astype(float)
                estimate = learned(X[:n], y, guarantee, seed, X[n:] if public else None)
                errors.append(float(np.sum((estimate.values - theta) ** 2)))
                held.append(np.mean(np.abs(estimate.values - theta) <= estimate.half_widths()))
            spread = np.std(errors) / math.sqrt(replications)
            print(
                f"| d = {p}, {guarantee} | {public or 'none'} | {np.mean(errors):.3g} +- {spread:.1g} | "
                f"{np.mean(held):.1%} |",
                flush=True,
            )


def coverage(replications, shapes, rows=2_000):
    print("\n| features | p, mu, n | public rows | missing | learned | covered, of these | standard error |")
    print("|---|---|---|---|---|---|---|")
    for shape in shapes:
        for p, mu, n in SIZES:
            for public, missing in ((0, 0.0), (rows, 0.0), (0, 0.4)):
                held, known = [], []
                for seed in range(replications):
                    rng = np.random.default_rng(1000 + seed)
                    X = features(shape, n + rows, p, rng)
                    theta = rng.normal(size=p + 1)
                    theta *= 1.5 / math.sqrt(np.mean((X @ theta) ** 2))
                    y = (rng.random(n) < chance(X[:n] @ theta)).astype(float)
                    y[rng.random(n) < missing] = np.nan
                    estimate = learned(X[:n], y, GaussianDP(mu), seed, X[n:] if public else None)
                    half = estimate.half_widths()
                    known.append(np.isfinite(half))
                    held.append(np.abs(estimate.values - theta) <= half)
                where = np.array(known)
                share = np.mean(np.array(held)[where]) if where.any() else math.nan
                # Of replications: coefficients of one run miss together.
                each = [np.mean(h[k]) for h, k in zip(held, known, strict=True) if k.any()]
                error = np.std(each) / math.sqrt(max(len(each), 1)) if each else math.nan
                print(
                    f"| {shape} | {p}, {mu:g}, {n:,} | {public or 'none'} | {missing:.0%} | {where.mean():.0%} | "
                    f"{share:.1%} | {error:.1%} |",
                    flush=True,
                )


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=20)
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--only", choices=("accuracy", "coverage"))
    given = parser.parse_args(argv)
    if given.only != "coverage":
        accuracy(given.replications)
    if given.only != "accuracy":
        coverage(given.replications, given.shapes.split(","))


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
