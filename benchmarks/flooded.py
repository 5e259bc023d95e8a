"""What forgers do who answer the survey of scores: ``python -m benchmarks.flooded``.

The feature fills a hundredth of its bounds, as body temperature does between 30 and 45 degrees. Of the first people a
share are forgers, who choose their question and answer as far out as is admitted, always about this feature: as if its
values were one *value* near the upper bound, or all at the *top* threshold of a round. Later people are honest. Printed
is how often 95% intervals hold, how often that of the flooded feature is bounded, and its mean estimate.
"""

import argparse

import numpy as np

from murk import Task
from murk._internal.links import logistic
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import device_for
from murk.protocols.scores.model import above, item_of

_TASK = """
name: temperature
features:
  - {name: age, low: 18, high: 90}
  - {name: smoker, categories: ["no", "yes"]}
  - {name: temp, low: 30, high: 45}
target: {name: ill, kind: binary, positive: "yes", negative: "no"}
privacy: {guarantee: {gdp: {mu: %g}}}
"""
_FLOODED = 2  # column of the flooded feature
_TRUTH = np.array([0.5, 0.3, 4.125, 0.14])
_VALUE = 0.9  # coded value that forgers claim
_FAR = 2.5  # standard deviations of noise beyond which a survey cuts answers


def people(n, rng):
    """Coded records and targets."""
    temp = (np.clip(36.7 + 0.7 * rng.normal(size=n), 30, 45) - 37.5) / 7.5
    X = np.c_[rng.uniform(-1, 1, n), np.where(rng.random(n) < 0.4, 1.0, -1.0), temp, np.ones(n)]
    return X, (rng.random(n) < logistic(X @ _TRUTH)).astype(float)


def learned(n, mu, share, how, seed):
    """The estimate of n people, of whom a share are forgers while there is a survey."""
    device = device_for(Task.parse(_TASK % mu))
    engine, noise, rng = device.engine(), SimulatedNoise(seed), np.random.default_rng(seed)
    X, y = people(n, rng)
    forger = rng.random(n) < share
    while engine.n_releases < n:
        start, flat = engine.n_releases, engine.model.flat
        rows = np.arange(start, min(n, device.settings.round_end(start)), dtype=np.int64)
        asked = np.array(device.draw_query(noise, rows, flat))
        answers, forged = {}, np.zeros(len(rows), dtype=bool)
        items = [item for item in range(engine.model.items) if engine.model.item(item)[0] == _FLOODED]
        if engine.model.survey and items:
            forged = forger[rows]
            chosen = items if how == "value" else items[-1:]
            asked[forged] = [above(int(item)) for item in rng.choice(chosen, int(forged.sum()))]
        for query in sorted({*asked.tolist()}):
            mechanism, mine = device.mechanism("default", query), rows[(asked == query) & ~forged]
            payloads = mechanism.randomize(device.vectors(X[mine], y[mine], flat, query), noise, mine)
            liars = int(np.sum((asked == query) & forged))
            if liars:
                threshold = engine.model.coded(*engine.model.item(item_of(query)))
                far = (1.0 + _FAR * np.sqrt(mechanism.variance)) / mechanism.unit
                lie = round(far if how == "top" or threshold < _VALUE else -far)
                payloads = np.concatenate([payloads, np.full((liars, 1), lie)])
            answers["default", query] = payloads
        engine.learn_payloads(answers)
    return device.estimate([engine])


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=40_000)
    parser.add_argument("--mu", type=float, default=2.0)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(argv)
    print("| answers | held, flooded | bounded | mean estimate of 4.125 | held, others |\n|---|---|---|---|---|")
    for how in ("honest", "value", "top"):
        share = 0.0 if how == "honest" else chosen.share
        held, bounded, values = [], [], []
        for run in range(chosen.runs):
            estimate = learned(chosen.people, chosen.mu, share, how, 1000 * chosen.seed + run)
            halves = estimate.half_widths()
            held.append(np.abs(estimate.values - _TRUTH) <= halves)
            bounded.append(np.isfinite(halves[_FLOODED]))
            values.append(estimate.values[_FLOODED])
        flooded, others = np.mean(held, axis=0)[_FLOODED], np.delete(np.mean(held, axis=0), _FLOODED).mean()
        print(f"| {how} | {flooded:.0%} | {np.mean(bounded):.0%} | {np.mean(values):.2f} | {others:.0%} |", flush=True)


if __name__ == "__main__":
    main()
