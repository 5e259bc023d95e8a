"""What watching a model costs and notices: ``python -m benchmarks.drift``.

Generated people with three features (uniform on [-1, 1], coefficients 1 and the constant -0.3, mu = 2, no public rows),
whose first coefficient changes after half of the releases. Each stream is looked at after every 20,000 releases, and
with ``forget`` as without it. ``--replications`` for more streams.
"""

import argparse
import math

import numpy as np

from murk.learners import ScoreClassifier
from murk.privacy import GaussianDP

FEATURES, PEOPLE, LOOK = 3, 240_000, 20_000


def run(seed, change, forget):
    """When a stream was first called changed, and the last estimate's half width and error of the coefficient."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(PEOPLE, FEATURES))
    first = np.where(np.arange(PEOPLE) < PEOPLE // 2, 1.0, 1.0 - change)
    logit = first * X[:, 0] + X[:, 1:].sum(axis=1) - 0.3
    y = rng.random(PEOPLE) < 1 / (1 + np.exp(-logit))
    model = ScoreClassifier(guarantee=GaussianDP(2.0), features=[*"abc"], forget=forget, seed=seed)
    noticed = math.inf
    for start in range(0, PEOPLE, LOOK):
        model.learn_many(X[start : start + LOOK], y[start : start + LOOK])
        if math.isinf(noticed) and model.drift().alarm:
            noticed = start + LOOK
    estimate = model.estimate()
    return noticed, float(estimate.half_widths()[0]), float(estimate.values[0] - (1.0 - change))


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=24)
    given = parser.parse_args(argv)
    print("| change | forget | called changed | half width | held the new truth |\n|---|---|---|---|---|")
    for change in (0.0, 0.5, 1.0):
        for forget in (None, 96_000):
            found = [run(seed, change, forget) for seed in range(given.replications)]
            noticed, half, off = (np.array(each) for each in zip(*found, strict=True))
            false = int(np.sum(noticed <= (PEOPLE if change == 0 else PEOPLE // 2)))
            right = noticed[np.isfinite(noticed) & (noticed > PEOPLE // 2)] - PEOPLE // 2
            after = f"{len(right)}, after {np.median(right):,.0f}" if change and len(right) else "0"
            said = f"{false} falsely" + (f", {after}" if change else "") + f" of {len(found)}"
            held = np.mean(np.abs(off) <= half)
            print(f"| {change} | {forget} | {said} | {np.median(half):.3f} | {held:.0%} |", flush=True)


if __name__ == "__main__":
    main(None)
