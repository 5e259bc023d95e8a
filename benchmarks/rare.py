"""Average effects where outcomes are rare and nobody's rows are public: ``python -m benchmarks.rare``.

People of a made-up task: age uniform, an emergency of 38%, a skewed count of visits from 0 to 8; or a two-valued
feature and one of four categories, the rarest of 5% (``--only categories``). Half widths of the 95% intervals of
average effects, medians over replications, in percentage points: *before* by log odds alone
(``scores: {effects: logistic}``), *now* by the default, with 4,000 public rows, and the *limit* of one such answer a
person, were even coordinates and the features' moments known and nothing but the mechanism's noise there. Coverage is
of what the estimate says that it is of: average effects of the logistic model, or slopes of the line through the
labels; *of the curve* is the share that hold the first, whichever it is.
"""

import argparse
import math

import numpy as np

from benchmarks.score_people import learned
from murk._internal.links import logistic
from murk.inference.average_effects import marginal_effects
from murk.privacy import GaussianDP
from murk.protocols.scores.mechanisms import score_mechanisms
from murk.protocols.scores.model import directions

RATES, BUDGETS, ROWS = (0.46, 0.17, 0.06, 0.02), (1.0, 2.0, 4.0), 4_000


def natural(n, rng):
    """Age, emergency and visits."""
    visits = np.minimum(rng.geometric(0.45, size=n) - 1, 8)
    return np.c_[
        rng.integers(-35, 36, size=n) / 35, np.where(rng.random(n) < 0.38, 1.0, -1.0), visits / 4 - 1, np.ones(n)
    ]


def categories(n, rng):
    """A two-valued feature, and three of four categories."""
    chosen = rng.choice(4, size=n, p=(0.5, 0.3, 0.15, 0.05))
    found = [np.where(rng.random(n) < 0.4, 1.0, -1.0), *(np.where(chosen == k, 1.0, -1.0) for k in (1, 2, 3))]
    return np.c_[np.column_stack(found), np.ones(n)]


# People, slopes of the log odds, and what an effect per coded unit is per unit, in points.
TASKS = {
    "natural": (natural, (1.16, 0.35, 0.64), (1000 / 35, 200.0, 25.0)),
    "categories": (categories, (0.4, 0.2, -0.3, 0.5), (200.0,) * 4),
}


def coefficients(task, rate):
    """Log odds with so many positive outcomes."""
    people, slopes, _ = TASKS[task]
    logit, low, high = people(200_000, np.random.default_rng(0))[:, :-1] @ np.array(slopes), -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if logistic(logit + middle).mean() < rate else (low, middle)
    return np.append(slopes, low)


def effects_of(estimate):
    """Average effects and their half widths, and the truth's function of people's rows and chances."""
    found = estimate.effects()
    values, halves = marginal_effects(estimate) if found is None else found
    return values[:-1], halves[:-1]


def truths(estimate, X, theta):
    """What the estimate's effects are of, and those of the logistic model."""
    chance = logistic(X @ theta)
    curve = (theta * np.mean(chance * (1 - chance)))[:-1]
    if not estimate.by_line:
        return curve, curve
    D = directions(X, estimate.line.model)
    return np.linalg.solve(D.T @ X, D.T @ chance)[:-1], curve


def limit(task, rate, mu, n):
    """Half widths of effects by one answer a person."""
    X = TASKS[task][0](100_000, np.random.default_rng(0))
    values, vectors = np.linalg.eigh(X.T @ X / len(X))
    Z = X @ ((vectors * values**-0.5) @ vectors.T)
    Z /= np.linalg.norm(Z, axis=1)[:, None]
    back = np.linalg.inv(Z.T @ X / len(X))
    variance = score_mechanisms("best", GaussianDP(mu), X.shape[1]).score.variance * max(rate, 1 - rate) ** 2
    return 1.96 * np.sqrt(variance / n * np.diag(back @ back.T))[:-1]


def replicate(task, rate, mu, n, rows, line, seed):
    """Half widths, whether they hold what they are of, and whether they hold the logistic model's."""
    rng = np.random.default_rng(seed)
    theta = coefficients(task, rate)
    X = TASKS[task][0](n + rows, rng)
    X, public = X[:n], X[n:] if rows else None
    y = (rng.random(n) < logistic(X @ theta)).astype(float)
    estimate = learned(X, y, GaussianDP(mu), rng, public=public, line=line)
    values, halves = effects_of(estimate)
    own, curve = truths(estimate, X, theta)
    return halves, np.abs(values - own) <= halves, np.abs(values - curve) <= halves


def column(task, rate, mu, n, rows, line, replications, seed):
    """Median half widths in points; and how many intervals there are, and hold what they are of, and the curve's."""
    found = [replicate(task, rate, mu, n, rows, line, [seed, number]) for number in range(replications)]
    halves, held, curve = (np.array(part) for part in zip(*found, strict=True))
    known = np.isfinite(halves)
    shown = np.median(halves, axis=0) * np.array(TASKS[task][2])
    return shown, known, held & known, curve & known


def shown(halves):
    return ", ".join(f"{half:.2g}" if math.isfinite(half) else "-" for half in halves)


def share_of(held, known):
    return f"{held.sum() / max(known.sum(), 1):.1%} of {known.sum()}"


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=10)
    parser.add_argument("--people", type=int, nargs="+", default=[60_000, 250_000])
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--mu", type=float, nargs="+", default=BUDGETS)
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--now", action="store_true", help="no other column than now")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    for task in given.only:
        for n in given.people:
            print(f"\n| {task}, {n:,} people | mu | before | now | {ROWS:,} public rows | limit | learned | held | "
                  "of the curve | held with rows |\n|---|---|---|---|---|---|---|---|---|---|")  # fmt: skip
            for rate in given.rates:
                for mu in given.mu:
                    how = (task, rate, mu, n)
                    now, known, held, curve = column(*how, 0, True, given.replications, given.seed)
                    others = ["", "", ""]
                    if not given.now:
                        before = column(*how, 0, False, given.replications, given.seed)[0]
                        with_rows, at_rows, held_rows, _ = column(*how, ROWS, True, given.replications, given.seed)
                        others = [shown(before), shown(with_rows), share_of(held_rows, at_rows)]
                    least = limit(task, rate, mu, n) * np.array(TASKS[task][2])
                    print(
                        f"| {rate:.0%} | {mu:g} | {others[0]} | {shown(now)} | {others[1]} | {shown(least)} | "
                        f"{known.mean():.0%} | {share_of(held, known)} | {share_of(curve, known)} | {others[2]} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
