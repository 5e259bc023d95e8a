"""IWP-SGD: what the product release saves, coverage, and speed: ``python -m benchmarks.iwp``.

The paper's figures are those of ``python -m reproductions 000``. Needs scikit-learn for its synthetic data.
``--only NAME`` runs one part: product, losses, coverage, designs, outer, laplace, speed.
"""

import argparse
import itertools
import math

import numpy as np
from river.linear_model import LogisticRegression
from scipy.special import expit

from benchmarks.protocol_people import estimate_of
from benchmarks.timing import compare
from murk import Task
from murk.learners import IWPSGDClassifier, IWPSGDRegressor
from murk.privacy import ApproxDP, GaussianDP, PureDP, calibrate
from murk.protocols.examples import layout
from murk.protocols.examples.cells import MOST_CELLS, Cells, cell_vectors
from murk.protocols.examples.engine import engine_of
from murk.protocols.examples.settings import ExampleSettings, settle
from murk.protocols.linear_algebra import flattened, symmetric
from murk.protocols.population import released_sum
from reproductions.iwp_sgd.plain import EXPONENTIAL, QUADRATIC, minimiser

N = 1_000_000


def examples(n, p, seed):
    """scikit-learn's ``make_classification``, every feature scaled to [-1, 1]."""
    from sklearn.datasets import make_classification

    x, y = make_classification(n_samples=n, n_features=p, n_informative=p, n_redundant=0, random_state=seed)
    low, high = x.min(axis=0), x.max(axis=0)
    return 2 * (x - low) / (high - low) - 1, y > 0


def product(x, y):
    return np.column_stack([x, np.ones(len(x))]) * np.where(y, 1.0, -1.0)[:, None]


def weighted(u, ridge, weight):
    """The minimiser of the quadratic loss of vectors ``y x`` with weights, its penalty weighted by their mean."""
    moment = (u * weight[:, None]).T @ u / len(u) + ridge * weight.mean() * np.eye(u.shape[1])
    return np.linalg.solve(moment, (u * weight[:, None]).mean(axis=0))


def products(draws):
    """Quadratic loss with ridge 0.1: the paper's release and Murk's; each to its own target."""
    print(
        "\nQuadratic loss, ridge 0.1, n = 10^6, delta = 1e-5: squared distance to the optimum over its squared\n"
        "length, median and mean of", draws, "draws; of directions to the optimum weighted by 1/|x|^2, of outer\n"
        "products (PrivUnit, sums with the releases' covariance, 100 draws) to that weighted by 1/(1 + |x|^2)"
    )  # fmt: skip
    print(
        "| data | squared length | between the two optima | separate (published) | joint (before) | directions | "
        "half widths of directions | outer (the default) |\n|" + "---|" * 8
    )
    for p, epsilon in ((2, 2.0), (2, 5.0), (10, 5.0), (10, 10.0)):
        x, y = examples(N, p, 0)
        u = product(x, y)
        plain, directed = minimiser(QUADRATIC, u, 0.1), weighted(u, 0.1, 1.0 / (u * u).sum(axis=1))
        errors, half = np.zeros((draws, 3)), 0.0
        for draw in range(draws):
            for place, release in enumerate(("separate", "joint", "directions")):
                model = IWPSGDClassifier(
                    guarantee=ApproxDP(epsilon, 1e-5), loss="quadratic", regularization=0.1, release=release, seed=draw,
                    features=list(range(p)),
                )  # fmt: skip
                model.learn_many(x, y)
                found, best = model.estimate(), directed if release == "directions" else plain
                errors[draw, place] = np.sum((found.values - best) ** 2) / (best @ best)
            half = max(half, float(np.max(found.half_widths(0.95))))
        known = f"{half:.2g} at most" if math.isfinite(half) else "in some draws none"
        cells = " | ".join(f"{np.median(column):.2g}, {column.mean():.2g}" for column in errors.T)
        gap = np.sum((directed - plain) ** 2) / (plain @ plain)
        own = outer_errors(u[:100_000], epsilon, N / 100_000)
        last = f"{np.median(own):.2g}, {own.mean():.2g}"
        print(
            f"| p = {p}, eps = {epsilon:g} | {plain @ plain:.2f} | {gap:.4f} | {cells} | {known} | {last} |", flush=True
        )


