"""Memory of a worker over 10^7 releases, with retention trimming the log: ``python -m benchmarks.memory``."""

import argparse
import os
import tempfile
import time

from benchmarks.feed import Feed
from murk.stream import Worker, open_log


def resident() -> float:
    """Resident memory of this process in MiB (Linux)."""
    with open("/proc/self/statm") as handle:
        return int(handle.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--releases", type=int, default=10_000_000)
    n = parser.parse_args(argv).releases
    feed = Feed()
    start = time.monotonic()
    marks = [10**5, 2 * 10**5, 5 * 10**5, 10**6, 2 * 10**6, 5 * 10**6, 10**7]
    with tempfile.TemporaryDirectory() as folder, open_log(f"sqlite:///{folder}/log.db") as log:
        log.announce(feed.task.document())
        engine = feed.problem.engine()
        print("| releases | resident memory (MiB) | log on disk (MiB) | state (bytes) | seconds |")
        print("|---|---|---|---|---|")
        with Worker(log, feed.task, engine) as worker:
            while engine.n_releases < n:
                log.append(feed.block(engine.published()[0], min(max(1, engine.n_releases // 100), 4096)))
                worker.step()
                if engine.n_releases >= marks[0]:
                    marks.pop(0)
                    size = os.path.getsize(f"{folder}/log.db") / 2**20
                    state = len(log.checkpoint(0).state)
                    print(
                        f"| {engine.n_releases:,} | {resident():.0f} | {size:.0f} | {state:,} | "
                        f"{time.monotonic() - start:.0f} |", flush=True,
                    )  # fmt: skip


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
