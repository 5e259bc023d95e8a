"""Error and coverage of scores in rounds: ``python -m benchmarks.scores``.

*Accuracy*: logistic models with standard normal features, all coefficients and the intercept 1, n = 300,000, and the
demonstration's people; mean squared distance to the truth, beside the least that any such answers could have.
*Coverage*: how often nominal 95% intervals hold the truth, of the coefficients that were
learned: on generated tasks, each with its own number of features, budget, number of people and coefficients, drawn at
random, and on the demonstration's people, reshuffled. Standard errors are of tasks, since coefficients of one miss
together.
*Uneven*: features that fill little of their bounds, in declared coordinates, those of a survey and exact ones.
``--replications`` for more of each, ``--seed`` for others.
"""

import argparse
import math

import numpy as np

from benchmarks.mothers import raw
from benchmarks.score_people import OTHERS, SHAPES, WRONG, exact, features, learned, surveyed, unlike
from murk import Task
from murk._internal.links import logistic
from murk.demo import TASK
from murk.privacy import ApproxDP, GaussianDP
from murk.protocols.scores.mechanisms import score_mechanisms
from murk.protocols.scores.model import directions

# What differs from a binary target that all people have, Gaussian noise and right public rows, or none.
KINDS = (
    *(
        f"{rows}{more}"
        for rows in ("none", "right")
        for more in ("", ", privunit", ", real", ", random", ", by feature")
    ),
    *WRONG,
)
FEATURES, BUDGETS, PEOPLE = (
    (1, 2, 3, 5, 8, 12, 20, 30),
    (0.25, 0.5, 1, 2, 4, 8),
    (10_000, 30_000, 100_000, 300_000, 1_000_000),
)
ROWS = (500, 2_000, 5_000)


HEADER = "public rows | mean squared error | limit | even | covered |\n|---|---|---|---|---|---|"


def accuracy(replications, seed, n=300_000, rows=5_000):
    print(f"\n| logistic, n = 300,000 | {HEADER}")
    for p, guarantee in (
        (5, GaussianDP(2.0)),
        (10, GaussianDP(1.0)),
        (20, GaussianDP(1.0)),
        (5, ApproxDP(1.0, 1e-6)),
    ):
        pair, theta = score_mechanisms("best", guarantee, p + 1), np.ones(p + 1)
        for public in (rows, 0):
            found = []
            for replication in range(replications):
                rng = np.random.default_rng([seed, replication])
                X = np.c_[rng.normal(size=(n + rows, p)), np.ones(n + rows)]
                y = (rng.random(n) < logistic(X[:n] @ theta)).astype(float)
                estimate = learned(X[:n], y, guarantee, rng, public=X[n:] if public else None, pair=pair)
                found.append((estimate, theta))
            errors(f"d = {p}, {guarantee}", public, found, limit(X[:n], theta, pair.score.variance, public))


def women(replications, seed, mu=1.0, rows=5_000):
    """The same of the demonstration's people in other orders, against the same fit of raw records."""
    text = bare(TASK.read_text())
    print(f"\n| the demonstration's people, mu = 1 | {HEADER}")
    for name, document in (("same_sex, age", text), ("and afam, hispanic", text.replace("target:", EXTRA))):
        X, y = raw(Task.parse(document))
        pair = score_mechanisms("best", GaussianDP(mu), X.shape[1])
        for public in (rows, 0):
            found = []
            for replication in range(replications):
                rng = np.random.default_rng([seed, 2, replication])
                order = rng.permutation(len(X))
                people = order[rows:]
                estimate = learned(
                    X[people], y[people], None, rng, public=X[order[:rows]] if public else None, pair=pair
                )
                found.append((estimate, weighted_fit(X, y, estimate.solution.newest, True, False)))
            errors(name, public, found, limit(X[rows:], found[0][1], pair.score.variance, public))


def errors(name, public, found, least):
    """One line: the mean squared distance of estimates to their truths, and the least there can be."""
    squares = [float(np.sum((estimate.values - truth) ** 2)) for estimate, truth in found]
    held = [float(np.mean(np.abs(estimate.values - truth) <= estimate.half_widths())) for estimate, truth in found]
    spread, error = (np.std(each) / math.sqrt(len(found)) for each in (squares, held))
    print(
        f"| {name} | {public or 'none'} | {np.mean(squares):.3g} +- {spread:.1g} | {least[0]:.2g} | {least[1]:.2g} | "
        f"{np.mean(held):.1%} +- {error:.1%} |",
        flush=True,
    )


