"""The log contract, for every implementation: another one adds the URL of a log of its own to `FACTORIES`."""

import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from murk.errors import MurkError, UserError
from murk.protocols.device import device_for
from murk.stream.archive.archiver import Archiver
from murk.stream.archive.files import LocalFolder
from murk.stream.archive.reader import ArchiveLog
from murk.stream.log.interface import DeadLetter, FencedError, Log
from murk.stream.log.kafka.log import TopicSetup
from murk.stream.log.open import OPENERS, open_log
from murk.stream.wire.codec import MAX_MESSAGE
from tests.stream.harness import make_task, message, read_all
from tests.stream.processes import Start, at_once, finish

FACTORIES: dict[str, Callable[[Path, str], str]] = {
    "sqlite": lambda folder, servers: f"sqlite:///{folder}/log.db",
    "kafka": lambda folder, servers: f"kafka://{servers}/t{secrets.token_hex(8)}",
    # The example of docs/extending.md, as it stands there.
    "memory": lambda folder, servers: f"memory:///{folder}",
}
"""For each kind of log, the URL of one that does not exist yet."""

HOSTILE = [b"", b"\0", b"\xff\xfe\x00", b'{"schema":1', "é\u2028".encode(), b"'; DROP TABLE messages; --"]


@cache
def example(path: str) -> ModuleType:
    """The module that docs/extending.md shows as this file."""
    page = (Path(__file__).parents[3] / "docs" / "extending.md").read_text("utf-8")
    [code] = re.findall(rf"^```py\n# {re.escape(path)}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    module = ModuleType(path)
    # Frozen descriptions look their module up.
    found = sys.modules.setdefault(path, module)
    exec(compile(code, path, "exec"), found.__dict__)
    return found


@pytest.fixture(params=sorted(FACTORIES))
def factory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], str]:
    if request.param == "memory":
        if "start" in request.fixturenames:
            pytest.skip("it lives in one process")
        monkeypatch.setitem(OPENERS, "memory", example("murk/stream/log/memory.py").MemoryLog)
    make = FACTORIES[request.param]
    servers = request.getfixturevalue("broker").bootstrap if request.param == "kafka" else ""
    return lambda folder: make(folder, servers)


@pytest.fixture
def url(factory: Callable[[Path], str], tmp_path: Path) -> str:
    return factory(tmp_path)


@pytest.fixture
def log(url: str) -> Iterator[Log]:
    with open_log(url) as opened:
        opened.register_task(make_task().document())
        yield opened


def test_identity_lasts_and_is_the_logs_own(factory: Callable[[Path], str], url: str, log: Log, tmp_path: Path) -> None:
    with open_log(url) as again:
        assert again.identity == log.identity
    (tmp_path / "other").mkdir()
    with open_log(factory(tmp_path / "other")) as other:
        other.prepare(make_task().document())
        assert other.identity != log.identity
        assert other.document() is None
    assert len(log.identity) >= 16


def test_a_log_is_created_empty_of_a_task(url: str) -> None:
    with open_log(url) as log:
        assert log.document() is None
        for use in (
            lambda: log.partitions,
            lambda: log.simulated,
            lambda: log.append([(0, b"x")]),
            lambda: log.read(0, 0, 1),
            lambda: log.acquire(0),
            lambda: log.trim(0),
        ):
            with pytest.raises(UserError, match="announce"):
                use()


def test_opening_without_creating_needs_a_log(url: str) -> None:
    with pytest.raises(UserError, match="no log at"):
        open_log(url, create=False)
    with open_log(url) as log:
        log.register_task(make_task().document())
        with open_log(url, create=False) as again:
            assert again.document() == log.document()


def test_announcing(url: str, log: Log) -> None:
    task = make_task()
    log.register_task(task.document())
    assert log.document() == task.document()
    assert (log.partitions, log.simulated) == (2, False)
    with open_log(url) as again:
        again.register_task(task.document())
        assert (again.partitions, again.simulated) == (2, False)


def test_a_simulated_task_makes_a_simulated_log(url: str) -> None:
    with open_log(url) as log:
        log.register_task(make_task().with_simulated(True).document())
        assert log.simulated
        with pytest.raises(UserError, match="simulated"):
            log.register_task(make_task().document())


def test_a_second_task_is_refused_and_its_differences_named(log: Log) -> None:
    with pytest.raises(UserError, match=r"already carries the task 'sums'.*'other'.*low.*name"):
        log.register_task(make_task(name="other", low=20).document())
    assert log.document() == make_task().document()


def test_retention_may_change_and_partitions_may_not(url: str, log: Log) -> None:
    longer = make_task(retention="30d")
    log.register_task(longer.document())
    with open_log(url) as again:
        assert again.document() == longer.document()
    with pytest.raises(UserError, match=r"has 2 partitions.*asks for 3.*back to 2"):
        log.register_task(make_task(partitions=3).document())
    assert log.document() == longer.document()