def outer_errors(u, epsilon, people):
    """Of outer products of records whose vectors y x are u, so many people each; their target is of the same people."""
    p, square = u.shape[1], (u * u).sum(axis=1)
    v = np.column_stack([u, np.ones(len(u))]) / np.sqrt(1.0 + square)[:, None]
    best = weighted(u, 0.1, 1.0 / (1.0 + square))
    numbers = flattened(v[:, :, None] * v[:, None, :])
    mechanism = calibrate(None, ApproxDP(epsilon, 1e-5), dimension=numbers.shape[1], radius=1.0)
    rng, counts, errors = np.random.default_rng(1), np.full(len(u), people), []
    for _ in range(100):
        mean = symmetric(released_sum(mechanism, numbers, counts, rng) / counts.sum(), p + 1)
        # The penalty is weighted as the loss is: by the constant's own entry.
        found = np.linalg.solve(mean[:p, :p] + 0.1 * mean[p - 1, p - 1] * np.eye(p), mean[:p, p])
        errors.append(np.sum((found - best) ** 2) / (best @ best))
    return np.array(errors)


DESIGNS = ("condition 1", "condition 10", "condition 100", "condition 1000", "rare categories", "skewed")


def design(kind, n, rng):
    """Four coded features in [-1, 1]."""
    if kind == "rare categories":
        return np.where(rng.random((n, 4)) < [0.5, 0.2, 0.05, 0.01], 1.0, -1.0)
    if kind == "skewed":
        return 2.0 * rng.beta(0.5, [1.0, 2.0, 4.0, 8.0], (n, 4)) - 1.0
    turn = np.linalg.qr(np.random.default_rng(7).normal(size=(4, 4)))[0]
    scale = np.sqrt(np.geomspace(1.0, 1.0 / float(kind.split()[1]), 4))
    return np.clip(0.6 * rng.normal(size=(n, 4)) @ (turn * scale).T, -1.0, 1.0)


BUDGETS_OF_DESIGNS = (GaussianDP(1.0), GaussianDP(2.0), GaussianDP(4.0), GaussianDP(16.0))


def designs(draws, release, missing, rows=0, n=100_000):
    """Coverage of a release over generated designs, by budget and target; the model is right in all of them.

    Of the people whose first feature is positive, a share ``missing`` have no target. Outer products are drawn as their
    sums, also with public ``rows``; standard errors are of draws, since coefficients of one miss together.
    """
    print(f"\nNominal 95% intervals of {release}, four features, n = {n:,} in {draws} draws, {missing:.0%} of the")
    print(f"targets missing where the first feature is positive, {rows:,} public rows: held, of those given")
    print(f"| design | target | {' | '.join(map(str, BUDGETS_OF_DESIGNS))} |\n|" + "---|" * 6)
    worst, truth = (1.0, ""), np.array([0.25, -0.2, 0.15, -0.1, 0.1])
    for kind in DESIGNS:
        for target in ("label", "real"):
            cells = []
            for budget in BUDGETS_OF_DESIGNS:
                held = []
                for draw in range(draws):
                    rng = np.random.default_rng([draw, DESIGNS.index(kind), int(budget.mu), rows, target == "real"])
                    x = np.column_stack([design(kind, n + rows, rng), np.ones(n + rows)])
                    x, public = x[:n], x[n:]
                    fit = x @ truth
                    y = rng.random(n) < 0.5 + 0.5 * fit if target == "label" else fit + rng.uniform(-0.2, 0.2, n)
                    y = np.where((x[:, 0] > 0) & (rng.random(n) < missing), math.nan, y)
                    found = (estimate_of_outer if release == "outer" else estimate_of_directions)(
                        target, budget, x, y, public, rng
                    )
                    given = np.isfinite(found.spread)
                    held.append((np.abs(found.values - truth) <= found.half_widths(0.95))[given])
                every = np.concatenate(held)
                share = every.mean() if len(every) else math.nan
                error = math.sqrt(sum((one.sum() - share * len(one)) ** 2 for one in held)) / max(len(every), 1)
                cells.append(f"{share:.1%} ± {error:.1%} of {len(every) / draws / 5:.0%}")
                if len(every) >= 2 * draws:
                    worst = min(worst, (share, f"{kind}, {target}, {budget}"))
            print(f"| {kind} | {target} | {' | '.join(cells)} |", flush=True)
    print(f"worst, of those with at least two intervals a draw: {worst[0]:.1%} ({worst[1]})")


