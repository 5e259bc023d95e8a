"""Killed anywhere, and started again: nobody is debited twice, nothing is lost or sent twice."""

import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from murk.populations import FileSource
from murk.producers import Ledger
from murk.producers.ledger.spending import Spending
from tests.producers.world import RECORD, World, Wrapped, make_task, paid_task, run_blocks, write_people

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

PEOPLE = 150


def in_child(work: Callable[[], None]) -> int:
    """Run in a forked process; its exit status, negative where a signal ended it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Killer:
    """Ends the process, like SIGKILL would, when it is called for the n-th time."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def __call__(self) -> None:
        self.calls -= 1
        if self.calls == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def before(method: Callable[..., Any], kill: Killer) -> Callable[..., Any]:
    def run(*arguments: Any, **options: Any) -> Any:
        kill()
        return method(*arguments, **options)

    return run


def after(method: Callable[..., Any], kill: Killer) -> Callable[..., Any]:
    def run(*arguments: Any, **options: Any) -> Any:
        result = method(*arguments, **options)
        kill()
        return result

    return run


@contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    old = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, old)


POINTS: dict[str, tuple[Any, str, Any]] = {
    "within the transaction, before anything is written": (Spending, "write", before),
    "within the transaction, after everything is written": (Spending, "write", after),
    "between debit and send": ("log", "append", before),
    "between send and confirmation": ("log", "append", after),
    "before what was sent is released": (Ledger, "confirm", after),
    "while the outbox is emptied": (Ledger, "delete_confirmed", before),
    "after the outbox is emptied": (Ledger, "delete_confirmed", after),
}


def run_killed(folder: Path, work: Callable[[World, Any], None], task: Any, point: str, calls: int) -> int:
    """Do some work in a process that is killed at a point of the program."""
    owner, name, wrap = POINTS[point]
    kill = Killer(calls)

    def child() -> None:
        with World(folder, task) as world:
            if owner == "log":
                log = Wrapped(world.log, **{name: wrap(getattr(world.log, name), kill)})
                work(world, world.produce(log))  # type: ignore[arg-type]
            else:
                with patched(owner, name, wrap(getattr(owner, name), kill)):
                    work(world, world.produce())

    return in_child(child)


def observe(world: World, source: FileSource) -> tuple[Any, ...]:
    """All that a run leaves behind."""
    run = world.ledger.run(world.task.hash, source.digest)
    partitions = range(world.task.log.partitions)
    return (
        [[message.value for message in world.messages(partition)] for partition in partitions],
        world.ledger.totals(),
        run,
        world.ledger.pending(),
    )


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_people(tmp_path_factory.mktemp("people") / "people.csv", PEOPLE)


def file_work(people: Path) -> Callable[[World, Any], None]:
    def work(world: World, producer: Any) -> None:
        run_blocks(world, FileSource(people, world.task, person_column="who", level="lot"), producer)

    return work


@pytest.fixture(scope="module")
def uninterrupted(people: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    with World(tmp_path_factory.mktemp("reference"), paid_task(10.0)) as world:
        file_work(people)(world, world.producer)
        return observe(world, FileSource(people, world.task))


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("calls", [1, 9])
def test_a_seeded_run_ends_bit_identical(
    tmp_path: Path, people: Path, uninterrupted: tuple[Any, ...], point: str, calls: int
) -> None:
    task = paid_task(10.0)
    killed = run_killed(tmp_path, file_work(people), task, point, calls)
    assert killed == -signal.SIGKILL
    # Killed once more right after it was started again.
    assert run_killed(tmp_path, file_work(people), task, point, 1) in (-signal.SIGKILL, 0)
    with World(tmp_path, task) as world:
        file_work(people)(world, world.producer)
        assert observe(world, FileSource(people, world.task)) == uninterrupted


class Watch:
    """Counts what the interpreter does, calls and returns of every function; may end the process at one."""

    def __init__(self, last: int | None = None) -> None:
        self.count = 0
        self.last = last

    def __call__(self, *event: Any) -> None:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def test_killed_at_random_moments(tmp_path: Path, people: Path, uninterrupted: tuple[Any, ...]) -> None:
    """Twelve kills before or after any call at all, each a part of the way further."""
    task = paid_task(10.0)
    work = file_work(people)

    def watched(folder: Path, watch: Watch) -> None:
        with World(folder, task) as world:
            sys.setprofile(watch)
            try:
                work(world, world.producer)
            finally:
                sys.setprofile(None)

    whole = Watch()
    (tmp_path / "whole").mkdir()
    watched(tmp_path / "whole", whole)
    moments = random.Random(5)
    for _ in range(12):
        moment = moments.randrange(1, whole.count // 8)
        status = in_child(lambda moment=moment: watched(tmp_path, Watch(moment)))  # type: ignore[misc]
        # A run that is nearly done may end before its moment comes.
        assert status in (-signal.SIGKILL, 0)
    with World(tmp_path, task) as world:
        work(world, world.producer)
        assert observe(world, FileSource(people, world.task)) == uninterrupted


@pytest.mark.parametrize("point", POINTS)
def test_one_persons_releases(tmp_path: Path, point: str) -> None:
    task = paid_task(10.0, simulated=False)

    def work(world: World, producer: Any) -> None:
        for number in range(5):
            producer.release(RECORD, person="ann", key=f"day {number}")

    assert run_killed(tmp_path, work, task, point, 3) == -signal.SIGKILL
    with World(tmp_path, task) as world:
        frozen = {queued.number: queued.message for queued in world.ledger.queued(task.hash)}
        work(world, world.producer)
        world.producer.flush()
        account = world.ledger.account("ann").tasks[0]
        assert sum(level.released for level in account.levels) == 5
        assert sum(level.sent for level in account.levels) == 5
        values = [message.value for message in world.messages()]
        assert len(values) == len(set(values)) == 5
        # What had been frozen was sent as it was, and not randomized again.
        assert set(frozen.values()) <= set(values)


def test_two_processes_on_one_file(tmp_path: Path, people: Path) -> None:
    """Both want every row; each row is released by one of them."""
    task = make_task()
    with World(tmp_path, task):
        pass

    def work() -> None:
        with World(tmp_path, task) as world:
            source = FileSource(people, task)
            world.producer.begin(source)
            for block in source.blocks(size=10):
                world.producer.release_block(block)

    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                work()
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    with World(tmp_path, task) as world:
        world.producer.flush()
        values = {message.value for message in world.messages()}
        assert len(values) == PEOPLE
        totals = world.ledger.totals()
        assert (totals.people, totals.releases, totals.queued) == (PEOPLE, PEOPLE, 0)
        run = world.ledger.run(task.hash, FileSource(people, task).digest)
        assert run is not None
        assert (run.next_row, run.counters["released"], run.counters["known"]) == (PEOPLE, PEOPLE, PEOPLE)
