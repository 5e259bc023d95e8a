"""How often intervals hold the truth, at the demonstration's own settings: ``python -m benchmarks.coverage``.

Each replication shuffles the 254,654 women, draws the 5,000 of the public sample and everybody's level again,
and learns with fresh noise. The truth is the fit of the same weighted objective to all raw records. Reported are
the shares of nominal 95% intervals that hold it, their standard error, and the bias and spread of the estimate.
"""

import argparse
import math
import time
from dataclasses import replace

import numpy as np

from benchmarks.pipe import learn
from murk import Task
from murk.demo import DATA, TASK
from murk.populations.file_source import FileSource
from murk.protocols.device import device_for
from murk.protocols.gradients import estimate as inference
from murk.protocols.gradients.objectives import Balanced

WEEKS = """
name: weeks
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
target: {name: weeks_worked, kind: real, low: 0, high: 52, missing_share: 0}
protocol: gradients
privacy:
  guarantee: {gdp: {mu: 1.0}}
  levels: {strict: {gdp: {mu: 0.5}}, open: {gdp: {mu: 2.0}}}
"""
PUBLIC = "public: {set_aside: 5000}\n"
DEMO = TASK.read_text().replace('negative: "no"}', 'negative: "no", missing_share: 0}') + "protocol: gradients\n"
LOGISTIC = DEMO + "objective: logistic\nlearner: {radius: 1.5}\n"
ORIGINS = "  - {name: afam, categories: ['no', 'yes']}\n  - {name: hispanic, categories: ['no', 'yes']}\ntarget:"
SCALING = "learner: {intervals: random-scaling}\n"
TASKS = {
    "demo": LOGISTIC + PUBLIC,
    "demo, balanced": DEMO + "learner: {radius: 1.5}\n" + PUBLIC,
    "demo with afam and hispanic": LOGISTIC.replace("target:", ORIGINS) + PUBLIC,
    "demo without public covariates": LOGISTIC.replace("radius: 1.5", "radius: 1.5, intervals: random-scaling"),
    "weeks_worked": WEEKS + SCALING,
    "weeks_worked, whitened": WEEKS + SCALING + PUBLIC,
    "weeks_worked, plug-in": WEEKS + PUBLIC,
}


def weighted_fit(device, x, y):
    """Minimiser of the device's own weighted objective over raw records, in coded units."""
    settings = device.settings
    z = x if settings.transform is None else x @ settings.transform.T
    weights = 1.0 / np.maximum(1.0, np.linalg.norm(z, axis=1))
    if not settings.scaled:
        theta = np.zeros(x.shape[1])
        for _ in range(50):
            p = 1.0 / (1.0 + np.exp(-x @ theta))
            # The balanced loss divides both the residual and its slope by the larger of p and 1 - p.
            own = weights / np.maximum(p, 1 - p) if isinstance(settings.objective, Balanced) else weights
            hessian = (x * (own * p * (1 - p))[:, None]).T @ x
            theta -= np.linalg.solve(hessian, x.T @ (own * (p - y)))
        return theta
    # Huber with scale: damped descent on a smooth convex objective of few parameters.
    from scipy.optimize import minimize

    c, kappa = settings.objective.c, settings.objective.kappa

    def loss(t):
        sigma = t[-1]
        u = (y - x @ t[:-1]) / sigma
        small = np.abs(u) <= c
        rho = np.where(small, u * u / 2, c * np.abs(u) - c * c / 2)
        psi = np.clip(u, -c, c)
        value = np.mean(weights * (sigma * rho + kappa * sigma / 2))
        slope = -(x * (weights * psi)[:, None]).mean(axis=0)
        return value, np.append(slope, np.mean(weights * (rho - u * psi + kappa / 2)))

    start = np.append(np.linalg.lstsq(x, y, rcond=None)[0], y.std())
    bounds = [(None, None)] * x.shape[1] + [(settings.scale_floor, settings.scale_ceiling)]
    return minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10}).x


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--replications", type=int, default=400)
    parser.add_argument("--only", choices=sorted(TASKS))
    arguments = parser.parse_args(argv)
    reps = arguments.replications
    print(f"{reps} replications; standard error of a share near 95%: {math.sqrt(0.95 * 0.05 / reps):.3f}\n")
    print("| task | intervals | coefficient | truth | bias | spread | half width | held the truth |")
    print("|---|---|---|---|---|---|---|---|")
    for title, text in TASKS.items():
        if arguments.only not in (None, title):
            continue
        begin = time.monotonic()
        task = Task.parse(text).with_simulated(True)
        blocks = list(FileSource(DATA, task).blocks(0, 65_536))
        x, y = np.concatenate([b.x for b in blocks]), np.concatenate([b.y for b in blocks])
        found = {}
        for r in range(reps):
            rng = np.random.default_rng(10_000 + r)
            order = rng.permutation(len(x))
            own = task
            if task.public is not None:
                aside, order = order[: task.public.set_aside], order[task.public.set_aside :]
                points, counts = np.unique(x[aside], axis=0, return_counts=True)
                own = task.with_public(points, counts.astype(np.int64))
            device = device_for(own)
            if r == 0:
                truth = weighted_fit(device, x, y)
            levels = rng.integers(len(device.mechanisms), size=len(order))
            engine = learn(device, x[order], y[order], levels, seed=r)
            ways = {"shown": engine.estimate()}
            if ways["shown"].method == inference.PLUG_IN:
                asked = replace(device.settings, intervals="random-scaling")
                ways["random scaling"] = inference.estimate(asked, [engine.memory])
            for way, estimate in ways.items():
                found.setdefault(way, []).append((estimate.values, estimate.half_widths(0.95)))
            names, method = ways["shown"].names, ways["shown"].method
        for way, pairs in found.items():
            values, halves = (np.array(part) for part in zip(*pairs, strict=True))
            held = np.abs(values - truth) <= halves
            for j, name in enumerate(names):
                print(
                    f"| {title} | {method if way == 'shown' else way} | {name} | {truth[j]:.3f} | "
                    f"{values[:, j].mean() - truth[j]:+.4f} | {values[:, j].std():.4f} | {halves[:, j].mean():.4f} | "
                    f"{100 * held[:, j].mean():.1f}% |", flush=True,
                )  # fmt: skip
        print(f"<!-- {title}: {time.monotonic() - begin:.0f} s -->", flush=True)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
