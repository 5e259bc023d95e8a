"""The error against the age of gradients: ``python -m benchmarks.staleness``.

By default with the steps of new tasks, at ages that the default ``max_staleness`` admits; ``--ignore-age`` is for steps
that do not depend on ages (``delays: null``), at all ages, and draws docs/staleness.png; ``--long N`` is for streams of
up to 10^8 releases.

A gradient that arrives when its partition has learned n releases was taken at the iterate of version n - age. Here
the age is set, everything else is as it is: the compiled gradient, quantisation, exact noise distribution and fold. The
same people and the same noise go through every age, so that ratios to fresh gradients are far more precise
than the errors themselves.
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np

from benchmarks.coverage import weighted_fit
from benchmarks.pipe import learn
from murk import Task
from murk._internal.jit import jit
from murk.demo import DATA, TASK
from murk.populations.file_source import FileSource
from murk.privacy import GaussianDP
from murk.privacy.mechanisms import calibrate, lattice
from murk.privacy.noise.kernels import simulated_gaussian
from murk.protocols.device import device_for
from murk.protocols.gradients import estimate as inference
from murk.protocols.gradients import kernels as k
from murk.protocols.gradients.kernels import newest_published
from murk.protocols.gradients.memory import Memory, level_rows
from murk.protocols.gradients.objectives import Huber, Logistic
from murk.protocols.gradients.settings import Settings

WITHIN = ("fresh", "0.5% of the count", "2%", "max(100 releases, 2%)", "blocks of 1%", "blocks of 2%")
CHUNK = 1_000_000
PICTURE = Path(__file__).parents[1] / "docs" / "staleness.png"
P = 5
# Label, kind of delay, share of the count. "age": every gradient is so old. "blocks": gradients of a block are
# taken at its first iterate, so that ages run from 0 to the share. "limit": as old as is ever admitted.
ALL_DELAYS = [
    ("fresh", "age", 0.0),
    ("1 release", "age", 1e-9),
    ("0.5% of the count", "age", 0.005),
    ("1%", "age", 0.01),
    ("2%", "age", 0.02),
    ("5%", "age", 0.05),
    ("10%", "age", 0.1),
    ("20%", "age", 0.2),
    ("50%", "age", 0.5),
    ("max(100 releases, 2%)", "limit", 0.02),
    ("blocks of 1%", "blocks", 0.01),
    ("blocks of 2%", "blocks", 0.02),
    ("blocks of 5%", "blocks", 0.05),
    ("blocks of 20%", "blocks", 0.2),
]


DELAYS = [delay for delay in ALL_DELAYS if delay[0] in WITHIN]
ADAPTIVE = "adaptive"


def versions(n, kind, share, floor=None):
    """At which version each of n releases takes its gradient; ``floor`` puts blocks on the publication grid."""
    count = np.arange(n)
    if kind == "blocks":
        at, start = np.empty(n, dtype=np.int64), 0
        while start < n:
            stop = min(start + max(1, int(start * share + 1e-9)), n)
            at[start:stop] = start if floor is None else newest_published(start, floor)
            start = stop
        return at
    age = np.zeros(n) if share == 0 else np.maximum(100 if kind == "limit" else 1, np.floor(count * share + 1e-9))
    return np.maximum(0, count - age).astype(np.int64)


@jit
def fold(real, whole, X, y, at, seed, levels, reals, wholes, history, first):
    """Learn from the rows of X in turn, each gradient taken at the iterate of version ``at[i]``.

    ``history`` is a ring that reaches back far enough; ``first`` releases were learned before.
    """
    d = whole[k.DIMENSION]
    state = k.state_views(real, whole)
    theta, (_, z, g, noise, payload, _) = state[0], k.record_views(real, whole)
    coins = np.zeros(3, dtype=np.uint64)
    size = history.shape[0]
    for j in range(d):
        history[first % size, j] = theta[j]
    for i in range(X.shape[0]):
        k.whiten(whole, real, X[i], z)
        old = history[at[i] % size]
        k.gradient(whole, real, old, z, y[i], g)
        simulated_gaussian(np.uint64(seed), np.int64(first + i), noise)
        row, level = reals[levels[i]], wholes[levels[i]]
        lattice.randomize(level[0], g, (row[0], row[1], level[1], np.uint64(level[2])), noise, coins, payload)
        lattice.decode(level[0], payload, row[2], g)
        whole[k.AGE] = first + i - at[i]
        k.apply(whole, real, state, old, g, row[3])
        for j in range(d):
            history[(first + i + 1) % size, j] = theta[j]


def run(settings, mechanisms, X, y, levels, at, seed):
    """The update's memory after all rows."""
    memory = Memory(settings)
    history = np.empty((len(y) + 1, X.shape[1]))
    fold(memory.real, memory.whole, X, y, at, seed, levels, *level_rows(mechanisms), history, 0)
    return memory


