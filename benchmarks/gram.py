"""Organisations' second moments against mixing and the others: ``python -m benchmarks.gram [--json]``.

Excess risk at equal (epsilon, delta), zero-out neighbours; logistic models; and how often 95% intervals hold the truth
over generated designs (condition numbers 1 to 1,000, rare categories, skew) and on real records, worst cases too.

Windows' matrices are drawn by their distribution: the exact Gram matrix and symmetric Gaussian noise.
"""

import argparse
import json
import math

import numpy as np

from benchmarks.gaussmix import (
    DELTA,
    Linear,
    gaussmix,
    log_loss,
    low_rank,
    mean,
    mothers,
    print_table,
    records,
    synthetic,
)
from murk.inference.linear_probability import around_biased
from murk.privacy import ApproxDP, SimulatedNoise
from murk.privacy.central import GaussMixMechanism, NewtonMechanism
from murk.privacy.mechanisms import calibrate
from murk.protocols.summaries.device import NewtonDevice
from murk.protocols.summaries.estimate import estimate_grams
from murk.protocols.summaries.settings import GramSettings, NewtonSettings, default_rows
from murk.protocols.summaries.sums import GramSums
from reproductions.gaussmix.baselines import AdaSSP, Draws, ObjectivePerturbation
from reproductions.gaussmix.draws import released

OBJECTIVE = "objective perturbation"
METHODS = ("moments", "mixing", "newton", OBJECTIVE)


def moments(second, n, budget, rng, bound=None, kind="real", largest=1.0):
    """The estimate from one window of n records with that second moment."""
    d = len(second)
    bound = math.sqrt(d - 1) if bound is None else bound
    noisy, mechanism = released(second, budget, rng, bound)
    sums = GramSums(d)
    sums.add(noisy, records=n, noise=mechanism.scale**2, weight=1.0)
    settings = GramSettings(tuple(map(str, range(d - 1))), bound, kind=kind, largest=largest)
    return estimate_grams(settings, mechanism.target_weight, [sums])


def linear(repeats):
    """Excess risk over the exact fit, relative to its gain over zero."""
    cases = [(f"p = {p}, n = {n:,}", synthetic(p, n)) for p in (2, 6, 21, 51) for n in (1_000, 10_000, 100_000)]
    cases.append(("4 dimensions of 64, n = 8,192", low_rank(64, 8192)))
    cases.append(("mothers, weeks_worked", Linear(*mothers("weeks_worked"))))
    table = []
    for name, case in cases:
        for epsilon in (1.0, 4.0):
            budget, rngs = ApproxDP(epsilon, DELTA), [np.random.default_rng(r) for r in range(repeats)]
            rows = default_rows(case.p + 1)
            more = {"bound": case.bound, "analysis": "tight"}
            table.append({
                "records": name, "epsilon": epsilon,
                "moments": mean([case.excess(moments(case.second, case.n, budget, g, case.bound).values)
                                 for g in rngs]),
                "mixing": mean([case.excess(gaussmix(case.second, case.n, budget, rows, g, **more).values)
                                for g in rngs]),
                "AdaSSP, analytic": mean([
                    case.excess(AdaSSP(budget, case.bound, calibration="analytic").release(
                        case.rows, case.targets, Draws(SimulatedNoise(r)))) for r in range(repeats)]),
            })  # fmt: skip
    return table


def hessian_mixing(case, x, y, epsilon, steps, rows, share, rng, passes):
    """Iterated Hessian mixing: each step has a fresh mixture of X for the Hessian, and a gradient with noise.

    With a pass over the records for each step, residuals are cut off at 1, which is known to hold them; in one pass of
    all, which keeps X'X and X'y, a record's part of a gradient is only known to be within ``C_X (C_Y + C_X |theta|)``.
    """
    part = ApproxDP(epsilon * share / steps, DELTA / 2 / steps)
    mixing = GaussMixMechanism.calibrate(
        part, rows=rows, columns=case.p, feature_bound=case.bound, target_bound=1e-6, method="mixing", analysis="tight"
    )
    gradient = calibrate("gaussian", ApproxDP(epsilon * (1 - share), DELTA / 2), dimension=case.p, radius=0.5)
    values, vectors = np.linalg.eigh(x.T @ x)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    theta, spread = np.zeros(case.p), math.sqrt(mixing.noise_variance(mixing.largest_spread))
    for _ in range(steps):
        mixed = rng.normal(size=(rows, case.p)) @ root.T + spread * rng.normal(size=(rows, case.p))
        residual, bound = y - x @ theta, case.bound
        if passes:
            residual = np.clip(residual, -1.0, 1.0)
        else:
            bound *= 1.0 + case.bound * float(np.linalg.norm(theta))
        slope = x.T @ residual + bound * math.sqrt(gradient.variance * steps) * rng.normal(size=case.p)
        theta = theta + np.linalg.solve(mixed.T @ mixed / rows, slope)
    return theta


