"""What a random order of a file's people costs: ``python -m benchmarks.order``.

``murk run`` on the same generated file, in the file's order and in a random one, each in a process of its own: the
processor's seconds and the peak of memory, of the whole run and of reading alone (every block coded, nothing released).
``--people`` for other numbers, ``--forms`` for other files.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

TASK = """
name: order
features: [{name: age, low: 0, high: 100}, {name: sex, categories: ["f", "m"]}, {name: income, low: 0, high: 100000}]
target: {name: y, kind: binary, positive: "yes", negative: "no"}
privacy: {guarantee: {gdp: {mu: 2.0}}}
"""


def write(path: Path, people: int) -> None:
    """Write a file of people, sorted by age."""
    rng = np.random.default_rng(1)
    age = np.sort(rng.uniform(0, 100, people)).round(2)
    sex, income = rng.choice(["f", "m"], people), rng.uniform(0, 1e5, people).round(2)
    y = np.where(rng.random(people) < 1 / (1 + np.exp(-(age - 50) / 20)), "yes", "no")
    import pandas as pd

    frame = pd.DataFrame({"age": age, "sex": sex, "income": income, "y": y})
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    elif ".jsonl" in path.name:
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False)


def once(path: Path, order: str, what: str) -> None:
    """Work through a file and print seconds and the peak of memory, in MB."""
    import murk
    from murk import Task
    from murk.populations.file_source import FileSource
    from murk.populations.order import key_of_seed

    task = Task.parse(TASK)
    start = resource.getrusage(resource.RUSAGE_SELF)
    if what == "run":
        murk.run(task, path, seed=1, order=order)
    else:
        source = FileSource(path, task)
        assert source.size
        key = key_of_seed(1) if order == "random" else None
        for _ in source.blocks_in_order(key, 0, 4096):
            pass
    end = resource.getrusage(resource.RUSAGE_SELF)
    # The peak that `getrusage` knows includes that of the process before it was replaced.
    [peak] = re.findall(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    print(end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime, int(peak) / 1024)


def measured(path: Path, order: str, what: str) -> tuple[float, float]:
    """Return seconds and MB of `once` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.order", "--once", str(path), order, what]
    seconds, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(seconds), float(peak)


def main(argv: list[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--forms", nargs="+", default=["csv", "csv.gz", "jsonl", "parquet"])
    parser.add_argument("--what", nargs="+", default=["reading", "run"], choices=["reading", "run"])
    parser.add_argument("--once", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.once:
        once(Path(given.once[0]), *given.once[1:])
        return
    print("| people | file | what | file's order: s, MB | random order: s, MB | ratio |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for people in given.people:
            for form in given.forms:
                path = Path(folder) / f"people.{form}"
                write(path, people)
                for what in given.what:
                    (plain, small), (drawn, large) = (measured(path, order, what) for order in ("file", "random"))
                    cells = f"{plain:.1f}, {small:.0f} | {drawn:.1f}, {large:.0f} | {drawn / plain:.2f}"
                    print(f"| {people:,} | {form} | {what} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
