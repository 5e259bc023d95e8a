"""CPU of a monitor under load, and what it costs learners: ``python -m benchmarks.monitor_load [--beside]``.

So many partitions of gradients commit a new state between two polls, and the metrics are scraped once a second. Printed
are the CPU of a poll, of a poll that finds nothing new, and of a scrape; and, with ``--profile``, what a poll spends it
on.

With ``--beside`` ``murk monitor`` is a process of its own, looked at every second, and paused (SIGSTOP) in every other
turn: printed are the CPU that the workers take for a release and how long an append to the log takes, with it and
without it.
"""

import argparse
import cProfile
import pstats
import signal
import statistics
import tempfile
import time

import numpy as np

from benchmarks.feed import Feed
from benchmarks.memory import monitored, seconds_of
from murk import Task
from murk.monitoring import Monitor
from murk.stream import Worker, open_log

BLOCK = 16
"""Releases of a partition at a time, at most the age that the task allows."""


def written(features, partitions):
    columns = ", ".join(f"{{name: x{i}, low: -1, high: 1}}" for i in range(features - 1))
    return (
        f"name: load\nfeatures: [{columns}]\ntarget: {{name: y, kind: binary, positive: 'yes'}}\n"
        "privacy: {guarantee: {gdp: {mu: 4.0}}}\nprotocol: gradients\nmax_staleness: {releases: 20}\n"
        f"granularity: 1s\nexpiry: 30s\nlog: {{partitions: {partitions}}}\n"
    )


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--polls", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--beside", action="store_true", help="what it costs learners")
    parser.add_argument("--turns", type=int, default=6, help="of each kind, with --beside")
    parser.add_argument("--seconds", type=float, default=12.0, help="of a turn, with --beside")
    given = parser.parse_args(argv)
    text = written(given.features, given.partitions)
    task = Task.parse(text).with_simulated(True)
    with tempfile.TemporaryDirectory() as folder, open_log(f"sqlite:///{folder}/log.db") as log:
        log.register_task(task.document())
        print(f"{given.partitions} partitions, {given.features:,} coded features:")
        partitions = Partitions(log, task)
        if given.beside:
            beside(partitions, folder, text, given.turns, given.seconds)
        else:
            alone(partitions, given.polls, given.profile)
        partitions.close()


class Partitions:
    """A worker for each partition, all in this process, and their people."""

    def __init__(self, log, task):
        self.log, self.task, self._feed = log, task, Feed(task)
        self._engines = [self._feed.device.engine() for _ in range(task.log.partitions)]
        self._workers = [
            Worker(log, task, engine, partition=partition) for partition, engine in enumerate(self._engines)
        ]

    def step(self, count):
        """Let all partitions learn so many releases each: the workers' CPU, and each append's time."""
        used, appends = 0.0, []
        for partition, worker in enumerate(self._workers):
            block = self._feed.block(self._engines[partition].published()[0], count, partition)
            start = time.perf_counter()
            self.log.append(block)
            appends.append(time.perf_counter() - start)
            start = time.thread_time()
            assert worker.step().learned == count
            used += time.thread_time() - start
        self.log.trim(time.time() - 30.0)  # a task may not ask for less than its expiry and a day
        return used, appends

    def close(self):
        for worker in self._workers:
            worker.close()


def alone(partitions, polls, profiled):
    """CPU of a monitor in this process."""
    from prometheus_client.exposition import generate_latest

    monitor, profile = Monitor(partitions.log, partitions.task), cProfile.Profile()
    busy, idle, scrapes = [], [], []
    for _ in range(polls):
        partitions.step(2)
        profile.enable()
        busy.append(cpu(monitor.poll))
        profile.disable()
        idle.append(cpu(monitor.poll))
        scrapes.append(cpu(lambda: generate_latest(monitor.registry)))
    for name, found in (
        ("a poll of all partitions", busy),
        ("a poll that finds nothing new", idle),
        ("a scrape", scrapes),
    ):
        print(f"    {name:30s} {1e3 * np.median(found):8.1f} ms of CPU (median of {polls})")
    if profiled:
        pstats.Stats(profile).sort_stats("tottime").print_stats(18)


def beside(partitions, folder, text, turns, seconds):
    """What workers and appends take in turns with a monitor beside them, and with it paused."""
    found, share = {"with": [], "paused": []}, []
    partitions.step(BLOCK)  # compiles
    with monitored(folder, text) as both:
        for _ in range(turns):
            for name, sent in (("with", signal.SIGCONT), ("paused", signal.SIGSTOP)):
                for process in both:
                    process.send_signal(sent)
                start, before = time.monotonic(), seconds_of(both[0].pid)
                used, appends, released = 0.0, [], 0
                while time.monotonic() - start < seconds:
                    more, times = partitions.step(BLOCK)
                    used, appends, released = used + more, appends + times, released + BLOCK * len(times)
                found[name].append((1e6 * used / released, 1e3 * statistics.median(appends), 1e3 * late(appends)))
                if name == "with":
                    share.append((seconds_of(both[0].pid) - before) / (time.monotonic() - start))
    figures = ("CPU of a release in the worker (us)", "an append (ms)", "nine appends in ten within (ms)")
    for number, figure in enumerate(figures):
        ours, held = ([each[number] for each in found[name]] for name in ("with", "paused"))
        ratios = [a / b for a, b in zip(ours, held, strict=True)]
        print(
            f"    {figure:40s} beside a monitor {statistics.median(ours):8.2f}   "
            f"it paused {statistics.median(held):8.2f}   "
            f"ratio {statistics.median(ratios):5.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    print(f"    the monitor took {statistics.median(share):.1%} of a core (medians of {turns} turns of {seconds:g} s)")


def late(times):
    return sorted(times)[9 * len(times) // 10]


def cpu(do):
    start = time.process_time()
    do()
    return time.process_time() - start


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
