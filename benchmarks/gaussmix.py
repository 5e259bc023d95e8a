"""GaussMix against its baselines, and its own choices: ``python -m benchmarks.gaussmix [--json]``.

The paper's comparison: excess empirical risk over the exact fit, by privacy budget, people and features, at the same
(epsilon, delta) under zero-out neighbours, on synthetic records and on the mothers data. Figures are relative to the
fit's own explained variance: 0 is the exact fit, 1 as good as coefficients of zero.

Sketches are drawn from a window's second moment (rows of S Z + std Xi are independent N(0, Z'Z + std^2 I), whatever
Z is beside), which is the distribution of the accumulator's and lets hundreds be drawn; tests hold the accumulator to
it.
"""

import argparse
import gzip
import json
import math
from pathlib import Path

import numpy as np

from murk.privacy import ApproxDP, SimulatedNoise
from murk.privacy.central import GaussMixMechanism, Sketch
from murk.privacy.mechanisms.base import WIDTH
from murk.protocols.summaries.engine import SketchEngine
from murk.protocols.summaries.settings import SketchSettings, default_rows, largest_rows
from reproductions.gaussmix.baselines import AdaSSP, Draws, ObjectivePerturbation, Sheffet

DELTA = 1e-5
GRID = (32, 64, 128, 256, 512, 1024, 4096)
MOTHERS = Path(__file__).parent.parent / "murk/demo/data/mothers-1980.csv.gz"


def drawn(mechanism, second, rng):
    """Integers and spread of a sketch of records with that second moment."""
    eigenvalue = 0.0
    if mechanism.releases_eigenvalue:
        least = float(np.linalg.eigvalsh(second)[0]) / mechanism.bound**2
        eigenvalue = least - mechanism.eta * (mechanism.tau - rng.normal())
    spread = mechanism.spread(eigenvalue)
    values, vectors = np.linalg.eigh(second)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    mixed = rng.normal(size=(mechanism.rows, len(second))) @ root.T / mechanism.spacing(spread)
    return np.rint(mixed + WIDTH * rng.normal(size=mixed.shape)).astype(np.int64), spread


def engine_for(p, budget, rows, bound=None, kind="real", analysis="joint", **more):
    bound = math.sqrt(p) if bound is None else bound
    settings = SketchSettings(names=tuple(map(str, range(p))), rows=rows, feature_bound=bound, kind=kind, **more)
    mechanism = GaussMixMechanism.calibrate(
        budget, rows=rows, columns=p + 1, feature_bound=bound, target_bound=1.0, analysis=analysis
    )
    return SketchEngine(settings, {"default": mechanism})


