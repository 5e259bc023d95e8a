"""The worker on the embedded log: CPU of a release, and what takes it: ``python -m benchmarks.worker``."""

import argparse
import gc
import tempfile

from benchmarks.feed import Feed
from benchmarks.on_kafka import Clock
from murk.cli.commands.learn import COLLECT
from murk.stream import Worker, open_log
from murk.stream.wire.admission import wire_rules
from murk.stream.wire.columns import Layout
from murk.stream.worker.worker import LEARN

PARTS = "make and encode", "append (FULL)", "worker"
WARM = 20_000
"""Releases before anything is measured: kernels are compiled, and blocks of 1% are no longer tiny."""


def fed(log, feed, engine, n):
    """Let a worker learn n releases; how many were measured, and the CPU and wall seconds of each part."""
    times, measured = {name: [0.0, 0.0] for name in PARTS}, 0
    with Worker(log, feed.task, engine) as worker:
        while worker.lag or engine.n_releases < n:
            size = min(max(1, engine.n_releases // 100), 4096)
            made = Clock()
            block = feed.block(engine.published()[0], size)
            made.stop()
            appended = Clock()
            log.append(block)
            appended.stop()
            worked = Clock()
            progress = worker.step()
            worked.stop()
            assert progress.learned == size, progress
            if engine.n_releases > WARM:
                measured += size
                for spent, clock in zip(times.values(), (made, appended, worked), strict=True):
                    spent[0] += clock.cpu
                    spent[1] += clock.wall
    return measured, times


def learned(n):
    """Microseconds of CPU that a worker on a log of its own takes for a release."""
    gc.set_threshold(*COLLECT)  # as `murk learn` does
    feed = Feed()
    with tempfile.TemporaryDirectory() as folder, open_log(f"sqlite:///{folder}/log.db") as log:
        log.register_task(feed.task.document())
        measured, times = fed(log, feed, feed.device.engine(), n)
    return 1e6 * times["worker"][0] / measured


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--releases", type=int, default=200_000)
    n = parser.parse_args(argv).releases
    gc.set_threshold(*COLLECT)  # as `murk learn` does
    feed = Feed()
    with tempfile.TemporaryDirectory() as folder, open_log(f"sqlite:///{folder}/log.db") as log:
        log.register_task(feed.task.document())
        engine = feed.device.engine()
        measured, times = fed(log, feed, engine, n)
        print(f"{measured:,} releases of 10 numbers, one partition, blocks of 1% of the count (at most 4096)\n")
        for name, (cpu, wall) in times.items():
            print(
                f"  {name:18s} {cpu / measured * 1e6:7.2f} us of CPU a release   {wall / measured * 1e6:7.2f} us in all"
            )

        # The worker's own parts, one after another, on the same messages.
        end, size = log.end(0), 4096
        first = max(log.begin(0), end - 40 * size)
        layout = Layout(wire_rules(feed.task, engine.admission))
        read = decoded = learned = 0.0
        count = 0
        for offset in range(first, end, size):
            clock = Clock()
            messages = log.fetch(0, offset, size).messages
            read += clock.stop().cpu
            clock = Clock()
            blocks = [
                layout.read(messages.rows(at, min(at + LEARN, len(messages)))) for at in range(0, len(messages), LEARN)
            ]
            decoded += clock.stop().cpu
            assert sum(map(len, blocks)) == len(messages)
            for block in blocks:
                # As many at once as the worker learns. What is learned, also of this block, makes an engine forget its
                # oldest iterates: only of the newer half.
                remembered = sorted(map(int, engine.memory.ring_versions))
                if set(block.column("version").tolist()).issubset(remembered[len(remembered) // 2 :]):
                    clock = Clock()
                    engine.learn_releases(block)
                    learned += clock.stop().cpu
                    count += len(block)
        total = end - first
        print("\nof the worker's CPU:")
        print(f"  read from SQLite   {read / total * 1e6:7.2f} us")
        print(f"  decode and check   {decoded / total * 1e6:7.2f} us")
        if count:
            print(f"  learn              {learned / count * 1e6:7.2f} us")
        print("  the rest: duplicates, admission, and the commit of state and offset, one a block")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
