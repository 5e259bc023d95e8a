"""People needed for the same error: the paper's settings against Murk's: ``python -m benchmarks.accuracy``.

Linear and logistic models with standard normal features, all coefficients and the intercept 1, residual scale
2, as in Shi et al., section 5. Error: mean squared distance to the truth (coefficients, and the scale where
it is estimated), over replications. "People" is how many the second column needs to reach the error that the
first has at n = 300,000.
"""

import argparse
import math

import numpy as np

from murk.learners import LDPSGDClassifier, LDPSGDRegressor
from murk.privacy import GaussianDP, PureDP

N = 300_000
POINTS = np.unique(np.geomspace(500, N, 60).astype(int))


def truth(model, p):
    return np.ones(p + 1 + (getattr(model, "scale", None) == "estimate")) + np.append(
        np.zeros(p + 1), [1.0] if getattr(model, "scale", None) == "estimate" else []
    )


def errors(make, kind, p, replications, budgets=None):
    """Mean squared error of the average and of the iterate at POINTS, and its standard error at the end."""
    found = np.zeros((replications, 2, len(POINTS)))
    for r in range(replications):
        rng = np.random.default_rng(1000 + r)
        x = rng.normal(size=(N, p))
        fit = x.sum(axis=1) + 1.0
        y = fit + 2 * rng.normal(size=N) if kind == "linear" else rng.random(N) < 1 / (1 + np.exp(-fit))
        own = None if budgets is None else [budgets[i] for i in rng.integers(len(budgets), size=N)]
        model = make(seed=r, features=list(range(p)))
        target, start = truth(model, p), 0
        for place, stop in enumerate(POINTS):
            part = slice(start, stop)
            model.learn_many(x[part], y[part], guarantee=None if own is None else own[part])
            start = stop
            scale = np.ones(len(target))
            if len(target) > p + 1:
                scale[-1] = model.scale_multiplier
            for which, values in enumerate((model.average, model.iterate)):
                found[r, which, place] = np.sum((values * scale - target) ** 2)
    return found.mean(axis=0), found[:, :, -1].std(axis=0) / math.sqrt(replications)


def people(curve, error):
    """How many people a curve needs to reach an error, between points on a log-log line."""
    below = np.nonzero(curve <= error)[0]
    if not len(below):
        return math.nan
    i = below[0]
    if i == 0:
        return float(POINTS[0])
    t = (math.log(error) - math.log(curve[i - 1])) / (math.log(curve[i]) - math.log(curve[i - 1]))
    return float(np.exp((1 - t) * np.log(POINTS[i - 1]) + t * np.log(POINTS[i])))


# Budgets log-uniform on [0.2, 4], as 16 levels.
MIXED = [GaussianDP(float(mu)) for mu in np.geomspace(0.2, 4.0, 16)]
CASES = [
    ("linear", 10, GaussianDP(1.0), None, {"scale": 2.0}),
    ("linear", 10, GaussianDP(1.0), None, {}),
    ("linear", 10, PureDP(1.0), None, {"scale": 2.0}),
    ("linear", 10, GaussianDP(1.0), MIXED, {"scale": 2.0}),
    ("linear", 20, GaussianDP(1.0), None, {"scale": 2.0}),
    ("logistic", 5, GaussianDP(2.0), None, {}),
    ("logistic", 5, PureDP(1.0), None, {}),
    ("logistic", 5, GaussianDP(1.0), MIXED, {}),
    ("logistic", 10, GaussianDP(1.0), None, {}),
    ("logistic", 20, GaussianDP(1.0), None, {}),
]


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--replications", type=int, default=20)
    replications = parser.parse_args(argv).replications
    print("| model | guarantee | published: error | Murk: error | people Murk needs for the published error |")
    print("|---|---|---|---|---|")
    for kind, p, budget, mixed, more in CASES:
        learner = LDPSGDRegressor if kind == "linear" else LDPSGDClassifier

        def published(learner=learner, budget=budget, more=more, **rest):
            return learner.as_published(guarantee=budget, **more, **rest)

        def ours(learner=learner, budget=budget, more=more, **rest):
            return learner(guarantee=budget, **more, **rest)

        theirs, _ = errors(published, kind, p, replications, mixed)
        mine, error = errors(ours, kind, p, replications, mixed)
        needed = people(mine[0], theirs[0, -1])
        what = "mu log-uniform on [0.2, 4]" if mixed else str(budget)
        known = ", scale known" if "scale" in more else ", scale estimated" if kind == "linear" else ""
        print(
            f"| {kind}, d = {p}{known} | {what} | {theirs[0, -1]:.3g} | {mine[0, -1]:.3g} +- {error[0]:.1g} | "
            f"{'more than 300,000' if math.isnan(needed) else f'{needed:,.0f} ({N / needed:.1f} times fewer)'} |",
            flush=True,
        )


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
