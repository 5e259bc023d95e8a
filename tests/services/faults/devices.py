"""What devices do in processes of their own; run by a nursery."""

import gc
import os
import signal
import sys
import time
from pathlib import Path

from murk import Task
from murk.privacy.central.window import WindowAccumulator
from murk.producers import Ledger, OrganisationProducer, Producer
from murk.producers.ledger import schema
from murk.stream import open_log
from murk.stream.log.interface import UnreachableError
from murk.stream.log.kafka.log import KafkaLog
from tests.cli.harness import HEADER, ROWS

POINTS = ("before", "after")
"""Where a process is killed: debited and not sent; sent and not confirmed."""
PAUSED = "paused"
"""Where a process stops itself, until it is let go on: debited and not sent."""
AMID = "amid"
"""Where an organisation's is killed besides: in the middle of a window, of which nothing was debited."""


def die_at(point, number):
    """End this process, as SIGKILL does, around the number-th send, or after rows were added so many times.

    Or only stop it.
    """
    if point == AMID:
        die_amid(int(number))
        return
    send, left = KafkaLog.append, [int(number)]

    def append(self, batch):
        left[0] -= bool(batch)
        if left[0] == 0 and point in ("before", PAUSED):
            os.kill(os.getpid(), signal.SIGSTOP if point == PAUSED else signal.SIGKILL)
        send(self, batch)
        if left[0] == 0 and point == "after":
            os.kill(os.getpid(), signal.SIGKILL)

    KafkaLog.append = append


def die_amid(number):
    add, left = WindowAccumulator.add_block, [number]

    def add_block(self, rows):
        add(self, rows)
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    WindowAccumulator.add_block = add_block


def say(*words):
    print(*words, flush=True)  # noqa: T201 - the parent reads it


def record(number):
    return dict(zip(HEADER, ROWS[number + 1].split(","), strict=True))


def memory():
    """Bytes of this process that are in memory, without the cycles that the library's tries to connect leave behind."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def release():
    """URL LEDGER COUNT [POINT NUMBER]: make so many releases, of records known by their numbers or of windows."""
    url, path, count, *point = sys.argv[1:]
    if point:
        die_at(*point)
    with open_log(url, create=False) as log, Ledger(path) as ledger:
        task = Task.from_document(log.document())
        if task.protocol == "summaries":
            producer = OrganisationProducer(task, log, ledger)
            # A stream comes once: it goes on with the first window that was not released.
            for window in range(ledger.windows(task.hash, None).sums().released, int(count)):
                for number in range(task.summaries.window):
                    producer.add(record(window * task.summaries.window + number))
        else:
            producer = Producer(task, log, ledger)
            for number in range(int(count)):
                producer.release(record(number), key=str(number))
        producer.flush()
        say("sent", ledger.pending())


def murk():
    """POINT NUMBER ARGUMENTS: a command of murk, killed or stopped around a send."""
    from murk.cli import main

    point, number, *arguments = sys.argv[1:]
    die_at(point, number)
    sys.argv = ["murk", *arguments]
    main()


def outlast():
    """URL LEDGER SOME COUNT: release with the broker there, then gone, then back; say what memory it takes."""
    url, path, some, count = sys.argv[1:]
    # The ledger's own cache of pages has its limit, and is not what is measured.
    schema.CACHE_KIB = 256
    with open_log(url, create=False) as log, Ledger(path) as ledger:
        task = Task.from_document(log.document())
        producer = Producer(task, log, ledger)
        columns = [feature.name for feature in task.features]
        one = {**dict.fromkeys(columns, 30), "third_child": "yes"}

        def releases(first, last):
            for number in range(first, last):
                yield producer.release(one, key=str(number)).delivery

        some, count = int(some), int(count)
        assert set(releases(0, some)) == {"sent"}
        say("there")
        while "queued" not in set(releases(some, some + 1)):
            some += 1
        # Now that it knows, as it will all the time.
        assert set(releases(some + 1, some + 100)) == {"queued"}
        before, size = memory(), Path(path).stat().st_size
        assert set(releases(some + 100, some + count)) == {"queued"}
        say("gone", memory() - before, ledger.pending(), Path(path).stat().st_size - size)
        while ledger.pending():
            try:
                producer.flush()
            except UnreachableError:
                time.sleep(0.2)
        say("back", some + count)