def limit(X, theta, variance, public):
    """The least mean squared error of one answer a person, ``r z/|z|`` in whatever coordinates are best for it.

    Were the truth known to everybody who answers, and all that is noise beside the mechanism's not there. With public
    rows r is the label's sign; without them its mean is zero whatever the features' distribution is, as it has to be.
    Returned with it: that of even coordinates, which treat all directions alike.
    """
    logit = X @ theta
    g = 0.0 if public else 1.0
    steep = logistic(logit) * (1.0 - logistic(logit))
    steep = steep * (np.minimum(1.0, np.exp(-g * logit)) + np.minimum(1.0, np.exp(g * logit)))
    values, vectors = np.linalg.eigh((X * steep[:, None]).T @ X / len(X))

    def error(power):
        Z = X @ ((vectors * values**-power) @ vectors.T)
        Z /= np.linalg.norm(Z, axis=1)[:, None]
        back = np.linalg.inv((Z * steep[:, None]).T @ X / len(X))
        return variance / len(X) * float(np.trace(back @ back.T))

    return min(error(power) for power in np.arange(0.4, 1.01, 0.05)), error(0.5)


def outcome(kind, X, theta, rng):
    """Targets for which the model is right, and its coefficients."""
    if ", real" in kind:
        theta = theta * 0.8 / np.max(np.abs(X @ theta))
        return X @ theta + rng.uniform(-0.2, 0.2, size=len(X)), theta
    y = (rng.random(len(X)) < logistic(X @ theta)).astype(float)
    if "random" in kind:
        y[rng.random(len(X)) < 0.4] = np.nan
    elif "by feature" in kind:
        first = (X[:, 0] - X[:, 0].mean()) / max(X[:, 0].std(), 1e-9)
        y[rng.random(len(X)) < logistic(np.clip(first, -1.5, 1.5) - 0.4)] = np.nan
    return y, theta


def generated(kind, shape, rng, most, once, at):
    """What one task's intervals made of its coefficients."""
    p, mu, n = (int(rng.choice(FEATURES)), float(rng.choice(BUDGETS)), int(rng.choice(PEOPLE)))
    p, mu, n = at or (min(p, most), mu, n)
    n = n if n * p <= 3_000_000 else 100_000
    rows = 0 if kind.startswith("none") else max(int(rng.choice(ROWS)), 20 * p)
    X = features(shape, n + rows, p, rng)
    theta = rng.normal(size=p + 1)
    theta *= rng.uniform(0.5, 2.5) / math.sqrt(np.mean((X @ theta) ** 2))
    public, X = X[n:], X[:n]
    if kind in WRONG:
        public = unlike(kind, public, rng)
    y, theta = outcome(kind, X, theta, rng)
    # A pure guarantee of about the variance that mu gives.
    guarantee = ApproxDP(min(max(mu, 0.5), 6.0), 1e-6) if "privunit" in kind else GaussianDP(mu)
    found = learned(X, y, guarantee, rng, public=public if rows else None, binary=", real" not in kind, once=once)
    return {"d": p, "mu": mu, "n": n, "shape": shape, "kind": kind, **missed(found, theta)}


def missed(found, truth):
    half = found.half_widths()
    known = np.isfinite(half)
    return {"learned": known, "held": (np.abs(found.values - truth) <= half) & known}


def share(results):
    """Coverage of what was learned, its standard error over tasks, and what share was learned."""
    known = np.array([each["learned"].sum() for each in results])
    held = np.array([each["held"].sum() for each in results])
    total = known.sum()
    if not total:
        return math.nan, math.nan, 0.0
    covered = held.sum() / total
    error = math.sqrt(float(np.sum((held - covered * known) ** 2))) / total
    return covered, error, total / sum(len(each["learned"]) for each in results)


def line(name, results):
    covered, error, part = share(results)
    print(f"| {name} | {len(results)} | {part:.0%} | {covered:.1%} +- {error:.1%} |", flush=True)


def coverage(replications, shapes, kinds, seed, most, once, at=None):
    results = []
    print("\n| public rows; what else | tasks | learned | covered, of these |\n|---|---|---|---|")
    for kind in kinds:
        here = []
        for shape in shapes:
            for replication in range(replications):
                rng = np.random.default_rng([seed, KINDS.index(kind), (*SHAPES, *OTHERS).index(shape), replication])
                here.append(generated(kind, shape, rng, most, once, at))
        line(kind, here)
        results += here
    for name in ("shape", "d", "mu", "n"):
        print(f"\n| {name} | tasks | learned | covered, of these |\n|---|---|---|---|")
        for value in sorted({each[name] for each in results}):
            line(value, [each for each in results if each[name] == value])
    cells = {}
    for each in results:
        for name in ("shape", "d", "mu", "n"):
            cells.setdefault((each["kind"], name, each[name]), []).append(each)
    cells = {key: cell for key, cell in cells.items() if len(cell) > 4 and share(cell)[2]}
    if not cells:
        return
    worst = min(((share(cell)[0], key, cell) for key, cell in cells.items()), key=lambda each: each[0])
    print(f"\nThe worst of {len(cells)} cells: {worst[1]}\n\n| cell | tasks | learned | covered |\n|---|---|---|---|")
    line(worst[1], worst[2])