def iterated(repeats):
    """Second moments against iterated Hessian mixing by 1 to 5 steps; of rows and shares the best in hindsight."""
    table = []
    for p, n in ((6, 10_000), (21, 1_000), (21, 10_000), (21, 100_000), (51, 10_000), (51, 100_000)):
        x, y = records(p, n)
        case = Linear(x, y)
        for epsilon in (1.0, 4.0):

            def least(passes, epsilon=epsilon, case=case, x=x, y=y, p=p):
                return min(
                    mean([
                        case.excess(hessian_mixing(
                            case, x, y, epsilon, steps, rows, share, np.random.default_rng(r), passes))
                        for r in range(repeats)
                    ])
                    for steps in (1, 2, 3, 5) for rows in (2 * p + 50, 400, 2_000) for share in (0.25, 0.5)
                )  # fmt: skip

            table.append({
                "records": f"p = {p}, n = {n:,}", "epsilon": epsilon,
                "moments": mean([case.excess(moments(case.second, n, ApproxDP(epsilon, DELTA),
                                                     np.random.default_rng(r)).values) for r in range(repeats)]),
                "Hessian mixing, one pass": least(False), "Hessian mixing, a pass a step": least(True),
            })  # fmt: skip
    return table


def newton(x, y, budget, seed, largest=1.0, first=None):
    """The estimate from one window of records by a Newton step, in an order of chance: the release itself."""
    p, bound = x.shape[1], math.sqrt(x.shape[1])
    mechanism = NewtonMechanism.calibrate(budget, columns=p + 1, feature_bound=bound, first=first)
    names = tuple(map(str, range(p)))
    settings = NewtonSettings(names, bound, kind="binary", largest=largest, first=mechanism.first)
    device = NewtonDevice(settings, {"default": mechanism})
    window, order = device.accumulator("default", SimulatedNoise(seed), 0), np.random.default_rng(seed)
    window.add_block(np.column_stack([x, y])[order.permutation(len(y))])
    engine = device.engine()
    engine.learn_window(window.release())
    return engine.estimate()


def logistic(repeats, methods):
    """Excess log loss per record on third_child, and what a coefficient misses, by some methods."""
    from statsmodels.api import Logit

    x, y = mothers("third_child")
    exact = Logit((y + 1) / 2, x).fit(disp=0).params
    least, records = log_loss(exact, x, y), np.column_stack([x, y])
    second, table = records.T @ records, []

    def fits(method, budget, r):
        if method == "moments":
            return moments(second, len(y), budget, np.random.default_rng(r), kind="binary")
        if method == "newton":
            return newton(x, y, budget, r)
        if method == "mixing":
            rng = np.random.default_rng(r)
            return gaussmix(second, len(y), budget, default_rows(7), rng, kind="binary", analysis="tight")
        return ObjectivePerturbation(budget, math.sqrt(6), noise=SimulatedNoise(r)).fit(x, y)

    for epsilon in (0.5, 1.0, 4.0):
        for method in methods:
            count = min(5, repeats) if method == OBJECTIVE else repeats
            found = [fits(method, ApproxDP(epsilon, DELTA), r) for r in range(count)]
            values = found if method == OBJECTIVE else [one.values for one in found]
            table.append({
                "epsilon": epsilon, "method": method,
                "excess log loss, 1e-6": mean([1e6 * (log_loss(fit, x, y) - least) for fit in values]),
                "rmse of coefficients": math.sqrt(np.mean([np.sum((fit - exact) ** 2) for fit in values])),
                **stated(found if method in ("moments", "newton") else None),
            })  # fmt: skip
    return table


