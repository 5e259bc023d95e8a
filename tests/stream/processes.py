"""What the tests of logs and workers run in processes of their own; by a nursery."""

import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from murk.errors import MurkError
from murk.stream.log.interface import FencedError, Log
from murk.stream.log.open import open_log
from murk.stream.log.sqlite import SqliteLog
from murk.stream.worker.worker import Worker
from murk.task.task import Task
from tests.services.faults.nursery import Child
from tests.stream.harness import learner_for, make_task, message, read_all

Start = Callable[..., Child]
"""Starts one of the functions below by its name, with its arguments."""


GO = signal.SIGUSR2


def at_once(processes: Sequence[Child]) -> None:
    """Let processes begin that wait until they are told to."""
    for process in processes:
        process.said("ready\n")
    for process in processes:
        process.send(GO)


def finish(process: Child) -> list[str]:
    """What a process said besides that it was ready."""
    assert process.wait() == 0, process.out + process.err
    return [line for line in process.out.splitlines() if line != "ready"]


def told() -> None:
    """In such a process: wait for it."""
    say("ready")
    signal.sigwait({GO})


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 - the parent reads it


def fill(log: Log, block: int) -> None:
    """Append numbered releases in blocks, until the log refuses."""
    task = Task.from_document(log.document() or b"")
    for first in range(log.end(0), 10**9, block):
        log.append([(0, message(task, first + i)) for i in range(block)])


def register_task(url: str, low: str) -> None:
    """Announce a task when told to, and say whether it is the one that stands."""
    document = make_task(low=int(low)).document()
    told()
    try:
        with open_log(url) as log:
            log.register_task(document)
    except MurkError as error:
        say("lost", type(error).__name__)
        traceback.print_exc()  # shown where that is not what must come of it
    else:
        say("won")


def append(url: str, first: str, count: str, block: str) -> None:
    """Append numbered releases in blocks, when told to."""
    with open_log(url) as log:
        task = Task.from_document(log.document() or b"")
        told()
        for number in range(int(first), int(first) + int(count), int(block)):
            log.append([(0, message(task, number + i)) for i in range(int(block))])


def learn(url: str, batch: str, most: str) -> None:
    """Learn all there is, say when the first step begins, and whether somebody else took over.

    After so many steps it stops until it is told to go on: whoever wants it amid its work may be slow.
    """
    with open_log(url) as log:
        task = Task.from_document(log.document() or b"")
        with Worker(log, task, learner_for(task), batch=int(batch)) as worker:
            say("ready")
            try:
                steps = count(1)
                while worker.step().read:
                    if next(steps) == int(most):
                        os.kill(os.getpid(), signal.SIGSTOP)
            except FencedError:
                say("fenced")


def crowd(url: str, limit: str) -> None:
    """Append until files may grow no further, say what was refused, then carry on without the limit."""
    with open_log(url) as log:
        task = Task.from_document(log.document() or b"")
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), hard))
        try:
            fill(log, 100)
        except MurkError as error:
            say(log.end(0), error)
        done = log.end(0)
        assert len(read_all(log)) == done
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        log.append([(0, message(task, done + i)) for i in range(100)])
        assert len(read_all(log)) == done + 100


def unprivileged(path: str) -> None:
    """As a user who may not write it: read a log, then try to write to it."""
    url = f"sqlite:///{path}"
    if os.geteuid() == 0:
        os.setuid(65534)
    with open_log(url, create=False) as log:
        say(len(read_all(log)), log.end(0))
        for action in (lambda: log.append([(0, b"x")]), lambda: log.acquire(0)):
            try:
                action()
            except MurkError as error:
                say(error)
    try:
        SqliteLog(Path(path).with_name("new.db"))
    except MurkError as error:
        say(error)


def main() -> None:
    """The function that is named first, with the rest as its arguments."""
    # Before there are threads, which inherit it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {GO})
    globals()[sys.argv[1]](*sys.argv[2:])
