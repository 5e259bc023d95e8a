"""How often the intervals of average marginal effects hold them: ``python -m benchmarks.effects``.

Tasks with their own number of features, budget and coefficients, drawn at random, without public rows, with right ones
and with wrong ones (`benchmarks.score_people.unlike`); the truth is ``theta_j mean sigma'(x'theta)`` over the people
themselves. Standard errors are of tasks, since coefficients of one miss together. *half* is the median half width of an
effect in terms of its coefficient's, both relative.
"""

import argparse

import numpy as np

from benchmarks.score_people import WRONG, features, learned, unlike
from murk._internal.links import logistic
from murk.inference.average_effects import marginal_effects
from murk.privacy import GaussianDP

SHAPES = ("normal", "uniform", "correlated", "rare", "skewed", "one-hot", "mixed")


def replicate(shape, kind, rng):
    """Of one task: how many effects were learned, how many of these the interval holds, and their relative widths."""
    p = int(rng.integers(1, 13))
    n, mu = int(rng.choice([30_000, 100_000, 300_000])), float(rng.choice([1.0, 2.0, 4.0]))
    rows = 0 if kind == "none" else 5_000
    X = features(shape, n + rows, p, rng)
    X, public = X[:n], X[n:] if rows else None
    if kind in WRONG:
        public = unlike(kind, public, rng)
    theta = rng.normal(0.0, rng.choice([0.3, 1.0]), X.shape[1])
    at = logistic(X @ theta)
    y = (rng.random(n) < at).astype(float)
    estimate = learned(X, y, GaussianDP(mu), rng, public=public)
    truth = theta * float(np.mean(at * (1.0 - at)))
    values, halves = marginal_effects(estimate)
    own = np.isfinite(halves[:-1])
    held = np.abs(values - truth)[:-1][own] <= halves[:-1][own]
    relative = (halves / np.abs(values))[:-1][own] / (estimate.half_widths() / np.abs(estimate.values))[:-1][own]
    return len(own), held, relative


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    print("| shape | public rows | tasks | learned | held | half |\n|---|---|---|---|---|---|")
    for kind in ("none", "right", *WRONG):
        every = []
        for shape in SHAPES:
            found = [
                replicate(shape, kind, np.random.default_rng([chosen.seed, number, len(kind), SHAPES.index(shape)]))
                for number in range(chosen.replications)
            ]
            every += found
            print(line(shape, kind, found), flush=True)
        print(line("all", kind, every), flush=True)


def line(shape, kind, found):
    asked = sum(one[0] for one in found)
    shares = [float(np.mean(held)) for _, held, _ in found if len(held)]
    held = np.concatenate([one[1] for one in found])
    error = np.std(shares, ddof=1) / len(shares) ** 0.5 if len(shares) > 1 else float("nan")
    half = np.median(np.concatenate([one[2] for one in found])) if len(held) else float("nan")
    return (
        f"| {shape} | {kind} | {len(found)} | {len(held) / asked:.0%} | "
        f"{np.mean(held):.1%} ± {error:.1%} | {half:.2f} |"
    )


if __name__ == "__main__":
    main()
