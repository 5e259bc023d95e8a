"""Public-data GLM, measured: ``python -m benchmarks.glm [answers_once|women|noise|rate|weight|bias|coverage ...]``.

answers_once: error of scores without rounds and of the joint release, of the same people (coverage:
``python -m benchmarks.scores --once``). noise: standard deviations of the published release and of the joint one at one
guarantee. women: the same errors on the demonstration's data. rate: error against the
truth over n and over mu, and the fitted slopes (the theorem: n^-1/2 and mu^-1, epsilon^-1). coverage: how often nominal
95% intervals hold the truth. bias: what it converges to where features are not normal. repair: ways to
fix an indefinite moment matrix. weight: the target's scale in the joint release, and the published one. speed:
``learn_many`` against a bare compiled loop with the same draws and arithmetic.
"""

import argparse
import gzip
import math
import time
import warnings
from importlib import resources

import numpy as np
import statsmodels.api
from scipy.stats import chi2

from benchmarks.score_people import learned
from benchmarks.timing import compare
from murk._internal.jit import jit
from murk.learners import PublicGLMClassifier, PublicGLMRegressor
from murk.privacy import ApproxDP, GaussianDP
from murk.privacy.noise.kernels import simulated_gaussian
from murk.protocols.mean_functions import LOSSES, ResponseRange
from murk.protocols.moments.estimate import fit
from murk.protocols.moments.kernels import moments
from murk.protocols.moments.mechanisms import calibrated
from murk.protocols.moments.model import MomentModel
from murk.protocols.moments.statistics import Statistics, balanced
from murk.protocols.moments.sums import MomentSums
from murk.protocols.rows import Rows

CLASSIC = {"calibration": "classic", "covariance": "pooled"}


def answers_once(replications, n=300_000, rows=20_000):
    """Mean squared distance of the slopes to the truth, and the share of intervals that hold it, of the same draws."""
    print(f"| n = {n:,}, {rows:,} public rows, mu = 1 | joint | once | covered | s |")
    print("|---|---|---|---|---|")
    for kind, p, size in (
        *(("logistic", p, size) for size in (1.0, None) for p in (5, 10)),
        *(("linear", p, 1.0) for p in (5, 10)),
        *((kind, 100, 1.0) for kind in ("logistic", "linear")),
    ):
        binary, before, after, held, took = kind == "logistic", [], [], [], []
        truth = np.ones(p) if size is None else np.full(p, size / math.sqrt(p))
        for r in range(replications if p < 100 else 2):
            rng = np.random.default_rng([3, p, r])
            X = rng.normal(size=(n + rows, p))
            line = X[:n] @ truth
            if binary:
                y = (rng.random(n) < 1 / (1 + np.exp(-line))).astype(float)
            else:
                # A line that stays within the target's range for all but one in 10,000.
                y, line = 0.25 * line + rng.uniform(-0.05, 0.05, size=n), 0.25 * line
            aim, start = truth if binary else 0.25 * truth, time.perf_counter()
            Z = np.c_[X, np.ones(n + rows)]
            found = learned(Z[:n], y, GaussianDP(1.0), rng, public=Z[n:], binary=binary, once=True)
            after.append(np.sum((found.values[:-1] - aim) ** 2))
            held.append(np.mean(np.abs(found.values - np.append(aim, 0.0)) <= found.half_widths()))
            took.append(time.perf_counter() - start)
            if p < 100:
                before.append(np.sum((joint(X, y, n, p, binary, r).estimate().values[:-1] - aim) ** 2))
        first = f"{np.mean(before):.4f}" if before else "-"
        what = f"{kind}, d = {p}, slopes of {'1 each' if size is None else 'length 1'}"
        print(f"| {what} | {first} | {np.mean(after):.4f} | {np.mean(held):.0%} | {np.mean(took):.1f} |", flush=True)


