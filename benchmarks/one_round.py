"""Protocols of one round where some features fill little of their bounds: ``python -m benchmarks.one_round``.

Nobody reads a model, and there are no public rows: moments, outer products, released examples, and lines of several
classes without rounds. Slopes are per standard deviation of their feature. *learned*: the share of slopes with a
bounded interval, of all and by feature; *held*: the share of those whose nominal 95% interval holds the truth, *worst
held* of the slope where it is least. Tasks with ``stated`` ranges say features' `typical` ones.
"""

import argparse
import math

import numpy as np

from benchmarks.protocol_people import estimate_of
from benchmarks.scores import UNEVEN, column, constant
from murk import Task
from murk._internal.links import logistic
from murk.protocols.device import device_for
from murk.protocols.scores.model import directions

PROTOCOLS = {
    "moments": "protocol: moments",
    "outer": "protocol: examples\nexamples: {release: outer}",
    "examples": "protocol: examples",
    "classes": "protocol: scores\nscores: {interactive: false}",
}
CLASSES = 3
_RANGE = 1.6448536269514722  # half of a normal distribution's nine tenths, in standard deviations


def task_of(protocol, target, mu, located, kinds):
    """The task of a protocol; ``located`` are the centres and spreads to state, or None."""
    features = []
    for index, kind in enumerate(kinds):
        if kind in ("coin", "one in 17", "often missing"):
            features.append(f"{{name: x{index}, categories: ['0', '1']}}")
            continue
        known = ""
        if located is not None:
            centre, spread = located[index]
            low, high = max(centre - _RANGE * spread, -1.0), min(centre + _RANGE * spread, 1.0)
            known = f", typical: [{low:.6f}, {high:.6f}]"
        features.append(f"{{name: x{index}, low: -1, high: 1{known}}}")
    if protocol == "classes":
        target = "classes"
    aim = "kind: binary, positive: 'yes', negative: 'no'" if target == "binary" else "kind: real, low: -1, high: 1"
    if target == "classes":
        aim = f"kind: classes, classes: [{', '.join(f'c{label}' for label in range(CLASSES))}]"
    return Task.parse(
        f"name: cell\nfeatures: [{', '.join(features)}]\ntarget: {{name: y, {aim}}}\n{PROTOCOLS[protocol]}\n"
        f"privacy: {{guarantee: {{gdp: {{mu: {mu:g}}}}}}}"
    )


def people(kinds, target, n, rng):
    """Coded features, targets and the coefficients of the model that is right."""
    X = np.c_[tuple(column(each, n, rng) for each in kinds)]
    spread, X = X.std(axis=0), np.c_[X, np.ones(n)]
    if target == "classes":
        slopes = rng.normal(size=(CLASSES, len(spread))) / spread
        slopes /= np.std(X[:, :-1] @ slopes.T)
        scores = (X[:, :-1] - X[:, :-1].mean(axis=0)) @ slopes.T
        chance = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        return X, (rng.random((n, 1)) > np.cumsum(chance, axis=1)).sum(axis=1).clip(0, CLASSES - 1).astype(float), None
    theta = np.append(rng.normal(size=len(spread)) / spread, 0.0)
    theta /= np.std(X @ theta)
    if target == "binary":
        theta[-1] = constant(X @ theta, 0.55)
        return X, (rng.random(n) < logistic(X @ theta)).astype(float), theta
    y = np.clip((X @ theta - np.mean(X @ theta) + rng.normal(size=n)) / math.sqrt(2.0) / 3.0, -1, 1)
    return X, y, np.linalg.lstsq(X, y, rcond=None)[0]


def aimed_at(task, X, y, theta):
    """The coefficients that a protocol's intervals are for: of its weighted line, or of the model."""
    if task.target.kind == "classes":
        device = device_for(task)
        D = directions(X, device._model(device.initial))
        shares = np.linalg.solve(D.T @ X, D.T @ (y[:, None] == np.arange(CLASSES))).T
        return 2.0 * shares.ravel() - np.tile(np.eye(X.shape[1])[-1], CLASSES)
    if task.protocol != "examples":
        return theta
    settings = device_for(task).settings
    Z = X if settings.coordinates is None else settings.coordinates.rows(X)
    square = np.sum(Z**2, axis=1)
    weight = 1.0 / (1.0 + square) if settings.outer else 1.0 / square
    targets = 2.0 * y - 1.0 if task.target.kind == "binary" else y
    fitted = np.linalg.solve((Z * weight[:, None]).T @ Z, Z.T @ (weight * targets))
    return fitted if settings.coordinates is None else settings.coordinates.coded(fitted)


def stream(protocol, target, kinds, n, mu, stated, rng):
    """Estimates, truth and half widths of the slopes of one stream, per standard deviation of the feature."""
    X, y, theta = people(kinds, "classes" if protocol == "classes" else target, n, rng)
    spread = X[:, :-1].std(axis=0)
    located = list(zip(X[:, :-1].mean(axis=0), spread, strict=True)) if stated else None
    task = task_of(protocol, target, mu, located, kinds)
    found = estimate_of(task, X, y, np.zeros((0, X.shape[1])), rng)
    truth = aimed_at(task, X, y, theta)
    slopes = np.arange(len(truth)) % X.shape[1] < len(spread)
    return tuple(part[slopes] * np.resize(spread, slopes.sum()) for part in (found.values, truth, found.half_widths()))


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=tuple(PROTOCOLS))
    parser.add_argument("--kinds", nargs="+", choices=UNEVEN, default=("even", "narrow", "very narrow", "amounts"))
    parser.add_argument("--targets", nargs="+", default=("binary", "real"), choices=("binary", "real"))
    parser.add_argument("--people", nargs="+", type=int, default=(20_000, 100_000, 500_000))
    parser.add_argument("--mu", type=float, default=2.0)
    parser.add_argument("--replications", type=int, default=20)
    parser.add_argument("--stated", nargs="+", type=int, default=(0, 1))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(argv)
    print("| protocol | target | kind | people | typical | learned | by feature | held | worst held | half |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for protocol in given.protocols:
        for target in ("classes",) if protocol == "classes" else given.targets:
            for kind in given.kinds:
                for n in given.people:
                    for stated in given.stated:
                        runs = [
                            stream(
                                protocol,
                                target,
                                UNEVEN[kind],
                                n,
                                given.mu,
                                stated,
                                np.random.default_rng([given.seed, each]),
                            )
                            for each in range(given.replications)
                        ]
                        values, truth, halves = (np.array(part) for part in zip(*runs, strict=True))
                        known = np.isfinite(halves)
                        held = known & (np.abs(values - truth) <= halves)
                        each = held.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
                        half = float(np.median(halves[known])) if known.any() else math.nan
                        print(
                            f"| {protocol} | {target} | {kind} | {n:,} | {'stated' if stated else 'none'} | "
                            f"{known.mean():.0%} | {', '.join(f'{100 * part:.0f}' for part in known.mean(axis=0))} | "
                            f"{held.sum() / max(known.sum(), 1):.1%} | "
                            f"{each[known.any(axis=0)].min(initial=1.0):.0%} | {half:.3g} |",
                            flush=True,
                        )


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
