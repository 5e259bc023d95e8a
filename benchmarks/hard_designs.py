"""How often intervals hold the truth over hard designs: ``python -m benchmarks.hard_designs``.

Second moments, released by people jointly or by an organisation, of generated features: normal ones with condition
numbers 1 to 1,000, rare categories down to one in 500, skewed ones (`benchmarks.gram.designs`); with all targets, with
40% of them missing at random, and with 60% of those missing whose first feature is positive. The model is right. Of the
coefficients that have an interval; standard errors are
of draws, since coefficients of one miss together. (Released directions: ``python -m benchmarks.scores --once``.)
"""

import argparse
import math

import numpy as np

from benchmarks.gram import designs
from benchmarks.protocol_people import estimate_of
from murk import Task
from murk._internal.links import logistic

WAYS = {
    "people, line": ("moments", "real", 0),
    "people, line, 5,000 public rows": ("moments", "real", 5_000),
    "people, log odds": ("moments", "binary", 0),
    "people, log odds, 5,000 public rows": ("moments", "binary", 5_000),
    "organisation, line": ("summaries", "real", 0),
    "organisation, log odds": ("summaries", "binary", 0),
}
PEOPLE = {"moments": 300_000, "summaries": 20_000}


MISSING = {
    "all targets are there": lambda X: 0.0,
    "40% of the targets are missing": lambda X: 0.4,
    "60% are missing where the first feature is positive": lambda X: 0.6 * (X[:, 0] > 0),
}


def task_of(protocol, kind, p, mu, rows, release):
    names = ", ".join(f"{{name: x{j}, low: -1, high: 1}}" for j in range(p - 1))
    target = "kind: binary, positive: 'yes'" if kind == "binary" else "kind: real, low: -1, high: 1"
    block = f"moments: {{release: {release}}}" if protocol == "moments" else ""
    aside = f"public: {{set_aside: {rows}}}" if rows else ""
    return Task.parse(
        f"name: hard\nfeatures: [{names}]\ntarget: {{name: y, {target}}}\nprotocol: {protocol}\n{block}\n{aside}\n"
        f"privacy: {{guarantee: {{gdp: {{mu: {mu}}}}}}}"
    )


def draw(way, p, features, mu, missing, rng, release):
    """Which coefficients have an interval, and which of these hold the truth."""
    protocol, kind, rows = WAYS[way]
    n = PEOPLE[protocol]
    theta = np.random.default_rng(7).normal(size=p)
    theta *= (1.0 if kind == "binary" else 0.3) / np.linalg.norm(theta)
    X = np.column_stack([features(rng, n + rows), np.ones(n + rows)])
    public, X = X[n:], X[:n]
    if kind == "binary":
        y = (rng.random(n) < logistic(X @ theta)).astype(float)
    else:
        y = np.clip(X @ theta + rng.uniform(-0.3, 0.3, n), -1, 1)
    y[rng.random(n) < missing(X)] = np.nan
    found = estimate_of(task_of(protocol, kind, p, mu, rows, release), X, y, public, rng)
    half = found.half_widths()
    known = np.isfinite(half)
    return known, known & (np.abs(found.values - theta) <= half)


def cell(way, cases, budgets, missing, replications, seed, release):
    """Coverage of what was learned, its standard error over draws, and what share was learned."""
    learned, held, all_of = [], [], 0
    for p, features in cases:
        for mu in budgets:
            for replication in range(replications):
                rng = np.random.default_rng([seed, p, int(8 * mu), replication])
                known, right = draw(way, p, features, mu, missing, rng, release)
                learned.append(known.sum())
                held.append(right.sum())
                all_of += len(known)
    learned, held = np.array(learned), np.array(held)
    if not learned.sum():
        return "-", math.nan
    share = held.sum() / learned.sum()
    error = math.sqrt(float(np.sum((held - share * learned) ** 2))) / learned.sum()
    return f"{share:.1%} ± {error:.1%} of {learned.sum() / all_of:.0%}", share


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=10, help="draws of each design, p and budget")
    parser.add_argument("--mu", type=float, nargs="+", default=(1.0, 4.0))
    parser.add_argument("--features", type=int, nargs="+", default=(3, 6, 11), help="coded features, the constant one")
    parser.add_argument("--only", nargs="+", choices=WAYS, default=tuple(WAYS))
    parser.add_argument("--release", choices=("observed", "joint"), default="observed", help="of people's moments")
    parser.add_argument("--missing", type=int, nargs="+", choices=range(len(MISSING)), default=range(len(MISSING)))
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    shapes = {}
    for name, (p, features) in designs().items():
        if p in chosen.features:
            shapes.setdefault(name.rsplit(",", 1)[0], []).append((p, features))
    for name in (list(MISSING)[place] for place in chosen.missing):
        print(f"\n| {name} | {' | '.join(shapes)} |\n|---{'|---' * len(shapes)}|")
        for way in chosen.only:
            how = (chosen.mu, MISSING[name], chosen.replications, chosen.seed, chosen.release)
            cells = [cell(way, cases, *how)[0] for cases in shapes.values()]
            print(f"| {way} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
