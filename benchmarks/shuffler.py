"""The shuffler's throughput: ``python -m benchmarks.shuffler``.

Releases of scores on an embedded log, in crowds of a given size: CPU and wall time of a release, beside those of the
worker that learns them from the log of releases in the same run. ``--releases``, ``--crowds``.
"""

import argparse
import gc
import tempfile
import time
from pathlib import Path

from benchmarks.on_kafka import Clock
from murk.cli.commands.learn import COLLECT
from murk.learners.problem import problem_for
from murk.shuffler.shuffler import Shuffler
from murk.shuffler.store import Store
from murk.stream import Task, Worker, open_log
from murk.stream.log.base import truncate_time
from murk.stream.messages.codec import encode
from murk.stream.messages.releases import ScoreRelease

TASK = """
name: throughput
features: [{{name: a, low: 0, high: 1}}, {{name: b, low: 0, high: 1}}, {{name: c, low: 0, high: 1}}]
target: {{name: y, kind: binary, positive: "yes", negative: "no"}}
privacy: {{guarantee: {{pure: {{epsilon: 4.0}}}}}}
shuffle: {{crowd: {crowd}, promise: {{delta: 1.0e-6}}}}
duplicates: {window}
"""
BLOCK = 4_096


def message(task, number, now):
    """A release with a payload of four numbers, as devices send them to a task of three features."""
    return encode(
        ScoreRelease(
            id=f"{number:032x}", task=task.hash, level="default", chain=0, version=0, question="score",
            payload=[number % 1_000 - 500, 3, -4, 5], time=now, expires=now + task.expiry,
        )
    )  # fmt: skip


def measured(releases, crowd):
    """Releases in crowds, and CPU and wall seconds of shuffler and worker."""
    task = Task.parse(TASK.format(crowd=crowd, window=max(65_536, crowd)))
    problem = problem_for(task)
    with tempfile.TemporaryDirectory() as place, ExitLogs(Path(place), task) as (intake, log):
        now = truncate_time(time.time(), task.granularity)
        for begin in range(0, releases, BLOCK):
            intake.append([(0, message(task, n, now)) for n in range(begin, min(begin + BLOCK, releases))])
        with Shuffler(intake, log, task, problem, Store(Path(place) / "store")) as shuffler:
            clock = Clock()
            while not shuffler.step().idle:
                pass
            shuffled = clock.stop()
            totals = shuffler.totals
            released = totals.released
            assert released + totals.waiting == releases, totals
        with Worker(log, task, problem.engine()) as worker:
            clock = Clock()
            while worker.step().read:
                pass
            learned = clock.stop()
            assert worker.counters.learned == released, (worker.counters, released)
    return released, shuffled, learned


class ExitLogs:
    """An intake and a log of releases in a folder."""

    def __init__(self, folder, task):
        self.logs = [open_log(f"sqlite:///{folder}/{name}.db") for name in ("intake", "log")]
        for log in self.logs:
            log.register_task(task.document())

    def __enter__(self):
        return self.logs

    def __exit__(self, *error):
        for log in self.logs:
            log.close()


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--releases", type=int, default=200_000)
    parser.add_argument("--crowds", type=int, nargs="*", default=[2_000, 20_000, 200_000])
    options = parser.parse_args(argv)
    gc.set_threshold(*COLLECT)  # as `murk learn` does
    measured(20_000, 2_000)  # kernels are compiled
    print("us a release (CPU, in all)\n")
    print("  crowd     shuffler: CPU, wall   worker: CPU, wall   shuffler / worker (CPU)")
    for crowd in options.crowds:
        released, shuffled, learned = measured(options.releases, crowd)
        each = [1e6 * value / released for value in (shuffled.cpu, shuffled.wall, learned.cpu, learned.wall)]
        print(f"  {crowd:9,} {each[0]:7.1f} {each[1]:7.1f} {each[2]:7.1f} {each[3]:7.1f}   {each[0] / each[2]:7.2f}")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
