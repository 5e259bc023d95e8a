"""Plug-in intervals of gradients where targets are missing: ``python -m benchmarks.missing``.

Generated people with public rows: a share of their targets is missing at random, or more of them where the first
feature is above 0. How often nominal 95% intervals hold the truth with the share stated and without, and how wide they
are: over 1.96 root mean squared errors, and over the stated ones. ``--replications`` for more of each.
"""

import argparse
import math
import warnings
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from murk.errors import DataWarning
from murk.learners import LDPSGDClassifier, LDPSGDRegressor
from murk.privacy import GaussianDP
from murk.protocols.gradients.estimate import estimate

LOSSES = ("balanced", "logistic", "softmax", "huber")
PUBLIC = 4_000
PEOPLE = ((1.0, 30_000), (2.0, 100_000))
TRUTHS = {
    "two coins": (0.4, -0.3, 0.2),
    "a coin of one in ten": (0.3, 0.6, -0.5),
    "a rare outcome": (0.4, -0.3, -2.2),
    "five normal features": (0.8, -0.6, 0.4, -0.2, 0.5, -0.3),
}
MISSING = {"none": 0.0, "5% at random": 0.05, "30% at random": 0.3, "60% or 20%, by feature": 0.6}


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
    share = np.where(X[:, 0] > 0, 0.6, 0.2) if "feature" in how else MISSING[how]
    nothing = np.nan if y.dtype == float else -1
    return np.where(rng.random(len(y)) < share, nothing, y)


def learned(objective, X, y, public, mu, seed, classes):
    if objective == "huber":
        model = LDPSGDRegressor(
            guarantee=GaussianDP(mu), features=list(range(X.shape[1])), public=public, radius=1.5, seed=seed
        )
    else:
        model = LDPSGDClassifier(
            guarantee=GaussianDP(mu), classes=list(range(classes)), features=list(range(X.shape[1])), public=public,
            radius=3.0, seed=seed,
            objective="logistic" if objective == "logistic" else "balanced",
        )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # of undeclared labels: they stand for missing ones
        model.learn_many(X, y)
    return model._require()


def runs(objective, design, mu, n, how, replications):
    """Errors and half-widths with and without the statement, (replications, 3, coefficients)."""
    measured, theta = [], truth_of(design, objective)
    for seed in range(replications):
        rng = np.random.default_rng([seed, 17])
        X = features(design, n + PUBLIC, rng)
        if objective == "huber":
            y = 0.4 * (np.c_[X[:n], np.ones(n)] @ theta) + 0.3 * rng.laplace(size=n) / math.sqrt(2.0)
        else:
            y = outcomes(X[:n], theta, rng)
        y = without(y, how, X[:n], rng)
        engine = learned(objective, X[:n], y, X[n:], mu, seed, 2 if theta.ndim == 1 else len(theta))
        # What is learned does not depend on the statement.
        found = [
            estimate(replace(engine.settings, missing_share=share), [engine.snapshot()], engine.covariates)
            for share in (MISSING[how], None)
        ]
        truth = 0.4 * theta if objective == "huber" else theta.ravel()
        parts = [found[0].values[: len(truth)] - truth, *(each.half_widths()[: len(truth)] for each in found)]
        measured.append(parts)
    return np.array(measured)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=40)
    parser.add_argument("--only", choices=LOSSES)
    given = parser.parse_args(argv)
    print("| loss | missing | stated: held | lowest cell | width over errors' | not stated: held | width over stated |")
    print("|---|---|---|---|---|---|---|")
    for objective in LOSSES:
        if given.only not in (None, objective):
            continue
        for how in MISSING:
            held, wide = [], []
            for design in TRUTHS:
                for one in PEOPLE:
                    off, *halves = np.moveaxis(runs(objective, design, *one, how, given.replications), 1, 0)
                    held.append([(np.abs(off) <= half).mean(axis=1) for half in halves])
                    error = np.sqrt(np.mean(off**2, axis=0)) * NormalDist().inv_cdf(0.975)
                    wide.append((np.median(halves[0] / error), np.median(halves[1] / halves[0])))
            cells = np.array(held)  # (cells, statements, replications)
            means, lowest = cells.mean(axis=2), int(np.argmin(cells[:, 0].mean(axis=1)))
            error = cells[lowest, 0].std() / math.sqrt(given.replications)
            widths = np.median(wide, axis=0)
            print(
                f"| {objective} | {how} | {means[:, 0].mean():.1%} | {means[lowest, 0]:.1%} ± {error:.1%} | "
                f"{widths[0]:.2f} | {means[:, 1].mean():.1%} | {widths[1]:.2f} |", flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
