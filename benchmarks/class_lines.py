"""Average effects of several classes without public rows, beside 4,000: ``python -m benchmarks.class_lines``.

Generated tasks: a uniform feature, a coin, a skewed count and a category of four; coefficients of a softmax model with
a standard deviation of 0.5; classes alike, or one of them with 5% of the people. Half widths are in points per half of
a feature's range. Coverage is of the least-squares slopes, and of the average effects of the softmax model.
"""

import argparse
from dataclasses import replace

import numpy as np

from murk._internal.links import class_probabilities
from murk.privacy import GaussianDP
from murk.protocols.population import Records
from murk.protocols.rows import Rows
from murk.protocols.scores import forecast as planned
from murk.protocols.scores.device import ScoreDevice
from murk.protocols.scores.mechanisms import score_mechanisms
from murk.protocols.scores.model import directions
from murk.protocols.scores.settings import Settings

SIZE, ROWS, RARE = 4_000, 4_000, 0.05


def features(n, rng):
    """Coded features, the constant last."""
    count = np.minimum(rng.geometric(0.45, n) - 1, 8) / 4 - 1
    category = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    coded = [np.where(category == each, 1.0, -1.0) for each in (1, 2, 3)]
    return np.column_stack([rng.uniform(-1, 1, n), rng.choice([-1.0, 1.0], n), count, *coded, np.ones(n)])


def world(classes, rare, rng):
    """A population of rows, and the softmax model's coefficients, (K, p)."""
    X = features(SIZE, rng)
    theta = rng.normal(size=(classes, X.shape[1])) * 0.5
    wanted = np.full(classes, (1.0 - RARE) / (classes - 1) if rare else 1.0 / classes)
    wanted[-1] = RARE if rare else wanted[-1]
    theta[:, -1] = 0.0
    for _ in range(200):
        theta[:, -1] += np.log(wanted / class_probabilities(X @ theta.T, np.eye(classes)).mean(axis=0))
    return X, theta


def softmax_effects(X, theta):
    """Average marginal effects on each class's probability, (K, p - 1)."""
    chance = class_probabilities(X @ theta.T, np.eye(len(theta)))
    slopes = theta[:, :-1]
    return chance.mean(axis=0)[:, None] * slopes - chance.T @ (chance @ slopes) / len(X)


def of_log_odds(X, values, covariance):
    """Half widths of the average effects by log odds, by the delta method, (K, p - 1)."""
    middle, shape, step = softmax_effects(X, values), values.shape, 1e-4
    rise = [
        (softmax_effects(X, values + step * each.reshape(shape)) - middle).ravel() / step
        for each in np.eye(values.size)
    ]
    pull = np.array(rise).T
    return 1.96 * np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", pull, covariance, pull), 0.0)).reshape(middle.shape)


def learned(X, theta, mu, people, rows, seed):
    """The estimate of so many people."""
    classes, p = theta.shape
    covariates = None
    if rows is not None:
        points, counts = np.unique(rows, axis=0, return_counts=True)
        covariates = Rows.counted(points, counts.astype(np.int64))
    names = tuple(f"x{place}" for place in range(p))
    settings = Settings(names, False, covariates, labels=tuple(map(str, range(classes))), line=covariates is None)
    device = ScoreDevice(settings, {"default": score_mechanisms("best", GaussianDP(mu), p, classes - 1)})
    chance = class_probabilities(X @ theta.T, np.eye(classes))
    records = Records(np.tile(X, (classes, 1)), np.repeat(np.arange(float(classes)), len(X)), chance.T.ravel() / len(X))
    [step] = planned.estimates(device, records, [people], {"default": 1.0}, 1, np.random.default_rng([seed, 7]))
    return step()


def measured(classes, rare, mu, people, replications):
    """A line of the table."""
    halves, others, slopes, effects = [], [], [], []
    for seed in range(replications):
        rng = np.random.default_rng([classes, int(rare), seed])
        X, theta = world(classes, rare, rng)
        found = learned(X, theta, mu, people, None, seed)
        values, half = (each.reshape(theta.shape)[:, :-1] / 2.0 for each in (found.values, found.half_widths()))
        D = directions(X, replace(found.solution.newest, origin=np.zeros(theta.shape[1])))
        line = np.linalg.solve(D.T @ X, D.T @ class_probabilities(X @ theta.T, np.eye(classes))).T[:, :-1]
        there = np.isfinite(half)
        halves.append(half.ravel())
        slopes.append((np.abs(values - line) <= half)[there])
        effects.append((np.abs(values - softmax_effects(X, theta)) <= half)[there])
        if seed < 2:
            # It takes long, and is for its half widths alone.
            public = learned(X, theta, mu, people, features(ROWS, rng), seed)
            other = of_log_odds(X, public.values.reshape(theta.shape), public.covariance)
            ended = np.isfinite(public.half_widths().reshape(theta.shape)[:, :-1])
            others.append(np.where(ended, other, np.inf).ravel())
    half, other, held, near = map(np.concatenate, (halves, others, slopes, effects))
    return (
        f"{np.isfinite(half).mean():.0%} | {100 * np.median(half):.2g} | {100 * np.median(other):.2g} "
        f"({np.isfinite(other).mean():.0%} learned) | {held.mean():.0%} | {near.mean():.0%} | {len(half)}"
    )


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=15)
    parser.add_argument("--people", type=int, default=60_000)
    given = parser.parse_args(argv)
    print("| classes | mu | learned | half width | with rows | slopes covered | softmax effects | intervals |")
    print("|---|---|---|---|---|---|---|---|")
    for classes in (3, 5):
        for rare in (False, True):
            for mu in (1.0, 2.0, 4.0):
                found = measured(classes, rare, mu, given.people, given.replications)
                print(f"| {classes}, {'5%' if rare else 'even'} | {mu:g} | {found} |", flush=True)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