EXTRA = "  - {name: afam, categories: ['no', 'yes']}\n  - {name: hispanic, categories: ['no', 'yes']}\ntarget:"
TARGET = "target: {name: weeks_worked, kind: real, low: 0, high: 52}\n"


def real(replications, seed, kinds, once, mu=1.0, rows=5_000):
    """The demonstration's people in another order, those whose features are public and the noise drawn again."""
    asked = {0: "none" in kinds, rows: "right" in kinds}
    text = bare(TASK.read_text())
    print("\n| the demonstration's people, mu = 1 | runs | learned | covered |\n|---|---|---|---|")
    for name, document, public, binary in (
        ("third child", text, rows, True),
        ("third child", text, 0, True),
        ("third child, afam and hispanic", text.replace("target:", EXTRA), rows, True),
        ("third child, afam and hispanic", text.replace("target:", EXTRA), 0, True),
        ("weeks worked", weeks(text), rows, False),
        ("weeks worked", weeks(text), 0, False),
    ):
        if not asked[public]:
            continue
        X, y = raw(Task.parse(document))
        pair, here = score_mechanisms("best", GaussianDP(mu), X.shape[1]), []
        for replication in range(replications):
            rng = np.random.default_rng([seed, 1, replication])
            order = rng.permutation(len(X))
            people = order[rows:]
            found = learned(
                X[people], y[people], None, rng, public=X[order[:rows]] if public else None, binary=binary, pair=pair,
                once=once,
            )  # fmt: skip
            here.append(missed(found, weighted_fit(X, y, found.solution.newest, binary, once)))
        line(f"{name}, {public or 'no'} public rows", here)


def bare(text):
    """A task without what its own protocol reads."""
    kept = [each for each in text.splitlines() if not each.startswith(("learner:", "public:", "#"))]
    return "\n".join(kept) + "\n"


def weeks(text):
    """The demonstration's task with the weeks worked as its target."""
    lines = [TARGET.strip() if each.startswith("target:") else each for each in text.splitlines()]
    return "\n".join(lines) + "\n"


def weighted_fit(X, y, model, binary, once, counts=1):
    """The fit on raw records, with the weights that scores, or directions, have at a model's transform.

    ``counts`` are the numbers of people of the rows, (m,).
    """
    D = directions(X, model) * np.broadcast_to(counts, len(X))[:, None]
    if not binary:
        return np.linalg.solve(D.T @ X, D.T @ y)
    theta = np.zeros(X.shape[1])
    for _ in range(30):
        # Balanced scores: the residual over the larger of both probabilities.
        q = logistic(X @ theta)
        weight = np.ones_like(q) if once else 1.0 / np.maximum(q, 1.0 - q)
        theta = theta + np.linalg.solve((D * (weight * q * (1.0 - q))[:, None]).T @ X, D.T @ (weight * (y - q)))
    return theta


# Features that fill little of their bounds, among others that do not: narrow and very narrow, amounts, several columns.
UNEVEN = {
    "even": ("even",) * 4,
    "narrow": ("narrow", "even", "even", "coin"),
    "very narrow": ("very narrow", "even", "even", "coin"),
    "three narrow": ("narrow", "narrow", "very narrow", "even"),
    "amounts": ("amount", "amount", "even", "coin"),
    "rare": ("narrow", "coin", "amount", "even"),
    "missing categories": ("often missing", "narrow", "even", "coin"),
    "mixed, 10": ("narrow", "coin", "amount", "even", "piled", "very narrow", "one in 17", "t3", "humps", "few values"),
    "mixed, 20": ("narrow", "coin", "amount", "even", "piled", "very narrow", "one in 17", "t3", "humps", "few values")
    * 2,
    "real, narrow": ("narrow", "even", "even", "coin"),
}
RATES = {"rare": 0.05}
AT = ((20_000, 2.0), (40_000, 1.0), (100_000, 2.0), (500_000, 0.5))


def column(kind, n, rng):
    """One coded feature of a kind."""
    if kind == "narrow":
        return np.clip(0.2 + 0.1 * rng.normal(size=n), -1, 1)
    if kind == "very narrow":
        return -0.4 + 0.03 * rng.normal(size=n)
    if kind == "amount":
        return np.clip(np.exp(rng.normal(size=n)) / 12 - 1, -1, 1)
    if kind == "t3":
        return np.clip(0.05 * rng.standard_t(3, size=n), -1, 1)
    if kind == "few values":
        return -1 + 0.1 * rng.binomial(2, 0.3, size=n)
    if kind == "piled":
        return 2 * rng.beta(0.3, 1.5, size=n) - 1
    if kind == "humps":
        return np.where(rng.random(n) < 0.3, 0.5, -0.3) + 0.05 * rng.normal(size=n)
    if kind == "often missing":
        return np.where(rng.random(n) < 0.6, 0.0, np.where(rng.random(n) < 0.15, 1.0, -1.0))
    if kind in ("coin", "one in 17"):
        return np.where(rng.random(n) < (0.4 if kind == "coin" else 0.06), 1.0, -1.0)
    return np.clip(rng.normal(size=n) / 3, -1, 1)


