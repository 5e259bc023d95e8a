"""Speed as ratios against peers in the same run: ``python -m benchmarks.speed``."""

import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numba import njit
from river.linear_model import LogisticRegression

from benchmarks.opendp_peer import draw
from benchmarks.timing import compare
from murk.learners import IWPSGDClassifier, LDPSGDClassifier, PublicGLMClassifier, ScoreClassifier
from murk.privacy import GaussianDP
from murk.privacy.mechanisms.lattice import quantise_l2
from murk.privacy.noise import LATTICE_WIDTH, SecureNoise
from murk.privacy.noise.kernels import simulated_gaussian

D = 10
NAMES = [f"x{i}" for i in range(D)]


@njit(error_model="numpy")
def bare_loop(X, y, seed, bound, spacing, steps, radius, variance):
    """The arithmetic of one LDP-SGD step and its noise draws, with nothing around them.

    The certified quantisation is part of that arithmetic. What is left out is what makes it a learner: a choice
    of objective, weights, steps, averaging and mechanism, published versions, a state that can be taken.
    """
    n, p = X.shape
    theta, average, a, b = np.zeros(p), np.zeros(p), np.zeros(p), np.zeros(p)
    at, mean = np.zeros(p), np.zeros(p)
    g, noise, q = np.zeros(p), np.zeros(p, dtype=np.int64), np.zeros(p, dtype=np.int64)
    spread = weights = squares = 0.0
    v = bound * bound / 4 + p * variance
    for i in range(n):
        simulated_gaussian(seed, i, noise)
        fit = square = 0.0
        for j in range(p):
            fit += theta[j] * X[i, j]
            square += X[i, j] * X[i, j]
        slope = (1 / (1 + np.exp(-fit)) - y[i]) / max(1.0, np.sqrt(square))
        for j in range(p):
            g[j] = slope * X[i, j]
        quantise_l2(g, spacing, steps, q)
        for j in range(p):
            g[j] = (q[j] + noise[j]) * spacing
        w = 1 / v
        weights += w
        spread += w * w * v
        step = radius * w / np.sqrt(8 * spread)
        length = 0.0
        for j in range(p):
            at[j] += w / weights * (theta[j] - at[j])
            mean[j] += w / weights * (g[j] - mean[j])
            theta[j] -= step * g[j]
            length += theta[j] * theta[j]
        if length > radius * radius:
            for j in range(p):
                theta[j] *= radius / np.sqrt(length)
        t = i + 1.0
        squares += t * t
        for j in range(p):
            average[j] += (theta[j] - average[j]) / t
            a[j] += t * t * average[j] * average[j]
            b[j] += t * t * average[j]
    return average


def row(what: str, ours: float, peer: float, ratio: float, least: float, unit: str) -> None:
    verdict = "" if ratio >= least else "   BELOW"
    print(f"{what:66s} {ours:8.3f} {peer:9.3f} {unit:9s} ratio {ratio:7.2f}  (at least {least:g}){verdict}", flush=True)


def learning() -> Iterator[tuple[str, float, float, float, float]]:
    """What one record costs each learner: title, microseconds, River's, how many times as fast, and the goal."""
    rng = np.random.default_rng(0)
    n = 20_000
    X = rng.uniform(-1, 1, (n, D))
    y = rng.random(n) < 0.5
    records = [dict(zip(NAMES, map(float, x), strict=True)) for x in X]
    labels = y.tolist()

    def learner(kind, seed, **more):
        model = kind(guarantee=GaussianDP(1.0), seed=seed, features=NAMES, **more)

        def learn():
            for x, label in zip(records, labels, strict=True):
                model.learn_one(x, label)

        return learn

    river = LogisticRegression()

    def learn_river():
        for x, label in zip(records, labels, strict=True):
            river.learn_one(x, label)

    for what, seed, least in (("simulated", 1, 2.3), ("secure", None, 1.5)):
        a, b, r = compare(learner(LDPSGDClassifier, seed), learn_river)
        yield f"learn_one, {what} noise / River LogisticRegression", a / n * 1e6, b / n * 1e6, r, least
    shown = [dict(zip(NAMES, x, strict=True)) for x in rng.uniform(-1, 1, (200, D))]
    for what, kind, more in (
        ("examples, directions", IWPSGDClassifier, {"release": "directions"}),
        ("examples, joint", IWPSGDClassifier, {"release": "joint"}),
        ("examples, as by default", IWPSGDClassifier, {}),
        ("scores, once", ScoreClassifier, {"interactive": False, "public": shown}),
        ("moments, as by default", PublicGLMClassifier, {"public": shown}),
        ("moments, joint", PublicGLMClassifier, {"release": "joint"}),
        ("scores, the default", ScoreClassifier, {}),
    ):
        for noise, seed in (("simulated", 1), ("secure", None)):
            a, b, r = compare(learner(kind, seed, **more), learn_river)
            yield f"learn_one of {what}, {noise} noise / River", a / n * 1e6, b / n * 1e6, r, 2.0


