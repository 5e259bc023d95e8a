"""Forecast half widths against those of simulated people: ``python -m benchmarks.planning [--quick] [--women]``.

Generated people (half of the features coins, half numbers, correlated) release by each protocol, each a draw of their
own; public rows are others like them. The forecast is of the same population: 10,000 other rows, and the true
coefficients. What is compared is the half width of each coefficient: the forecast's median over draws against the
median over simulated runs. *worst* and *rms* are of the logarithms' differences; *chance* is a standard error of the
difference of two such medians, by the runs' own spread, of the coefficient where it is largest; *disagree* are
coefficients that one of the two has no interval of.

``--missing``: that share of the targets is missing at random, as the task states.

``--women``: the demonstration's 254,654 people against a forecast that knows them, and one from the task alone.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.mothers import raw
from benchmarks.protocol_people import Setting, drawn, estimate_of
from benchmarks.protocols import WOMEN
from murk import Task
from murk._internal.links import logistic
from murk.errors import UserError
from murk.planning.forecast import DRAWS, forecast
from murk.protocols.population import Effects, Population, designs

PROTOCOLS = ("scores", "moments", "examples", "gradients", "summaries")
ROWS = 10_000
# Runs, of people and of sums alike.
RUNS = {"scores": 11, "moments": 41, "examples": 25, "gradients": 11, "summaries": 25}
CELLS = [
    (kind, d, n, mu, rows)
    for kind in ("binary", "real")
    for rows in (5_000, 0)
    for d, n, mu in ((2, 30_000, 2.0), (2, 100_000, 1.0), (2, 100_000, 4.0), (5, 100_000, 2.0), (5, 300_000, 4.0))
]


def simulated(setting, protocol, runs, seed):
    """Half widths of some runs, and the population that they are drawn from."""
    truth, halves, population = None, [], None
    for run in range(runs):
        rng = np.random.default_rng([seed, setting.d, setting.n, run])
        X, y, public, test, theta = drawn(setting, rng)
        if truth is None:
            truth, population = theta, of_truth(setting, test, theta)
        elif setting.kind == "binary":
            y = (rng.random(setting.n) < logistic(X @ truth)).astype(float)
        else:
            y = np.clip(X @ truth + rng.uniform(-0.2, 0.2, size=setting.n), -1.0, 1.0)
        if setting.missing:
            y[rng.random(setting.n) < setting.missing] = np.nan
        halves.append(estimate_of(setting.task(protocol), X, y, public, rng).half_widths()[: len(truth)])
    return np.array(halves), population


def of_truth(setting, test, theta):
    """The population as a plan would have it that knew everything."""
    return population_of(setting, test[:ROWS], theta)


def population_of(setting, points, theta):
    residual = 0.2 / math.sqrt(3.0)
    return Population("truth", points, np.full(ROWS, 1.0 / ROWS), theta, setting.kind, residual, setting.missing)


def compared(halves, found):
    """Logarithms of forecast over simulated median, of coefficients that both have; and what chance makes of it."""
    expected = np.array(list(found.halves.values()))[: halves.shape[1]]
    with np.errstate(invalid="ignore"):
        median = np.median(halves, axis=0)
    both = np.isfinite(median) & np.isfinite(expected)
    off = np.log(expected[both] / median[both])
    # A median's standard error by order statistics: runs without an interval are above all others.
    ranks = (len(halves) - 1) / 2.0 + np.array([-0.5, 0.5]) * math.sqrt(len(halves))
    low, high = np.sort(halves[:, both], axis=0)[np.clip(np.rint(ranks).astype(int), 0, len(halves) - 1)]
    chance = math.sqrt(2.0) * np.log(high / low) / 2.0
    disagree = int(np.sum(np.isfinite(median) != np.isfinite(expected)))
    return off, float(np.max(chance, initial=0.0)), disagree


def kept(folder, setting, protocol, runs, seed):
    """What was simulated before, from a file; or simulated now, into it. It does not depend on how forecasts go."""
    if folder is None:
        return simulated(setting, protocol, runs, seed)
    folder.mkdir(parents=True, exist_ok=True)
    cell = f"{setting.kind}-{setting.rows}-{setting.d}-{setting.n}-{setting.mu:g}-{setting.missing:g}"
    path = folder / f"{protocol}-{cell}-{runs}-{seed}.npz"
    if path.exists():
        with np.load(path) as found:
            points, theta = found["points"], found["theta"]
            return found["halves"], population_of(setting, points, theta)
    halves, population = simulated(setting, protocol, runs, seed)
    np.savez(path, halves=halves, points=population.points, theta=population.theta)
    return halves, population


def grid(protocols, quick, seed, folder=None, draws=DRAWS, missing=0.0):
    """Every cell's comparison."""
    for kind, d, n, mu, rows in CELLS[::2] if quick else CELLS:
        setting = Setting(kind, d, n, mu, rows, missing)
        for protocol in protocols:
            if protocol == "gradients" and (kind == "real" or not rows):
                continue
            start, runs = time.monotonic(), RUNS[protocol]
            halves, population = kept(folder, setting, protocol, runs, seed)
            try:
                found = forecast(setting.task(protocol), population, n, draws=draws)
            except UserError as error:
                print(f"{protocol}: {error}", file=sys.stderr)
                continue
            off, chance, disagree = compared(halves, found)
            yield {
                "protocol": protocol, "kind": kind, "features": d, "people": n, "mu": mu, "public rows": rows,
                "coefficients": len(off), "disagree": disagree, "settled": found.settled, "chance": chance,
                "worst": float(np.max(np.abs(off), initial=0.0)), "root mean square": root(off),
                "seconds": time.monotonic() - start,
            }  # fmt: skip


