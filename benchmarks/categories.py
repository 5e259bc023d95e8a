"""Coverage of cells with many categories, by the share of streams with intervals: ``python -m benchmarks.categories``.

Counts of randomized cells are drawn for as many people as give the estimate's largest standard error at the limit from
which on there are intervals, times the factors below. Categories have Zipf shares, and effects a standard deviation of
0.5 to 1 on the scale of log odds, in some designs with interactions that the model lacks. Coverage is of the best
coefficients of these people, among the streams that have an interval.
"""

import argparse
import itertools
import math

import numpy as np
from scipy.optimize import brentq

from murk import Task
from murk.protocols.device import device_for
from murk.protocols.examples.cells_engine import CellLoss, CellSums

FACTORS = 0.8, 1.0, 1.3, 3.0
LEAST, SHARP = 0.15, 10**13
PURE, GDP = "{pure: {epsilon: %s}}", "{gdp: {mu: %s}}"
# Sizes of features, guarantee, loss, classes, share of positives (or of the last class, against the first), exponent of
# Zipf shares, standard deviations of effects and of interactions.
DESIGNS = (
    ((25,), PURE % 0.5, "log", 2, 0.3, 1.0, 1.0, 0.0),
    ((50,), PURE % 3, "log", 2, 0.1, 1.0, 1.0, 0.0),
    ((33,), GDP % 1.5, "log", 2, 0.01, 0.5, 1.0, 0.0),
    ((12, 3), PURE % 1, "log", 2, 0.2, 1.0, 1.0, 0.5),
    ((8, 8, 8), PURE % 3, "log", 2, 0.3, 0.5, 0.8, 0.3),
    ((15, 15), GDP % 0.7, "log", 2, 0.05, 0.5, 1.0, 0.3),
    ((35,), GDP % 2, "exponential", 2, 0.1, 1.0, 0.8, 0.0),
    ((30,), PURE % 3, "probit", 2, 0.02, 1.0, 0.8, 0.0),
    ((10, 4), PURE % 3, "log", 3, 0.1, 0.7, 0.8, 0.3),
    ((16,), PURE % 2, "log", 5, 0.2, 0.7, 0.8, 0.0),
    ((24,), GDP % 1, "log", 4, 0.03, 0.7, 0.8, 0.0),
)


def task(sizes, guarantee, loss, classes):
    features = ", ".join(
        f"{{name: f{place}, categories: [{', '.join(f'c{each}' for each in range(size))}]}}"
        for place, size in enumerate(sizes)
    )
    target = "kind: binary, positive: 'yes', negative: 'no'"
    if classes > 2:
        target = f"kind: classes, classes: [{', '.join(f'k{each}' for each in range(classes))}]"
    return Task.parse(
        f"name: many\nfeatures: [{features}]\ntarget: {{name: t, {target}}}\nprotocol: examples\n"
        f"examples: {{release: cells, loss: {loss}}}\nprivacy: {{guarantee: {guarantee}}}\n"
    )


def people(sizes, rate, classes, zipf, strength, mixed, rng):
    """Shares of people by cell, the last one that of records without a target."""
    grid = np.array(list(itertools.product(*map(range, sizes))))
    shares = np.ones(len(grid))
    for place, size in enumerate(sizes):
        each = rng.permutation((np.arange(size) + 1.0) ** -zipf)
        shares *= (each / each.sum())[grid[:, place]]

    def scores():
        own = sum(rng.normal(0, strength, size)[grid[:, place]] for place, size in enumerate(sizes))
        return own + mixed * rng.normal(size=len(grid))

    if classes == 2:
        z = scores()
        shift = brentq(lambda b: shares @ (1 / (1 + np.exp(-z - b))) - rate, -15, 15)
        odds = np.column_stack([np.zeros(len(z)), z + shift])
    else:
        odds = np.column_stack([np.zeros(len(grid)), *(scores() for _ in range(classes - 1))])
        odds[:, -1] += math.log(rate / (1 - rate))
    chance = np.exp(odds)
    chance /= chance.sum(axis=1, keepdims=True)
    return np.append((shares[:, None] * chance).ravel(), 0.0)


def coverage(number, design, replications):
    """Yield people, the share of streams with an interval, mean and least coverage, and what chance makes of 95%."""
    sizes, guarantee, loss, classes, *world = design
    device = device_for(task(sizes, guarantee, loss, classes))
    engine = device.engine()
    mechanism = engine.mechanisms["default"]
    true = people(sizes, world[0], classes, *world[1:], np.random.default_rng(900 + number))
    cells = CellLoss(device.table, engine.settings)
    theta, found = cells.minimise(true, 0.0, np.zeros(engine.settings.size))
    assert found, "these people have no best coefficients"
    truth = np.kron(cells.named, np.eye(engine.settings.features)) @ theta
    released = mechanism.other + true / mechanism.gain
    released /= released.sum()
    empty = engine.sums

    def estimate(counts):
        engine.sums = CellSums(np.zeros_like(empty.cells), np.zeros_like(empty.totals))
        engine.add(mechanism, counts)
        return engine.estimate()

    estimate((SHARP * released).astype(np.int64))
    enough = SHARP * (cells.fit(engine.sums).error / LEAST) ** 2
    rng = np.random.default_rng(5000 + number)
    for factor in FACTORS:
        held = []
        for _ in range(replications):
            one = estimate(rng.multinomial(int(factor * enough), released))
            if np.isfinite(halves := one.half_widths()).all():
                held.append(np.abs(one.values - truth) < halves)
        if held:
            each = np.mean(held, axis=0)
            chance = np.random.default_rng(1).binomial(len(held), 0.95, (2000, len(each))).min(axis=1) / len(held)
            yield factor * enough, len(held) / replications, each.mean(), each.min(), np.quantile(chance, 0.05)
        else:
            yield factor * enough, 0.0, math.nan, math.nan, math.nan


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=300)
    replications = parser.parse_args(argv).replications
    print("| categories | guarantee, loss, classes | people | with an interval | coverage, mean | least | by chance |")
    print("|---|---|---|---|---|---|---|")
    for number, design in enumerate(DESIGNS):
        sizes, guarantee, loss, classes, rate, *_ = design
        what = f"{guarantee.strip('{}').replace('{', '')}, {loss}, {classes} ({rate:.0%})"
        for size, shown, mean, least, chance in coverage(number, design, replications):
            rest = "- | - | -" if shown == 0.0 else f"{mean:.1%} | {least:.1%} | {chance:.1%}"
            print(f"| {' x '.join(map(str, sizes))} | {what} | {size:.1e} | {shown:.0%} | {rest} |", flush=True)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