def long(n, mu, kinds, replications):
    """Squared errors (replications, kinds) of a linear model's long stream, drawn as it is learned."""
    settings, mechanisms = linear(mu)
    found = np.empty((replications, len(kinds)))
    for r in range(replications):
        for place, (_, kind, share) in enumerate(kinds):
            memory, history = Memory(settings), np.empty((int(1.02 * share * n) + 102, P + 1))
            start = 0
            for first in range(0, n, CHUNK):
                rng = np.random.default_rng([5000, r, first])
                m = min(CHUNK, n - first)
                X = np.column_stack([rng.normal(size=(m, P)), np.ones(m)])
                y = X.sum(axis=1) + 2 * rng.normal(size=m)
                count = np.arange(first, first + m)
                if kind == "blocks":
                    at = np.empty(m, dtype=np.int64)
                    for i in range(m):
                        if first + i >= start + max(1, int(start * share + 1e-9)):
                            start = first + i
                        at[i] = start
                else:
                    at = np.maximum(0, count - np.floor(count * share + 1e-9)).astype(np.int64)
                none = np.zeros(m, dtype=np.int64)
                fold(memory.real, memory.whole, X, y, at, r, none, *level_rows(mechanisms), history, first)
            found[r, place] = np.sum((memory.rows[k.AVERAGE] - 1.0) ** 2)
    return found


def long_table(n, budgets, replications):
    """Print errors of long streams over that of fresh gradients."""
    kinds = [delay for delay in DELAYS if delay[0] in ("fresh", "2%", "blocks of 2%")]
    for mu in budgets:
        begin = time.process_time()
        found = long(n, mu, kinds, replications)
        ratios, spread = ratio(found)
        for place, (label, _, _) in enumerate(kinds):
            error = found[:, place].mean()
            print(f"| {n:,} | {mu:g} | {label} | {error:.3g} | {ratios[place]:.3f} +- {spread[place]:.3f} |")
        print(f"<!-- {time.process_time() - begin:.0f} s -->", flush=True)


def check(device, X, y, levels):
    """This module's fold gives bit for bit what the engine does, where both can: blocks on the publication grid."""
    engine = learn(device, X, y, levels, seed=1, share=20)
    at = versions(len(y), "blocks", 0.05, device.settings.staleness.floor)
    memory = run(device.settings, list(device.mechanisms.values()), X, y, levels, at, 1)
    assert np.array_equal(memory.rows, engine.memory.rows), "the update of this benchmark is not the engine's"


def linear(mu, objective=None):
    """Settings and mechanism of a linear model with residual scale 2 (known), or of another objective."""
    objective = Huber(0.5, 2.0) if objective is None else objective
    names = (*(f"x{j}" for j in range(P)), "intercept")
    settings = Settings(objective=objective, names=names, radius=5.0, random_scaling=False, delays=ADAPTIVE)
    return settings, [calibrate("gaussian", GaussianDP(mu), dimension=settings.dimension, radius=settings.bound)]


def synthetic(kind, mu, n=100_000):
    """Standard normal features, coefficients and intercept 1; norm weights, defaults."""
    settings, mechanisms = linear(mu, Logistic() if kind == "logistic" else None)

    def replication(r):
        rng = np.random.default_rng(5000 + r)
        X = np.column_stack([rng.normal(size=(n, P)), np.ones(n)])
        fit = X.sum(axis=1)
        y = fit + 2 * rng.normal(size=n) if kind == "linear" else (rng.random(n) < 1 / (1 + np.exp(-fit))) * 1.0
        return (
            settings,
            mechanisms,
            X,
            y,
            np.zeros(n, dtype=np.int64),
            np.ones(P + 1),
            lambda memory: memory.rows[k.AVERAGE],
        )

    return replication


