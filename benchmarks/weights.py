"""What it costs that people count as their rows: ``python -m benchmarks.weights``.

Numbers of rows are skewed with mean 10, and largest where luck is best, so that means of people and of rows differ. The
table has, of 2,000 people, how often 95% intervals hold the truth of each weight, and the root mean square error, with
the difference of the two truths for comparison. All are of the coded constant. Features have two values, and so the
same fit by any weights of features; kinds with features need more people, as in ``--kinds binary real classes --people
40000``.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from numpy.typing import NDArray

from benchmarks.people import Floats, learned, rows_of
from murk import Task
from murk.producers.producer import weighed

_FEATURE = "features: [{name: a, low: -1, high: 1, typical: [-1, 1]}]\n"
_ARM = "features: [{name: a, categories: [u, v]}]\n"
_LABEL = 'target: {name: y, kind: binary, positive: "1", rate: 0.5}\n'
_NUMBER = "target: {name: y, kind: real, low: 0, high: 1, typical: [0, 1]}\n"
KINDS = {
    "share": 'features: []\ntarget: {name: y, kind: binary, positive: "1"}',
    "mean": "features: []\ntarget: {name: y, kind: real, low: 0, high: 1}",
    "moments": "features: [{name: a, low: -1, high: 1}]\ntarget: {name: y, kind: real, low: 0, high: 1}\n"
    "protocol: moments",
    "binary": _FEATURE + _LABEL,
    "real": _FEATURE + _NUMBER,
    "classes": _FEATURE + "target: {name: y, kind: classes, classes: [a, b, c]}",
    "outer": _FEATURE + _NUMBER + "protocol: examples\nexamples: {release: outer}",
    "directions": _FEATURE + _NUMBER + "protocol: examples\nexamples: {release: directions}",
    "cells": _ARM + _LABEL + "protocol: examples\nexamples: {release: cells, loss: log}",
    "known": _ARM.replace("]}", "], known: true}") + _LABEL,
    "mixed": _ARM.replace("]}", "], known: true}, {name: b, low: -1, high: 1}") + _NUMBER,
}
TRUTH = 400_000  # people of whom the truth is computed
_EFFECT = 0.5  # of the feature on a binary target, as a share of all
_LABELS = ("binary", "gradients", "cells", "known")


def people_of(kind: str, people: int, rng: np.random.Generator) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return features, targets and numbers of rows; those who come often have larger targets, and later classes."""
    if kind in ("share", "mean", "moments"):
        return rows_of("share" if kind == "share" else "mean", people, "skewed", rng)
    x, y, counts = rows_of("contrasts", people, "skewed", rng)
    if kind in _LABELS:
        y = (y > -_EFFECT * x[:, 0]).astype(np.float64)
    elif kind == "classes":
        y = np.digitize(y, [-1 / 3, 1 / 3]).astype(np.float64)
    elif kind == "mixed":
        x = np.column_stack([x[:, 0], np.sign(y + rng.uniform(-2, 2, len(y))), x[:, 1]])
    return x, y, counts


def truth_of(kind: str, most: int) -> float:
    """Return the coded constant when people count as their rows, up to ``most``."""
    x, y, counts = people_of(kind, TRUTH, np.random.default_rng(10**7))
    weights = np.repeat(np.minimum(counts, most) / counts, counts)
    if kind == "share":
        return 2.0 * float(weights @ y / weights.sum()) - 1.0
    if kind == "mean":
        return float(weights @ y / weights.sum())
    if kind in _LABELS:
        rates = [float(np.average(y[x[:, 0] == a], weights=weights[x[:, 0] == a])) for a in (-1.0, 1.0)]
        return sum(math.log(rate / (1.0 - rate)) for rate in rates) / 2.0
    if kind == "classes":
        y = 2.0 * (y == 2.0) - 1.0
    return float(np.linalg.solve((x * weights[:, None]).T @ x, x.T @ (weights * y))[-1])


def main(argv: list[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=["share", "mean", "moments"], choices=[*KINDS])
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
                x, y, counts = weighed(*people_of(kind, options.people, np.random.default_rng(seed)), most)
                [(device, engine, _)] = learned(task, x, y, counts, seed)
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