def estimate_of_outer(target, budget, x, y, public, rng):
    names = ", ".join(f"{{name: x{j}, low: -1, high: 1}}" for j in range(x.shape[1] - 1))
    targets = "kind: binary, positive: 'yes'" if target == "label" else "kind: real, low: -1, high: 1"
    task = Task.parse(
        f"name: design\nfeatures: [{names}]\ntarget: {{name: y, {targets}}}\nprotocol: examples\n"
        f"examples: {{release: outer}}\nprivacy: {{guarantee: {{gdp: {{mu: {budget.mu}}}}}}}\n"
        + (f"public: {{set_aside: {len(public)}}}\n" if len(public) else "")
    )
    return estimate_of(task, x, y, public, rng)


def estimate_of_directions(target, budget, x, y, public, rng):
    learner = IWPSGDClassifier if target == "label" else IWPSGDRegressor
    model = learner(
        guarantee=budget, release="directions", features=list(range(x.shape[1] - 1)), seed=int(rng.integers(2**31))
    )
    model.learn_many(x[:, :-1], np.where(np.isnan(y), None, y > 0.5 if target == "label" else y))
    return model.estimate()


def against_directions(draws, n=100_000):
    """Squared distance to its own target of the fit from outer products, and from directions, without floors."""
    print(
        "\nOuter products against directions, n =", n, "uniform features: median squared distances in", draws, "draws"
    )
    print("| coefficients | target | mu | directions | outer products | ratio |\n|" + "---|" * 6)
    for p, mu, target in itertools.product((3, 11, 21), (0.5, 1.0, 2.0, 2.8, 4.0, 8.0), ("label", "real")):
        rng, errors = np.random.default_rng(0), []
        for _ in range(draws):
            x = np.column_stack([rng.uniform(-1, 1, (n, p - 1)), np.ones(n)])
            mean = np.clip(x @ np.full(p, 0.5 / math.sqrt(p)), -1, 1)
            if target == "label":
                y = np.where(rng.random(n) < (1 + mean) / 2, 1.0, -1.0)
            else:
                y = np.clip(mean + rng.normal(0, 0.2, n), -1, 1)
            length = np.linalg.norm(x, axis=1)
            u, t = x / length[:, None], y / length
            if target == "label":
                u, t = u * y[:, None], 1 / length
            u, t = u + 2 / mu * rng.normal(size=u.shape), t + 2 / mu * rng.normal(size=n)
            own = np.mean((u**2).sum(axis=1) - 1) / p
            directed = np.linalg.solve(u.T @ u / n - own * np.eye(p), u.T @ t / n)
            v = np.column_stack([x, y]) / np.sqrt(1 + length**2)[:, None]
            noise = math.sqrt(2 / n) / mu * rng.normal(size=(p + 1, p + 1))
            outer = v.T @ v / n + (noise + noise.T) / 2
            outer = np.linalg.solve(outer[:p, :p], outer[:p, p])
            fits = [np.linalg.solve((x * w[:, None]).T @ x, x.T @ (w * y)) for w in (length**-2, 1 / (1 + length**2))]
            errors.append([np.sum((directed - fits[0]) ** 2), np.sum((outer - fits[1]) ** 2)])
        first, second = np.median(errors, axis=0)
        print(f"| {p} | {target} | {mu:g} | {first:.2g} | {second:.2g} | {second / first:.2g} |", flush=True)


def logistic_data(n, rng, p=4, truth=None):
    """Features uniform on [-1, 1], labels from a probit model with these coefficients (as logits)."""
    truth = np.array([0.3, -0.2, 0.15, 0.0, -0.1]) if truth is None else truth
    x = rng.uniform(-1, 1, (n, p))
    y = x @ truth[:-1] + truth[-1] + 1.702 * rng.normal(size=n) > 0
    return x, y, truth


