"""A process's share of the partitions: what it takes over, releases, waits for and tells."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from murk.errors import MurkError
from murk.stream.log.interface import AllPartitions, FencedError, Membership, UnreachableError
from murk.stream.log.sqlite import SqliteLog
from murk.stream.wire.packed import Fetched
from murk.stream.worker import pool as module
from murk.stream.worker.pool import LOG_INTERVAL, PAUSE, PartitionVitals, Pulse, WorkerPool
from murk.stream.worker.worker import Progress
from tests.stream.harness import SumLearner, make_task, message, put

TASK = make_task()


class Group(Membership):
    """Shares partitions as a test says, or cannot be heard of."""

    def __init__(self, *partitions: int, shared: bool = True) -> None:
        self.own, self.shared = set(partitions), shared
        self.away = False
        self.closed: list[bool] = []

    def partitions(self) -> frozenset[int]:
        if self.away:
            raise UnreachableError("the others are away")
        return frozenset(self.own)

    def close(self, *, for_good: bool = True) -> None:
        self.closed.append(for_good)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(log: SqliteLog, clock: Clock) -> Iterator[Callable[..., WorkerPool[Any]]]:
    for partition in range(2):
        put(log, [message(TASK, 100 * partition + number, partition=partition) for number in range(3)], partition)
    made: list[WorkerPool[Any]] = []

    def team(membership: Membership) -> WorkerPool[Any]:
        made.append(WorkerPool(log, TASK, lambda: SumLearner(TASK), membership, clock=clock))
        return made[-1]

    yield team
    for one in made:
        one.close()


def test_learns_what_falls_to_it_and_lets_go_of_the_rest(make: Callable[..., WorkerPool[Any]], log: SqliteLog) -> None:
    group = Group(0)
    team = make(group)
    assert (team.step(), set(team.learners)) == (3, {0})
    group.own = {0, 1}
    assert (team.step(), set(team.learners)) == (3, {0, 1})
    assert team.learners[1].n_releases == 3
    put(log, [b"no release"], 1)
    group.own = {1}
    assert (team.step(), set(team.learners)) == (1, {1})
    vitals = team.pulse.vitals()
    assert (vitals.learned, vitals.duplicates, vitals.dead, vitals.read) == (6, 0, 1, 7)
    assert set(vitals.partitions) == {1}
    assert (vitals.partitions[1].version, vitals.partitions[1].offset) == (3, 4)
    assert log.checkpoint(0).offset == 3


def test_a_log_that_is_away_is_waited_for_and_every_partition_owned_anew(
    make: Callable[..., WorkerPool[Any]], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    group = Group(0, 1)
    team = make(group)
    team.step()
    group.away = True
    assert (team.step(), team.trouble, team.learners) == (0, "the others are away", {})
    assert team.pulse.vitals().trouble == "the others are away"
    assert team.pulse.vitals().partitions == {}
    group.away = False
    clock.now += PAUSE - 0.01
    assert (team.step(), team.trouble) == (0, "the others are away")
    clock.now += 0.01
    assert (team.step(), team.trouble, set(team.learners)) == (0, None, {0, 1})
    assert team.pulse.vitals().trouble is None
    assert [learner.n_releases for learner in team.learners.values()] == [3, 3]
    # Said once when it begins, however long it lasts, and once when it is over.
    group.away = True
    for _ in range(3):
        team.step()
        clock.now += PAUSE
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.startswith("waiting:") for line in said] == [True, False, True]


def test_a_partition_that_another_one_took_is_let_be_for_a_while(
    make: Callable[..., WorkerPool[Any]], clock: Clock, log: SqliteLog
) -> None:
    team = make(Group(0, 1))
    team.step()
    log.acquire(0).commit(b"another one's", 3)
    put(log, [b"x"], 0)
    put(log, [b"x"], 1)
    assert (team.step(), set(team.learners)) == (1, {1})
    clock.now += PAUSE - 0.01
    assert (team.step(), set(team.learners)) == (0, {1})
    clock.now += 0.01
    with pytest.raises(MurkError, match="partition 0"):
        team.step()


def test_a_partition_that_nobody_shares_and_another_one_took_is_an_error(
    make: Callable[..., WorkerPool[Any]], log: SqliteLog
) -> None:
    assert not AllPartitions([0]).shared
    group = AllPartitions([0, 1])
    assert group.partitions() == {0, 1}
    team = make(group)
    team.step()
    log.acquire(1).commit(b"another one's", 3)
    put(log, [b"x"], 1)
    with pytest.raises(FencedError):
        team.step()
    assert set(team.learners) == {0}


def test_how_it_leaves(make: Callable[..., WorkerPool[Any]]) -> None:
    """For good, but after a fault: then it is started again and comes back to its partitions."""
    for error, for_good in ((None, True), (KeyboardInterrupt(), True), (MurkError("a fault"), False)):
        group = Group(0)
        try:
            with make(group) as team:
                team.step()
                if error is not None:
                    raise error
        except (MurkError, KeyboardInterrupt):
            pass
        assert group.closed == [for_good]
        assert team.learners == {}


def test_how_far_behind_it_is(
    make: Callable[..., WorkerPool[Any]], log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = make(Group(0, 1))
    team.step()
    team.measure()
    assert [one.lag for one in team.pulse.vitals().partitions.values()] == [0, 0]
    put(log, [b"x", b"y"], 1)
    team.measure()
    assert [one.lag for one in team.pulse.vitals().partitions.values()] == [0, 2]

    def away(self: object, partition: int) -> int:
        raise UnreachableError("away")

    monkeypatch.setattr(SqliteLog, "end", away)
    team.measure()
    assert [one.lag for one in team.pulse.vitals().partitions.values()] == [0, 2]


def test_says_how_far_it_is_now_and_then(
    make: Callable[..., WorkerPool[Any]], clock: Clock, log: SqliteLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", module.__name__)
    team = make(Group(0))

    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if "since the start" in record.getMessage()]

    team.step()
    clock.now += LOG_INTERVAL - 0.01
    team.step()
    assert said() == []
    clock.now += 0.01
    team.step()
    assert [
        "partitions [0]: 3 messages read since the start: 3 learned, 0 duplicates, 0 dead" in line for line in said()
    ]
    assert len(said()) == 1
    # Where nothing was read since, nothing is said; and then not before as much time again.
    clock.now += LOG_INTERVAL
    team.step()
    put(log, [b"x"])
    team.step()
    assert len(said()) == 1
    clock.now += LOG_INTERVAL
    team.step()
    assert len(said()) == 2


def test_a_pulse_counts_and_forgets() -> None:
    clock = Clock()
    pulse = Pulse(clock)
    assert pulse.vitals().stepped == 100.0
    pulse.owns(0, version=10, offset=20)
    assert pulse.vitals().partitions == {0: PartitionVitals(10, 20, None, None)}
    pulse.measured(0, 7)
    clock.now = 101.0
    pulse.stepped(0, Progress(read=9, learned=2, duplicates=3, dead=4, offset=25, version=12))
    assert pulse.vitals().partitions == {0: PartitionVitals(12, 25, 101.0, 2)}
    pulse.stepped(0, Progress(read=90, learned=20, duplicates=30, dead=40, offset=30, version=13))
    found = pulse.vitals()
    assert (found.learned, found.duplicates, found.dead, found.read) == (22, 33, 44, 99)
    assert found.partitions[0].lag == 0
    pulse.measured(0, -3)
    assert pulse.vitals().partitions[0].lag == 0
    pulse.measured(0, 1)
    assert pulse.vitals().partitions[0].lag == 1
    clock.now = 102.0
    pulse.beat("away")
    assert (pulse.vitals().trouble, pulse.vitals().stepped) == ("away", 102.0)
    pulse.dropped(0)
    pulse.dropped(0)
    assert pulse.vitals().partitions == {}


def test_idle_partitions_are_asked_for_at_once_and_none_is_read(
    make: Callable[..., WorkerPool[Any]], log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = make(Group(0, 1))
    assert team.step() == 6
    assert team.step() == 0
    read: list[int] = []
    own = log.fetch
    monkeypatch.setattr(log, "fetch", lambda partition, *more: read.append(partition) or own(partition, *more))
    for _ in range(20):
        assert team.step() == 0
    assert read == []
    # What arrives on one of them is read of that one, and learned.
    put(log, [message(TASK, 700, partition=1)], 1)
    assert (team.step(), read) == (1, [1])
    assert team.learners[1].n_releases == 4


def test_a_log_that_went_back_is_noticed_while_nothing_arrives(
    make: Callable[..., WorkerPool[Any]], log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = make(Group(0, 1))
    team.step()
    team.step()
    monkeypatch.setattr(log, "ends_of", lambda partitions: [0 for _ in partitions])
    read: list[int] = []
    monkeypatch.setattr(log, "fetch", lambda partition, *more: read.append(partition) or Fetched.empty())
    team.step()
    assert read == [0, 1]
