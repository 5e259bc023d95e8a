"""The four protocols on the same people at the same guarantee: ``python -m benchmarks.protocols``.

Each row is a run of the whole pipe (devices or organisation, ledger, embedded log, worker) with simulated noise. What
they fit differs (a logistic model, a line through labels, a quadratic surrogate), so the table compares what people ask
for: the effect of one feature, as what it changes in the predicted target on average, and how much worse the
predictions are than those of the non-private fit: log loss for a binary target, root mean squared error for a real one.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.mothers import FILE, raw
from murk.producers import Policy
from murk.producers.populations.local_run import LocalRun
from murk.producers.populations.people import PopulationConfig
from murk.stream.task.task import Task

PROTOCOLS: Final = ("gradients", "examples", "moments", "sketch")
TRUSTED: Final = {"sketch": "the organisation"}
TASKS: Final = {
    "third-child": """
name: third-child
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
""",
    "weeks-worked": """
name: weeks-worked
features:
  - {name: third_child, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
target: {name: weeks_worked, kind: real, low: 0, high: 52}
""",
}
EFFECT: Final = {"third-child": "same_sex", "weeks-worked": "third_child"}
UNIT: Final = {"third-child": "points", "weeks-worked": "weeks"}
SET_ASIDE: Final = 5000
DELTA: Final = 1e-6


def task_of(name, protocol, epsilon):
    lines = [
        TASKS[name],
        f"protocol: {protocol}",
        f"privacy: {{guarantee: {{approx: {{epsilon: {epsilon}, delta: {DELTA}}}}}}}",
    ]
    # An organisation needs no public features; everybody else is given the same ones, and the same kind of noise.
    if protocol != "sketch":
        lines[-1] = lines[-1].removesuffix("}") + ", mechanism: gaussian}"
        lines.append(f"public: {{set_aside: {SET_ASIDE}}}")
    return Task.parse("\n".join(lines))


def predictions(task, protocol, values, x):
    """Predicted chances, or predicted targets in their own unit."""
    scores = x @ values
    if task.target.kind == "real":
        return task.coding.decode_target(scores)
    if protocol == "examples":
        # The quadratic loss fits labels of -1 and +1 by a line.
        return np.clip((1.0 + scores) / 2.0, 0.0, 1.0)
    return 1.0 / (1.0 + np.exp(-scores))


def loss(task, predicted, y):
    if task.target.kind == "real":
        return math.sqrt(float(np.mean((predicted - task.coding.decode_target(y)) ** 2)))
    sure = np.clip(predicted, 1e-9, 1 - 1e-9)
    return -float(np.mean(np.where(y == 1.0, np.log(sure), np.log1p(-sure))))


def effect(task, name, protocol, values, x):
    """What switching the feature from its first category to its second changes in the mean prediction."""
    place = task.coding.names.index(EFFECT[name])
    low, high = x.copy(), x.copy()
    low[:, place], high[:, place] = -1.0, 1.0
    change = float(np.mean(predictions(task, protocol, values, high) - predictions(task, protocol, values, low)))
    return change if task.target.kind == "real" else 100.0 * change


def without_privacy(task, x, y):
    if task.target.kind == "real":
        return np.linalg.lstsq(x, y, rcond=None)[0]
    from statsmodels.api import Logit

    return np.asarray(Logit(y, x).fit(disp=0).params)


def half_width(task, name, estimate, level=0.95):
    """Half width of the interval of the feature's coefficient, in coded units."""
    place = estimate.names.index(EFFECT[name])
    return float(estimate.half_widths(level)[place])


def run(name, protocol, epsilon, seed, x, y):
    task = task_of(name, protocol, epsilon)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        crowd = PopulationConfig(FILE, seed=seed)
        policy = Policy(public_sample=True)
        with LocalRun(task, crowd, f"sqlite:///{place}/log.db", Path(place) / "ledger.db", policy=policy) as local:
            for _ in local.steps():
                pass
            estimate, releases, task = local.estimate(), local.releases, local.task
    values = np.array([dict(zip(estimate.names, estimate.values, strict=True))[each] for each in task.coding.names])
    return {
        "releases": releases,
        "effect": effect(task, name, protocol, values, x),
        "half_width": half_width(task, name, estimate),
        "coefficient": float(values[task.coding.names.index(EFFECT[name])]),
        "loss": loss(task, predictions(task, protocol, values, x), y),
        "interval": estimate.method,
        "seconds": time.perf_counter() - start,
    }


def restated(task):
    """What the guarantee of a zero-out neighbour says of one record replaced by another."""
    from murk.learners.problem import problem_for

    return problem_for(task).mechanisms["default"].replace_one()


def table(name, epsilon, seeds, tell):
    truth_task = task_of(name, "gradients", epsilon)
    x, y = raw(truth_task)
    exact = without_privacy(truth_task, x, y)
    best = loss(truth_task, predictions(truth_task, "gradients", exact, x), y)
    rows = [
        {
            "task": name, "protocol": "no privacy", "guarantee": "none", "trusts": "the server", "people": len(y),
            "effect": effect(truth_task, name, "gradients", exact, x), "effect_sd": 0.0, "excess_loss": 0.0,
            "covered": None, "releases": 0, "seconds": 0.0,
        }
    ]  # fmt: skip
    for protocol in PROTOCOLS:
        tell(f"{name}, {protocol}, epsilon {epsilon:g}")
        found = [run(name, protocol, epsilon, seed, x, y) for seed in range(seeds)]
        effects = [one["effect"] for one in found]
        guarantee = f"({epsilon:g}, {DELTA:g})"
        if protocol == "sketch":
            other = restated(task_of(name, protocol, epsilon))
            guarantee += f" zero-out; replaced: ({other.epsilon:g}, {other.delta:.2g})"
        rows.append(
            {
                "task": name,
                "protocol": protocol,
                "guarantee": guarantee,
                "trusts": TRUSTED.get(protocol, "nobody"),
                "people": len(y),
                "releases": found[0]["releases"],
                "effect": statistics.fmean(effects),
                "effect_sd": statistics.stdev(effects) if seeds > 1 else math.nan,
                "excess_loss": statistics.fmean(one["loss"] for one in found) - best,
                "half_width": statistics.fmean(one["half_width"] for one in found),
                "coefficient_sd": statistics.stdev([one["coefficient"] for one in found]) if seeds > 1 else math.nan,
                "interval": found[0]["interval"],
                "seconds": statistics.fmean(one["seconds"] for one in found),
            }
        )
    return rows


def show(rows):
    name = rows[0]["task"]
    binary = name == "third-child"
    unit, kind = UNIT[name], "log loss" if binary else "RMSE, weeks"
    print(f"\n{name}: what {EFFECT[name]} changes ({unit}), and {kind} beyond the non-private fit\n")
    print(f"| protocol | (epsilon, delta) for each person | trusts | releases | effect, {unit} | excess {kind} | s |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        spread = "" if not row["effect_sd"] else f" ± {row['effect_sd']:.2f}"
        print(
            f"| {row['protocol']} | {row['guarantee']} | {row['trusts']} | {row['releases']:,} | "
            f"{row['effect']:.2f}{spread} | {row['excess_loss']:.5f} | {row['seconds']:.0f} |"
        )


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each row")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = []
    for name in TASKS:
        for epsilon in options.epsilon:
            rows = table(name, epsilon, options.seeds, lambda words: print(words, file=sys.stderr, flush=True))
            found += rows
            if not options.json:
                show(rows)
    if options.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