def root(off):
    return float(np.sqrt(np.mean(np.square(off)))) if len(off) else 0.0


def show(rows):
    print("| protocol | target | public | d | n | mu | settled | coefficients | worst | rms | chance | disagree |")
    print("|---" * 12 + "|")
    for row in rows:
        chance = "inf" if math.isinf(row["chance"]) else f"{row['chance']:.0%}"
        print(
            f"| {row['protocol']} | {row['kind']} | {row['public rows'] or 'none'} | {row['features']} | "
            f"{row['people']:,} | {row['mu']:g} | {'yes' if row['settled'] else 'no'} | {row['coefficients']} | "
            f"{row['worst']:.0%} | {row['root mean square']:.0%} | {chance} | {row['disagree'] or ''} |"
        )
    for name, of in (("settled", True), ("not settled", False)):
        worst = [row["worst"] for row in rows if row["settled"] is of and row["coefficients"]]
        if worst:
            print(
                f"\n{name}: {len(worst)} cells, worst {max(worst):.0%}, median of worst {np.median(worst):.0%}, "
                f"within 10%: {np.mean(np.array(worst) <= 0.1):.0%}"
            )


def women(protocols, runs, seed, mu):
    """The demonstration's people."""
    print("| task | protocol | public | settled | simulated | forecast, public rows or all people | typical design |")
    print("|---" * 7 + "|")
    for name, text in WOMEN.items():
        for protocol in protocols:
            for aside in (5_000, 0):
                if protocol == "summaries":
                    more = "summaries: {neighbours: replace-one}"
                    if aside:
                        continue
                else:
                    more = f"public: {{set_aside: {aside}}}" if aside else ""
                task = Task.parse(
                    f"{text}\nprotocol: {protocol}\n{more}\nprivacy: {{guarantee: {{gdp: {{mu: {mu:g}}}}}}}"
                )
                X, y = raw(task)
                halves = []
                for run in range(runs):
                    rng = np.random.default_rng([seed, run])
                    order = rng.permutation(len(X))
                    people = order[aside:]
                    halves.append(
                        estimate_of(task, X[people], y[people], X[order[:aside]], rng).half_widths()[: X.shape[1]]
                    )
                halves = np.median(halves, axis=0)
                points, counts = np.unique(X, axis=0, return_counts=True)
                theta = fitted(task, X, y)
                residual = float(np.std(y - X @ theta)) if task.target.kind == "real" else 0.0
                truth = Population("truth", points, counts / counts.sum(), theta, task.target.kind, residual)
                own = forecast(task, truth, len(X) - aside, draws=runs)
                typical = forecast(task, designs(task, Effects())[0], len(X) - aside, draws=runs)
                cells = [
                    " ".join(f"{value:.3f}" for value in each[: X.shape[1]])
                    for each in (halves, list(own.halves.values()), list(typical.halves.values()))
                ]
                print(
                    f"| {name} | {protocol} | {aside or 'none'} | {'yes' if own.settled else 'no'} | "
                    f"{' | '.join(cells)} |", flush=True,
                )  # fmt: skip


def fitted(task, X, y):
    """The fit of raw records."""
    if task.target.kind == "real":
        return np.linalg.lstsq(X, y, rcond=None)[0]
    theta = np.zeros(X.shape[1])
    for _ in range(12):
        p = logistic(X @ theta)
        theta = theta + np.linalg.solve((X * (p * (1 - p))[:, None]).T @ X, X.T @ (y - p))
    return theta


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="every other cell")
    parser.add_argument("--missing", type=float, default=0.0, help="share of missing targets")
    parser.add_argument("--women", action="store_true", help="the demonstration's people")
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=PROTOCOLS)
    parser.add_argument("--runs", type=int, default=9, help="with --women")
    parser.add_argument("--mu", type=float, default=1.0, help="with --women")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--draws", type=int, help="of each forecast; by default as many as murk plan's", default=DRAWS)
    parser.add_argument("--keep", type=Path, help="a folder for what is simulated, so that it need not be again")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    chosen = parser.parse_args(arguments)
    if chosen.women:
        women(chosen.protocols, chosen.runs, chosen.seed, chosen.mu)
        return
    rows = []
    for row in grid(chosen.protocols, chosen.quick, chosen.seed, chosen.keep, chosen.draws, chosen.missing):
        rows.append(row)
        print(f"{row}", file=sys.stderr, flush=True)
        if chosen.json:
            chosen.json.write_text(json.dumps(rows, indent=1))
    show(rows)


if __name__ == "__main__":
    main()
