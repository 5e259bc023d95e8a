"""Means and shares without features, against one randomized number: ``python -m benchmarks.means``.

*covered* is the share of nominal 95% intervals that hold the truth; *width* is the median half-width, *bare* that of
one number released alone by everybody, with people's own spread known: Gaussian noise (for several classes, on the
whole indicator vector), randomized response or Laplace noise. *missing* is the share of people without a target, of
whom a bare number knows nothing. Sums of releases are drawn, as in forecasts.
"""

import argparse
import math

import numpy as np

from murk.errors import UserError
from murk.learners.core.design import Records
from murk.learners.problem import problem_for
from murk.stream import Task
from murk.stream.task.registry import part

QUANTILE = 1.96
TASK = "name: means\nfeatures: []\ntarget: {{name: y, {}}}\nprotocol: {}\nprivacy: {{guarantee: {{{}}}}}\n"
BUDGETS = {"gdp: {mu: 1}": ("mu", 1.0), "gdp: {mu: 2}": ("mu", 2.0), "gdp: {mu: 4}": ("mu", 4.0),
           "pure: {epsilon: 1}": ("epsilon", 1.0), "pure: {epsilon: 4}": ("epsilon", 4.0)}  # fmt: skip
# Coded targets and their shares.
WORLDS = {
    "binary 50%": ("kind: binary, positive: p", [0.0, 1.0], [0.5, 0.5]),
    "binary 5%": ("kind: binary, positive: p", [0.0, 1.0], [0.95, 0.05]),
    "binary 1%": ("kind: binary, positive: p", [0.0, 1.0], [0.99, 0.01]),
    "2 classes": ("kind: classes, classes: [a, b]", [0.0, 1.0], [0.7, 0.3]),
    "3 classes": ("kind: classes, classes: [a, b, c]", [0.0, 1.0, 2.0], [0.7, 0.25, 0.05]),
    "5 classes": ("kind: classes, classes: [a, b, c, d, e]", [0.0, 1.0, 2.0, 3.0, 4.0], [0.5, 0.3, 0.14, 0.05, 0.01]),
    "real, skewed": ("kind: real, low: -1, high: 1", [-1.0, -0.8, -0.4, 1.0], [0.8, 0.15, 0.04, 0.01]),
}


def bare(kind, shares, spread, budget, people):
    """Half-width of a mean of one number in [0, 1], or of ``shares`` of classes, with people's own variance."""
    name, size = budget
    if name == "mu":
        noise = (2.0 if kind == "classes" else 1.0) / size**2
    elif kind == "real":
        noise = 2.0 / size**2
    else:
        # Randomized response: a class is kept with probability p, and each other becomes it with probability q.
        q = 1.0 / (math.exp(size) + max(len(shares), 2) - 1.0)
        p = math.exp(size) * q
        noise = (q * (1.0 - q) + shares * (p - q) * (1.0 - p - q)) / (p - q) ** 2 - shares * (1.0 - shares)
    return QUANTILE * np.sqrt((noise + spread) / people)


def measured(world, protocol, budget, missing, people, replications):
    """Coverage and median half-width of each share, or of the mean in parts of its range, and the bare half-widths."""
    target, values, shares = WORLDS[world]
    own = Task.parse(TASK.format(target, protocol, budget))
    problem, y, shares = problem_for(own), np.array([*values, np.nan]), np.array(shares)
    records = Records(np.ones((len(y), 1)), y, np.append((1.0 - missing) * shares, missing))
    if own.target.kind == "real":
        of = truth = np.array([shares @ values])
        spread = (shares @ np.square(values) - truth**2) / 4.0
    else:
        of = shares[1:] if own.target.kind == "binary" else shares
        truth, spread = 2.0 * of - 1.0, of * (1.0 - of)
    held, halves = [], []
    for replication in range(replications):
        rng = np.random.default_rng([5, replication])
        [step] = part(protocol, "forecast").estimates(problem, records, [people], {"default": 1.0}, 1, rng)
        found = step()
        halves.append(found.half_widths())
        held.append(np.abs(found.values - truth) <= halves[-1])
    width = np.median(halves, axis=0) / 2.0
    return np.mean(held, axis=0), width, width / bare(own.target.kind, of, spread, BUDGETS[budget], people)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=400)
    parser.add_argument("--people", type=int, default=3_000)
    given = parser.parse_args(argv)
    print("| target | protocol | budget | missing | covered | width, points | width / bare |")
    print("|---|---|---|---|---|---|---|")
    for world in WORLDS:
        for protocol in ("moments", "scores"):
            for budget in BUDGETS:
                for missing in (0.0, 0.3):
                    try:
                        found = measured(world, protocol, budget, missing, given.people, given.replications)
                    except UserError:
                        continue
                    covered, width, ratio = found
                    cells = [
                        ", ".join(words.format(each) for each in figures)
                        for words, figures in (("{:.1%}", covered), ("{:.2g}", 100.0 * width), ("{:.2f}", ratio))
                    ]
                    print(f"| {world} | {protocol} | {budget} | {missing:.0%} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
