"""CPU of one release of a device beyond a bare commit: ``python -m benchmarks.release``."""

import argparse
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.speed import Deaf
from murk import Task
from murk.producers import Ledger, Producer
from murk.stream import open_log

WARM, EACH = 300, 300
"""Releases before the first turn, and of each."""
LONG = 6_000
"""Releases after which every kernel has been compiled."""
BYTES = 300
median = statistics.median


def task_of(protocol):
    """Nine numbers and a binary target: ten coefficients."""
    numbers = ", ".join(f"{{name: x{i}, low: -1, high: 1}}" for i in range(9))
    return Task.parse(
        f"""
        name: release
        features: [{numbers}]
        target: {{name: y, kind: binary, positive: "yes"}}
        privacy: {{guarantee: {{gdp: {{mu: 1.0}}}}}}
        protocol: {protocol}
        """
    )


def measured(protocol, rounds, warm=WARM):
    """Microseconds of CPU of a release, and of a bare commit of as many bytes, in turns."""
    task, record = task_of(protocol), {**{f"x{i}": 0.5 for i in range(9)}, "y": "yes"}
    releases, commits, made = [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        bare = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        bare.execute("PRAGMA journal_mode = WAL")
        bare.execute("PRAGMA synchronous = FULL")
        bare.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v BLOB)")
        with open_log(f"sqlite:///{folder}/log.db") as log, Ledger(Path(folder) / "ledger.db") as ledger:
            log.register_task(task.document())
            producer = Producer(task, Deaf(log), ledger)

            def release(count):
                nonlocal made
                for _ in range(count):
                    made += 1
                    producer.release(record, person=f"p{made}")

            def commit(count):
                for _ in range(count):
                    bare.execute("INSERT INTO t (v) VALUES (?)", (b"x" * BYTES,))

            release(warm)
            for _ in range(rounds):
                releases.append(cpu(release))
                commits.append(cpu(commit))
        bare.close()
    return releases, commits


def median_beyond(releases, commits):
    """Of the turns' differences."""
    return median(one - bare for one, bare in zip(releases, commits, strict=True))


def cpu(work):
    start = time.process_time()
    work(EACH)
    return 1e6 * (time.process_time() - start) / EACH


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--protocols", nargs="*", default=["scores", "gradients"])
    parser.add_argument("--warm", type=int, default=WARM, help=f"releases before; {LONG}: with every kernel compiled")
    chosen = parser.parse_args(argv)
    for protocol in chosen.protocols:
        releases, commits = measured(protocol, chosen.rounds, chosen.warm)
        print(
            f"Producer.release of {protocol}: {median(releases):.0f} us of CPU, a bare commit {median(commits):.0f}, "
            f"beyond it {median_beyond(releases, commits):.0f}",
            flush=True,
        )


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
