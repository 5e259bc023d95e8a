"""What it costs that people count as their rows: ``python -m benchmarks.weights``.

Numbers of rows are skewed with mean 10, and largest where luck is best, so that means of people and of rows differ. The
table has, of 2,000 people, how often 95% intervals hold the truth of each weight, and the root mean square error, with
the difference of the two truths for comparison.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from benchmarks.people import rows_of
from benchmarks.track import Answer
from murk import Task
from murk.privacy.noise import SimulatedNoise
from murk.producers.producer import randomize_records, weighed
from murk.protocols.device import person_device_for

KINDS = {
    "share": 'features: []\ntarget: {name: y, kind: binary, positive: "1"}',
    "mean": "features: []\ntarget: {name: y, kind: real, low: 0, high: 1}",
    "moments": "features: [{name: a, low: -1, high: 1}]\ntarget: {name: y, kind: real, low: 0, high: 1}\n"
    "protocol: moments",
}
TRUTH = 400_000  # people of whom the truth is computed


def truth_of(kind: str, most: int) -> float:
    """Return the coded constant when people count as their rows, up to ``most``."""
    x, y, counts = rows_of("share" if kind == "share" else "mean", TRUTH, "skewed", np.random.default_rng(10**7))
    weights = np.repeat(np.minimum(counts, most) / counts, counts)
    if kind == "share":
        return 2.0 * float(weights @ y / weights.sum()) - 1.0
    if kind == "mean":
        return float(weights @ y / weights.sum())
    return float(np.linalg.solve((x * weights[:, None]).T @ x, x.T @ (weights * y))[-1])


def main(argv: list[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=[*KINDS], choices=[*KINDS])
    parser.add_argument("--most", nargs="+", type=int, default=[1, 5, 10, 30])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--people", type=int, default=2_000)
    parser.add_argument("--mu", type=float, default=1.5)
    options = parser.parse_args(argv)
    print("| task | weight | truth | 95% intervals hold | median half-width | error |\n|---|---|---|---|---|---|")
    for kind in options.kinds:
        for most in options.most:
            weight = "people" if most == 1 else f"{{rows: {most}}}"
            text = f"name: rows\n{KINDS[kind]}\nweight: {weight}\nprivacy: {{guarantee: {{gdp: {{mu: {options.mu}}}}}}}"
            task, truth, held, halves, errors = Task.parse(text).with_simulated(True), truth_of(kind, most), [], [], []
            for seed in range(options.runs):
                x, y, counts = rows_of(
                    "share" if kind == "share" else "mean", options.people, "skewed", np.random.default_rng(seed)
                )
                device = person_device_for(task)
                engine = device.engine()
                x, y, counts = weighed(x if task.features else x[:, 1:], y, counts, most)
                people = range(options.people)
                answers, _ = randomize_records(
                    device, x, y, [0] * options.people, {0: None}, ["default"] * options.people, SimulatedNoise(seed),
                    np.array(people), counts,
                )  # fmt: skip
                engine.learn_releases([Answer(0, 0, "default", None, 0, answer) for answer in answers])  # type: ignore[attr-defined]
                estimate = device.estimate([engine])
                half, error = float(estimate.half_widths(0.95)[-1]), float(estimate.values[-1]) - truth
                held.append(abs(error) <= half)
                halves.append(half)
                errors.append(error)
            root = math.sqrt(np.mean(np.square(errors)))
            cells = f"{truth:.3f} | {100.0 * np.mean(held):.1f}% | {np.median(halves):.3f} | {root:.3f}"
            print(f"| {kind} | {weight.strip('{}')} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