def losses(draws):
    """Every loss on the same releases: distance to its own optimum without privacy."""
    print("\nEvery loss, p = 4 and a constant, n = 250,000: root mean squared distance to its own noiseless optimum")
    print("| budget | loss | radius | average | polished | refused |\n|" + "---|" * 6)
    for budget in (GaussianDP(0.5), GaussianDP(1.0), GaussianDP(2.0), GaussianDP(4.0)):
        for loss in ("probit", "quadratic", "exponential", "log"):
            errors = np.zeros((draws, 2))
            for draw in range(draws):
                x, y, truth = logistic_data(250_000, np.random.default_rng(draw))
                u = product(x, y)
                if loss in ("quadratic", "exponential"):
                    truth = minimiser(EXPONENTIAL if loss == "exponential" else QUADRATIC, u, 0.0)
                model = IWPSGDClassifier(guarantee=budget, loss=loss, seed=draw, features=list(range(4)))
                model.learn_many(x, y)
                found = model.estimate().values
                errors[draw] = np.sum((model.average - truth) ** 2), np.sum((found - truth) ** 2)
            mean = np.sqrt(errors.mean(axis=0))
            radius = model._engine.settings.radius
            print(
                f"| {budget} | {loss} | {radius:.2f} | {mean[0]:.3f} | {mean[1]:.3f} | {model.refused_updates} |",
                flush=True,
            )


BUDGETS = (GaussianDP(1.0), GaussianDP(2.0), ApproxDP(5.0, 1e-5))


def coverage(draws, budgets=BUDGETS):
    """How often nominal 95% intervals hold the truth, over all coefficients."""
    print(
        "\nCoverage of nominal 95% intervals, p = 4 and a constant, n = 250,000,", draws, "draws (5 coefficients each)"
    )
    print(
        "| release | loss | budget | sandwich | median half width, share without interval | random scaling |\n|"
        + "---|" * 6
    )
    # Of the distribution, not of a sample: from many other examples.
    x, y, _ = logistic_data(4_000_000, np.random.default_rng(5))
    population = minimiser(QUADRATIC, product(x, y), 0.0)
    for budget in budgets:
        for loss, release in (
            ("probit", "joint"),
            ("quadratic", "directions"),
            ("quadratic", "joint"),
            ("quadratic", "separate"),
            ("squared", "directions"),
            ("squared", "joint"),
        ):
            held, widths = np.zeros((draws, 2)), []
            for draw in range(draws):
                rng = np.random.default_rng(1000 + draw)
                x, y, truth = logistic_data(250_000, rng)
                if loss == "squared":
                    truth = np.array([0.3, -0.2, 0.1, 0.0, -0.1])
                    y = x @ truth[:-1] + truth[-1] + rng.uniform(-0.2, 0.2, len(x))
                elif loss == "quadratic":
                    truth = population
                for place, newton in enumerate((True, False)):
                    more = {
                        "guarantee": budget,
                        "release": release,
                        "seed": draw,
                        "features": [0, 1, 2, 3],
                        "newton": newton,
                    }
                    model = IWPSGDRegressor(**more) if loss == "squared" else IWPSGDClassifier(loss=loss, **more)
                    model.learn_many(x, y)
                    found = model.estimate()
                    half = found.half_widths(0.95)
                    held[draw, place] = np.mean(np.abs(found.values - truth) <= half)
                    widths += [float(np.mean(half))] if newton else []
            none = np.mean(np.isinf(widths))
            print(
                f"| {release} | {loss} | {budget} | {held[:, 0].mean():.1%} | {np.median(widths):.3g}, {none:.0%} | "
                f"{held[:, 1].mean():.1%} |",
                flush=True,
            )


def variance(x, y, guarantee, release, loss, kind=None, grid=None):
    """n times the summed variance of the coefficients from n people, for large n; infinite with too many cells."""
    p = x.shape[1] + 1
    names = (*map(str, range(p - 1)), "intercept")
    if grid is not None and 2 * grid ** (p - 1) >= MOST_CELLS:
        return math.inf
    cells = Cells.of_numbers(p - 1, grid, real=False) if grid else None
    made = ExampleSettings("binary", names, float(p), release=release, loss=loss, radius=20.0, kind=kind, cells=cells)
    mechanism = made.mechanism(guarantee)
    engine = engine_of(settle(made, {"default": mechanism}), {"default": mechanism}, seed=1)
    engine.use(mechanism)
    if cells:
        few = slice(20_000)
        true = cells.shares(cell_vectors(x[few], np.where(y[few], 1.0, 0.0), p, "binary")).mean(axis=0)
        released = mechanism.other + true / mechanism.gain
        engine.add(mechanism, np.random.default_rng(1).multinomial(N * N, released / released.sum()))
        return float(np.square(engine.estimate().spread).sum()) * N * N
    u = product(x, y)
    weight = 1.0 / (1.0 + np.square(u).sum(axis=1)) if release == "outer" else np.ones(len(u))
    theta = np.zeros(p)
    for _ in range(20):
        z = u @ theta
        first, second = (z - 1.0, np.ones(len(u))) if loss == "quadratic" else (-expit(-z), expit(z) * expit(-z))
        bend = (u * (weight * second)[:, None]).T @ u / len(u)
        theta = theta - np.linalg.solve(bend, (u * (weight * first)[:, None]).mean(axis=0))
    engine.rows[layout.REFERENCE] = theta
    engine.whole[layout.NEXT_REFRESH] = 2**62
    engine.learn_records(x, np.where(y, 1.0, 0.0))
    if engine.settings.exact:
        engine.summarize(theta)
    meat = np.zeros((p, p))
    meat[np.tril_indices(p)] = engine.triangles[1] / engine.real[layout.MEAT_SQUARES]
    meat = meat + np.tril(meat, -1).T
    inverse = np.linalg.inv(bend)
    return float(np.trace(inverse @ meat @ inverse))


