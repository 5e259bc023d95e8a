"""An hour of stream through Kafka, beside its broker's memory and disk: ``python -m benchmarks.kafka_soak``.

A broker of its own keeps releases for a minute, in small segments that it looks at often. This process makes people's
gradients, appends, learns and commits them as fast as it can, until it is interrupted or its time is up.
"""

import argparse
import contextlib
import gc
import os
import tempfile
import time
from pathlib import Path

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from benchmarks.feed import task_of
from benchmarks.memory import people, resident, seconds_of
from deploy.broker import Broker
from murk.cli.commands.learn import COLLECT
from murk.stream import open_log
from murk.stream.log.kafka.topics import Names

KEPT = 60
"""Seconds for which the broker keeps releases."""
FIRST, EVERY = (10**5, 10**6, 2 * 10**6, 5 * 10**6), 10**7
COLUMNS = (
    "releases", "seconds", "a second, since the row above", "memory of the process (MiB)", "of the broker (MiB)",
    "releases on disk (MiB)", f"of {KEPT} s, sent (MiB)", "other topics on disk (MiB)", "state (bytes)",
    "CPU of a release: the process (us)", "the broker (us)",
)  # fmt: skip


class Brief(Broker):
    """A broker that notices soon that a message has been kept for long enough; it deletes whole segments."""

    def settings(self, log):
        return {
            **super().settings(log),
            "log.segment.bytes": str(32 * 2**20),
            "log.segment.delete.delay.ms": "1000",
            "log.retention.check.interval.ms": "1000",
        }


def keep(url, topic):
    """Have the broker keep a topic's messages for a shorter time than a task may ask for."""
    client = KafkaAdminClient(bootstrap_servers=url.removeprefix("kafka://").partition("/")[0])
    values = {"retention.ms": str(1000 * KEPT), "segment.ms": "600000"}
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=values)])
    client.close()


def on_disk(folder):
    """MiB that a folder's files take; what is deleted meanwhile takes nothing."""
    taken = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                taken += 512 * os.stat(os.path.join(place, name)).st_blocks
    return taken / 2**20


class Sent:
    """A log, and how many bytes of releases went to it."""

    def __init__(self, log):
        self._log = log
        self.bytes = 0

    def __getattr__(self, name):
        return getattr(self._log, name)

    def append(self, batch):
        self._log.append(batch)
        self.bytes += sum(len(message) for _, message in batch)


def rows(seconds, folder):
    """One row of figures at each mark, and one when the time is up."""
    task = task_of()
    with Brief(Path(folder) / "kafka") as broker, open_log(broker.url) as opened:
        log, topics = Sent(opened), broker.folder / "log"
        log.register_task(task.document())
        keep(broker.url, Names(task.name).releases)
        releases = topics / f"{Names(task.name).releases}-0"
        marks, start = list(FIRST), time.monotonic()

        def now(done):
            return done, time.monotonic() - start, log.bytes, time.process_time(), seconds_of(broker.pid)

        before, after = now(0), start + seconds
        for done in people(task, log):
            due = marks[0] if marks else (before[0] // EVERY + 1) * EVERY
            if done < due and time.monotonic() < after:
                continue
            marks = marks[1:]
            here = now(done)
            each, took, sent, own, brokers = (new - old for new, old in zip(here, before, strict=True))
            size = on_disk(releases)
            yield (
                done, here[1], each / took, resident(), resident(broker.pid), size, KEPT * sent / took / 2**20,
                on_disk(topics) - size, len(log.checkpoint(0).state), 1e6 * own / each, 1e6 * brokers / each,
            )  # fmt: skip
            before = here
            if time.monotonic() >= after:
                return


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args(argv)
    gc.set_threshold(*COLLECT)  # as `murk learn` does
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        for row in rows(given.seconds, folder):
            *most, own, brokers = row
            print(f"| {' | '.join(f'{one:,.0f}' for one in most)} | {own:.1f} | {brokers:.1f} |", flush=True)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