def women(replications, rows=5_000):
    """On the demonstration's data, against maximum likelihood on raw records: error and half width of each."""
    names, features, y = mothers()
    print("| mothers, mu = 1 | joint: error, half width | once |\n|---|---|---|")
    for chosen in (["same_sex", "age"], ["same_sex", "age", "afam", "hispanic"]):
        X = features[:, [names.index(name) for name in chosen]]
        Z, found = np.c_[X, np.ones(len(X))], {}
        likely = statsmodels.api.Logit(y.astype(float), Z).fit(disp=0).params[:-1]
        for r in range(replications):
            rng = np.random.default_rng([5, r])
            order = rng.permutation(len(X))
            public, people = order[:rows], order[rows:]
            once = learned(Z[people], y[people].astype(float), GaussianDP(1.0), rng, public=Z[public], once=True)
            before = PublicGLMClassifier(
                guarantee=GaussianDP(1.0), public=X[public], features=chosen, release="joint", seed=r
            )
            before.learn_many(X[people], y[people])
            for name, one in (("joint", before.estimate()), ("once", once)):
                found.setdefault(name, []).append((one.values[:-1] - likely, one.half_widths()[:-1]))
        cells = {
            name: (np.sqrt(np.mean([off**2 for off, _ in each], axis=0)), np.median([half for _, half in each], axis=0))
            for name, each in found.items()
        }
        for j, name in enumerate(chosen):
            both = " | ".join(f"{cells[kind][0][j]:.3f}, {cells[kind][1][j]:.3f}" for kind in ("joint", "once"))
            print(f"| {name}, of {len(chosen)} | {both} |", flush=True)


def joint(X, y, n, p, binary, seed):
    """The joint release of the first n rows; one in 10,000 is beyond its bound."""
    more = {"public": X[n:], "features": list(range(p)), "radius": math.sqrt(chi2.ppf(0.9999, p)), "seed": seed}
    if binary:
        model = PublicGLMClassifier(guarantee=GaussianDP(1.0), **more)
    else:
        model = PublicGLMRegressor(guarantee=GaussianDP(1.0), target_bounds=(-1.0, 1.0), **more)
    model.learn_many(X[:n], y > 0 if binary else y)
    return model


def noise(replications):
    """Standard deviations of one release, in units of x x' and of x y."""
    print("| r, b | epsilon, delta | published: x x', x y | joint: diagonal, off it, x y | joint, balanced |")
    print("|---|---|---|---|---|")
    for r, b, epsilon, delta in [(1, 1, 10, 1e-6), (1, 1, 1, 1e-6), (math.sqrt(6), 1, 1, 1e-6)]:
        published = [math.sqrt(32 * math.log(2.5 / delta)) * size / epsilon for size in (r * r, r * b)]
        cells = []
        for weight in (b, balanced(r)):
            layout = Statistics(("a", "b", "c"), r, weight, constant=False)
            spread = math.sqrt(calibrated(ApproxDP(epsilon, delta), layout, kind="gaussian").variance)
            cells.append(f"{spread:.2f}, {spread / math.sqrt(2):.2f}, {spread / weight * b:.2f}")
        first = f"{published[0]:.2f}, {published[1]:.2f}"
        print(f"| {r:.3g}, {b} | {epsilon}, {delta:g} | {first} | {cells[0]} | {cells[1]} |")


def normal(rng, n, p, truth, intercept):
    """Normal features of standard deviation 0.3 and labels of a logistic model."""
    X = 0.3 * rng.normal(size=(n, p))
    return X, rng.random(n) < 1 / (1 + np.exp(-(X @ truth + intercept)))


def error(n, budget, replications, p=5, **more):
    """Root mean squared distance of the slopes to the truth, with normal features."""
    truth, found = np.ones(p) / math.sqrt(p), []
    for r in range(replications):
        rng = np.random.default_rng(100 + r)
        X, y = normal(rng, n, p, truth, -0.5)
        # A radius of 3 standard deviations of the norm: fewer than one in 10^4 is beyond it.
        model = PublicGLMClassifier(
            guarantee=budget,
            public=normal(rng, 20_000, p, truth, 0)[0],
            features=list(range(p)),
            radius=1.5,
            seed=r,
            **more,
        )
        model.learn_many(X, y)
        found.append(np.sum((model.estimate().values[:-1] - truth) ** 2))
    return math.sqrt(np.median(found))


def rate(replications):
    """Slopes of log error over log n and over log mu."""
    people = [160_000, 320_000, 640_000, 1_280_000, 2_560_000]
    sweep("n", people, [error(n, GaussianDP(1.0), replications) for n in people], "mu = 1", -0.5)
    most, given = people[-2], "n = 1,280,000"
    budgets = [0.5, 1.0, 2.0]
    sweep("mu", budgets, [error(most, GaussianDP(mu), replications) for mu in budgets], given, -1)
    budgets = [1.5, 3.0, 6.0]
    sweep(
        "epsilon",
        budgets,
        [error(most, ApproxDP(e, 1e-6), replications, mechanism="gaussian") for e in budgets],
        given,
        -1,
    )