def gaussmix(second, n, budget, rows, rng, windows=1, **more):
    """Coefficients and standard errors from ``windows`` sketches of equal shares of the records."""
    engine = engine_for(len(second) - 1, budget, rows, **more)
    for _ in range(windows):
        integers, spread = drawn(engine.mechanisms["default"], second / windows, rng)
        engine.learn_window(Sketch(integers, spread, n // windows, True))
    return engine.estimate()


class Linear:
    """Excess risk of a coefficient vector on one set of records, relative to the exact fit's gain over zero."""

    def __init__(self, x, y, bound=None):
        self.n, self.p = x.shape
        self.bound = math.sqrt(self.p) if bound is None else bound
        records = np.column_stack([x, y])
        self.second = records.T @ records
        # As many rows as columns with the same second moment: all that the linear baselines look at.
        root = np.linalg.qr(records, mode="r")
        self.rows, self.targets = root[:, :-1], root[:, -1]
        self.exact = np.linalg.lstsq(x, y, rcond=None)[0]
        self.gain = float(self.exact @ self.second[:-1, :-1] @ self.exact)

    def excess(self, theta):
        gap = theta - self.exact
        return float(gap @ self.second[:-1, :-1] @ gap) / self.gain


def mean(values):
    return float(np.mean(values)), float(np.std(values) / math.sqrt(len(values)))


def records(p, n, seed=0):
    """Uniform features with the constant, and a line's targets."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.uniform(-1, 1, (n, p - 1)), np.ones(n)])
    theta = rng.normal(size=p)
    theta *= 0.6 / np.linalg.norm(theta)
    return x, np.clip(x @ theta + 0.3 * rng.normal(size=n), -1, 1)


def synthetic(p, n, seed=0):
    return Linear(*records(p, n, seed))


def low_rank(p, n, seed=0):
    """The paper's Gaussian records: on a random subspace of 4 dimensions, scaled to a longest row of 1."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(p, 4)))[0]
    x = rng.normal(size=(n, 4)) @ basis.T
    theta = rng.normal(size=p)
    y = x @ (theta / np.linalg.norm(theta)) + 0.1 * rng.uniform(-1, 1, n)
    longest = max(np.linalg.norm(x, axis=1).max(), np.abs(y).max())
    return Linear(x / longest, y / longest, bound=1.0)


def linear_methods(case, budget, repeats):
    """Mean excess risk of each method; where a number of sketch rows has to be chosen, the best in hindsight."""
    bound, found = case.bound, {}
    rngs = [np.random.default_rng(100 + r) for r in range(repeats)]
    rows = default_rows(case.p + 1)
    found["GaussMix"] = mean([
        case.excess(gaussmix(case.second, case.n, budget, rows, g, bound=bound).values) for g in rngs
    ])  # fmt: skip
    grid = [k for k in GRID if k >= 2 * (case.p + 1)]

    def best(method):
        return min((mean([case.excess(method(k, r)) for r in range(repeats)]) for k in grid), key=lambda pair: pair[0])

    def published(k, r):
        rng = np.random.default_rng(r)
        more = {"debiased": False, "weighting": "uniform", "analysis": "published", "bound": bound}
        return gaussmix(case.second, case.n, budget, k, rng, **more).values

    found["GaussMix, as published, best k"] = best(published)
    for calibration in ("published", "analytic"):
        found[f"AdaSSP, {calibration}"] = mean([
            case.excess(
                AdaSSP(budget, bound, calibration=calibration).release(
                    case.rows, case.targets, Draws(SimulatedNoise(r))
                )
            )
            for r in range(repeats)
        ])  # fmt: skip
    for analysis in ("published", "renyi"):

        def sheffet(k, r, analysis=analysis):
            method = Sheffet(budget, bound, sketch_rows=k, analysis=analysis)
            return method.release(case.rows, case.targets, Draws(SimulatedNoise(r)))

        found[f"Sheffet, {analysis}, best k"] = best(sheffet)
    return found


def mothers(target):
    """Coded features (with the constant) and the coded target of the mothers data."""
    with gzip.open(MOTHERS, "rt") as file:
        names = file.readline().strip().replace('"', "").split(",")
        rows = [line.strip().replace('"', "").split(",") for line in file]
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    binary = [
        np.where(np.array(columns[name]) == "yes", 1.0, -1.0) for name in ("same_sex", "afam", "hispanic", "other")
    ]
    age = (np.array(columns["age"], dtype=float) - 28.0) / 7.0
    x = np.column_stack([age, *binary, np.ones(len(age))])
    if target == "weeks_worked":
        return x, np.array(columns[target], dtype=float) / 26.0 - 1.0
    return x, np.where(np.array(columns[target]) == "yes", 1.0, -1.0)


def log_loss(theta, x, y):
    return float(np.mean(np.logaddexp(0.0, -y * (x @ theta))))


def logistic(repeats, budgets):
    """Excess log loss (in 1e-6 per record) and largest coefficient error on third_child."""
    from statsmodels.api import Logit

    x, y = mothers("third_child")
    exact = Logit((y + 1) / 2, x).fit(disp=0).params
    least = log_loss(exact, x, y)
    second = np.column_stack([x, y]).T @ np.column_stack([x, y])
    rows, n, results = default_rows(x.shape[1] + 1), len(y), []
    for epsilon in budgets:
        budget = ApproxDP(epsilon, DELTA)
        methods = {
            "GaussMix, normal scores": {"reach": None},
            "GaussMix, quadratic on [-3, 3]": {"reach": 3.0},
            "GaussMix, quadratic on [-1, 1]": {"reach": 1.0},
        }
        for name, more in methods.items():
            fits = [
                gaussmix(second, n, budget, rows, np.random.default_rng(r), kind="binary", **more).values
                for r in range(repeats)
            ]
            results.append((epsilon, name, fits))
        fits = [
            ObjectivePerturbation(budget, math.sqrt(x.shape[1]), noise=SimulatedNoise(r)).fit(x, y)
            for r in range(min(repeats, 5))
        ]
        results.append((epsilon, "objective perturbation", fits))
    return [
        {
            "epsilon": epsilon,
            "method": name,
            "excess log loss, 1e-6": mean([1e6 * (log_loss(fit, x, y) - least) for fit in fits]),
            "rmse of coefficients": math.sqrt(np.mean([np.sum((fit - exact) ** 2) for fit in fits])),
        }
        for epsilon, name, fits in results
    ]


def by_rows(repeats):
    """Excess risk by the number of sketch rows, noise taken off and not."""
    table = []
    for p, n in ((6, 10_000), (6, 100_000), (21, 10_000), (21, 100_000)):
        case = synthetic(p, n)
        for rows in (64, 256, 1024, 4096, min(16_384, largest_rows(p + 1))):
            row = {"p": p, "n": n, "rows": rows}
            for name, debiased in (("taken off", True), ("published", False)):
                row[name] = mean([
                    case.excess(gaussmix(case.second, n, ApproxDP(1.0, DELTA), rows, np.random.default_rng(r),
                                         debiased=debiased).values)
                    for r in range(repeats)
                ])  # fmt: skip
            table.append(row)
    return table


def coverage(repeats):
    """Share of nominal 95% intervals that hold the population's coefficients, and the records' own fit."""
    table = []
    for p, n, rows, windows in ((6, 20_000, 1024, 1), (6, 5_000, 4096, 1), (21, 100_000, 4096, 1), (6, 40_000, 256, 4)):
        for binary in (False, True):
            rng = np.random.default_rng(5)
            theta = rng.normal(size=p)
            theta *= 0.5 / np.linalg.norm(theta)
            held = {"population": [], "records": []}
            for r in range(repeats):
                own = np.random.default_rng(1000 + r)
                x = np.column_stack([own.uniform(-1, 1, (n, p - 1)), np.ones(n)])
                fit = x @ theta
                if binary:
                    y = np.where(own.random(n) < 0.5 + 0.5 * np.clip(fit, -1, 1), 1.0, -1.0)
                else:
                    y = fit + 0.3 * np.clip(own.normal(size=n), -3, 3)
                z = np.column_stack([x, y])
                second = z.T @ z
                found = gaussmix(second, n, ApproxDP(1.0, DELTA), rows, own, windows=windows)
                exact = np.linalg.solve(second[:-1, :-1], second[:-1, -1])
                for name, truth in (("population", theta), ("records", exact)):
                    held[name].append(np.abs(found.values - truth) < found.half_widths())
            table.append({
                "p": p, "n": n, "rows": rows, "windows": windows, "target": "-1/+1" if binary else "real",
                **{name: float(np.mean(hits)) for name, hits in held.items()},
            })  # fmt: skip
    return table


def on_mothers(repeats):
    """Weeks worked: root of the summed squared errors of the coefficients, by rows and windows."""
    case = Linear(*mothers("weeks_worked"))
    table = []
    for rows, windows in ((256, 1), (1024, 1), (4096, 1), (13_384, 1), (4096, 4), (4096, 16)):
        gaps, errors = [], []
        for r in range(repeats):
            found = gaussmix(case.second, case.n, ApproxDP(1.0, DELTA), rows, np.random.default_rng(r), windows)
            gaps.append(np.sum((found.values - case.exact) ** 2))
            errors.append(found.standard_error)
        table.append({
            "rows": rows, "windows": windows, "error": math.sqrt(np.mean(gaps)),
            "stated error": float(np.median(errors)),
        })  # fmt: skip
    return table


def compare(repeats, quick):
    table = []
    cases = [(p, n) for p in (6, 21) for n in ((3_000, 30_000) if quick else (1_000, 10_000, 100_000, 300_000))]
    named = [(f"uniform features, p = {p}, n = {n:,}", synthetic(p, n)) for p, n in cases]
    for p in (64,) if quick else (64, 128):
        named.append((f"4-dimensional normal features, p = {p}, n = 8,192", low_rank(p, 8192)))
    named.append(("mothers, weeks_worked", Linear(*mothers("weeks_worked"))))
    for name, case in named:
        for epsilon in (1.0,) if quick else (0.5, 1.0, 4.0):
            table.append(
                {"records": name, "epsilon": epsilon, **linear_methods(case, ApproxDP(epsilon, DELTA), repeats)}
            )
    return table


def shown(value):
    if isinstance(value, tuple):
        return f"{value[0]:.3g} +- {value[1]:.1g}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def print_table(title, rows):
    print(f"\n{title}\n\n| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(map(shown, row.values())) + " |", flush=True)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="fewer cases")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(argv)
    parts = {
        f"Excess risk relative to the exact fit's gain, delta = {DELTA:g}": lambda: compare(given.repeats, given.quick),
        "Logistic regression of third_child": lambda: logistic(given.repeats, (0.5, 1.0, 4.0)),
        "By rows of the sketch, epsilon = 1": lambda: by_rows(given.repeats),
        "weeks_worked by rows and windows, epsilon = 1": lambda: on_mothers(given.repeats),
        "Coverage of nominal 95% intervals, epsilon = 1": lambda: coverage(2 * given.repeats),
    }
    results = {}
    for title, part in parts.items():
        results[title] = part()
        if not given.json:
            print_table(title, results[title])
    if given.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
