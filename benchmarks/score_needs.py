"""Whether what it is said to take to learn a coefficient does: ``python -m benchmarks.score_needs``.

On generated tasks, each with its own shape, number of features, budget, public rows or none, and coefficients: where
some coefficients are not learned, what it would take is forecast, and done: people go on answering to the number that
was forecast, and to twice as many; as many as there were answer again at the budget, and at the one sqrt 2 times as
large; and with as many public rows. Of how many coefficients were they learned?
"""

import argparse
import math
from collections import defaultdict

import numpy as np

from benchmarks.score_people import SHAPES, answer, covariates_of, features, learned
from murk._internal.links import logistic
from murk.privacy import GaussianDP
from murk.protocols.scores.engine import ScoreEngine
from murk.protocols.scores.mechanisms import score_mechanisms
from murk.protocols.scores.settings import Settings

FEATURES, BUDGETS, PEOPLE = (2, 3, 5, 8, 12), (0.25, 0.5, 1.0, 2.0), (6_000, 20_000, 60_000)
# Numbers of all features of all people: more would take too long.
MOST = 12_000_000


def task(rng, shape):
    """One task, as what draws its people, and its first number of them."""
    p = int(rng.choice(FEATURES))
    theta = rng.normal(size=p + 1)
    some = features(shape, 2_000, p, rng)
    theta *= rng.uniform(0.5, 2.0) / math.sqrt(np.mean((some @ theta) ** 2))

    def people(n):
        X = features(shape, n, p, rng)
        return X, (rng.random(n) < logistic(X @ theta)).astype(float)

    return p, people, float(rng.choice(BUDGETS)), int(rng.choice(PEOPLE))


def followed(rng, shape, rows, found):
    """Forecast one task's needs, and count what came of following them."""
    p, people, mu, n = task(rng, shape)
    public = people(rows)[0] if rows else None
    settings = Settings((*(f"x{j}" for j in range(p)), "intercept"), True, covariates_of(public) if rows else None)
    engine = ScoreEngine(settings, {"default": score_mechanisms("best", GaussianDP(mu), p + 1)})
    X, y = people(n)
    answer(engine, X, y, rng)
    estimate = engine.estimate()
    needs = estimate.needs()
    for name in needs:
        found["not learned"].append(1)
        found["forecast"].append(needs[name].people is not None)
        found["at least"].append(needs[name].least)
    places = {name: j for j, name in enumerate(estimate.names)}

    def count(what, wanted, estimate):
        halves = estimate.half_widths()
        for name in wanted:
            how = "at least" if needs[name].least else "about"
            found[f"{how}, {what}"].append(bool(np.isfinite(halves[places[name]])))

    for target in sorted({need.people for need in needs.values() if need.people}):
        for times in (1, 2):
            more = times * target - engine.n_releases
            if times * target * p <= MOST:
                if more > 0:
                    answer(engine, *people(more), rng)
                count(
                    f"people, {times}x",
                    [name for name, need in needs.items() if need.people == target],
                    engine.estimate(),
                )
    for budget in {need.budgets["default"] for need in needs.values() if need.budgets}:
        wanted = [name for name, need in needs.items() if need.budgets.get("default") == budget]
        for times in (1.0, math.sqrt(2.0)):
            larger = GaussianDP(times * budget.mu)
            count(f"budget, {times:.2g}x", wanted, learned(X, y, larger, rng, public=public))
    for size in {need.public_rows for need in needs.values() if need.public_rows}:
        wanted = [name for name, need in needs.items() if need.public_rows == size]
        for times in (1, 2):
            count(f"public rows, {times}x", wanted, learned(X, y, GaussianDP(mu), rng, public=people(times * size)[0]))


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=4)
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    for rows in (0, 2_000):
        found = defaultdict(list)
        for shape in given.shapes.split(","):
            for replication in range(given.replications):
                rng = np.random.default_rng([given.seed, rows, sum(shape.encode()), replication])
                followed(rng, shape, rows, found)
        print(f"\n| {rows or 'no'} public rows | coefficients | share |\n|---|---|---|")
        for what, each in sorted(found.items()):
            print(f"| {what} | {len(each)} | {np.mean(each):.0%} |", flush=True)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
