"""Memory over millions of releases, with retention trimming the log: ``python -m benchmarks.memory``.

A worker learns 10^7 gradients, or with ``--protocol`` 10^6 examples or moments; or an organisation sketches 10^6 rows
in windows of a thousand and a worker learns the sketches, both in this process. With ``--monitor`` ``murk monitor``
reads the log beside it, and its metrics and page are fetched every second.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks.feed import NUMBERS, Feed, task_of, written
from murk.privacy.noise import SimulatedNoise
from murk.producers import Ledger, OrganisationProducer
from murk.stream import Worker, open_log

MARKS = [10**5, 2 * 10**5, 5 * 10**5, 10**6, 2 * 10**6, 5 * 10**6, 10**7, 2 * 10**7, 5 * 10**7, 10**8]
# Windows add up; any number of them fits under this.
WINDOWS = "approx: {epsilon: 1.0, delta: 1.0e-6}", ", per_person: {approx: {epsilon: 1.0e+6, delta: 0.5}}"
ROWS, WINDOW = 50, 1000
KEPT = 2.0  # seconds after which the log removes messages, below what a task may ask for
SKETCH = "summaries", *WINDOWS, f"summaries: {{rows: {ROWS}, window: {WINDOW}}}\n"


def resident(process="self") -> float:
    """Resident memory of a process in MiB (Linux)."""
    with open(f"/proc/{process}/statm") as handle:
        return int(handle.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def seconds_of(process) -> float:
    """CPU seconds of a process and its threads (Linux)."""
    with open(f"/proc/{process}/stat") as handle:
        user, system = handle.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


SCRAPE = """
import sys, time, urllib.request
while True:
    time.sleep(1.0)
    for page in ("metrics", "api/status"):
        with urllib.request.urlopen(sys.argv[1] + page) as answer:
            answer.read()
"""


@contextlib.contextmanager
def monitored(folder, text):
    """``murk monitor`` of the log in ``folder``, looked at every second; gives its process, and who looks."""
    with open(f"{folder}/task.yaml", "w") as handle:
        handle.write(text)
    log = f"sqlite:///{folder}/log.db"
    command = ["-m", "murk", "monitor", handle.name, "--log", log, "--port", "0", "--json"]
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        address = json.loads(process.stdout.readline())["url"].rstrip("/") + "/"
        with subprocess.Popen([sys.executable, "-c", SCRAPE, address]) as reader:
            try:
                yield process, reader
            finally:
                looked = reader.poll() is None
                for one in (reader, process):
                    one.send_signal(signal.SIGCONT)
                    one.terminate()
    assert looked, "nobody has looked at the monitor"


def people(task, log):
    """Feed people's releases to a worker; yields how many it has learned."""
    feed = Feed(task)
    engine = feed.device.engine()
    with Worker(log, feed.task, engine) as worker:
        while True:
            # A gradient must not be older than the task allows; the others have no age.
            count = min(max(1, engine.n_releases // 100), 4096) if feed.device.interactive else 4096
            log.append(feed.block(engine.published()[0] if feed.device.interactive else 0, count))
            while count:  # Kafka brings no more than a fetch at once
                count -= worker.step().read
            feed.device.estimate([engine])
            yield engine.n_releases


def organisation(folder, log):
    """Feed an organisation's rows to its producer, and what it releases to a worker; yields how many were mixed."""
    task = task_of(*SKETCH)
    rng, done = np.random.default_rng(1), 0
    with Ledger(f"{folder}/ledger.db") as ledger:
        producer = OrganisationProducer(task, log, ledger, noise=SimulatedNoise(1))
        with Worker(log, task, Feed(task).device.engine()) as worker:
            while True:
                X = np.column_stack([rng.uniform(-1.0, 1.0, (4096, NUMBERS)), np.ones(4096)])
                receipts = producer.add_block(X, rng.choice([0.0, 1.0], 4096))
                assert {receipt.outcome for receipt in receipts} <= {"added", "released"}
                worker.step()
                yield (done := done + 4096)


def rows(protocol, n, beside=False):
    """Figures at each mark, up to n releases: how many, MiB, MiB on disk, bytes, seconds, CPU us each; of a monitor."""
    sketch, before, used = protocol == "summaries", 0, time.process_time()
    described = SKETCH if sketch else (protocol,)
    start, marks = time.monotonic(), list(MARKS)
    with tempfile.TemporaryDirectory() as folder, open_log(f"sqlite:///{folder}/log.db") as log:
        task = task_of(*described)
        log.register_task(task.document())
        with monitored(folder, written(*described)) if beside else contextlib.nullcontext([None]) as [monitor, *_]:
            for done in organisation(folder, log) if sketch else people(task, log):
                log.trim(time.time() - KEPT)
                if done < marks[0]:
                    continue
                marks.pop(0)
                size = os.path.getsize(f"{folder}/log.db") / 2**20
                each = 1e6 * (time.process_time() - used) / (done - before)
                own = done, resident(), size, len(log.checkpoint(0).state), time.monotonic() - start, each
                before, used = done, time.process_time()
                yield (*own, resident(monitor.pid), seconds_of(monitor.pid)) if monitor else own
                if done >= n:
                    return


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--protocol", choices=["gradients", "examples", "moments", "summaries"], default="gradients")
    parser.add_argument("--releases", type=int, help="or rows of the sketch  [default: 10^7 gradients, 10^6 others]")
    parser.add_argument("--monitor", action="store_true", help="beside a monitor")
    given = parser.parse_args(argv)
    n = given.releases or (10**7 if given.protocol == "gradients" else 10**6)
    print(
        f"| {'rows' if given.protocol == 'summaries' else 'releases'} ({given.protocol}) | resident memory (MiB) | "
        "log on disk (MiB) | state (bytes) | seconds | CPU us each |"
        + (" monitor's memory (MiB) | its CPU (s) |" if given.monitor else "")
    )
    print("|---|---|---|---|---|---|" + "---|---|" * given.monitor)
    for done, memory, size, state, seconds, each, *monitor in rows(given.protocol, n, given.monitor):
        beside = "".join(f" {one:.0f} |" for one in monitor)
        print(f"| {done:,} | {memory:.0f} | {size:.0f} | {state:,} | {seconds:.0f} | {each:.1f} |{beside}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
