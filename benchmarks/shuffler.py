"""The shuffler's throughput and memory: ``python -m benchmarks.shuffler``.

Releases of scores in crowds of a given size: CPU and wall time of a release, beside those of the worker that learns
them from the log of releases in the same run. ``--kafka`` has both logs on a broker of its own, otherwise they are
files. ``--memory`` shuffles in a process of its own and prints, as releases come in, its largest resident memory and
the size of the store. ``--releases``, ``--crowds``.
"""

import argparse
import gc
import multiprocessing
import resource
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.on_kafka import Clock
from deploy.broker import Broker
from murk import Task
from murk.cli.commands.learn import COLLECT
from murk.protocols.device import device_for
from murk.shuffler.shuffler import Shuffler
from murk.shuffler.store import Store
from murk.stream import Worker, open_log
from murk.stream.log.interface import truncate_time
from murk.stream.wire.codec import encode
from murk.stream.wire.releases import ScoreRelease

TASK = """
name: throughput
features: [{{name: a, low: 0, high: 1}}, {{name: b, low: 0, high: 1}}, {{name: c, low: 0, high: 1}}]
target: {{name: y, kind: binary, positive: "yes", negative: "no"}}
privacy: {{guarantee: {{pure: {{epsilon: 4.0}}}}}}
shuffle: {{crowd: {crowd}, promise: {{delta: 1.0e-6}}}}
duplicates: {window}
"""
BLOCK = 4_096


def task_of(crowd):
    return Task.parse(TASK.format(crowd=crowd, window=max(65_536, crowd)))


def message(task, number, now):
    """A release with a payload of four numbers, as devices send them to a task of three features."""
    return encode(
        ScoreRelease(
            id=f"{number:032x}", task=task.hash, level="default", partition=0, version=0, query="score",
            payload=[number % 1_000 - 500, 3, -4, 5], time=now, expires=now + task.expiry,
        )
    )  # fmt: skip


def fill(input_log, task, begin, end):
    """Append the releases of these numbers, as devices would."""
    now = truncate_time(time.time(), task.granularity)
    for first in range(begin, end, BLOCK):
        input_log.append([(0, message(task, n, now)) for n in range(first, min(first + BLOCK, end))])


@contextmanager
def logs(folder, task, broker=None):
    """An input log and a log of releases, in a folder or on a broker."""
    place = f"sqlite:///{folder}/" if broker is None else f"{broker.url}/{Path(folder).name.replace('_', '-')}-"
    with ExitStack() as stack:
        opened = [stack.enter_context(open_log(f"{place}{name}")) for name in ("input", "log")]
        for log in opened:
            log.register_task(task.document())
        yield opened


def measured(releases, crowd, broker=None):
    """Releases in crowds, and CPU and wall seconds of shuffler and worker."""
    task = task_of(crowd)
    device = device_for(task)
    with tempfile.TemporaryDirectory() as place, logs(place, task, broker) as (input_log, log):
        fill(input_log, task, 0, releases)
        with Shuffler(input_log, log, task, device, Store(Path(place) / "store")) as shuffler:
            clock = Clock()
            while not shuffler.step().idle:
                pass
            shuffled = clock.stop()
            totals = shuffler.totals
            released = totals.released
            assert released + totals.waiting == releases, totals
        with Worker(log, task, device.engine()) as worker:
            clock = Clock()
            while worker.step().read:
                pass
            learned = clock.stop()
            assert worker.counters.learned == released, (worker.counters, released)
    return released, shuffled, learned


def shuffle_in_memory(place, crowd, queue):
    """As a process: shuffle whenever asked, and tell the largest resident memory in bytes and how many wait."""
    task = task_of(crowd)
    with (
        logs(place, task) as (input_log, log),
        Shuffler(input_log, log, task, device_for(task), Store(Path(place) / "store")) as shuffler,
    ):
        while queue.recv():
            while not shuffler.step().idle:
                pass
            peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            queue.send((peak, shuffler.totals.waiting, shuffler.totals.released))


def memory(releases, crowd):
    """Print the memory of a shuffler as releases come in."""
    task = task_of(crowd)
    ours, others = multiprocessing.Pipe()
    print(f"crowds of {crowd:,}\n\n   releases     waiting    released   largest memory   store on disk")
    with tempfile.TemporaryDirectory() as place, logs(place, task) as (input_log, _):
        child = multiprocessing.get_context("spawn").Process(target=shuffle_in_memory, args=(place, crowd, others))
        child.start()
        parts, known = 10, []
        for part in range(parts):
            fill(input_log, task, part * releases // parts, (part + 1) * releases // parts)
            ours.send(True)
            peak, waiting, released = ours.recv()
            store = sum(path.stat().st_size for path in Path(place).glob("store*"))
            known.append(peak)
            sizes = f"{peak / 2**20:12,.0f} MiB {store / 2**20:11,.0f} MiB"
            print(f"  {(part + 1) * releases // parts:9,} {waiting:11,} {released:11,} {sizes}", flush=True)
        ours.send(False)
        child.join()
    print(f"\n{(known[-1] - known[1]) / (releases * (parts - 2) / parts):.0f} bytes of memory for each further release")


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--releases", type=int, default=200_000)
    parser.add_argument("--crowds", type=int, nargs="*", default=[2_000, 20_000, 200_000])
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args(argv)
    if options.memory:
        for crowd in options.crowds:
            memory(options.releases, crowd)
        return
    gc.set_threshold(*COLLECT)  # as `murk learn` does
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        broker = stack.enter_context(Broker(Path(folder) / "kafka")) if options.kafka else None
        measured(20_000, 2_000, broker)  # kernels are compiled
        print("us a release (CPU, in all)\n")
        print("  crowd     shuffler: CPU, wall   worker: CPU, wall   shuffler / worker (CPU)")
        for crowd in options.crowds:
            released, shuffled, learned = measured(options.releases, crowd, broker)
            each = [1e6 * value / released for value in (shuffled.cpu, shuffled.wall, learned.cpu, learned.wall)]
            print(
                f"  {crowd:9,} {each[0]:7.1f} {each[1]:7.1f} {each[2]:7.1f} {each[3]:7.1f}   {each[0] / each[2]:7.2f}"
            )


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
