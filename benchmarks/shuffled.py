"""What shuffled crowds buy: ``python -m benchmarks.shuffled``.

The half-width of same_sex in percentage points and how often it holds the raw records' effect, on the demonstration's
people: at a central guarantee of (0.5, 1e-6) with crowds of 20,000 (of half of the people, if they are fewer than
40,000), beside local mu = 1, a local pure epsilon of 0.5, and a fit of the raw records. People of 10^6 are drawn from
the demonstration's with replacement. ``--replications`` for more of each, ``--seed`` for others.
"""

import argparse
import math

import numpy as np

from benchmarks.mothers import raw
from benchmarks.score_people import answer
from murk import Task
from murk._internal.links import logistic
from murk.demo import TASK
from murk.inference.average_effects import marginal_effects
from murk.protocols.device import device_for

PLAIN = TASK.read_text().split("privacy:")[0]
PEOPLE = (10_000, 100_000, 254_654, 1_000_000)
GOAL = 0.65  # points, with all of the demonstration's people, all of them honest
SHUFFLED = "shuffle: {{crowd: {crowd}, honest: {honest}, promise: {{epsilon: 0.5, delta: 1.0e-6}}}}"
WAYS = {
    "local mu = 1": "privacy: {guarantee: {gdp: {mu: 1.0}}}",
    "local epsilon = 0.5": "privacy: {guarantee: {pure: {epsilon: 0.5}}}",
    "shuffled, 90% honest": SHUFFLED.replace("{honest}", "0.9"),
    "shuffled, all honest": SHUFFLED.replace("{honest}", "1.0"),
}


def effect(X, y):
    """The average effect of same_sex of a logistic fit of raw records, and its half-width, in points."""
    theta = np.zeros(X.shape[1])
    for _ in range(30):
        p = logistic(X @ theta)
        hessian = (X * (p * (1 - p))[:, None]).T @ X
        theta -= np.linalg.solve(hessian, X.T @ (p - y))
    mean = float(np.mean(p * (1 - p)))
    return 200 * mean * theta[0], 1.96 * 200 * mean * math.sqrt(np.linalg.inv(hessian)[0, 0])


def crowd_of(people):
    return min(20_000, people // 2)


def task_of(way, people):
    return Task.parse(PLAIN + WAYS[way].format(crowd=crowd_of(people)) if "shuffle" in WAYS[way] else PLAIN + WAYS[way])


def measured(way, people, replications, seed, every):
    """The median half-width in points, and how often it held the raw records' effect, of those that were learned."""
    task, (X, y) = task_of(way, people), every
    device, halves, held = device_for(task), [], []
    for replication in range(replications):
        rng = np.random.default_rng([seed, people, replication])
        # All people are drawn without replacement, and more than there are with.
        chosen = rng.choice(len(X), people, replace=people > len(X))
        engine = device.engine()
        answer(engine, X[chosen], y[chosen], rng)
        values, spread = marginal_effects(engine.estimate())
        truth, _ = effect(X[chosen], y[chosen])
        halves.append(200 * float(spread[0]))
        held.append(abs(200 * float(values[0]) - truth) <= halves[-1])
    return task, float(np.median(halves)), float(np.mean(held))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--people", type=int, action="append")
    chosen = parser.parse_args(argv)
    every = raw(Task.parse(PLAIN + WAYS["local mu = 1"]))
    names = task_of("local mu = 1", 1).coding.names
    assert names[0] == "same_sex"
    print("| people | guarantee | crowds | local epsilon | half-width, points | held | goal |")
    print("|---|---|---|---|---|---|---|")
    for people in chosen.people or PEOPLE:
        for way in WAYS:
            task, half, held = measured(way, people, chosen.replications, chosen.seed, every)
            local = task.privacy.guarantee
            figures = f"{crowd_of(people):,} | {local.epsilon:.3g}" if task.shuffle else "- | -"
            goal = ""
            if people == len(every[0]) and "all honest" in way:
                goal = f"{GOAL:.2f}: {'yes' if half <= GOAL else 'no'}"
            print(f"| {people:,} | {way} | {figures} | {half:.2f} | {held:.0%} | {goal} |", flush=True)
        rng = np.random.default_rng([chosen.seed, people])
        X, y = every
        taken = rng.choice(len(X), people, replace=people > len(X))
        print(f"| {people:,} | no privacy: raw records | - | - | {effect(X[taken], y[taken])[1]:.2f} | | |", flush=True)


if __name__ == "__main__":
    main()