def sweep(name, values, errors, at, theorem):
    print(f"{at}, {name}: error", ", ".join(f"{v:g}: {e:.3f}" for v, e in zip(values, errors, strict=True)))
    slope = np.polyfit(np.log(values), np.log(errors), 1)[0]
    print(f"slope over {name}: {slope:.2f} (theorem: {theorem})", flush=True)


def weight(replications):
    """The target's scale: 1, or balanced; and the published release at the same guarantee."""
    print("| n = 640,000, p = 5 | error |")
    print("|---|---|")
    separate = {"release": "separate"}
    for name, budget, more in [
        ("mu = 2, joint, weight 1", GaussianDP(2.0), {"target_weight": 1.0}),
        ("mu = 2, joint, balanced", GaussianDP(2.0), {}),
        ("mu = 2, joint, balanced, private covariance", GaussianDP(2.0), {"covariance": "private"}),
        ("(2, 1e-6), separate, classic, pooled", ApproxDP(2.0, 1e-6), {**separate, **CLASSIC}),
        ("(2, 1e-6), separate, analytic", ApproxDP(2.0, 1e-6), separate),
        ("(2, 1e-6), joint, balanced", ApproxDP(2.0, 1e-6), {"mechanism": "gaussian"}),
    ]:
        print(f"| {name} | {error(640_000, budget, replications, **more):.3f} |", flush=True)


def mothers():
    """The demonstration's features in coded units, and whether there is a third child."""
    path = resources.files("murk.demo") / "data" / "mothers-1980.csv.gz"
    with gzip.open(str(path), "rt") as handle:
        head, *lines = handle.read().split()
    place = {name: i for i, name in enumerate(head.split(","))}
    table = np.array([line.split(",") for line in lines])

    def column(name, low=None, high=None):
        values = table[:, place[name]]
        if low is None:
            return np.where(values == "yes", 1.0, -1.0)
        return 2 * (values.astype(float) - low) / (high - low) - 1

    X = np.column_stack(
        [column("same_sex"), column("age", 21, 35), column("afam"), column("hispanic"), column("weeks_worked", 0, 52)]
    )
    return ("same_sex", "age", "afam", "hispanic", "weeks_worked"), X, column("third_child") > 0


def limit(X, y):
    """What the method converges to, and what maximum likelihood does, if the population is the file."""
    import statsmodels.api as sm

    Z = np.column_stack([X, np.ones(len(X))])
    layout = Statistics((*"abcde"[: X.shape[1]], "1"), math.sqrt(Z.shape[1]))
    total, n = np.zeros(layout.dimension), float(len(X))
    for start in range(0, len(X), 10_000):
        total += layout.vectors(Z[start : start + 10_000], 2.0 * y[start : start + 10_000] - 1.0).sum(axis=0)
    public = Rows(Z, np.full(len(Z), 1 / n), n, Z.T @ Z / n)
    sums = MomentSums(total, np.array([n, n, 0, 0, n, n]), len(X))
    exact = fit(MomentModel(LOSSES["logistic"], ResponseRange(0, 1), public), sums, layout)
    return exact.values, sm.Logit(y.astype(float), Z).fit(disp=0).params


def coverage(replications):
    """Share of nominal 95% intervals that hold the truth, people and public covariates drawn again each time."""
    truth = np.array([1.0, -0.5, 0.25])
    print("| setting | coefficient: share of intervals that hold the limit |")
    print("|---|---|")
    for mu, n, extra in [(1.0, 100_000, {}), (4.0, 100_000, {}), (4.0, 20_000, {"public": None}), (20.0, 20_000, {})]:
        held = []
        for r in range(replications):
            rng = np.random.default_rng(r)
            X, y = normal(rng, n, 3, truth, -0.5)
            more = {"public": normal(rng, 2000, 3, truth, 0)[0], **extra}
            model = PublicGLMClassifier(guarantee=GaussianDP(mu), features=[0, 1, 2], radius=1.5, seed=r, **more)
            model.learn_many(X, y)
            found = model.estimate()
            held.append(np.abs(found.values - np.append(truth, -0.5)) <= found.half_widths())
        kind = "no public covariates" if extra else "2,000 public covariates"
        shares = ", ".join(f"{share:.0%}" for share in np.mean(held, axis=0))
        print(f"| normal features, n = {n:,}, mu = {mu:g}, {kind} | {shares} |", flush=True)
    names, X, y = mothers()
    aim, likely = limit(X, y)
    print("| mothers: limit (and maximum likelihood) | ", end="")
    print(", ".join(f"{n}: {a:.3f} ({b:.3f})" for n, a, b in zip([*names, "intercept"], aim, likely, strict=True)), "|")
    for mu, solver in ((1.0, "stein"), (4.0, "stein"), (1.0, "score"), (4.0, "score")):
        held, true, widths = [], [], []
        for r in range(replications):
            rng = np.random.default_rng(r)
            rows, public = rng.integers(len(X), size=250_000), rng.integers(len(X), size=5_000)
            model = PublicGLMClassifier(
                guarantee=GaussianDP(mu), public=X[public], features=list(names), seed=r, release="joint", solver=solver
            )
            model.learn_many(X[rows], y[rows])
            found = model.estimate()
            held.append(np.abs(found.values - (aim if solver == "stein" else likely)) <= found.half_widths())
            true.append(np.abs(found.values - likely) <= found.half_widths())
            widths.append(found.half_widths())
        shares = ", ".join(
            f"{name}: {a:.0%} ({b:.0%}), +-{w:.3f}"
            for name, a, b, w in zip(
                [*names, "intercept"],
                np.mean(held, axis=0),
                np.mean(true, axis=0),
                np.median(widths, axis=0),
                strict=True,
            )
        )
        print(
            f"| mothers, n = 250,000, mu = {mu:g}, {solver}: of its limit (of maximum likelihood) | {shares} |",
            flush=True,
        )


