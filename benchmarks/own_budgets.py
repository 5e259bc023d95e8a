"""Bias of weighted estimates where budgets depend on the data: ``python -m benchmarks.own_budgets``.

People with two features and a binary target release at mu = 1 or mu = 2, which depends on nothing, on the feature x, on
the target, or on both: then positive people with x > 0 choose less. Reported are the mean coefficients in coded units
and their standard errors. Log odds are (1, -0.6) and 0.2; examples fit the line through the labels.
"""

import argparse
import sys

import numpy as np
import pandas as pd

from murk.learners import IWPSGDClassifier, LDPSGDClassifier, ScoreClassifier
from murk.privacy import GaussianDP

NAMES = ["x", "z"]
LESS, MORE = GaussianDP(1.0), GaussianDP(2.0)
COMMON = {"features": NAMES, "budget": LESS, "levels": {"less": LESS, "more": MORE}}
LEARNERS = {
    "gradients, uniform": lambda seed: LDPSGDClassifier(features=NAMES, guarantee=LESS, weighting="uniform", seed=seed),
    "gradients, inverse-variance": lambda seed: LDPSGDClassifier(features=NAMES, guarantee=LESS, seed=seed),
    "examples, uniform": lambda seed: IWPSGDClassifier(**COMMON, weighting="uniform", seed=seed),
    "examples, inverse-variance": lambda seed: IWPSGDClassifier(**COMMON, seed=seed),
    "scores": lambda seed: ScoreClassifier(**COMMON, seed=seed),
}
DEPENDENCES = {
    "nothing": lambda x, y, draws: draws < 0.5,
    "the feature": lambda x, y, draws: x > 0.0,
    "the target": lambda x, y, draws: y,
    "both": lambda x, y, draws: y & (x > 0.0),
}


def coefficients(learner: str, dependence: str, people: int, seed: int) -> list[float]:
    """Return the coefficients of x, z and the constant from one draw of people and noise."""
    rng = np.random.default_rng(seed)
    X, draws = rng.uniform(-1.0, 1.0, (people, 2)), rng.random(people)
    y = rng.random(people) < 1.0 / (1.0 + np.exp(-(0.2 + X @ [1.0, -0.6])))
    less = DEPENDENCES[dependence](X[:, 0], y, draws)
    model = LEARNERS[learner](seed)
    model.learn_many(pd.DataFrame(X, columns=NAMES), pd.Series(y), guarantee=[LESS if own else MORE for own in less])
    found = model.coefficients()
    return [found[name] for name in (*NAMES, "intercept")]


def main(argv: list[str]) -> None:
    """Print a row for each learner and dependence."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_budgets", description=__doc__.split("\n")[0])
    parser.add_argument("--people", type=int, default=100_000, help="people of each replication (default 100000)")
    parser.add_argument("--replications", type=int, default=8, help="replications (default 8)")
    settings = parser.parse_args(argv)
    print("| learner | budgets depend on | x | z | constant |\n| --- | --- | --- | --- | --- |")
    for learner in LEARNERS:
        for dependence in DEPENDENCES:
            seeds = range(100, 100 + settings.replications)
            found = np.array([coefficients(learner, dependence, settings.people, seed) for seed in seeds])
            errors = found.std(axis=0, ddof=1) / np.sqrt(len(found))
            cells = [f"{value:.2f} ± {error:.2f}" for value, error in zip(found.mean(axis=0), errors, strict=True)]
            print(f"| {learner} | {dependence} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