def test_of_processes_announcing_at_once_one_wins(url: str, start: Start) -> None:
    processes = [start("register_task", url, low) for low in (18, 19, 20, 21)]
    at_once(processes)
    said = [finish(process) for process in processes]
    assert sorted(said) == [["lost UserError"]] * 3 + [["won"]]
    with open_log(url) as log:
        assert log.document() == make_task(low=18 + said.index(["won"])).document()


def test_messages_come_back_in_order_with_growing_offsets_and_times(url: str, log: Log) -> None:
    before = int(time.time())
    log.append([(0, b"a"), (1, b"b"), (0, b"c")])
    with open_log(url) as other:
        other.append([(0, b"d")])
    after = time.time()
    assert read_all(log, 0) == [b"a", b"c", b"d"]
    assert read_all(log, 1) == [b"b"]
    messages = log.read(0, log.begin(0), 10)
    offsets = [m.offset for m in messages]
    assert offsets == sorted(set(offsets))
    assert log.begin(0) == offsets[0]
    assert log.end(0) == offsets[-1] + 1
    assert all(before <= m.time <= after for m in messages)
    assert all(isinstance(m.time, int) for m in messages)


def test_reading_from_anywhere_and_in_parts(log: Log) -> None:
    values = [str(i).encode() for i in range(25)]
    log.append([(0, value) for value in values])
    everything = log.read(0, log.begin(0), 100)
    for start_at in (0, 7, 24):
        part = log.read(0, everything[start_at].offset, 5)
        assert part == everything[start_at : start_at + 5]
    assert log.read(0, log.end(0), 5) == []


def test_reading_outside_the_log_is_an_error(log: Log) -> None:
    log.append([(0, b"a")])
    with pytest.raises(MurkError, match="ends at"):
        log.read(0, log.end(0) + 1, 5)


@pytest.mark.parametrize("value", HOSTILE)
def test_any_bytes_are_kept_as_they_are(log: Log, value: bytes) -> None:
    log.append([(1, value)])
    assert read_all(log, 1) == [value]


def test_an_append_is_applied_as_a_whole_or_not_at_all(log: Log) -> None:
    log.append([])
    for bad in ((2, b"x"), (-1, b"x"), (0, b"x" * (MAX_MESSAGE + 1))):
        with pytest.raises(UserError):
            log.append([(0, b"a"), bad])
    assert log.begin(0) == log.end(0)
    log.append([(0, b"x" * MAX_MESSAGE)])
    assert [len(value) for value in read_all(log)] == [MAX_MESSAGE]


def test_one_read_is_bounded_in_bytes_and_still_gets_everywhere(log: Log) -> None:
    for _ in range(4):
        log.append([(0, bytes(900_000))] * 10)
    assert 0 < len(log.read(0, log.begin(0), 1000)) < 40
    assert len(read_all(log)) == 40


def test_the_newest_model_replaces_the_one_before(url: str, log: Log) -> None:
    assert log.model(0) is None
    log.publish(0, b"one")
    log.publish(1, b"other partition")
    log.publish(0, b"two")
    with open_log(url) as again:
        assert (again.model(0), again.model(1)) == (b"two", b"other partition")


def test_state_and_offset_are_committed_together(url: str, log: Log) -> None:
    owner = log.acquire(0)
    assert owner.load() == (None, 0) == log.checkpoint(0)
    dead = [DeadLetter(0, 3, "schema", "id: missing", b"\xff\0")]
    owner.commit(b"state", 5, dead, b"model")
    assert owner.load() == (b"state", 5)
    with open_log(url) as again:
        assert again.checkpoint(0) == (b"state", 5)
        assert again.checkpoint(1) == (None, 0)
        assert again.model(0) == b"model"
        assert list(again.dead_letters()) == dead
    owner.commit(b"later", 9)
    assert owner.load() == (b"later", 9)
    assert log.model(0) == b"model"
    owner.close()
    assert log.acquire(0).load() == (b"later", 9)


def test_an_estimate_is_committed_with_the_state(url: str, log: Log) -> None:
    if not log.takes_estimates:
        # On a cluster it has a topic that somebody must have wanted.
        with TopicSetup(url, make_task(), estimates=True) as setup:
            assert len(setup.create()) == 1
    assert log.takes_estimates
    assert log.estimate() is None
    owner = log.acquire(0)
    owner.commit(b"state", 1, (), None, b"estimate")
    with open_log(url) as again:
        assert (again.estimate(), again.checkpoint(0)) == (b"estimate", (b"state", 1))
    newer = log.acquire(0)
    with pytest.raises(FencedError):
        owner.commit(b"stale", 2, (), None, b"of the stale state")
    assert log.estimate() == b"estimate"
    # It stays until there is another.
    newer.commit(b"new", 3)
    assert log.estimate() == b"estimate"
    newer.commit(b"newer", 4, (), None, b"of the newer state")
    assert log.estimate() == b"of the newer state"


