"""CPU of a monitor under load: ``python -m benchmarks.monitor_load``.

So many chains of gradients commit a new state between two polls, and the metrics are scraped once a second. Printed are
the CPU of a poll, of a poll that finds nothing new, and of a scrape; and, with ``--profile``, what a poll spends it on.
"""

import argparse
import cProfile
import pstats
import tempfile
import time

import numpy as np

from benchmarks.feed import Feed
from murk.monitoring import Monitor
from murk.stream import Task, Worker, open_log


def task_of(features, chains):
    columns = ", ".join(f"{{name: x{i}, low: -1, high: 1}}" for i in range(features - 1))
    return Task.parse(
        f"name: load\nfeatures: [{columns}]\ntarget: {{name: y, kind: binary, positive: 'yes'}}\n"
        "privacy: {guarantee: {gdp: {mu: 4.0}}}\nprotocol: gradients\nmax_staleness: {releases: 20}\n"
        f"log: {{partitions: {chains}}}\n"
    ).with_simulated(True)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=int, default=1_000)
    parser.add_argument("--chains", type=int, default=64)
    parser.add_argument("--polls", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args(argv)
    from prometheus_client.exposition import generate_latest

    task = task_of(given.features, given.chains)
    feed = Feed(task)
    with tempfile.TemporaryDirectory() as folder, open_log(f"sqlite:///{folder}/log.db") as log:
        log.register_task(task.document())
        monitor = Monitor(log, task)
        busy, idle, scrapes = [], [], []
        engines = [feed.problem.engine() for _ in range(given.chains)]
        workers = [Worker(log, task, engine, chain=chain) for chain, engine in enumerate(engines)]
        profile = cProfile.Profile()
        for _ in range(given.polls):
            for chain, worker in enumerate(workers):
                log.append(feed.block(engines[chain].published()[0], 2, chain))
                worker.step()
            profile.enable()
            busy.append(cpu(monitor.poll))
            profile.disable()
            idle.append(cpu(monitor.poll))
            scrapes.append(cpu(lambda: generate_latest(monitor.registry)))
        for worker in workers:
            worker.close()
    print(f"{given.chains} chains, {given.features:,} coded features; CPU, median of {given.polls}:")
    for name, found in (("a poll of all chains", busy), ("a poll that finds nothing new", idle), ("a scrape", scrapes)):
        print(f"    {name:30s} {1e3 * np.median(found):8.1f} ms")
    if given.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(18)


def cpu(do):
    start = time.process_time()
    do()
    return time.process_time() - start


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
