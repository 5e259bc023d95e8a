"""A producer for services: groups, errors of one request, threads, cancelled callers, an absent log, and kills."""

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from murk import Task
from murk.errors import MurkError, UserError
from murk.producers import AsyncProducer, Ledger, Producer, async_producer
from murk.producers.ledger.spending import Spending
from murk.producers.producer import ReleaseCall
from murk.stream import open_log
from murk.stream.log.sqlite import SqliteLog
from tests.producers.test_crashes import Killer, after, before, in_child, patched
from tests.producers.test_windows import weekly
from tests.producers.world import RECORD, World, make_task, paid_task

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture(params=["protocol: gradients\nlog: {partitions: 2}", "protocol: scores", "protocol: moments"])
def task(request: pytest.FixtureRequest) -> Task:
    return make_task(request.param, simulated=False)


def announced(folder: Path, task: Task) -> tuple[str, Path]:
    url = f"sqlite:///{folder}/log.db"
    with open_log(url) as log:
        log.register_task(task.document())
    return url, folder / "ledger.db"


def on_log(url: str) -> int:
    """Number of releases that a learner would learn."""
    with open_log(url, create=False) as log:
        return len(list(log.releases()))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, list[int]]]:
    """The first group is held until the event; sizes of all groups."""
    go, sizes, release_group = threading.Event(), [], Producer.release_group

    def counting(self: Producer, calls: Any) -> Any:
        sizes.append(len(calls))
        assert go.wait(60)
        return release_group(self, calls)

    monkeypatch.setattr(Producer, "release_group", counting)
    yield go, sizes
    go.set()


def test_callers_on_a_loop_and_in_threads_share_a_group(
    tmp_path: Path, task: Task, held: tuple[threading.Event, list[int]]
) -> None:
    go, sizes = held
    places = announced(tmp_path, task)

    async def main() -> Counter[str]:
        async with AsyncProducer(*places) as producer:
            first = asyncio.create_task(producer.release(RECORD, person="first"))
            while not sizes:
                await asyncio.sleep(0)
            on_loop = [asyncio.create_task(producer.release(RECORD, person=f"p{n % 20}")) for n in range(30)]
            in_threads: list[Any] = []
            threads = [
                threading.Thread(target=lambda n=n: in_threads.append(producer.submit(RECORD, person=f"t{n}")))
                for n in range(4)
            ]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            await asyncio.sleep(0)
            go.set()
            submitted = await asyncio.gather(*map(asyncio.wrap_future, in_threads))
            receipts = [await first, *await asyncio.gather(*on_loop), *submitted]
            return Counter(each.outcome for each in receipts)

    assert asyncio.run(main()) == {"released": 25, "refused": 10}
    assert sizes == [1, 34]
    assert on_log(places[0]) == 25
    with Ledger(places[1]) as ledger:
        assert (ledger.totals().releases, ledger.pending()) == (25, 0)


