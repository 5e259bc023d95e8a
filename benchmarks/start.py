"""CPU time of commands from their start, cold and warm: ``python -m benchmarks.start``.

Cold is without any compiled kernel in numba's cache. Python's own compiled modules are there: an installation has them.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from murk.demo import DATA
from murk.demo import TASK as DEMO

TASK = """
name: start
features: [{name: a, low: 0, high: 1}, {name: b, low: 0, high: 1}, {name: c, low: 0, high: 1}]
target: {name: y, kind: binary, positive: "yes"}
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""
ROUNDS = 5


def spent(arguments: list[str], folder: str, kernels: str) -> tuple[float, float]:
    """CPU and wall seconds of a command."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments], cwd=folder, env={**os.environ, "NUMBA_CACHE_DIR": kernels}, check=True,
        capture_output=True,
    )  # fmt: skip
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def run(protocol: str, cold: bool) -> tuple[float, float]:
    """What ``murk run`` on 1,000 rows costs."""
    rng = np.random.default_rng(0)
    text = TASK + (f"protocol: {protocol}\n" if protocol else "")
    rows = [f"{a:.4f},{b:.4f},{c:.4f},{'yes' if a > rng.random() else 'no'}\n" for a, b, c in rng.random((1_000, 3))]
    with tempfile.TemporaryDirectory() as kernels:
        found = []
        for _ in range(1 if cold else 2):
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "task.yaml").write_text(text)
                (Path(folder) / "rows.csv").write_text("a,b,c,y\n" + "".join(rows))
                how = ["-m", "murk", "run", "task.yaml", "--source", "rows.csv", "--seed", "1"]
                found.append(spent(how, folder, kernels))
        return found[-1]


def demonstrated() -> tuple[float, float]:
    """CPU and wall seconds of a warm ``murk run`` of the demonstration's people, with a log and a ledger on disk."""
    with tempfile.TemporaryDirectory() as kernels:
        for _ in range(2):
            with tempfile.TemporaryDirectory() as folder:
                how = ["-m", "murk", "run", str(DEMO), "--source", str(DATA), "--level", "lot", "--seed", "1", "--json"]
                found = spent([*how, "--log", "sqlite:///log.db", "--ledger", "ledger.db"], folder, kernels)
        return found


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", action="store_true", help="the demonstration alone, warm")
    if parser.parse_args(argv).demo:
        cpu, wall = demonstrated()
        print(f"murk run of the demonstration, warm: {cpu:.2f} s CPU {wall:.2f} s wall")
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = {
            "python -c pass": lambda: spent(["-c", "pass"], folder, folder),
            "murk --help": lambda: spent(["-m", "murk", "--help"], folder, folder),
        }
        for protocol in ("", "gradients", "examples", "moments", "summaries"):
            for cold in (True, False):
                name = f"murk run, 1,000 rows, {protocol or 'scores (the default)'}, {'cold' if cold else 'warm'}"
                rows[name] = lambda protocol=protocol, cold=cold: run(protocol, cold)
        for name, command in rows.items():
            found = [command() for _ in range(ROUNDS)]
            cpu, wall = (statistics.median(column) for column in zip(*found, strict=True))
            print(f"{name:52s} {cpu:7.2f} s CPU {wall:7.2f} s wall", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