def bias(replications):
    """How far from the truth the method converges where features are not normal: exact, without noise or sampling."""
    print("| features (the model is logistic, intercept -0.5) | truth | limit, paper's | limit, score |")
    print("|---|---|---|---|")
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    for rare in (0.5, 0.2, 0.05):
        for truth in ([0.25, 0.5], [1.0, 1.0]):
            # A feature of -1 and +1, and beside it a normal one of standard deviation 0.4.
            X = np.array([[side, 0.4 * node] for side in (-1.0, 1.0) for node in nodes])
            share = np.array([part * w for part in (1 - rare, rare) for w in weights / weights.sum()])
            Z = np.column_stack([X, np.ones(len(X))])
            chance = 1 / (1 + np.exp(-Z @ np.array([*truth, -0.5])))
            public = Rows(Z, share, np.inf, (Z * share[:, None]).T @ Z)
            layout = Statistics(("a", "b", "1"), 10.0)
            mean = np.concatenate([public.second_moment[np.triu_indices(3)][:5], Z.T @ (share * (2 * chance - 1))])
            mean[[1, 2, 4]] *= math.sqrt(2.0)
            sums, cells = MomentSums(mean, np.array([1.0, 1, 0, 0, 1, 1]), 1), []
            for solver in ("stein", "score"):
                model = MomentModel(LOSSES["logistic"], ResponseRange(0, 1), public, "private", solver)
                found = fit(model, sums, layout)
                cells.append(", ".join(f"{value:.3f}" for value in found.values))
            what = f"one of two values, the second for {rare:.0%}; one normal"
            print(f"| {what} | {truth[0]}, {truth[1]}, -0.5 | {' | '.join(cells)} |")


def repairs(matrix, spread, public):
    """Candidates: name and fixed matrix. ``spread`` is the root mean square of the noise on an entry."""
    size = len(matrix)
    edge = 2.0 * math.sqrt(size) * spread

    def clipped(target, floor):
        values, vectors = np.linalg.eigh(target)
        return (vectors * np.maximum(values, floor)) @ vectors.T

    values, vectors = np.linalg.eigh(public)
    whiten = (vectors / np.sqrt(values)) @ vectors.T
    colour = (vectors * np.sqrt(values)) @ vectors.T
    least = np.linalg.eigvalsh(whiten @ matrix @ whiten)[0]
    shrink = 0.0 if least >= 0.25 else (0.25 - least) / (1 - least)
    lowest = np.linalg.eigvalsh(matrix)[0]
    yield "nothing", matrix
    for share in (0.25, 0.5, 1.0):
        yield f"eigenvalues at least {share:g} of the noise's largest", clipped(matrix, share * edge)
    yield "a ridge that brings the least to half of it", matrix + max(edge / 2 - lowest, 0.0) * np.eye(size)
    yield "in the public metric, at least 0.25", colour @ clipped(whiten @ matrix @ whiten, 0.25) @ colour
    yield "in the public metric, at least 0.5", colour @ clipped(whiten @ matrix @ whiten, 0.5) @ colour
    yield "shrunk to the public one until 0.25 of it", (1 - shrink) * matrix + shrink * public
    yield "the public one alone", public


