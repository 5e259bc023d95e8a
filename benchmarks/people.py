"""One answer of people with several rows, against two other ways: ``python -m benchmarks.people``.

People have 1, 10 or 100 rows each, or a skewed number whose mean is 10, in which those come most often whose luck is
best. Rows of a person have a feature, and luck, in common. Shares and coefficients are of people. The table has how
often 95% intervals hold, false drift alarms, and root mean square errors: of the mean of a person's rows as one answer;
of one row drawn (for shares these are the same); and of one release of each of up to 10 rows at an equal part of the
budget, under the same guarantee.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from benchmarks.track import Answer
from murk import Task
from murk.inference.confidence_sequences import looks_of
from murk.inference.contrasts import contrasts
from murk.privacy.noise import SimulatedNoise
from murk.producers.producer import randomize_records
from murk.protocols.device import device_for

MOST = 10  # releases of a person whose budget is divided

KINDS = {
    "share": 'features: []\ntarget: {name: y, kind: binary, positive: "1", missing_share: 0}',
    "mean": "features: []\ntarget: {name: y, kind: real, low: 0, high: 1, missing_share: 0}",
    "scores": "features: [{name: a, low: -1, high: 1, typical: [-0.95, 0.95]}]\n"
    'target: {name: y, kind: binary, positive: "1", rate: 0.5}',
    "contrasts": "features: [{name: arm, categories: [a, b]}]\ntarget: {name: y, kind: real, low: 0, high: 1, "
    "typical: [0, 1]}\ncontrasts: [{feature: arm, category: b, against: a}]",
    "gradients": "features: [{name: a, low: -1, high: 1, typical: [-0.95, 0.95]}]\n"
    'target: {name: y, kind: binary, positive: "1", rate: 0.5}\nprotocol: gradients',
}
_SLOPE = 1.0

Floats = NDArray[np.float64]


def task_of(kind: str, mu: float) -> Task:
    """Return the task of a kind, one answer a person."""
    text = f"name: people\n{KINDS[kind]}\nprivacy: {{guarantee: {{gdp: {{mu: {mu!r}}}}}}}\n"
    return Task.parse(text).with_simulated(True)


def rows_of(kind: str, people: int, rows: str, rng: np.random.Generator) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return features (m, 2), targets (m,) and numbers of rows (people,), one person after the other."""
    luck = rng.normal(size=people)
    if rows == "skewed":
        counts = np.minimum(np.floor(4.0 * np.exp(luck + 0.4 * rng.normal(size=people))) + 1.0, 400.0).astype(np.int64)
    else:
        counts = np.full(people, int(rows))
    owner, total = np.repeat(np.arange(people), counts), int(counts.sum())
    own = rng.uniform(-1, 1, people)
    a = np.where(rng.random(total) < 0.5, own[owner], rng.uniform(-1, 1, total))
    if kind == "contrasts":
        a = np.sign(own)[owner]
    # Uniform for each row, and of a person much alike.
    mixed = math.sqrt(0.7) * luck[owner] + math.sqrt(0.3) * rng.normal(size=total)
    uniform = np.asarray(ndtr(mixed))
    if kind in ("mean", "contrasts"):
        y = 2.0 * uniform - 1.0
    else:
        slope = _SLOPE if kind in ("scores", "gradients") else 0.0
        y = (uniform < 1.0 / (1.0 + np.exp(-slope * a))).astype(np.float64)
    return np.column_stack([a, np.ones(total)]), y, counts


def learned(task: Task, x: Floats, y: Floats, counts: NDArray[np.int64], seed: int) -> tuple[Any, Any]:
    """Return device and learner after people have answered in a random order, with all their rows."""
    rng, device = np.random.default_rng(seed + 10**6), device_for(task)
    engine: Any = device.engine()
    noise, done, starts = SimulatedNoise(seed), 0, np.cumsum(counts) - counts
    order = rng.permutation(len(counts))
    while done < len(order):
        size = device.block(done) if device.interactive else len(order)  # type: ignore[attr-defined]
        now = order[done : done + size]
        version, flat = engine.published() if device.interactive else (0, None)
        own = np.concatenate([np.arange(starts[each], starts[each] + counts[each]) for each in now])
        levels, partitions, indices = ["default"] * len(now), [0] * len(now), np.arange(done, done + len(now))
        model = {0: None if flat is None else np.array(flat)}
        features = x[own] if task.features else x[own, 1:]
        several: Any = counts[now] if counts.max() > 1 else None
        payloads, asked = randomize_records(
            device, features, y[own], partitions, model, levels, noise, indices, several  # type: ignore[arg-type]
        )  # fmt: skip
        split = [(query or "").partition("-") for query in asked or [""] * len(now)]
        answers = zip(split, payloads, strict=True)
        engine.learn_releases(
            [Answer(0, version, "default", name, int(item or 0), payload) for (name, _, item), payload in answers]
        )
        done += len(now)
    return device, engine


def one_of(x: Floats, y: Floats, counts: NDArray[np.int64], most: int, seed: int) -> tuple[Floats, Floats]:
    """Return up to ``most`` drawn rows of each person, as people of their own."""
    rng = np.random.default_rng(seed + 2 * 10**6)
    owner = np.repeat(np.arange(len(counts)), counts)
    shuffled = np.lexsort((rng.random(len(owner)), owner))
    place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = shuffled[place < most]
    return x[kept], y[kept]


def main(argv: list[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=[*KINDS], choices=[*KINDS])
    parser.add_argument("--rows", nargs="+", default=["1", "10", "100", "skewed"])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--people", type=int, default=2_000)
    parser.add_argument("--mu", type=float, default=1.5)
    options = parser.parse_args(argv)
    print("| task | rows each | intervals hold | drift alarms | error | one row drawn | up to 10 releases |")
    print("|---|---|---|---|---|---|---|")
    for kind in options.kinds:
        task, divided = task_of(kind, options.mu), task_of(kind, options.mu / math.sqrt(MOST))
        truth = _SLOPE if kind in ("scores", "gradients") else 0.0
        for rows in options.rows:
            held, alarms, errors = [], [], np.zeros((options.runs, 3))
            for seed in range(options.runs):
                x, y, counts = rows_of(kind, options.people, rows, np.random.default_rng(seed))
                device, engine = learned(task, x, y, counts, seed)
                estimate = device.estimate([engine])
                value, half = float(estimate.values[0]), float(estimate.half_widths(0.95)[0])
                if kind == "contrasts":
                    [found] = contrasts(task, estimate, looks_of(task, estimate, estimate.n_releases), 0.95)
                    held.append(found.interval[0] <= 0.0 <= found.interval[1])
                elif math.isfinite(half):
                    held.append(abs(value - truth) <= half)
                if hasattr(device, "drift"):
                    alarms.append(device.drift([engine]).alarm)
                errors[seed, 0] = value - truth
                if rows == "1":
                    errors[seed, 1:] = errors[seed, 0]
                    continue
                for column, (other, most) in enumerate(((task, 1), (divided, MOST)), start=1):
                    kept_x, kept_y = one_of(x, y, counts, most, seed)
                    single = np.ones(len(kept_y), dtype=np.int64)
                    device, engine = learned(other, kept_x, kept_y, single, seed)
                    errors[seed, column] = float(device.estimate([engine]).values[0]) - truth
            shares = [f"{100.0 * np.mean(each):.1f}%" if each else "-" for each in (held, alarms)]
            roots = [f"{root:.3f}" for root in np.sqrt(np.mean(errors**2, axis=0))]
            print(f"| {kind} | {rows} | {' | '.join([*shares, *roots])} |", flush=True)


if __name__ == "__main__":
    main()
