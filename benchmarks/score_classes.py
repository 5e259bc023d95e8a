"""Error and coverage of scores of several classes: ``python -m benchmarks.score_classes``.

Generated tasks with real and categorical features, 2,000 public rows, beside LDP-SGD on the same rows. *Unlike*:
whether a person's features are public depends on one of them. ``--replications`` for more of each.
"""

import argparse
import math

import numpy as np

from benchmarks.scores import features
from murk.learners import LDPSGDClassifier, ScoreClassifier
from murk.privacy import GaussianDP

SETTINGS = ((3, 5, 2.0, 50_000), (4, 3, 1.0, 100_000), (5, 8, 4.0, 50_000))
ROWS = 2_000


def world(classes, p, n, rng):
    """Coded features without the constant, classes, public rows, and the truth."""
    theta = np.random.default_rng(classes + p).normal(size=(classes, p + 1))
    theta -= theta.mean(axis=0)
    X = features("mixed", n + 10 * ROWS, p, rng)
    theta *= 1.5 / math.sqrt(np.mean((X @ theta.T) ** 2) * classes / (classes - 1))
    odds = np.exp(X[:n] @ theta.T)
    edges = np.cumsum(odds / odds.sum(axis=1, keepdims=True), axis=1)
    y = (rng.random(n)[:, None] > edges[:, :-1]).sum(axis=1)
    return X[:n, :-1], y, X[n:, :-1], theta


def measured(kind, what, classes, p, mu, n, replications):
    """Mean squared distance to the truth, and how many of the 95% intervals held it, of how many that there were."""
    errors, held, known = [], [], []
    for seed in range(replications):
        rng = np.random.default_rng(seed)
        X, y, rows, theta = world(classes, p, n, rng)
        if what == "unlike":
            rows = rows[rng.random(len(rows)) < 1 / (1 + np.exp(-rows[:, -1] * 4))]
        y = np.where(rng.random(n) < (0.4 if what == "missing" else 0.0), -1, y)
        model = kind(
            guarantee=GaussianDP(mu),
            classes=list(range(classes)),
            features=list(range(p)),
            public=rows[:ROWS],
            seed=seed,
        )
        model.learn_many(X, y)
        estimate = model.estimate()
        half, off = estimate.half_widths(), np.abs(estimate.values - theta.ravel())
        errors.append(float(np.sum(off**2)))
        there = np.isfinite(half)
        known.append(np.mean(there))
        if there.any():
            held.append(np.mean(off[there] <= half[there]))
    error, spread = np.mean(errors), np.std(errors) / math.sqrt(replications)
    covered = f"{np.mean(held):.1%} +- {np.std(held) / math.sqrt(len(held)):.1%}" if held else "-"
    return f"{error:.3g} +- {spread:.1g} | {np.mean(known):.0%} | {covered}"


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=24)
    given = parser.parse_args(argv)
    print("| classes, features, mu, n | | squared distance | learned | covered, of these |\n|---|---|---|---|---|")
    for setting in SETTINGS:
        for name, kind, what in (
            ("scores", ScoreClassifier, ""),
            ("scores, 40% of the targets missing", ScoreClassifier, "missing"),
            ("scores, public rows unlike the people's", ScoreClassifier, "unlike"),
            ("LDP-SGD", LDPSGDClassifier, ""),
        ):
            found = measured(kind, what, *setting, given.replications)
            print(f"| {', '.join(f'{value:,g}' for value in setting)} | {name} | {found} |", flush=True)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
