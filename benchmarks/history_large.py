"""An archive that grows to 10^8 releases while retention empties its log: ``python -m benchmarks.history_large``.

At each mark a model is fitted to the archive in a process of its own. The releases of a first round are really made;
further rounds repeat their payloads with new ids, which are what a learner compares, a day later each.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

import murk
from benchmarks.history import PROTOCOLS, TASK, people
from benchmarks.memory import resident
from benchmarks.on_kafka import Clock
from murk import Task
from murk.protocols.device import device_for
from murk.results.archives import processes
from murk.stream import open_log
from murk.stream.archive.archiver import Archiver
from murk.stream.archive.files import LocalFolder
from murk.stream.log.sqlite import SqliteLog
from murk.task import Model

ROUND = 500_000
DAY = 86_400
_FIELDS = {b'"id":"': 32, b'"time":': 10, b'"expires":': 10}
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


class Releases:
    """Messages of a first log by partition, whose ids each round replaces."""

    def __init__(self, protocol):
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{folder}/log.db"
            murk.run(
                Task.parse(TASK + PROTOCOLS[protocol]), people(ROUND), seed=1, log=url, ledger=f"{folder}/ledger.db"
            )
            self._messages, self._places = [], []
            with open_log(url) as log:
                self.task = log.registered_task()
                for partition in range(log.partitions):
                    offset, values = 0, []
                    while len(fetched := log.fetch(partition, offset, 65_536)):
                        values += fetched.messages.values()
                        offset = int(fetched.offsets[-1]) + 1
                    starts = np.cumsum([0, *map(len, values)])
                    self._messages.append((np.frombuffer(b"".join(values), np.uint8).copy(), starts))
                    self._places.append(
                        [
                            (starts[:-1] + [value.index(name) + len(name) for value in values])[:, None]
                            + np.arange(size)
                            for name, size in _FIELDS.items()
                        ]
                    )
        self._random = np.random.default_rng(2)
        self.now = float(int(time.time()) // DAY * DAY)

    def round(self):
        self.now += DAY
        times = [f"{int(self.now) + later:010}".encode() for later in (0, self.task.expiry)]
        for partition, ((data, starts), places) in enumerate(zip(self._messages, self._places, strict=True)):
            data[places[0]] = _HEX[self._random.integers(0, 16, places[0].shape, np.uint8)]
            for field, digits in zip(places[1:], times, strict=True):
                data[field] = np.frombuffer(digits, np.uint8)
            content = data.tobytes()
            yield [(partition, content[start:end]) for start, end in pairwise(starts.tolist())]


def fit(path, count):
    """Print the seconds, peak memory in MiB, number of releases and coefficients of a fit."""
    model = Model.parse("{name: again, features: [arm, smoker]}")
    with processes(count) as pool:
        clock = Clock()
        result = murk.fit(model, archive=path, map=pool)
        clock.stop()
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024
    coefficients = {name: each.value for name, each in result.coefficients.items()}
    print(json.dumps([clock.wall, peak, result.n_releases, coefficients, result.report], default=str))


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--protocol", choices=("cells", "moments", "outer", "directions"), default="cells")
    parser.add_argument("--marks", type=float, nargs="*", default=[1e6, 1e7, 1e8], help="releases at which to fit")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.fit:
        fit(options.fit, options.processes)
        return
    releases = Releases(options.protocol)
    print(f"{options.protocol}, {options.processes} processes of a fit; memory in MiB\n")
    columns = (
        "archiving, CPU us a release",
        "archiver's memory",
        "archive, bytes a release",
        "log, MB",
        "fit, s",
        "its peak",
    )
    print("| releases |", " | ".join(columns), "|\n|" + "---|" * 7, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "archive"
        count, spent = 0, 0.0
        with SqliteLog(Path(folder) / "log.db", clock=lambda: releases.now) as log:
            log.register_task(releases.task.document())
            archiver = Archiver(log, releases.task, LocalFolder(str(path)), device_for(releases.task).engine())
            for mark in options.marks:
                while count < mark:
                    for batch in releases.round():
                        log.append(batch)
                        count += len(batch)
                    clock = Clock()
                    while not archiver.has_archived(log.ends()):
                        archiver.step()
                    archiver.flush()
                    spent += clock.stop().cpu
                    # What retention does: the archive alone has the messages from now on.
                    for partition, end in enumerate(log.ends()):
                        log.discard(partition, end)
                    print(f"{count:,} {time.strftime('%H:%M:%S')}", file=sys.stderr, flush=True)
                command = [sys.executable, "-m", "benchmarks.history_large", "--fit", str(path)]
                command += ["--processes", str(options.processes)]
                wall, peak, learned, _, report = json.loads(
                    subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
                )
                assert learned == count, report
                size = sum(file.stat().st_size for file in path.rglob("*.parquet")) / count
                stored = (Path(folder) / "log.db").stat().st_size / 1e6
                print(
                    f"| {count:,} | {1e6 * spent / count:.2f} | {resident():.0f} | {size:.1f} | {stored:.0f} "
                    f"| {wall:.1f} | {peak:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1:])