def demonstration():
    """The demonstration: its women in another order, its three levels at random, its polished estimate."""
    delays = "null" if ADAPTIVE is None else ADAPTIVE
    more = f"learner: {{radius: 1.5, delays: {delays}}}\npublic: {{set_aside: 5000}}\nmax_staleness: {{share: 0.5}}\n"
    task = Task.parse(f"{TASK.read_text()}protocol: gradients\nobjective: logistic\n{more}").with_simulated(True)
    blocks = list(FileSource(DATA, task).blocks(0, 65_536))
    x, y = np.concatenate([b.x for b in blocks]), np.concatenate([b.y for b in blocks])
    known = {}

    def replication(r):
        rng = np.random.default_rng(5000 + r)
        order = rng.permutation(len(x))
        aside, order = order[: task.public.set_aside], order[task.public.set_aside :]
        points, counts = np.unique(x[aside], axis=0, return_counts=True)
        device = device_for(task.with_public(points, counts.astype(np.int64)))
        levels = rng.integers(len(device.mechanisms), size=len(order))
        X, target = np.ascontiguousarray(x[order]), y[order]
        if not known:
            known["truth"] = weighted_fit(device, x, y)
            check(device, X[:50_000], target[:50_000], levels[:50_000])

        def estimate(memory):
            return inference.estimate(device.settings, [memory], device.covariates).values

        return device.settings, list(device.mechanisms.values()), X, target, levels, known["truth"], estimate

    return replication


CASES = {
    "linear, d = 5, mu = 1": (lambda: synthetic("linear", 1.0), 1),
    "linear, d = 5, mu = 2": (lambda: synthetic("linear", 2.0), 1),
    "logistic, d = 5, mu = 1": (lambda: synthetic("logistic", 1.0), 1),
    "logistic, d = 5, mu = 2": (lambda: synthetic("logistic", 2.0), 1),
    "the demonstration": (demonstration, 2),
    "linear, d = 5, mu = 8": (lambda: synthetic("linear", 8.0), 2),
    "linear, d = 5, mu = 2, n = 1,000,000": (lambda: synthetic("linear", 2.0, 1_000_000), 8),
    "linear, d = 5, mu = 8, n = 1,000,000": (lambda: synthetic("linear", 8.0, 1_000_000), 16),
}


def errors(replication, replications):
    """Squared distances to the truth, (replications, delays)."""
    found = np.empty((replications, len(DELAYS)))
    for r in range(replications):
        settings, mechanisms, X, y, levels, truth, estimate = replication(r)
        for place, (_, kind, share) in enumerate(DELAYS):
            memory = run(settings, mechanisms, X, y, levels, versions(len(y), kind, share), r)
            found[r, place] = np.sum((estimate(memory) - truth) ** 2)
    return found


def edge(replication):
    """The share of the count at which gradients are too old for these steps, by the linear theory of delays.

    ``theta' = -a theta(t - age)`` is stable while ``a age < pi / 2``. Here a is the step, which falls as
    1 / sqrt(n), times the largest curvature; the age is a share of n: the edge falls as 1 / sqrt(n).
    """
    settings, mechanisms, X, y, levels, _, _ = replication(0)
    memory = run(settings, mechanisms, X, y, levels, versions(len(y), "age", 0.0), 0)
    at, d = memory.rows[k.AVERAGE].copy(), settings.dimension
    slopes = []
    for j in range(d):
        means = []
        for shift in (-0.05, 0.05):
            moved, out = at.copy(), np.zeros((len(y), d))
            moved[j] += shift
            k.gradients(memory.real, memory.whole, moved, X, y, out)
            means.append(out.mean(axis=0))
        slopes.append((means[1] - means[0]) / 0.1)
    curvature = np.linalg.eigvals(np.array(slopes)).real.max()
    spread = 0.25 * settings.bound**2 + d * np.array([m.variance for m in mechanisms])
    precision = np.mean(1.0 / spread[levels])
    return math.pi / 2 / (curvature * k.STEP_SHARE * settings.radius * math.sqrt(precision / 2 * len(y)))


def ratio(found):
    """Mean error over that of fresh gradients, and its standard error (delta method, paired)."""
    fresh = found[:, 0].mean()
    ratios = found.mean(axis=0) / fresh
    spread = (found - ratios * found[:, :1]).std(axis=0, ddof=1)
    return ratios, spread / fresh / math.sqrt(len(found))