def by_design(repeats):
    """Excess log loss per record over the truth's, on generated features: three ways of logistic models."""
    table = []
    for name, (p, draw) in designs().items():
        if name.startswith(("condition 1,", "condition 100,")):
            continue
        theta = np.random.default_rng(7).normal(size=p)
        theta *= 1.5 / np.linalg.norm(theta)
        many = np.column_stack([draw(np.random.default_rng(9), 100_000), np.ones(100_000)])
        true = many @ theta
        least = np.mean(np.logaddexp(0.0, true) - true / (1.0 + np.exp(-true)))
        for n in (30_000, 100_000):
            for epsilon in (0.5, 1.0, 4.0):
                budget, found = ApproxDP(epsilon, DELTA), {"moments": [], "newton": [], "objective perturbation": []}
                for r in range(repeats):
                    rng = np.random.default_rng([r, n, int(10 * epsilon)])
                    x = np.column_stack([draw(rng, n), np.ones(n)])
                    y = np.where(rng.random(n) < 1 / (1 + np.exp(-x @ theta)), 1.0, -1.0)
                    z = np.column_stack([x, y])
                    other = ObjectivePerturbation(budget, math.sqrt(p), noise=SimulatedNoise(r)).fit(x, y)
                    found["moments"].append(moments(z.T @ z, n, budget, rng, kind="binary").values)
                    found["newton"].append(newton(x, y, budget, r).values)
                    found["objective perturbation"].append(other)
                row = {"design": name, "n": n, "epsilon": epsilon}
                for method, fits in found.items():
                    scores = [many @ fit for fit in fits]
                    loss = [np.mean(np.logaddexp(0.0, u) - u / (1.0 + np.exp(-true))) for u in scores]
                    row[method] = 1e6 * float(np.mean(loss) - least)
                table.append(row)
    return table


def stated(of):
    """Half widths of `same_sex` that estimates state, of log odds and of the average effect in points."""
    if of is None:
        return {"half width": math.nan, "of the effect, points": math.nan}
    return {
        "half width": mean([one.half_widths()[1] for one in of]),
        # A feature of -1 and +1: the effect is of twice a unit.
        "of the effect, points": mean([200.0 * one.effects()[1][1] for one in of]),
    }


def designs():
    """Generated features without the constant, by name."""
    found = {}
    for p in (3, 6, 11, 21):
        q = np.linalg.qr(np.random.default_rng(p).normal(size=(p - 1, p - 1)))[0]
        for condition in (1, 10, 100, 1000):
            scale = 0.4 * np.sqrt(np.geomspace(1.0, 1.0 / condition, p - 1))
            found[f"condition {condition:,}, p = {p}"] = (
                p, lambda rng, n, q=q, s=scale: np.clip((rng.normal(size=(n, len(s))) * s) @ q.T, -1, 1)
            )  # fmt: skip
        rare = np.geomspace(0.5, 0.002, p - 1)
        found[f"rare categories, p = {p}"] = (
            p, lambda rng, n, r=rare: np.where(rng.random((n, len(r))) < r, 1.0, -1.0)
        )  # fmt: skip
        found[f"skew, p = {p}"] = (
            p, lambda rng, n, p=p: np.minimum(rng.exponential(0.2, (n, p - 1)), 2.0) - 1.0
        )  # fmt: skip
    return found


def by_chance(found, half):
    """Which share of the half widths of a Newton step's intervals is there for noise and sampling alone."""
    known = np.isfinite(half)
    joint = around_biased(found.spread, found.beyond) <= half
    return (1.96 * np.where(joint, found.spread, found.alone))[known] / half[known]