def laplace():
    """Laplace noise on products under a pure guarantee, against outer products and cells."""
    print(
        "\nSummed variance of the coefficients for large n, joint releases with Laplace noise over the other release;\n"
        "uniform features, log odds of 1 and -0.5 for two of them; cells round features to 5 values"
    )
    print("| coefficients | epsilon | quadratic, over outer | log, over cells |\n" + "|---" * 4 + "|")
    for p in (2, 5, 10):
        rng = np.random.default_rng(1)
        x = rng.uniform(-1, 1, (200_000, p - 1))
        y = rng.random(len(x)) < expit(x @ np.array([1.0, -0.5, *[0.0] * 8])[: p - 1])
        for epsilon in (1.0, 2.0, 4.0, 8.0):
            pure = PureDP(epsilon)
            line = variance(x, y, pure, "joint", "quadratic", "laplace") / variance(x, y, pure, "outer", "quadratic")
            log = variance(x, y, pure, "joint", "log", "laplace")
            cells = variance(x, y, pure, "cells", "log", grid=5)
            over = f"{log / cells:.2g}" if cells < math.inf else "(too many cells)"
            print(f"| {p} | {epsilon:g} | {line:.2g} | {over} |", flush=True)


def speed():
    """``learn_one`` of ten features against River's logistic regression without privacy."""
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(10)]
    rows = [dict(zip(names, row.tolist(), strict=True)) for row in rng.uniform(-1, 1, (20_000, 10))]
    labels = (rng.random(20_000) < 0.5).tolist()

    def loop(model):
        def run():
            for x, y in zip(rows, labels, strict=True):
                model.learn_one(x, y)

        return run

    print("\nlearn_one, d = 10, dict input, microseconds, against river LogisticRegression")
    for what, more in (
        ("directions, simulated noise", {"seed": 1}),
        ("probit, simulated noise", {"seed": 1, "loss": "probit"}),
        ("directions, no Newton step", {"seed": 1, "newton": False}),
        ("separate, simulated noise", {"seed": 1, "release": "separate"}),
        ("directions, secure noise", {}),
    ):
        ours = IWPSGDClassifier(guarantee=GaussianDP(1.0), features=names, **more)
        a, b, ratio = compare(loop(ours), loop(LogisticRegression()))
        print(f"  {what:32s} {a / 20_000 * 1e6:6.2f} against {b / 20_000 * 1e6:6.2f}: ratio {ratio:.2f}", flush=True)


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--replications", type=int, default=40)
    parser.add_argument("--only", choices=["product", "losses", "coverage", "designs", "outer", "laplace", "speed"])
    parser.add_argument("--release", choices=["outer", "directions"], default="outer", help="of designs")
    parser.add_argument("--missing", type=float, default=0.0, help="of designs: share of targets of a half of them")
    parser.add_argument("--rows", type=int, default=0, help="of designs with outer products: public rows")
    given = parser.parse_args(argv)
    parts = {
        "speed": speed,
        "product": lambda: products(given.draws),
        "losses": lambda: losses(given.draws),
        "coverage": lambda: coverage(given.replications),
        "outer": lambda: against_directions(given.draws),
        "laplace": laplace,
        "designs": lambda: designs(given.replications, given.release, given.missing, given.rows),
    }
    for name, part in parts.items():
        if given.only in (None, name):
            part()


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
