"""Coverage and width of quantiles of a target alone: ``python -m benchmarks.quantiles``.

*covered* is the share of nominal 95% intervals that contain the true quantile, *half-width* half of their median width
and *error* the root mean squared error of the estimate, both in percent of the range; *open* is the share of intervals
that reach a bound of the range. Sums of the people's answers are drawn from their exact or asymptotic distribution.
"""

import argparse

import numpy as np

from murk import Task
from murk.protocols.device import device_for
from murk.protocols.population import Records
from murk.protocols.univariate import forecast

QUANTILES = (0.1, 0.5, 0.9)
GUARANTEES = ("pure: {epsilon: 1}", "pure: {epsilon: 4}", "gdp: {mu: 0.5}", "gdp: {mu: 2}")
GRID = np.linspace(-1.0, 1.0, 2_001)


def _normal(middle, width):
    return np.exp(-0.5 * ((GRID - middle) / width) ** 2)


# Shares of people at the values of `GRID`.
TARGETS = {
    "even": np.ones(len(GRID)),
    "two humps": 0.5 * _normal(-0.6, 0.1) + 0.5 * _normal(0.7, 0.05),
    "heavy tail": 1.0 / (1.0 + ((GRID + 0.9) / 0.02) ** 2),
    "atoms": np.isin(np.arange(len(GRID)), [0, 500, 1_003, 2_000]) * 1.0,
    "zeros and a bell": 0.3 * (GRID == -1.0) + 0.7 * _normal(0.0, 0.1) / _normal(0.0, 0.1).sum(),
    "narrow": _normal(0.013, 0.004),
}


def task(guarantee, quantiles=QUANTILES):
    return Task.parse(
        f"name: t\nfeatures: []\ntarget: {{name: y, kind: real, low: -1, high: 1, quantiles: {list(quantiles)}}}\n"
        f"privacy: {{guarantee: {{{guarantee}}}}}\n"
    )


def quantile(weights, q):
    """The least value at which the distribution function reaches q."""
    reached = np.cumsum(weights) / weights.sum() >= q - 1e-12
    return float(GRID[np.argmax(reached)])


def simulated(own, weights, missing, people, replications, seed, level=0.95):
    """Return estimates, lower and upper ends, each (replications, quantiles)."""
    device, used = device_for(own), weights > 0.0
    y = np.append(GRID[used], np.nan)
    shares = np.append((1.0 - missing) * weights[used] / weights.sum(), missing)
    records, found = Records(np.ones((len(y), 1)), y, shares), []
    for replication in range(replications):
        rng = np.random.default_rng([seed, replication])
        estimate = forecast.estimate(device, records, people, {"default": 1.0}, 1, rng)
        found.append((estimate.values, *np.clip(estimate.ends(level), -1.0, 1.0)))
    return np.moveaxis(np.array(found), 1, 0)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=20_000, help="people of each simulation")
    parser.add_argument("--replications", type=int, default=200, help="simulations of each cell")
    parser.add_argument("--missing", type=float, default=0.2, help="share of missing targets")
    given = parser.parse_args(argv)
    print("| target | guarantee | covered, q = 10, 50, 90% | half-width | error | open |")
    print("|---|---|---|---|---|---|")
    least = 1.0
    for name, weights in TARGETS.items():
        truth = np.array([quantile(weights, q) for q in QUANTILES])
        for guarantee in GUARANTEES:
            values, low, high = simulated(task(guarantee), weights, given.missing, given.people, given.replications, 11)
            covered = ((low <= truth + 1e-9) & (truth - 1e-9 <= high)).mean(axis=0)
            half = 25.0 * np.median(high - low, axis=0)
            error = 50.0 * np.sqrt(((values - truth) ** 2).mean(axis=0))
            reached = ((low == -1.0) | (high == 1.0)).mean(axis=0)
            least = min(least, *covered)
            cells = (
                ", ".join(f"{each:.1%}" for each in covered),
                ", ".join(f"{each:.1f}" for each in half),
                ", ".join(f"{each:.1f}" for each in error),
                ", ".join(f"{each:.0%}" for each in reached),
            )
            print(f"| {name} | {guarantee} | {' | '.join(cells)} |", flush=True)
    print(f"\nlowest coverage: {least:.1%}")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