class Broken(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise ZeroDivisionError

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def get(self, key: str, default: Any = None) -> Any:
        raise ZeroDivisionError


def test_one_requests_error_is_its_own(tmp_path: Path) -> None:
    with World(tmp_path, paid_task(10.0, simulated=False)) as world:
        calls = [
            ReleaseCall(RECORD, "ann", key="1"),
            ReleaseCall(RECORD, "1 234 567"),
            ReleaseCall(Broken(), "bob"),
            ReleaseCall(RECORD, "ann", key="1"),
            ReleaseCall(RECORD, "cid", level="none"),
            ReleaseCall(RECORD, "dan", key=""),
            ReleaseCall(None, "eve"),  # type: ignore[arg-type]
            ReleaseCall(RECORD, "hal", level=["open"]),  # type: ignore[arg-type]
            ReleaseCall(RECORD, "fay", level="open"),
        ]
        results = world.producer.release_group(calls)
        kinds = [each.outcome if not isinstance(each, Exception) else type(each) for each in results]
        unreadable = [ZeroDivisionError, "known", UserError, UserError, AttributeError, TypeError]
        assert kinds == ["released", UserError, *unreadable, "released"]
        # One key in two canonically equal spellings.
        spelled = [ReleaseCall(RECORD, "gus", key="caf\u00e9"), ReleaseCall(RECORD, "gus", key="cafe\u0301")]
        assert [each.outcome for each in world.producer.release_group(spelled)] == ["released", "known"]  # type: ignore[union-attr]
        assert (results[0].level, results[-1].level) == ("default", "open")  # type: ignore[union-attr]
        totals = world.ledger.totals()
        assert (totals.releases, totals.people, world.producer.counts.records) == (3, 3, 3)


def test_an_error_carries_no_frames_of_others(tmp_path: Path) -> None:
    """Error trackers print the variables of frames, and those of a group hold everybody's records."""
    with World(tmp_path, make_task("protocol: scores", simulated=False)) as world:
        calls = [ReleaseCall(RECORD, "ann"), ReleaseCall([1], "eve"), ReleaseCall(RECORD, "bob")]  # type: ignore[arg-type]
        ann, eve, bob = world.producer.release_group(calls)
    assert [each.outcome for each in (ann, bob)] == ["released", "released"]  # type: ignore[union-attr]
    assert isinstance(eve, Exception)
    chain: list[BaseException] = [eve]
    while (further := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(further)
    assert [each.__traceback__ for each in chain] == [None] * len(chain)


def test_what_was_released_is_told_though_the_ledger_fails_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error would have the others of the group released again."""
    task = paid_task(2, "protocol: scores", simulated=False)
    with World(tmp_path, task) as world:
        world.producer.release(RECORD, person="bob", key="k")

        def full(*_: Any) -> bool:
            raise MurkError("the disk is full")

        monkeypatch.setattr(Ledger, "is_queued", full)
        ann, bob = world.producer.release_group([ReleaseCall(RECORD, "ann"), ReleaseCall(RECORD, "bob", "k")])
    assert (ann.outcome, bob.outcome, bob.delivery) == ("released", "known", "queued")  # type: ignore[union-attr]


def test_a_group_is_what_its_records_are_one_by_one(tmp_path: Path) -> None:
    """A simulation draws by release: the same bytes; and a refused record does not shift the others' draws."""
    people = [f"p{n % 7}" for n in range(12)]
    values = []
    for name in ("group", "alone"):
        (tmp_path / name).mkdir()
        with World(tmp_path / name, make_task("protocol: scores")) as world:
            if name == "group":
                world.producer.release_group([ReleaseCall(RECORD, each) for each in people])
            else:
                for each in people:
                    world.producer.release(RECORD, person=each)
            values.append([message.value for message in world.messages()])
    assert values[0] == values[1]
    assert len(values[0]) == 7


def test_a_cancelled_caller_that_waited_has_released_nothing(
    tmp_path: Path, held: tuple[threading.Event, list[int]]
) -> None:
    go, sizes = held
    url, path = announced(tmp_path, make_task(simulated=False))
    with AsyncProducer(url, path) as producer:
        begun = producer.submit(RECORD, person="ann")
        while not sizes:
            time.sleep(0)
        waiting = producer.submit(RECORD, person="bob")
        assert (waiting.cancel(), begun.cancel()) == (True, False)
        go.set()
        assert begun.result(60).delivery == "sent"
    with pytest.raises(CancelledError):
        waiting.result(0)
    with Ledger(path) as ledger:
        assert ledger.totals().releases == 1


def test_whoever_cannot_be_served_is_told_before_anything_is_debited(
    tmp_path: Path, held: tuple[threading.Event, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    go, sizes = held
    monkeypatch.setattr(async_producer, "WAITING", 2)
    url, path = announced(tmp_path, make_task(simulated=False))
    with pytest.raises(UserError, match=r"none\.db"):
        AsyncProducer(f"sqlite:///{tmp_path}/none.db", path).open()
    producer = AsyncProducer(url, path)
    with pytest.raises(MurkError, match="not open in this process"):
        producer.submit(RECORD)
    with producer:
        receipts = [producer.submit(RECORD, person="ann")]
        while not sizes:
            time.sleep(0)
        receipts += [producer.submit(RECORD, person=name) for name in ("bob", "cid")]
        with pytest.raises(MurkError, match="2 records wait"):
            producer.submit(RECORD, person="dan")

        def child() -> None:
            with pytest.raises(MurkError, match="after any fork"):
                producer.submit(RECORD, person="dan")

        assert in_child(child) == 0
        go.set()
    # Closing releases those that wait.
    assert [each.result(0).outcome for each in receipts] == ["released"] * 3
    with pytest.raises(MurkError, match="not open"):
        producer.submit(RECORD)
    with pytest.raises(MurkError, match="make another"):
        producer.open()
    producer.close()


def test_releases_wait_in_the_outbox_while_the_log_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_producer, "RETRY", 0.02)
    away, append = threading.Event(), SqliteLog.append

    def failing(self: Any, batch: Any) -> None:
        if away.is_set():
            raise MurkError("away")
        append(self, batch)

    monkeypatch.setattr(SqliteLog, "append", failing)
    url, path = announced(tmp_path, make_task(simulated=False))
    with AsyncProducer(url, path) as producer:
        away.set()
        receipt = producer.submit(RECORD, person="ann").result(60)
        assert (receipt.outcome, receipt.delivery) == ("released", "queued")
        away.clear()
        while on_log(url) == 0:
            time.sleep(0.01)
    with Ledger(path) as ledger:
        assert ledger.pending() == 0
    assert on_log(url) == 1


KILLS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "before the debits": (Spending, "write", before),
    "within their transaction": (Spending, "write", after),
    "between debits and append": (SqliteLog, "append", before),
    "between append and confirmation": (SqliteLog, "append", after),
    "after the confirmation": (Ledger, "confirm", after),
}


@pytest.mark.parametrize("point", KILLS)
def test_no_release_is_lost_or_made_twice_by_kills(tmp_path: Path, point: str) -> None:
    """Sixteen handlers, killed at their second group, then at the next process's first, then not."""
    url, path = announced(tmp_path, paid_task(10.0, simulated=False))
    owner, name, wrap = KILLS[point]

    async def main() -> None:
        async with AsyncProducer(url, path) as producer:

            async def handler(number: int) -> None:
                for request in range(3):
                    await producer.release(RECORD, person=f"p{number}", key=str(request))

            await asyncio.gather(*map(handler, range(16)))

    def killed(calls: int) -> int:
        def child() -> None:
            with patched(owner, name, wrap(getattr(owner, name), Killer(calls))):
                asyncio.run(main())

        return in_child(child)

    assert killed(2) == -signal.SIGKILL
    # The outbox may be sent without any of these calls.
    assert killed(1) == -signal.SIGKILL
    asyncio.run(main())
    with Ledger(path) as ledger:
        totals = ledger.totals()
        assert (totals.releases, totals.people, ledger.pending()) == (48, 16, 0)
    with open_log(url, create=False) as log:
        # A log in a file is searched before anything is sent again, so that nothing is there twice.
        assert sum(log.ends()) == 48
    assert on_log(url) == 48


def test_processes_share_a_ledger(tmp_path: Path) -> None:
    url, path = announced(tmp_path, make_task(simulated=False))

    def work() -> None:
        with AsyncProducer(url, path) as producer:
            for each in [producer.submit(RECORD, person=f"p{n}") for n in range(30)]:
                each.result(60)

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
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert on_log(url) == 30


def test_held_records_are_released_after_their_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each person's records of a window is released, once."""
    now = [time.time()]
    monkeypatch.setattr(async_producer, "RETRY", 0.02)
    monkeypatch.setattr(Producer, "_now", lambda producer: now[0])
    url, ledger = announced(tmp_path, weekly(simulated=False))

    async def main() -> list[str]:
        async with AsyncProducer(url, ledger) as producer:
            people = ["ann", "bob", "ann", "ann"]
            held = await asyncio.gather(*(producer.hold(RECORD, person=name) for name in people))
            assert {receipt.outcome for receipt in held} == {"held"}
            assert producer.submit_held(RECORD, person="cleo").result().outcome == "held"
            with pytest.raises(UserError, match="has no level"):
                await producer.hold(RECORD, level="none")
            assert on_log(url) == 0
            now[0] += 14 * 86_400
            while on_log(url) < 3:
                await asyncio.sleep(0.01)
            again = await asyncio.gather(*(producer.release(RECORD, person=name) for name in ("ann", "dan")))
            return [receipt.outcome for receipt in again]

    assert asyncio.run(main()) == ["released", "released"]
    assert on_log(url) == 5


def test_records_that_are_held_together_share_a_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person's records in their order; what is wrong with one is that one's; another window is another decision."""
    task, transactions, spending = weekly(simulated=False), [], Ledger.spending
    monkeypatch.setattr(Ledger, "spending", lambda *given: transactions.append(1) or spending(*given))
    url, path = announced(tmp_path, task)
    now = datetime.now(UTC)
    calls = [ReleaseCall(RECORD, name, None, "default", now) for name in ("ann", "bob", "ann", "cleo")]
    calls.append(ReleaseCall(Broken(), "dan", None, "default", now))
    calls.append(replace(calls[0], level="none"))
    calls.append(replace(calls[0], at=now - timedelta(days=7)))
    with open_log(url, create=False) as log, Ledger(path) as ledger:
        results = Producer(task, log, ledger).hold_group(calls)
        assert [getattr(each, "outcome", type(each).__name__) for each in results] == [
            *("held", "held", "held", "held", "ZeroDivisionError", "UserError", "held")
        ]
        assert len(transactions) == 2
        held = ledger.held(task.hash, 2.0**40)
        assert sorted((each.name, each.count) for each in held) == [("ann", 1), ("ann", 2), ("bob", 1), ("cleo", 1)]


def test_what_was_held_is_told_though_another_caller_or_the_ledger_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error would have the others of the group hold their records again, which would then count twice."""

    def full(*_: Any) -> Any:
        raise MurkError("the disk is full")

    task = weekly(simulated=False)
    url, path = announced(tmp_path, task)
    now = datetime.now(UTC)
    ann = ReleaseCall(RECORD, "ann", None, "default", now)
    # Ann's second window is held in a second transaction.
    calls = [ann, replace(ann, person="bob"), replace(ann, at=now - timedelta(days=7))]
    calls.append(ReleaseCall(RECORD, "eve", None, ["default"], now))  # type: ignore[arg-type]
    calls.append(replace(ann, person="fay", level="new"))
    with open_log(url, create=False) as log, Ledger(path) as ledger:
        producer = Producer(task, log, ledger)
        monkeypatch.setattr(ledger, "tidy", full)
        check = producer._check_levels
        monkeypatch.setattr(producer, "_check_levels", lambda levels: (full if levels == ["new"] else check)(levels))
        results = producer.hold_group(calls)
        assert [getattr(each, "outcome", type(each).__name__) for each in results] == [
            *("held", "held", "held", "TypeError", "MurkError")
        ]
        assert sorted((each.name, each.count) for each in ledger.held(task.hash, 2.0**40)) == [
            *(("ann", 1), ("ann", 1), ("bob", 1))
        ]


def test_what_is_held_outlives_a_kill(tmp_path: Path) -> None:
    """Each receipt is of a record on disk, and a person's records of a window are one."""
    task = weekly(simulated=False)
    url, path = announced(tmp_path, task)
    told = tmp_path / "told"
    told.touch()

    async def hold_all(first: int) -> None:
        async with AsyncProducer(url, path) as producer:

            async def hold(name: str) -> None:
                assert (await producer.hold(RECORD, person=name)).outcome == "held"
                with told.open("a") as file:
                    file.write(f"{name}\n")

            for turn in range(first, first + 1_000):
                await asyncio.gather(*(hold(f"p{turn}-{number % 15}") for number in range(20)))

    for turn in range(3):
        child = os.fork()
        if child == 0:
            asyncio.run(hold_all(1_000 * turn))
            os._exit(1)
        size = told.stat().st_size
        while told.stat().st_size < size + 1_000:
            time.sleep(0.005)
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        with open_log(url, create=False) as log, Ledger(path) as ledger:
            Producer(task, log, ledger)
            names = [each.name for each in ledger.held(task.hash, 2.0**40)]
        assert len(names) == len(set(names))
        assert set(told.read_text().split()) <= set(names)