def repair(replications):
    """Squared error of least squares' slopes for each way to fix the private matrix, and both by inverse variance."""
    settings = [(6, 3_000, 2_000), (6, 30_000, 100), (11, 20_000, 2_000), (11, 100_000, 2_000)]
    table = {}
    for rare in (False, True):
        for p, n, m in settings:
            rng = np.random.default_rng(p + n)
            beta = 0.3 / math.sqrt(p) * np.resize([1.0, -1.0], p)
            beta[-1] = 0.0
            layout = Statistics(tuple(map(str, range(p))), math.sqrt(p), balanced(math.sqrt(p)))
            sigma = layout.sensitivity / math.sqrt(n)

            def draw(count, p=p, rng=rng, rare=rare):
                hidden = math.sqrt(0.8) * rng.normal(size=(count, p - 1)) + math.sqrt(0.2) * rng.normal(size=(count, 1))
                return np.column_stack([np.where(hidden > (1.3 if rare else 0), 1.0, -1.0), np.ones(count)])

            everybody = draw(200_000)
            moment = everybody.T @ everybody / len(everybody)
            spreads = np.sqrt(layout.entry_variances(sigma**2))
            spread = math.sqrt(np.mean(spreads**2))
            for _ in range(10 * replications):
                noisy = np.triu(rng.normal(size=(p, p)) * spreads)
                private = moment + noisy + np.triu(noisy, 1).T
                seen = draw(m)
                public = seen.T @ seen / m
                cross = moment @ beta + rng.normal(size=p) * sigma / layout.weight
                varies = np.mean(np.maximum((seen**2).T @ (seen**2) / m - public**2, 0)) / m
                share = varies / (varies + spread**2)
                both = share * private + (1 - share) * public
                ways = [*repairs(private, spread, public), ("both by inverse variance", both)]
                ways.append(
                    ("both, then at least the noise's largest", list(repairs(both, share * spread, public))[3][1])
                )
                for name, matrix in ways:
                    off = np.sum((np.linalg.solve(matrix, cross) - beta)[:-1] ** 2)
                    table.setdefault(name, {}).setdefault((rare, p, n, m), []).append(off)
    columns = [(rare, *setting) for rare in (False, True) for setting in settings]
    heads = (f"{'rare' if rare else 'even'} p = {p}, n = {n:,}, m = {m:,}" for rare, p, n, m in columns)
    print("| mean squared error of the slopes, mu = 1 |", " | ".join(heads), "|")
    print("|---" * (len(columns) + 1) + "|")
    for name, cells in table.items():
        print(f"| {name} |", " | ".join(f"{np.mean(cells[key]):.3g}" for key in columns), "|")


@jit
def bare(X, y, root, weight, spacing, seed, total):
    """The same draws and arithmetic, nothing else."""
    d, steps = total.shape[0], 1.0 / spacing
    v, noise, x = np.empty(d), np.empty(d, dtype=np.int64), np.empty(X.shape[1])
    for i in range(X.shape[0]):
        for j in range(x.shape[0]):
            x[j] = X[i, j]
        moments(x, y[i], root, weight, 0.0, v)
        simulated_gaussian(seed, np.int64(i), noise)
        for j in range(d):
            total[j] += spacing * (np.int64(v[j] * steps) + noise[j])


def speed(replications):
    """``learn_many`` on a million rows."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (1_000_000, 5)), rng.uniform(-1, 1, 1_000_000)
    Z = np.column_stack([X, np.ones(len(X))])
    model = PublicGLMRegressor(guarantee=GaussianDP(1.0), features=list(range(5)), seed=1)
    model.learn_many(X[:10], y[:10])
    layout, spacing = model._engine.layout, model._engine.mechanisms["default"].unit
    total = np.zeros(layout.dimension)
    bare(Z[:10], y[:10], layout.root, layout.weight, spacing, np.uint64(1), total)
    ours, theirs, ratio = compare(
        lambda: model.learn_many(X, y),
        lambda: bare(Z, y, layout.root, layout.weight, spacing, np.uint64(1), total),
        rounds=3,
    )
    print(f"learn_many, 10^6 rows of 5 features: {ours:.2f} s; bare loop {theirs:.2f} s; {ratio:.2f} of its speed")


def main(argv):
    parser = argparse.ArgumentParser()
    parts = {f.__name__: f for f in (answers_once, women, noise, rate, weight, bias, coverage, repair, speed)}
    parser.add_argument("parts", nargs="*", choices=[*parts, []], default=list(parts))
    parser.add_argument("--replications", type=int, default=20)
    options = parser.parse_args(argv)
    warnings.simplefilter("error")
    for name in options.parts or parts:
        print(f"\n{name}\n", flush=True)
        parts[name](options.replications)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
