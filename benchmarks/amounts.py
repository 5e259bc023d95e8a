"""Targets with heavy tails, clamped at their bounds: ``python -m benchmarks.amounts``.

People are those of `benchmarks.rare`. An amount is log-normal and clamped at its public bound: *skewed* amounts are
mostly a twentieth of the range, *piled* ones reach the bound for a sixth of the people. Half widths of the 95%
intervals of the line's slopes are medians over replications, in percent of the range per coded unit. *held* is the
share of intervals that hold the least-squares line through all people's clamped amounts.
"""

import argparse

import numpy as np

from benchmarks.rare import BUDGETS, ROWS, TASKS, share_of, shown
from murk.learners import IWPSGDRegressor, PublicGLMRegressor, ScoreRegressor
from murk.privacy import GaussianDP

AMOUNTS = {"skewed": (1.0, 0.05), "piled": (0.6, 0.4)}
"""Standard deviation of the logarithm, and the median as a share of the range."""
SLOPES = np.array([0.5, 0.2, 0.4, 0.2])


def amounts(X, how, rng):
    """Amounts coded from -1 to 1."""
    spread, median = AMOUNTS[how]
    logs = X[:, :-1] @ SLOPES[: X.shape[1] - 1] + spread * rng.normal(size=len(X))
    return np.clip(median * np.exp(logs), 0.0, 1.0) * 2.0 - 1.0


def replicate(task, how, mu, n, seed):
    """By protocol: half widths, and whether the intervals hold."""
    rng = np.random.default_rng(seed)
    X = TASKS[task][0](n + ROWS, rng)
    y, rows = amounts(X[:n], how, rng), X[n:, :-1]
    truth, X = np.linalg.lstsq(X[:n], y, rcond=None)[0][:-1], X[:n, :-1]
    given = {
        "guarantee": GaussianDP(mu),
        "features": list(range(X.shape[1])),
        "seed": int(rng.integers(2**32)),
    }
    found = []
    for model in (
        ScoreRegressor(target_bounds=(-1, 1), **given),
        ScoreRegressor(target_bounds=(-1, 1), public=rows, **given),
        IWPSGDRegressor(**given),
        PublicGLMRegressor(**given),
    ):
        model.learn_many(X, y)
        estimate = model.estimate()
        halves = estimate.half_widths()[:-1]
        found.append((50.0 * halves, np.abs(estimate.values[:-1] - truth) <= halves))
    return found


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=10)
    parser.add_argument("--people", type=int, default=60_000)
    parser.add_argument("--mu", type=float, nargs="+", default=BUDGETS)
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    print(f"| {given.people:,} people | amounts | mu | scores | held | {ROWS:,} rows | held | examples | held | "
          "moments | held |\n|---|---|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    for task in given.only:
        for how in AMOUNTS:
            for mu in given.mu:
                runs = [replicate(task, how, mu, given.people, [given.seed, k]) for k in range(given.replications)]
                cells = []
                for column in zip(*runs, strict=True):
                    halves, held = (np.array(part) for part in zip(*column, strict=True))
                    known = np.isfinite(halves)
                    cells += [shown(np.median(halves, axis=0)), share_of(held & known, known)]
                print(f"| {task} | {how} | {mu:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
