"""Coverage and size of prediction sets on held-out people: ``python -m benchmarks.prediction_sets``.

Real data: the demonstration's women, whose third child and weeks worked are predicted, and scikit-learn's data sets,
from which people are drawn with replacement. Generated tasks: noise that grows with a feature, a skewed amount clamped
at its bounds, a rare outcome (6%), three classes of 72%, 23% and 5%, a plateau of coverage (88% of the targets are
near, 9% far, 3% farther), an outcome of 12% that no feature predicts, two values at one distance with a nominal
coverage of 50%, and uneven noise with 80% of the targets missing. Coverage is the share of held-out people whose
target is in their set. *Split* is the set of the same prediction whose threshold a trusted server would take from raw
records of as many held-out people. Sizes are interval widths in coded units (the whole range is 2), or numbers of
labels.
"""

import argparse
import math

import numpy as np
from sklearn import datasets

from benchmarks.mothers import raw
from murk import Task
from murk._internal.links import class_probabilities, logistic
from murk.learners import ScoreClassifier, ScoreRegressor
from murk.privacy import GaussianDP

HELD_OUT, COVERAGE = 20_000, 0.9
MOTHERS = """
name: mothers
features: [{{name: same_sex, categories: ["no", "yes"]}}, {{name: age, low: 21, high: 35}}]
target: {target}
privacy: {{guarantee: {{gdp: {{mu: 1.0}}}}}}
"""
TARGETS = {
    "third child": '{name: third_child, kind: binary, positive: "yes", negative: "no"}',
    "weeks worked": "{name: weeks_worked, kind: real, low: 0, high: 52}",
}


def mothers(name):
    """Draw women of the demonstration without replacement."""
    X, y = raw(Task.parse(MOTHERS.format(target=TARGETS[name])))

    def draw(n, rng):
        rows = rng.permutation(len(X))[:n]
        return X[rows, :-1], y[rows]

    return draw


def resampled(load, columns, *, real=False):
    """Draw rows of a data set with replacement, its columns and real target cut to [-1, 1] at two deviations."""
    X, y = load(return_X_y=True)
    X = X[:, columns]
    X = np.clip((X - X.mean(axis=0)) / (2.0 * X.std(axis=0)), -1.0, 1.0)
    y = np.clip((y - y.mean()) / (2.0 * y.std()), -1.0, 1.0) if real else y.astype(float)

    def draw(n, rng):
        rows = rng.integers(len(X), size=n)
        return X[rows], y[rows]

    return draw


def uneven(n, rng):
    """Noise that grows with the first feature."""
    X = rng.uniform(-1, 1, (n, 3))
    return X, np.clip(0.4 * X[:, 0] - 0.2 * X[:, 1] + np.exp(0.8 * X[:, 0] - 2.0) * rng.normal(size=n), -1, 1)


def skewed(n, rng):
    """A log-normal amount, clamped, with a tenth of the people at its lower bound."""
    X = rng.uniform(-1, 1, (n, 3))
    amount = np.exp(0.5 * X[:, 0] + 0.9 * rng.normal(size=n)) / 4.0 - 1.0
    return X, np.where(rng.random(n) < 0.1, -1.0, np.minimum(amount, 1.0))


def plateau(n, rng):
    """Errors of three sizes: coverage stays at 88% over a wide range of thresholds, and then at 97%."""
    X = rng.uniform(-1, 1, (n, 3))
    kind, sign = rng.random(n), rng.choice([-1.0, 1.0], n)
    far = np.where(kind < 0.88, 0.03 * rng.normal(size=n), sign * np.where(kind < 0.97, 0.45, 0.8))
    return X, 0.1 * X[:, 0] + far


def two_values(n, rng):
    """Two values that no feature predicts: coverage jumps from 0 to 1."""
    return rng.uniform(-1, 1, (n, 3)), rng.choice([-0.3, 0.3], n)


def unpredicted(n, rng):
    """An outcome of 12% that no feature predicts: coverage stays at 88%, and then at 1."""
    return rng.uniform(-1, 1, (n, 3)), (rng.random(n) < 0.12).astype(float)


def rare(n, rng):
    """An outcome of 6% of the people."""
    X = rng.uniform(-1, 1, (n, 3))
    return X, (rng.random(n) < logistic(-3.3 + 1.5 * X[:, 0] + 0.7 * X[:, 1])).astype(float)


def classes(n, rng):
    """Three classes, of 72%, 23% and 5% of the people."""
    X = rng.uniform(-1, 1, (n, 3))
    odds = np.column_stack([np.ones(n), 1.2 * X[:, 0] - 0.4, X[:, 1] - X[:, 0] - 2.3])
    edges = np.cumsum(class_probabilities(odds, np.eye(3)), axis=1)
    return X, (rng.random(n)[:, None] > edges).sum(axis=1).clip(0, 2).astype(float)


