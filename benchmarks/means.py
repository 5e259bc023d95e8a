"""Means and shares without features, against one randomized number: ``python -m benchmarks.means``.

*covered* is the share of nominal 95% intervals that hold the truth; *width* is the median half-width, *bare* that of
one number released alone by everybody, with people's own spread known: Gaussian noise (of each share of several
classes, noise for the whole indicator vector), randomized response or Laplace noise. *missing* is the share of people
without a target, of whom a bare number knows nothing.
"""

import argparse
import math

import numpy as np

from murk.learners import PublicGLMClassifier, PublicGLMRegressor, ScoreClassifier
from murk.privacy import GaussianDP, PureDP

QUANTILE = 1.96


def bare(target, spread, budget, people):
    """Half-width of a mean of one number in [0, 1], or of shares of classes, with people's own variance ``spread``."""
    if isinstance(budget, GaussianDP):
        sensitivity = math.sqrt(2.0) if target == "classes" else 1.0
        noise = (sensitivity / budget.mu) ** 2
    elif target == "real":
        noise = 2.0 / budget.epsilon**2
    else:
        odds = math.exp(budget.epsilon)
        noise = odds / (odds - 1.0) ** 2
    return QUANTILE * np.sqrt((noise + spread) / people)


def worlds():
    """Yield names, kinds of targets, shares or a skewed mean, and learners."""
    for rate in (0.5, 0.05, 0.01):
        for cls in (PublicGLMClassifier, ScoreClassifier):
            yield f"binary {rate:.0%}", "binary", [1.0 - rate, rate], cls, {"classes": (0, 1)}
    for shares in ([0.7, 0.3], [0.7, 0.25, 0.05], [0.5, 0.3, 0.14, 0.05, 0.01]):
        names = tuple("abcde"[: len(shares)])
        yield f"{len(shares)} classes", "classes", shares, ScoreClassifier, {"classes": names}
    yield "real, skewed", "real", [], PublicGLMRegressor, {"target_bounds": (0.0, 1.0)}


def measured(target, shares, cls, more, budget, missing, people, replications, seed=0):
    """Coverage and median half-width of each share or mean, and the bare half-widths."""
    held, halves, spread = [], [], 0.0
    for replication in range(replications):
        rng = np.random.default_rng([seed, replication])
        if target == "real":
            # Near the lower bound, a mean of 1/12 and a long tail.
            y, truth = rng.beta(0.5, 5.5, people), np.array([1.0 / 12.0])
            spread = np.array([0.5 * 5.5 / (36.0 * 7.0)])
        else:
            labels = more["classes"]
            places = rng.choice(len(labels), people, p=shares)
            y, truth = np.array(labels, dtype=object)[places], np.array(shares)
        if missing:
            y = np.where(rng.random(people) < missing, None if target != "real" else np.nan, y)
        learner = cls(budget=budget, features=[], seed=int(rng.integers(2**60)), **more)
        learner.learn_many(np.zeros((people, 0)), y)
        found = learner.estimate()
        truth = truth if len(found.values) == len(truth) else truth[1:]
        half = found.half_widths()
        spread = spread if target == "real" else truth * (1.0 - truth)
        held.append(np.abs(found.values - truth) <= half)
        halves.append(half)
    width = np.median(halves, axis=0)
    return np.mean(held, axis=0), width, bare(target, spread, budget, people)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=400)
    parser.add_argument("--people", type=int, default=3_000)
    given = parser.parse_args(argv)
    print("| target | learner | budget | missing | covered | width, points | width / bare |")
    print("|---|---|---|---|---|---|---|")
    for name, target, shares, cls, more in worlds():
        for budget in (GaussianDP(1.0), GaussianDP(2.0), PureDP(1.0), PureDP(4.0)):
            for missing in (0.0, 0.3):
                found = measured(target, shares, cls, more, budget, missing, given.people, given.replications)
                covered, width, alone = (np.atleast_1d(each) for each in found)
                cells = [
                    ", ".join(words.format(each) for each in figures)
                    for words, figures in (("{:.1%}", covered), ("{:.2g}", 100.0 * width), ("{:.2f}", width / alone))
                ]
                print(f"| {name} | {cls.__name__} | {budget} | {missing:.0%} | {' | '.join(cells)} |", flush=True)