def main(argv: list[str]) -> None:
    print(f"{'':66s} {'ours':>8s} {'peer':>9s}")
    for figures in learning():
        row(*figures, "us")

    rng = np.random.default_rng(0)
    many = 1_000_000
    big, big_y = rng.normal(size=(many, D)), rng.random(many) < 0.5
    model = LDPSGDClassifier(guarantee=GaussianDP(1.0), seed=1, radius=3.0)
    model.learn_many(big[:10], big_y[:10])
    coded, codes = np.column_stack([big, np.ones(many)]), big_y.astype(float)
    mechanism = model._default

    def bare():
        bare_loop(
            coded, codes, np.uint64(1), mechanism.radius, mechanism.spacing, mechanism.steps, 3.0, mechanism.variance
        )

    def learn_many():
        # What a user calls on an array; the update itself, without turning labels into codes, follows.
        model.learn_many(big, big_y)

    a, b, r = compare(learn_many, bare, rounds=5)
    row("learn_many, 10^6 rows / bare compiled loop", a / many * 1e6, b / many * 1e6, r, 0.9, "us")

    ours = SecureNoise()
    one = np.zeros(1, dtype=np.int64)
    block = np.zeros(4096, dtype=np.int64)
    a, b, r = compare(lambda: repeat(ours, one, 300), lambda: [draw("gaussian", LATTICE_WIDTH, D) for _ in range(300)])
    row("secure noise, one vector of 10 / OpenDP", a / 300 * 1e6, b / 300 * 1e6, r, 20, "us")
    a, b, r = compare(lambda: repeat(ours, block, 3), lambda: draw("gaussian", LATTICE_WIDTH, 256 * D), rounds=5)
    a, b, r = a / 3 / 40960 * 1e6, b / 2560 * 1e6, r * 3 * 16
    row("secure noise, a number, in blocks of 4096 x 10 / OpenDP", a, b, r, 100, "us")

    for title, deaf in (("ledger and outbox", True), ("and append to a SQLite log", False)):
        release, commit, ratio = producer(deaf)
        least = 0.5 if deaf else 0.25
        row(f"Producer.release, {title} / one bare FULL commit (wall)", release * 1e6, commit * 1e6, ratio, least, "us")


def repeat(source, records, times):
    for _ in range(times):
        source.gaussian(records, D)


class Deaf:
    """A log that takes releases without writing them: a broker elsewhere."""

    def __init__(self, log):
        self._log = log

    def __getattr__(self, name):
        return getattr(self._log, name)

    def append(self, batch):
        pass


def producer(deaf: bool, rounds: int = 9, each: int = 200) -> tuple[float, float, float]:
    """Median wall seconds of one release, of one bare commit with FULL on the same disk in turns, and their ratio."""
    from murk import Task
    from murk.producers import Ledger, Producer
    from murk.stream import open_log

    text = """
    name: speed
    features: [{name: a, low: 0, high: 1}, {name: b, low: 0, high: 1}, {name: c, low: 0, high: 1}]
    target: {name: y, kind: binary, positive: "yes"}
    privacy: {guarantee: {gdp: {mu: 1.0}}}
    protocol: gradients
    """
    task = Task.parse(text)
    releases, commits = [], []
    with tempfile.TemporaryDirectory() as folder:
        bare = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        bare.execute("PRAGMA journal_mode=WAL")
        bare.execute("PRAGMA synchronous=FULL")
        bare.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v BLOB)")
        log_path = Path(folder) / "log.db"
        with open_log(f"sqlite:///{log_path}") as log, Ledger(Path(folder) / "ledger.db") as ledger:
            log.register_task(task.document())
            sender = Producer(task, Deaf(log) if deaf else log, ledger)
            person = 0
            for _ in range(rounds):
                start = time.perf_counter()
                for _ in range(each):
                    person += 1
                    sender.release({"a": 0.1, "b": 0.2, "c": 0.9, "y": "yes"}, person=f"p{person}")
                releases.append((time.perf_counter() - start) / each)
                start = time.perf_counter()
                for _ in range(each):
                    bare.execute("INSERT INTO t (v) VALUES (?)", (b"x" * 300,))
                commits.append((time.perf_counter() - start) / each)
        bare.close()
    ratios = sorted(b / a for a, b in zip(releases, commits, strict=True))
    return sorted(releases)[rounds // 2], sorted(commits)[rounds // 2], ratios[rounds // 2]


if __name__ == "__main__":
    main([])