# A function that draws people, the number of classes (0 for a real target), and what is unusual.
TASKS = {
    "third child": (lambda: mothers("third child"), 2),
    "weeks worked": (lambda: mothers("weeks worked"), 0),
    "diabetes": (lambda: resampled(datasets.load_diabetes, [2, 3, 8], real=True), 0),
    "breast cancer": (lambda: resampled(datasets.load_breast_cancer, [1, 20, 27]), 2),
    "wine, 3 classes": (lambda: resampled(datasets.load_wine, [0, 6, 9]), 3),
    "uneven noise": (lambda: uneven, 0),
    "skewed amount": (lambda: skewed, 0),
    "rare outcome": (lambda: rare, 2),
    "3 uneven classes": (lambda: classes, 3),
    "plateau of 88%": (lambda: plateau, 0),
    "outcome of 12%": (lambda: unpredicted, 2),
    "50% of two values": (lambda: two_values, 0, {"coverage": 0.5}),
    "80% missing": (lambda: uneven, 0, {"missing": 0.8}),
}


def learner(kind, features, mu, seed, coverage=COVERAGE):
    """A learner that asks a tenth of the people about its sets."""
    given = {"guarantee": GaussianDP(mu), "features": list(range(features)), "coverage": coverage, "seed": seed}
    return ScoreClassifier(classes=list(range(kind)), **given) if kind else ScoreRegressor(**given)


def sets_of(model, kind, X):
    """Ends of intervals, or members of sets."""
    return model.predict_set_many(X) if kind else model.predict_interval_many(X)


def inside(sets, y, kind):
    """Whether targets are inside."""
    if kind:
        return sets[np.arange(len(y)), y.astype(int)]
    return (sets[:, 0] <= y) & (y <= sets[:, 1])


def size_of(sets, kind):
    """Mean size of sets."""
    return float((sets.sum(axis=1) if kind else sets[:, 1] - sets[:, 0]).mean())


def split(model, kind, X, y, rows, coverage=COVERAGE):
    """Split-conformal sets of ``rows``: the threshold is the quantile of the nonconformity of raw records (X, y)."""
    known = model.prediction_sets()
    constant = np.ones((len(X), 1))
    rank = min(math.ceil((len(X) + 1) * coverage), len(X)) - 1
    if not kind:
        centre, there = (np.clip(np.c_[each, constant[: len(each)]] @ known.origin, -1, 1) for each in (X, rows))
        half = np.sort(np.abs(y - centre))[rank]
        return np.clip(np.column_stack([there - half, there + half]), -1.0, 1.0)
    chances, there = (
        class_probabilities(
            np.c_[each, constant[: len(each)]] @ known.origin.reshape(-1, X.shape[1] + 1).T, known.basis
        )
        for each in (X, rows)
    )
    least = -np.sort(-chances[np.arange(len(y)), y.astype(int)])[rank]
    return there >= least


def measured(draw, kind, mu, people, replications, first=0, coverage=COVERAGE, missing=0.0):
    """Coverage, size, those of the split, whether the stated interval holds, and whether all is in a set, by run."""
    found = []
    for seed in range(first, first + replications):
        X, y = draw(people + 2 * HELD_OUT, np.random.default_rng([seed, 5]))
        model = learner(kind, X.shape[1], mu, seed, coverage)
        given = y[:people].astype(int) if kind else y[:people]
        if missing:
            given = np.where(np.random.default_rng([seed, 6]).random(people) < missing, np.nan, given)
        model.learn_many(X[:people], given)
        if not model.prediction_sets().known:
            continue
        test, calibration = slice(people, people + HELD_OUT), slice(people + HELD_OUT, None)
        own = sets_of(model, kind, X[test])
        theirs = split(model, kind, X[calibration], y[calibration], X[test], coverage)
        found.append(
            [value for each in (own, theirs) for value in (inside(each, y[test], kind).mean(), size_of(each, kind))]
        )
        known = model.prediction_sets()
        low, high = known.interval
        error = 2.0 * math.sqrt(coverage * (1.0 - coverage) / HELD_OUT)
        found[-1] += [low - error <= found[-1][0] <= high + error, known.whole]
    return np.array(found)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=20)
    parser.add_argument("--people", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--only", default="", help="a part of the tasks' names")
    given = parser.parse_args(argv)
    print("| task | mu | covered | valid | interval held | everything | size | split: covered | split: size | runs |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, (make, kind, *more) in TASKS.items():
        if given.only not in name:
            continue
        draw, unusual = make(), dict(*more)
        wanted = unusual.get("coverage", COVERAGE)
        for mu in (1.0, 2.0):
            runs = measured(draw, kind, mu, given.people, given.replications, given.seed, **unusual)
            if not len(runs):
                print(f"| {name} | {mu:g} | too few answers | | | | | | | 0 |", flush=True)
                continue
            covered, size, split_covered, split_size, held, whole = runs.mean(axis=0)
            # A held-out sample's own error.
            error = math.sqrt(wanted * (1.0 - wanted) / HELD_OUT)
            enough = (runs[:, 0] >= wanted - 2.0 * error).mean()
            print(
                f"| {name} | {mu:g} | {covered:.1%} ({runs[:, 0].min():.1%} to {runs[:, 0].max():.1%}) | {enough:.0%} "
                f"| {held:.0%} | {whole:.0%} | {size:.3g} | {split_covered:.1%} | {split_size:.3g} | {len(runs)} |",
                flush=True,
            )


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
