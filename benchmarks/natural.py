"""How often intervals hold the truth on natural data: ``python -m benchmarks.natural``.

Readmissions, say: a rare outcome (6%), an age spread evenly, a coin of 38%, a skewed count of visits with mean 0.75,
and 4,000 public rows. The truth is the best fit of the coded model, by a million people: where an effect is left out of
it, or a count is clamped at its bound, its projection. Values are missing at random. Public rows are complete, as files
of them are, unless the task states which share of people's values is missing (``missing_share``). Standard errors are
of draws, since coefficients of one miss together.
"""

import argparse
import math

import numpy as np

from benchmarks.protocol_people import estimate_of
from murk import Task
from murk._internal.links import logistic
from murk.populations.public_sample import left_out

NAMES = ("age", "emergency", "prior_visits")
SHARES = (0.015, 0.03, 0.04)
COMPLETE = (0.0, 0.0, 0.0)
STATED = [f", missing_share: {share}" for share in SHARES]
FILLED = [STATED[0] + ", missing: 55", STATED[1], STATED[2] + ", missing: 0.75"]

TASK = """
name: readmission
features:
  - {{name: age, low: 20, high: 90{0}}}
  - {{name: emergency, categories: ["no", "yes"]{1}}}
  - {{name: prior_visits, low: 0, high: {most}{2}}}
target: {{name: again, kind: binary, positive: "yes", negative: "no"}}
{aside}
privacy: {{guarantee: {{gdp: {{mu: {mu}}}}}}}
"""
# What is said of missing values; their shares; the count's upper bound; an effect that the model leaves out.
KINDS = {
    "complete": (("", "", ""), COMPLETE, 8, 0.0),
    "a count clamped at its bound": (("", "", ""), COMPLETE, 2, 0.0),
    "an effect left out": (("", "", ""), COMPLETE, 8, 1.0),
    "missing, and nothing said of it": (("", "", ""), SHARES, 8, 0.0),
    "missing, shares stated": (tuple(STATED), SHARES, 8, 0.0),
    "missing, shares and fill values stated": (tuple(FILLED), SHARES, 8, 0.0),
}


def people(rng, n, omitted, rate):
    """Raw values of so many people, (3 columns), and their labels."""
    age, emergency = rng.uniform(20, 90, n), (rng.random(n) < 0.38).astype(float)
    visits = np.minimum(rng.geometric(1 / 1.75, n) - 1, 12).astype(float)
    old = (age - 55) / 35
    logit = 1.1 * old + 0.7 * emergency + 0.4 * visits + omitted * old * emergency
    start = {0.06: -3.9, 0.5: -0.7}[rate]
    return [age, emergency, visits], (rng.random(n) < logistic(logit + start)).astype(float)


def coded(task, columns, missing):
    """Coded records; what is missing is None."""
    words = np.array(["no", "yes"], dtype=object)[columns[1].astype(int)]
    raw = {}
    for place, (name, values) in enumerate(zip(NAMES, (columns[0], words, columns[2]), strict=True)):
        raw[name] = values.astype(object)
        raw[name][missing[:, place]] = None
    return task.coding.encode({name: values.tolist() for name, values in raw.items()}, target=False).x


def fit(X, y):
    """The coded model's best fit."""
    theta = np.zeros(X.shape[1])
    for _ in range(30):
        p = logistic(X @ theta)
        theta += np.linalg.solve((X * (p * (1 - p))[:, None]).T @ X, X.T @ (y - p))
    return theta


def draws(kind, mu, n, rows, rate, replications, seed):
    """Estimates and half widths (replications, p), and the truth."""
    said, shares, most, omitted = KINDS[kind]
    text = TASK.format(*said, most=most, mu=mu, aside=f"public: {{set_aside: {rows}}}" if rows else "")
    task = Task.parse(text)

    def drawn(rng, size):
        columns, y = people(rng, size, omitted, rate)
        return coded(task, columns, rng.random((size, 3)) < shares), y

    truth = fit(*drawn(np.random.default_rng(7), 1_000_000))
    found = []
    for replication in range(replications):
        rng = np.random.default_rng([seed, replication])
        X, y = drawn(rng, n)
        public = np.zeros((0, task.coding.size))
        if rows:
            none = np.zeros((rows, 3), dtype=bool)
            stated = [feature.missing_share for feature in task.features]
            public = coded(task, people(rng, rows, omitted, rate)[0], left_out(none, stated))
        one = estimate_of(task, X, y, public, rng)
        found.append((one.values, one.half_widths()))
    values, halves = (np.array(part) for part in zip(*found, strict=True))
    return task.coding.names, truth, values, halves


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=50)
    parser.add_argument("--people", type=int, default=60_000)
    parser.add_argument("--rows", type=int, default=4_000)
    parser.add_argument("--rate", type=float, choices=(0.06, 0.5), default=0.06)
    parser.add_argument("--mu", type=float, default=4.0)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=tuple(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    print("| kind | held | worst coefficient | its bias | its half width |\n|---|---|---|---|---|")
    for kind in chosen.only:
        how = (chosen.mu, chosen.people, chosen.rows, chosen.rate, chosen.replications, chosen.seed)
        names, truth, values, halves = draws(kind, *how)
        known = np.isfinite(halves)
        right = known & (np.abs(values - truth) <= halves)
        share = right.sum() / known.sum()
        error = math.sqrt(float(np.sum((right.sum(axis=1) - share * known.sum(axis=1)) ** 2))) / known.sum()
        each = np.where(known.any(axis=0), right.sum(axis=0) / np.maximum(known.sum(axis=0), 1), 1.0)
        worst = int(np.argmin(each))
        bias, spread = (values - truth)[:, worst].mean(), values[:, worst].std() / math.sqrt(len(values))
        print(
            f"| {kind} | {share:.1%} ± {error:.1%} of {known.sum()} | {names[worst]}, {each[worst]:.0%} | "
            f"{bias:+.2f} ± {spread:.2f} | {np.median(halves[:, worst]):.2f} |", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