def draw(results, edges, path):
    """Error over that of fresh gradients, against the age and against the age over the edge."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(12, 5), sharey=True, layout="constrained")
    places = [i for i, (_, kind, share) in enumerate(DELAYS) if kind == "age" and share > 1e-6]
    shares = np.array([DELAYS[i][2] for i in places])
    for number, (title, found) in enumerate(results.items()):
        ratios, spread = ratio(found)
        # Bars only where they leave something above zero to a logarithmic axis.
        bars = np.minimum(spread[places], 0.9 * ratios[places])
        for panel, x in ((panels[0], 100 * shares), (panels[1], shares / edges[title])):
            panel.errorbar(
                x,
                ratios[places],
                bars,
                marker="os^DvPX*"[number % 8],
                markersize=5,
                capsize=2,
                linewidth=1.3,
                label=title,
            )
    panels[0].axvline(2.0, color="0.3", linestyle="--", linewidth=1, label="default limit, 2%")
    panels[0].axvline(0.5, color="0.3", linestyle=":", linewidth=1, label="widest spacing of iterates, 0.5%")
    panels[1].axvline(1.0, color="0.3", linestyle="-.", linewidth=1, label="edge by theory")
    panels[0].set_xlabel("age of every gradient, as a share of the releases learned")
    panels[1].set_xlabel("the same, over the share at the edge of stability")
    for panel in panels:
        panel.axhline(1.0, color="0.5", linewidth=0.8)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.grid(alpha=0.25)
    panels[0].set_xticks([0.5, 1, 2, 5, 10, 20, 50], ["0.5%", "1%", "2%", "5%", "10%", "20%", "50%"])
    panels[1].set_xticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
    for panel in panels:
        panel.minorticks_off()
    panels[0].set_ylabel("mean squared error / that of fresh gradients")
    handles, labels = panels[0].get_legend_handles_labels()
    edge_line, edge_label = panels[1].get_legend_handles_labels()
    figure.legend(
        [*handles, edge_line[0]],
        [*labels, edge_label[0]],
        loc="outside lower center",
        ncols=4,
        fontsize=9,
        frameon=False,
    )
    figure.savefig(path, dpi=110)


def report(results, edges):
    """Print the two tables: errors, and ratios to fresh gradients."""
    head = "| gradients | " + " | ".join(results) + " |\n|---|" + "---|" * len(results)
    print("\nMean squared distance to the truth, and its standard error:\n\n" + head)
    for place, (label, _, _) in enumerate(DELAYS):
        errors = [
            (found[:, place].mean(), found[:, place].std(ddof=1) / math.sqrt(len(found))) for found in results.values()
        ]
        print(f"| {label} | " + " | ".join(f"{error:.3g} +- {spread:.1g}" for error, spread in errors) + " |")
    print("\nThe same over that of fresh gradients, and its standard error (paired):\n\n" + head)
    pairs = [ratio(found) for found in results.values()]
    for place, (label, _, _) in list(enumerate(DELAYS))[1:]:
        cells = [_times(ratios[place], spread[place]) for ratios, spread in pairs]
        print(f"| {label} | " + " | ".join(cells) + " |")
    print("| *edge by theory* | " + " | ".join(f"*{100 * edges[title]:.2g}%*" for title in results) + " |", flush=True)


def _times(value, spread):
    digits = 3 if value < 2 else 1 if value < 10 else 0
    return f"{value:,.{digits}f} +- {spread:,.{digits}f}"


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--replications", type=int, default=80)
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument(
        "--picture", type=Path, help="where to draw; by default docs/staleness.png, if nothing is left out"
    )
    parser.add_argument("--ignore-age", action="store_true", help="steps do not depend on ages, as in older tasks")
    parser.add_argument("--long", type=int, metavar="N", help="linear models at N releases instead")
    parser.add_argument("--mu", type=float, nargs="*", default=[2.0, 8.0], help="with --long")
    parser.add_argument("--save", type=Path, help="keep the squared distances here, as .npz")
    arguments = parser.parse_args(argv)
    global ADAPTIVE, DELAYS  # what every case is made with
    if arguments.ignore_age:
        ADAPTIVE, DELAYS = None, ALL_DELAYS
    if arguments.long:
        long_table(arguments.long, arguments.mu, arguments.replications)
        return
    results, edges = {}, {}
    for title in arguments.only:
        make, divide = CASES[title]
        begin = time.monotonic()
        results[title] = errors(make(), max(2, arguments.replications // divide))
        edges[title] = edge(make())
        print(f"<!-- {title}: {len(results[title])} replications, {time.monotonic() - begin:.0f} s -->", flush=True)
    if arguments.save:
        np.savez(arguments.save, **results)
    report(results, edges)
    picture = arguments.picture or (PICTURE if len(results) == len(CASES) and arguments.ignore_age else None)
    if picture:
        draw(results, edges, picture)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
