"""What is learned with 100 to 10,000 coded features, of simulated people: ``python -m benchmarks.large_people``.

People are drawn, with fresh targets, from a pool (half coins, half numbers, correlated; log odds of standard
deviation 1) and release once at mu = 4 to the engine alone, no pipe. In points, hundredths of a probability: *none*,
the root mean squared effect of a standard deviation of a feature, which is the error of who says that nothing has an
effect; *error*, that of the effects learned; *half width*, the median one of their 95% intervals; *planned*, the one
that ``murk plan`` forecasts for its typical population, which knows nothing of these people. *explained* is the share
of the variance of true probabilities that predictions explain: 1 is all, 0 is what the share of positive targets
alone would, and below it predictions are worse than that.
"""

import argparse
import time

import numpy as np

from benchmarks.pipe import learn
from benchmarks.protocol_people import Setting, estimate_of, outcome
from benchmarks.score_people import features
from murk._internal.links import logistic
from murk.errors import MurkError
from murk.planning.forecast import forecast
from murk.protocols.device import device_for
from murk.protocols.examples.engine import engine_of
from murk.protocols.examples.estimate import estimate as estimate_examples
from murk.protocols.population import Effects, designs
from murk.protocols.summaries.device import WindowDevice

POOL = {100: 100_000, 1_000: 50_000, 10_000: 5_000}
"""People to draw from, by coded features."""
TEST, BLOCK, MU, ROWS = 4_000, 50_000, 4.0, 2_000
PEOPLE = {100: (10**5, 10**6, 10**7), 1_000: (10**5, 10**6, 10**7), 10_000: (10**5,)}
WHOLE = 10**6
"""Most people of protocols whose simulation needs all of them at once."""
CASES = {
    "gradients": ("gradients", 0, ""),
    "gradients, public rows": ("gradients", ROWS, ""),
    "scores": ("scores", 0, ""),
    "scores, public rows": ("scores", ROWS, ""),
    "examples": ("examples", 0, ""),
    "examples: outer": ("examples", 0, "examples: {release: outer}"),
    "examples: joint": ("examples", 0, "examples: {release: joint}"),
    "moments": ("moments", 0, ""),
    "scores once, public rows": ("scores", ROWS, "scores: {interactive: false}"),
    "summaries": ("summaries", 0, ""),
}


class People:
    """A pool of people, and the truth about them."""

    def __init__(self, size, seed=1):
        rng = np.random.default_rng([seed, size])
        self.points = features("mixed", POOL[size], size - 1, rng)
        theta = rng.normal(size=size)
        self.theta = theta / np.std(self.points @ theta)
        self.chance = logistic(self.points @ self.theta)

    def drawn(self, count, rng):
        """Coded features and targets."""
        chosen = rng.integers(len(self.points), size=count)
        return self.points[chosen], (rng.random(count) < self.chance[chosen]).astype(float)


def task_of(case, size, n):
    """A task of so many coded features, the constant among them."""
    protocol, rows, more = CASES[case]
    if protocol == "gradients" and size > 5_000:
        more += "max_staleness: {releases: 20}"
    return Setting("binary", size - 1, n, MU, rows).task(protocol, more)


def learned(task, people, n, rng):
    """The estimate of n people; None where the simulation would need them all at once, and they are too many."""
    device = device_for(task) if not task.public else None
    if device is not None and not isinstance(device, WindowDevice) and task.protocol in ("gradients", "examples"):
        engine = None
        if task.protocol == "examples":
            if device.settings.outer:
                return whole(task, people, n, rng)
            engine = engine_of(device.settings, device.mechanisms, seed=1)
        for start in range(0, n, BLOCK):
            X, y = people.drawn(min(BLOCK, n - start), rng)
            if task.protocol == "examples":
                engine.learn_records(X, y, [device.mechanisms["default"]])
            else:
                engine = learn(device, X, y, np.zeros(len(X), dtype=np.int64), 1, engine=engine)
        return estimate_examples([engine]) if task.protocol == "examples" else device.estimate([engine])
    return whole(task, people, n, rng)


def whole(task, people, n, rng):
    if n > WHOLE:
        return None
    return estimate_of(task, *people.drawn(n, rng), people.points[:ROWS] if task.public else (), rng)


def planned(task, n):
    """What ``murk plan`` expects of the median half width, from one draw of the sums."""
    try:
        found = forecast(task, designs(task, Effects())[0], n, draws=1, more=False)
    except MurkError as error:
        return f"refused: {error}"
    return f"{found.points:.2f}" if np.isfinite(found.points) else "none"


def row(case, people, size, n, plan):
    """One line of the table; None where it was not run."""
    start, task = time.process_time(), task_of(case, size, n)
    rng, test = np.random.default_rng([size, n]), people.points[:TEST]
    estimate = learned(task, people, n, rng)
    if estimate is None:
        return None
    found = outcome(task, estimate, people.theta, test)
    error, halves = np.sqrt(np.mean(np.square(found["effects"]))), np.array(found["halves"])
    half = f"{np.median(halves):.2f}" if np.isfinite(np.median(halves)) else "none"
    explained = 1.0 - (found["prediction"] / (100.0 * np.std(people.chance[:TEST]))) ** 2
    took = time.process_time() - start
    forecasted = planned(task, n) if plan else "-"
    return (
        f"| {case} | {size:,} | {n:,} | {found['size']:.2f} | {error:.2f} | {half} | {forecasted} | {explained:.2f} | "
        f"{took:.0f} |"
    )


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--features", nargs="+", type=int, choices=list(POOL), default=list(POOL))
    parser.add_argument("--people", nargs="+", type=int)
    parser.add_argument("--no-plan", action="store_true", help="without forecasts")
    given = parser.parse_args(argv)
    print("| protocol | coded features | people | none | error | half width | planned | explained | CPU (s) |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size in given.features:
        people = People(size)
        for case in given.cases:
            for n in given.people or PEOPLE[size]:
                try:
                    line = row(case, people, size, n, not given.no_plan)
                except MurkError as error:
                    print(f"| {case} | {size:,} | refused: {error} |", flush=True)
                    break
                if line is not None:
                    print(line, flush=True)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