def test_a_model_let_out_never_stands_behind_that_of_the_commit_after_it(log: Log) -> None:
    owner = log.acquire(0)
    for number in range(1, 30):
        owner.publish_uncommitted(f"{number} let out".encode())
        owner.commit(b"state", number, (), f"{number}".encode())
        assert log.model(0) == f"{number}".encode()


def test_a_newer_owner_fences_the_older(url: str, log: Log) -> None:
    older = log.acquire(0)
    older.commit(b"old", 1)
    bystander = log.acquire(1)
    with open_log(url) as elsewhere:
        newer = elsewhere.acquire(0)
        assert newer.load() == (b"old", 1)
        with pytest.raises(FencedError, match="another worker has taken over partition 0"):
            older.commit(b"stale", 2, [DeadLetter(0, 1, "schema", "", b"x")], b"model")
        with pytest.raises(FencedError):
            older.load()
        newer.commit(b"new", 3)
        with pytest.raises(FencedError):
            older.commit(b"stale", 2)
        assert newer.load() == (b"new", 3)
    assert list(log.dead_letters()) == []
    assert log.model(0) is None
    bystander.commit(b"untouched", 1)
    assert log.checkpoint(1) == (b"untouched", 1)


def test_dead_letters_of_one_partition_or_all(log: Log) -> None:
    letters = {
        partition: [DeadLetter(partition, 2 * i, "schema", f"é {i}", HOSTILE[i % len(HOSTILE)]) for i in range(600)]
        for partition in (0, 1)
    }
    for partition, dead in letters.items():
        log.acquire(partition).commit(b"s", 1200, dead)
    assert list(log.dead_letters(1)) == letters[1]
    assert list(log.dead_letters()) == letters[0] + letters[1]


def test_a_commit_repeated_counts_dead_letters_once(log: Log) -> None:
    owner = log.acquire(0)
    dead = [DeadLetter(0, 1, "schema", "", b"x")]
    owner.commit(b"s", 2, dead)
    owner.commit(b"s", 2, dead)
    assert list(log.dead_letters()) == dead


def test_trimming_keeps_the_unread_and_the_window(log: Log) -> None:
    task = make_task()
    log.append([(0, message(task, i)) for i in range(200)])
    later = time.time() + 3600
    log.trim(later)
    assert log.begin(0) == 0
    log.acquire(0).commit(b"s", 120)
    log.trim(time.time() - 3600)
    assert log.begin(0) == 0
    log.trim(later)
    assert log.begin(0) <= 120 - task.duplicates
    kept = read_all(log)
    assert kept == [message(task, i) for i in range(200)][-len(kept) :]
    assert log.end(0) == 200
    log.append([(0, b"next")])
    assert log.read(0, 200, 1)[0].value == b"next"


def test_partitions_that_do_not_exist_are_named(log: Log) -> None:
    for use in (
        lambda: log.read(2, 0, 1),
        lambda: log.begin(-1),
        lambda: log.end(2),
        lambda: log.publish(2, b"m"),
        lambda: log.model(2),
        lambda: log.checkpoint(2),
        lambda: log.acquire(2),
        lambda: list(log.dead_letters(2)),
    ):
        with pytest.raises(UserError, match=r"no partition -?[12].*from 0 to 1"):
            use()


def test_two_processes_append_and_nothing_is_lost_or_torn(url: str, log: Log, start: Start) -> None:
    task = make_task()
    processes = [start("append", url, first, 1000, 20) for first in (0, 1000)]
    at_once(processes)
    for process in processes:
        finish(process)
    values = read_all(log)
    wanted = [message(task, i) for i in range(2000)]
    assert sorted(values) == sorted(wanted)
    # Each process's own releases are in its order.
    place = {value: i for i, value in enumerate(values)}
    places = [place[value] for value in wanted]
    assert all(places[i] < places[i + 1] for i in range(1999) if i != 999)


def test_closing_twice_is_allowed(url: str) -> None:
    log = open_log(url)
    log.close()
    log.close()


def test_an_archive_has_what_the_log_has(log: Log, tmp_path: Path) -> None:
    """Also of what nobody can read, and after the archiver's next start."""
    for count in (1, 2):
        log.append([(0, value) for value in HOSTILE] + [(1, message(make_task(), count))] * 12)
        learner = device_for(make_task()).engine()
        archiver = Archiver(log, make_task(), LocalFolder(str(tmp_path / "archive")), learner, rows=8)
        while not archiver.has_archived(log.ends()):
            archiver.step()
        archiver.flush()
        assert {each.lag for each in archiver.measure().values()} == {0}
        with ArchiveLog(LocalFolder(str(tmp_path / "archive"))) as archive:
            assert archive.identity == log.identity
            for partition in (0, 1):
                assert read_all(archive, partition) == read_all(log, partition) != []
                assert archive.ends()[partition] == log.ends()[partition]