def coverage(repeats, binary, step=False, only=("",), first=None):
    """How often 95% intervals hold the truth, of those that there are: by design, over n and epsilon."""
    table = []
    for name, (p, draw) in designs().items():
        if not any(part in name for part in only):
            continue
        theta = np.random.default_rng(7).normal(size=p)
        theta *= (1.5 if binary else 0.3) / np.linalg.norm(theta)
        held, told, least, effects, widths, shares = 0, 0, 1.0, [], [], []
        many = np.random.default_rng(9)
        score = np.column_stack([draw(many, 400_000), np.ones(400_000)]) @ theta
        slope = float(np.mean(1.0 / (2.0 + np.exp(score) + np.exp(-score))))
        runs = []
        for n in (20_000, 100_000) if step else (2_000, 50_000):
            for epsilon in (1.0, 4.0):
                hits, some = np.zeros(p), np.zeros(p)
                for r in range(repeats):
                    rng = np.random.default_rng([r, n, int(epsilon)])
                    x = np.column_stack([draw(rng, n), np.ones(n)])
                    score = x @ theta
                    if binary:
                        y = np.where(rng.random(n) < 1 / (1 + np.exp(-score)), 1.0, -1.0)
                    else:
                        y = score + 0.2 * rng.normal(size=n)
                    z = np.column_stack([x, y])
                    kind = "binary" if binary else "real"
                    budget = ApproxDP(epsilon, DELTA)
                    if step:
                        found = newton(x, y, budget, r, first=None if first is None else int(first * n))
                    else:
                        found = moments(z.T @ z, n, budget, rng, kind=kind)
                    half = found.half_widths()
                    some += np.isfinite(half)
                    hits += np.isfinite(half) & (np.abs(found.values - theta) < half)
                    if np.any(np.isfinite(half)):
                        runs.append(float(np.mean((np.abs(found.values - theta) < half)[np.isfinite(half)])))
                    widths += half[np.isfinite(half)].tolist()
                    shares += by_chance(found, half).tolist() if step else []
                    if found.effects() is not None:
                        effect, wide = (each[:-1] for each in found.effects())
                        effects += (np.abs(effect - slope * theta[:-1]) < wide)[np.isfinite(wide)].tolist()
                held, told = held + hits.sum(), told + some.sum()
                if some.sum() > p * repeats / 10:
                    least = min(least, hits.sum() / some.sum())
        table.append({
            "design": name, "coefficients with an interval": float(told) / (4 * repeats * p),
            "of these held": float(held / told) if told else math.nan, "by runs": mean(runs),
            "least, by n and epsilon": float(least),
            "half width, median": float(np.median(widths)) if widths else math.nan,
            **({"of it noise and sampling": float(np.median(shares)) if shares else math.nan} if step else {}),
            **({"effects held": float(np.mean(effects)) if effects else math.nan} if binary else {}),
        })  # fmt: skip
    return table


def on_records(repeats):
    """The same on parts of the mothers data, whose own fit is the truth: residuals of no single variance."""
    table = []
    for target in ("weeks_worked", "third_child"):
        x, y = mothers(target)
        case = Linear(x, y)
        for n in (5_000, 20_000, 100_000):
            for epsilon in (1.0, 4.0):
                hits, told = np.zeros(case.p), np.zeros(case.p)
                for r in range(repeats):
                    rng = np.random.default_rng([r, n])
                    part = rng.integers(0, case.n, n)
                    z = np.column_stack([x[part], y[part]])
                    found = moments(z.T @ z, n, ApproxDP(epsilon, DELTA), rng)
                    half = found.half_widths()
                    told += np.isfinite(half)
                    hits += np.isfinite(half) & (np.abs(found.values - case.exact) < half)
                table.append({
                    "line through": target, "n": n, "epsilon": epsilon, "held": float(hits.sum() / told.sum()),
                    "worst coefficient": float(np.min(hits / np.maximum(told, 1))),
                })  # fmt: skip
    return table


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=METHODS, help="of the regression of third_child"
    )
    parser.add_argument("--designs", nargs="+", default=("",), help="of a Newton step's coverage, by parts of names")
    parser.add_argument("--first", type=float, help="the first records' share, of a Newton step's coverage")
    parser.add_argument("--only", nargs="+", default=("",), help="parts whose titles begin so")
    given = parser.parse_args(argv)
    parts = {
        f"Excess risk relative to the exact fit's gain, delta = {DELTA:g}": lambda: linear(given.repeats),
        "Iterated Hessian mixing": lambda: iterated(given.repeats),
        "Logistic regression of third_child": lambda: logistic(given.repeats, given.methods),
        "Logistic models by design: excess log loss, 1e-6": lambda: by_design(max(2, given.repeats // 4)),
        "Coverage, real targets": lambda: coverage(2 * given.repeats, binary=False),
        "Coverage, log odds of length 1.5": lambda: coverage(given.repeats, binary=True),
        "Coverage, log odds of length 1.5, by a Newton step": lambda: coverage(
            given.repeats, binary=True, step=True, only=given.designs, first=given.first
        ),
        "Coverage on parts of the mothers data": lambda: on_records(10 * given.repeats),
    }
    results = {}
    for title, part in parts.items():
        if not title.startswith(tuple(given.only)):
            continue
        results[title] = part()
        if not given.json:
            print_table(title, results[title])
    if given.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