def uneven(kinds, ats, replications, seed):
    """Declared bounds, a survey's coordinates, and exact ones: slopes per standard deviation of their feature."""
    print("\n| kind | people, mu | coordinates | learned | held | worst held | bias / half | half | squared error |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in kinds:
        for n, mu in ats:
            for how in ("declared", "surveyed", "exact"):
                found = [slopes(kind, n, mu, how, np.random.default_rng([seed, each])) for each in range(replications)]
                values, truth, halves = (np.array(part) for part in zip(*found, strict=True))
                known = np.isfinite(halves)
                held = known & (np.abs(values - truth) <= halves)
                each = held.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
                # Of coefficients of either sign: how far estimates are from the truth on its side of zero.
                half = float(np.median(halves[known])) if known.any() else math.nan
                bias = np.max(np.abs(np.mean((values - truth) * np.sign(truth), axis=0))) / half
                error = float(np.median(np.sum((values - truth) ** 2, axis=1)))
                print(
                    f"| {kind} | {n:,}, {mu:g} | {how} | {known.mean():.0%} | {held.sum() / max(known.sum(), 1):.1%} | "
                    f"{each[known.any(axis=0)].min(initial=1.0):.0%} | {bias:.2f} | {half:.3g} | {error:.3g} |",
                    flush=True,
                )


def slopes(kind, n, mu, how, rng):
    """Estimates, truth and half widths of the slopes of one stream, per standard deviation of the feature."""
    X = np.c_[tuple(column(each, n, rng) for each in UNEVEN[kind])]
    spread = X.std(axis=0)
    X = np.c_[X, np.ones(n)]
    theta = np.append(rng.normal(size=len(spread)) / spread, 0.0)
    theta /= np.std(X @ theta)
    real = kind.startswith("real")
    if real:
        # The target, too, in its own coordinates: three standard deviations are the unit.
        y = np.clip((X @ theta - np.mean(X @ theta) + rng.normal(size=n)) / math.sqrt(2.0) / 3.0, -1, 1)
        theta = np.linalg.lstsq(X, y, rcond=None)[0]
    else:
        theta[-1] = constant(X @ theta, RATES.get(kind, 0.55))
        y = (rng.random(n) < logistic(X @ theta)).astype(float)
    coordinates = {"declared": lambda: None, "surveyed": lambda: surveyed(X, rng), "exact": lambda: exact(X)}[how]()
    found = learned(X, y, GaussianDP(mu), rng, binary=not real, coordinates=coordinates)
    return found.values[:-1] * spread, theta[:-1] * spread, found.half_widths()[:-1] * spread


def constant(logit, rate):
    """The constant at which so many are positive."""
    low, high = -20.0, 20.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if logistic(logit + middle).mean() > rate else (middle, high)
    return low


def setting(text):
    p, mu, n = text.split(",")
    return int(p), float(mu), int(n)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=8)
    parser.add_argument("--shapes", default=",".join(SHAPES), help=f"also {', '.join(OTHERS)}")
    parser.add_argument(
        "--kinds", default=";".join(KINDS), help="separated by semicolons; of the real data none and right"
    )
    parser.add_argument("--features", type=int, default=max(FEATURES), help="the most of them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--once", action="store_true", help="directions, which are released without reading a model")
    parser.add_argument("--at", type=setting, metavar="D,MU,N", help="features, mu and people of all generated tasks")
    parser.add_argument("--only", choices=("accuracy", "demonstration", "coverage", "real", "uneven"))
    parser.add_argument("--uneven", nargs="+", choices=UNEVEN, default=tuple(UNEVEN), help="kinds of uneven features")
    given = parser.parse_args(argv)
    if given.only in (None, "accuracy"):
        accuracy(given.replications, given.seed)
    if given.only in (None, "accuracy", "demonstration"):
        women(given.replications, given.seed)
    if given.only in (None, "uneven"):
        ats = AT if given.at is None else (given.at[2:0:-1],)
        uneven(given.uneven, ats, given.replications, given.seed)
    shapes, kinds = given.shapes.split(","), given.kinds.split(";")
    if given.once:
        kinds = [kind for kind in kinds if not kind.startswith("none")]
    if given.only in (None, "coverage"):
        coverage(given.replications, shapes, kinds, given.seed, given.features, given.once, given.at)
    if given.only in (None, "real"):
        real(given.replications, given.seed, kinds, given.once)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
