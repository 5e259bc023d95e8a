"""The worker on the embedded log: records per second, and what takes the time: ``python -m benchmarks.worker``."""

import argparse
import tempfile
import time

from benchmarks.feed import Feed
from murk.stream import Worker, open_log
from murk.stream.messages.codec import WireRules, decode


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--releases", type=int, default=200_000)
    n = parser.parse_args(argv).releases
    feed = Feed()
    with tempfile.TemporaryDirectory() as folder, open_log(f"sqlite:///{folder}/log.db") as log:
        log.register_task(feed.task.document())
        # Warm up: compile, and let the count grow until a block of 4096 is no longer stale.
        engine = feed.problem.engine()
        times = {"make and encode": 0.0, "append (FULL)": 0.0, "worker": 0.0}
        measured = 0
        with Worker(log, feed.task, engine) as worker:
            while worker.lag or engine.n_releases < n:
                size = min(max(1, engine.n_releases // 100), 4096)
                t0 = time.perf_counter()
                block = feed.block(engine.published()[0], size)
                t1 = time.perf_counter()
                log.append(block)
                t2 = time.perf_counter()
                progress = worker.step()
                t3 = time.perf_counter()
                assert progress.learned == size, progress
                if engine.n_releases > 20_000:
                    measured += size
                    for name, spent in zip(times, (t1 - t0, t2 - t1, t3 - t2), strict=True):
                        times[name] += spent
        print(f"{measured:,} releases of 10 numbers, one partition, blocks of 1% of the count (at most 4096)\n")
        for name, spent in times.items():
            print(f"  {name:18s} {spent / measured * 1e6:7.2f} us a release   {measured / spent:10,.0f} a second")

        # The worker's own parts, one after another, on the same messages.
        end, size = log.end(0), 4096
        first = max(log.begin(0), end - 40 * size)
        rules = WireRules(feed.task.hash, True, (feed.problem.dimension,), {
            level: m.magnitude for level, m in feed.problem.mechanisms.items()})  # fmt: skip
        read = decoded = learned = 0.0
        count = 0
        for offset in range(first, end, size):
            t0 = time.perf_counter()
            messages = log.read(0, offset, size)
            t1 = time.perf_counter()
            releases = [decode(message.value, rules) for message in messages]
            t2 = time.perf_counter()
            versions = {r.version for r in releases}
            if all(any(v == int(w) for w in engine.memory.ring_versions) for v in versions):
                engine.learn_releases(releases)
                learned += time.perf_counter() - t2
                count += len(releases)
            read += t1 - t0
            decoded += t2 - t1
        total = end - first
        print("\nof the worker's time:")
        print(f"  read from SQLite   {read / total * 1e6:7.2f} us")
        print(f"  decode and check   {decoded / total * 1e6:7.2f} us")
        if count:
            print(f"  learn              {learned / count * 1e6:7.2f} us")
        print("  the rest: duplicates, admission, and the commit of state and offset, one a block")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
