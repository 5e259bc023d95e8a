"""Plug-in intervals of gradients where targets are missing: ``python -m benchmarks.missing``.

Generated people with public rows, none or 40% of whose targets are missing at random, or more of them where the first
feature is above 0. How often nominal 95% intervals hold the truth, those that are printed and those of
``intervals="complete"``, and how wide the first are in terms of the second. ``--replications`` for more of each.
"""

import argparse
import math
import warnings
from dataclasses import replace

import numpy as np

from murk.errors import DataWarning
from murk.learners import LDPSGDClassifier
from murk.learners.gradients.inference import estimate
from murk.privacy import GaussianDP

PUBLIC = 4_000
PEOPLE = ((1.0, 30_000), (2.0, 100_000))
TRUTHS = {
    "two coins": (0.4, -0.3, 0.2),
    "a coin of one in ten": (0.3, 0.6, -0.5),
    "a rare outcome": (0.4, -0.3, -2.2),
    "five normal features": (0.8, -0.6, 0.4, -0.2, 0.5, -0.3),
}
MISSING = ("none", "40% at random", "by feature")


def features(design, n, rng):
    """Coded features, without the constant."""
    if design == "five normal features":
        return np.clip(rng.normal(size=(n, 5)) / 2, -1, 1)
    if design == "a coin of one in ten":
        return np.c_[np.where(rng.random(n) < 0.1, 1.0, -1.0), np.clip(rng.normal(size=n) / 3, -1, 1)]
    return rng.choice([-1.0, 1.0], size=(n, 2))


def truth_of(design, objective):
    """Coefficients, one row a class of softmax."""
    theta = np.array(TRUTHS[design])
    if objective != "softmax":
        return theta
    table = np.outer([1, -0.5, -0.5], theta) + np.outer([0, 0.5, -0.5], theta[::-1])
    return table - table.mean(axis=0)


def outcomes(X, theta, rng):
    """Labels 0, 1, ... of rows whose constant is left out."""
    odds = np.exp(np.c_[X, np.ones(len(X))] @ np.atleast_2d(theta).T)
    if odds.shape[1] == 1:
        odds = np.c_[np.ones(len(X)), odds]
    edges = np.cumsum(odds / odds.sum(axis=1, keepdims=True), axis=1)
    return (rng.random(len(X))[:, None] > edges[:, :-1]).sum(axis=1)


def without(y, how, X, rng):
    """Labels of which some are missing."""
    share = {"none": 0.0, "40% at random": 0.4, "by feature": np.where(X[:, 0] > 0, 0.6, 0.2)}[how]
    return np.where(rng.random(len(y)) < share, -1, y)


def runs(objective, design, mu, n, how, replications):
    """What the two kinds of intervals held, and how wide they were, (replications, 4)."""
    measured, theta = [], truth_of(design, objective)
    for seed in range(replications):
        rng = np.random.default_rng([seed, 17])
        X = features(design, n + PUBLIC, rng)
        y = without(outcomes(X[:n], theta, rng), how, X[:n], rng)
        model = LDPSGDClassifier(
            budget=GaussianDP(mu), classes=list(range(2 if theta.ndim == 1 else len(theta))),
            features=list(range(X.shape[1])), public=X[n:], radius=3.0, seed=seed,
            objective="logistic" if objective == "logistic" else "balanced",
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # of undeclared labels: they stand for missing ones
            model.learn_many(X[:n], y)
        engine, held, wide = model._require(), [], []
        for intervals in (None, "complete"):
            # What is learned does not depend on which intervals are printed.
            settings = replace(engine.settings, intervals=intervals)
            found = estimate(settings, [engine.snapshot()], engine.covariates)
            half = found.half_widths()
            held.append(np.mean(np.abs(found.values - theta.ravel()) <= half))
            wide.append(np.median(half))
        measured.append((*held, *wide))
    return np.array(measured)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=40)
    parser.add_argument("--only", choices=("logistic", "balanced", "softmax"))
    given = parser.parse_args(argv)
    print("| loss | missing | held | the worst of 8 cells | as if complete | the worst | width, of `complete` |")
    print("|---|---|---|---|---|---|---|")
    for objective in ("balanced", "logistic", "softmax"):
        if given.only not in (None, objective):
            continue
        for how in MISSING:
            cells = np.array(
                [runs(objective, each, *one, how, given.replications) for each in TRUTHS for one in PEOPLE]
            )
            error = cells.std(axis=1) / math.sqrt(given.replications)
            means = cells.mean(axis=1)
            text = []
            for place in (0, 1):
                worst = int(np.argmin(means[:, place]))
                text.append(f"{means[:, place].mean():.1%} | {means[worst, place]:.1%} +- {error[worst, place]:.1%}")
            print(
                f"| {objective} | {how} | {' | '.join(text)} | {np.median(means[:, 2] / means[:, 3]):.2f} |", flush=True
            )


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
