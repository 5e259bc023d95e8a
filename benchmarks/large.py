"""What works with 100, 1,000 and 10,000 coded features, by protocol: ``python -m benchmarks.large``.

For each a process of its own: what the task is refused for, or the CPU time of making a device, of a release on a
device (vector, noise, message) and of learning it, the size of a release, of a model and of a partition's state, and
the process's largest memory.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import numpy as np

from murk import Task
from murk.errors import MurkError
from murk.privacy.noise import SimulatedNoise, identifiers
from murk.protocols.device import device_for
from murk.stream.wire.codec import encode
from murk.stream.wire.releases import KINDS

SIZES = (100, 1_000, 10_000)
CASES = {
    "gradients": ("gradients", "gdp: {mu: 4.0}", ""),
    "gradients, max_staleness of 20": ("gradients", "gdp: {mu: 4.0}", "max_staleness: {releases: 20}\n"),
    "scores": ("scores", "gdp: {mu: 4.0}", ""),
    "examples": ("examples", "gdp: {mu: 4.0}", ""),
    "examples: outer": ("examples", "gdp: {mu: 4.0}", "examples: {release: outer}\n"),
    "examples: joint": ("examples", "gdp: {mu: 4.0}", "examples: {release: joint}\n"),
    "moments": ("moments", "gdp: {mu: 4.0}", ""),
    "scores once, public rows": (
        "scores",
        "gdp: {mu: 4.0}",
        "scores: {interactive: false}\npublic: {set_aside: 2000}\n",
    ),
    "summaries": ("summaries", "approx: {epsilon: 1.0, delta: 1.0e-6}", ""),
}
COLUMNS = (
    "protocol", "coded features", "made (s)", "device (us)", "learner (us)", "release (KB)", "model (KB)", "state (KB)",
    "MiB",
)  # fmt: skip
RELEASES, TURNS = 16, 4
"""Releases of a turn, fewer than any task's remembered iterates; and turns measured."""
COMPILED, MOST = 2_000_000, 300
"""Numbers that go before, after which every kernel is compiled; and in how many turns at the most."""


def task_of(case, features):
    """A task of so many coded features, the constant among them."""
    protocol, guarantee, more = CASES[case]
    columns = ", ".join(f"{{name: x{i}, low: -1, high: 1}}" for i in range(features - 1))
    task = Task.parse(
        f"name: large\nfeatures: [{columns}]\ntarget: {{name: y, kind: binary, positive: 'yes'}}\n"
        f"privacy: {{guarantee: {{{guarantee}}}}}\nprotocol: {protocol}\n{more}"
    ).with_simulated(True)
    if "public rows" in case:
        rng = np.random.default_rng(1)
        points = np.column_stack([rng.uniform(-1, 1, (2_000, features - 1)), np.ones(2_000)])
        task = task.with_public(points, np.ones(2_000, dtype=np.int64))
    return task


def measured(case, features):
    """One line of the table, as a dictionary."""
    start = time.process_time()
    task = task_of(case, features)
    device = device_for(task)
    device.check_state()
    found = {"made": time.process_time() - start}
    engine = device.engine()
    found["state"] = len(json.dumps(engine.state_dict()))
    if task.of_organisations:
        return found
    rng = np.random.default_rng(1)
    mechanism, kind, noise = device.mechanisms["default"], KINDS[device.kind], SimulatedNoise(1)
    device, learner = [], []
    asking = hasattr(device, "queries")
    for turn in range(TURNS + min(MOST, COMPILED // (RELEASES * device.dimension))):
        X = np.column_stack([rng.uniform(-1, 1, (RELEASES, features - 1)), np.ones(RELEASES)])
        y = (rng.random(RELEASES) < 0.5) * 1.0
        start = time.process_time()
        if asking:
            mechanism = device.mechanism("default", "score")
        version, theta = engine.published() if device.interactive else (0, None)
        V = device.vectors(X, y, None if theta is None else np.array(theta))
        rows = np.arange(turn * RELEASES, (turn + 1) * RELEASES)
        payloads = mechanism.randomize(V, noise, rows).tolist()
        more = {"version": version} if "version" in kind.model_fields else {}
        if asking:
            more["query"] = "score"
        releases = [
            kind(
                id=name, task=task.hash, level="default", partition=0, payload=payload, time=0, expires=1,
                simulated=True,
                **more,
            )
            for name, payload in zip(identifiers(noise, rows), payloads, strict=True)
        ]  # fmt: skip
        messages = [encode(release) for release in releases]
        device.append(time.process_time() - start)
        start = time.process_time()
        engine.learn_releases(releases)
        learner.append(time.process_time() - start)
    device, learner = (statistics.median(each[-TURNS:]) / RELEASES for each in (device, learner))
    found |= {"release": max(map(len, messages)), "device": device, "learner": learner}
    found["state"] = len(json.dumps(engine.state_dict()))
    published = engine.published() if device.interactive else None
    found["model"] = len(json.dumps(published[1])) if published else 0
    return found


def row(case, features, seconds):
    """One line of the table; measured in a process of its own, which may be stopped."""
    command = [sys.executable, "-m", "benchmarks.large", "--case", case, "--features", str(features)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        found = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {"refused": done.stderr[-200:]}
    except subprocess.TimeoutExpired:
        found = {"refused": f"(stopped after {seconds} s)"}
    if "refused" in found:
        return f"| {case} | {features:,} | {found['refused']} |"
    sizes = [f"{found.get(name, 0) / 1e3:,.1f}" for name in ("release", "model", "state")]
    times = [f"{1e6 * found.get(name, 0):,.0f}" for name in ("device", "learner")]
    return f"| {case} | {features:,} | {found['made']:.1f} | {' | '.join(times + sizes)} | {found['memory']:.0f} |"


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=list(CASES))
    parser.add_argument("--features", type=int)
    parser.add_argument("--seconds", type=int, default=120, help="most that a case may take")
    given = parser.parse_args(argv)
    if given.case and given.features:
        try:
            found = measured(given.case, given.features)
        except MurkError as error:
            found = {"refused": str(error)}
        found["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(found))
        return
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for case in [given.case] if given.case else CASES:
        for features in [given.features] if given.features else SIZES:
            print(row(case, features, given.seconds), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
