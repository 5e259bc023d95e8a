"""What the embedded log owes beyond the contract: its file, its disk and the processes around it."""

import contextlib
import os
import random
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murk._internal.sqlite import Database
from murk.errors import MurkError, UserError
from murk.producers import Ledger
from murk.stream.log import sqlite
from murk.stream.log import sqlite as batches
from murk.stream.log.interface import CrowdMark, DeadLetter
from murk.stream.log.open import open_log
from murk.stream.log.sqlite import LOG_FILE, SqliteLog
from tests.stream.harness import make_task, message, read_all, rewrite, spoil
from tests.stream.processes import Start, at_once, fill, finish


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("murk.db", "write sqlite:///PATH"),
        ("", "write sqlite:///PATH"),
        ("sqlite:/murk.db", "write sqlite:///PATH"),
        ("sqlite://murk.db", "write sqlite:///murk.db"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "a log is a file"),
        ("sqlite:///logs/", "names no file"),
        ("sqlite:///log.db?mode=ro", "has a query"),
        ("sqlite:////tmp/log.db?", "has a query"),
        ("sqlite:///file:///log.db", "has another scheme within"),
        ("sqlite:///kafka://localhost:9092/x", "has another scheme within"),
        ("sqlite:///a\0b", "names no file"),
        ("redis://host:1", "unknown kind of log 'redis'"),
        ("kafka://host", "kafka://HOST:PORT"),
        ("sqlite:////nowhere/at/all/log.db", "directory /nowhere/at/all .* does not exist"),
        ("sqlite:////tmp", "is a directory"),
        ("sqlite:////etc/passwd/log.db", "directory /etc/passwd .* does not exist"),
        ("sqlite:////tmp/" + "x" * 300, r"cannot be reached \(File name too long\)"),
    ],
)
def test_urls_that_name_no_log_are_refused_with_the_remedy(url: str, remedy: str) -> None:
    with pytest.raises(MurkError, match=remedy):
        open_log(url)


def test_no_password_of_a_url_is_repeated() -> None:
    for url in ("kafka://me:secret@host:1", "kafa://me:secret@host:1", "me:secret@host"):
        with pytest.raises(UserError) as caught:
            open_log(url)
        assert "secret" not in str(caught.value)


def test_relative_and_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_log("sqlite:///a b%20?#é.db") as relative:
        assert (tmp_path / "a b%20?#é.db").exists()
        with open_log(f"sqlite:///{tmp_path}/a b%20?#é.db", create=False) as absolute:
            assert absolute.identity == relative.identity


def foreign_files(folder: Path) -> dict[str, tuple[Path, str]]:
    text = folder / "notes.txt"
    text.write_text("a person's notes, nothing to do with a log\n" * 200)
    short = folder / "short"
    short.write_bytes(b"x")
    other = folder / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE photos (name)")
        connection.execute("PRAGMA application_id = 77")
    connection.close()
    plain = folder / "plain.db"
    with sqlite3.connect(plain) as connection:
        connection.execute("CREATE TABLE messages (value)")
    connection.close()
    newer = folder / "newer.db"
    with SqliteLog(newer) as log:
        log._database._connection.execute("UPDATE meta SET value = 2 WHERE key = 'format'")
    older = folder / "older.db"
    with SqliteLog(older) as log:
        log._database._connection.execute("UPDATE meta SET value = 0 WHERE key = 'format'")
    beheaded = folder / "beheaded.db"
    with SqliteLog(beheaded) as log:
        log.register_task(make_task().document())
    beheaded.write_bytes(bytes(100) + beheaded.read_bytes()[100:])
    return {
        "text": (text, "not an SQLite database"),
        "short": (short, "not an SQLite database"),
        "other": (other, r"something else \(application id 77\)"),
        "plain": (plain, r"something else \(application id 0\)"),
        "newer": (newer, r"another version of Murk \(format 2, while this one reads format 1\)"),
        "older": (older, r"another version of Murk \(format 0, while this one reads format 1\)"),
        "beheaded": (beheaded, "not an SQLite database"),
    }


@pytest.mark.parametrize("kind", ["text", "short", "other", "plain", "newer", "older", "beheaded"])
@pytest.mark.parametrize("create", [True, False])
def test_a_file_that_is_not_a_log_is_refused_and_left_as_it_is(tmp_path: Path, kind: str, create: bool) -> None:
    path, words = foreign_files(tmp_path)[kind]
    before = path.read_bytes()
    with pytest.raises(UserError, match=words) as caught:
        SqliteLog(path, create=create)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_log_only_when_creating(path: Path) -> None:
    path.touch()
    with pytest.raises(UserError, match="is empty, not a log"):
        SqliteLog(path, create=False)
    assert path.stat().st_size == 0
    with SqliteLog(path) as log:
        assert log.document() is None


def test_the_write_ahead_log_of_any_opening_is_copied_at_four_megabytes(path: Path) -> None:
    SqliteLog(path).close()
    for create in True, False:
        with contextlib.closing(Database(path, LOG_FILE, create=create)) as file:
            assert file._pragma("page_size") * file._pragma("wal_autocheckpoint") == 2**22


def test_damage_within_a_file_is_noticed_and_nothing_is_overwritten(path: Path, log: SqliteLog) -> None:
    task = make_task()
    log.append([(0, message(task, i)) for i in range(500)])
    log.close()
    data = bytearray(path.read_bytes())
    size = LOG_FILE.page_bytes
    for page in range(5, len(data) // size):
        data[page * size : (page + 1) * size] = b"\xa5" * size
    path.write_bytes(data)
    with SqliteLog(path) as damaged:
        with pytest.raises(UserError, match=r"is damaged.*restore it from a copy"):
            read_all(damaged)
        with pytest.raises(UserError, match="is damaged"):
            damaged.append([(0, b"x")])
    assert path.read_bytes() == bytes(data)


DAMAGE = {
    "UPDATE models SET message = 'text'": lambda log: log.model(0),
    "UPDATE states SET state = 1.5": lambda log: log.checkpoint(0),
    "UPDATE states SET \"offset\" = 'x'": lambda log: log.acquire(0).load(),
    "UPDATE streams SET \"end\" = x'00'": lambda log: log.end(0),
    "UPDATE batches SET value = 7": read_all,
    "UPDATE batches SET value = 'text'": read_all,
    "UPDATE batches SET number = 'text'": read_all,
    "UPDATE batches SET number = 0": read_all,
    "UPDATE batches SET number = -1": read_all,
    "UPDATE batches SET number = 2": read_all,
    "UPDATE batches SET number = 257, value = zeroblob(2000)": read_all,
    "UPDATE batches SET number = 2, value = x'0100000001000000FF'": read_all,
    "UPDATE meta SET value = 1.5 WHERE key = 'document'": lambda log: log.document(),
    "INSERT INTO dead_letters VALUES (0, 1, 0, x'00', 'd', x'00', 0)": lambda log: list(log.dead_letters()),
    'UPDATE streams SET "end" = 0': lambda log: log.append([(0, b"y")]),
    "DELETE FROM streams": lambda log: log.begin(0),
    "DELETE FROM states": lambda log: log.checkpoint(0),
    "DELETE FROM states WHERE partition = 0": lambda log: log.acquire(0),
    "DROP TABLE models": lambda log: log.model(0),
}


@pytest.mark.parametrize("sql", DAMAGE)
def test_a_damaged_cell_is_said_to_be_one(log: SqliteLog, sql: str) -> None:
    """SQLite checks what is written, and not what it reads from a page that a bad disk has changed."""
    log.append([(0, b"x")])
    log.publish(0, b"{}")
    spoil(log, sql)
    with pytest.raises(UserError, match=r"is damaged.*restore it from a copy"):
        DAMAGE[sql](log)


def test_no_flipped_bit_alters_a_release_or_a_model(path: Path, log: SqliteLog) -> None:
    """Each bit of an answer and of what places it: JSON stays JSON where one digit turns into another."""
    task = make_task()
    log.append([(0, message(task, 1)), (0, message(task, 2))])
    log.append([(0, message(task, 3))])
    log.publish(0, b'{"parameters":[0.25,0.5]}')
    [(whole,)] = log._database.query('SELECT value FROM batches WHERE "offset" = 2')
    for table, column, value in (
        ("batches", "value", whole), ("batches", "time", None), ("models", "message", b'{"parameters":[0.25,0.5]}')
    ):  # fmt: skip
        where = 'WHERE "offset" = 2' if table == "batches" else ""
        [(stored,)] = log._database.query(f"SELECT {column} FROM {table} {where}")
        spoiled = [stored ^ 1 << bit for bit in range(32)] if value is None else list(flipped(value))
        for other in spoiled:
            spoil(log, f"UPDATE {table} SET {column} = ? {where}", other)
            for use in (log.read, log.fetch) if table == "batches" else (log.model,):
                with pytest.raises(UserError, match=f"is damaged.*table {table} does not fit its checksum"):
                    use(*([0, 0, 10] if table == "batches" else [0]))
        spoil(log, f"UPDATE {table} SET {column} = ? {where}", stored)
    assert len(log.read(0, 0, 10)) == 3
    assert log.model(0) == b'{"parameters":[0.25,0.5]}'


def test_no_flipped_bit_alters_what_else_a_log_holds(log: SqliteLog) -> None:
    """Of states, estimates, dead letters, the extent of a partition, the task and the mark of a shuffler."""
    task = make_task()
    log.append([(0, message(task, number)) for number in range(3)])
    letter = DeadLetter(0, 1, "stale", "by 7", b'{"payload":[1]}')
    log.acquire(0).commit(b'{"iterate":[0.25]}', 3, [letter], estimate=b'{"value":0.5}')
    with log._database.write() as connection:
        log._put_meta(connection, "shuffled", b"0" * 32 + b":0")
    first = 'WHERE "partition" = 0'
    uses = {
        ("states", "state", first): lambda: log.checkpoint(0),
        ("states", '"offset"', first): lambda: log.acquire(0).load(),
        ("streams", "begin", first): lambda: log.begin(0),
        ("streams", '"end"', first): lambda: log.cached_model(0),
        ("dead_letters", "value", ""): lambda: list(log.dead_letters()),
        ("dead_letters", "detail", ""): lambda: list(log.dead_letters()),
        ("estimates", "message", ""): log.estimate,
        ("meta", "value", "WHERE key = 'document'"): log.document,
        ("meta", "value", "WHERE key = 'shuffled'"): log.crowd_mark,
        ("meta", "value", "WHERE key = 'shuffled check'"): log.crowd_mark,
    }
    log._heard.clear()
    for (table, column, where), use in uses.items():
        before = use()
        [(stored,)] = log._database.query(f"SELECT {column} FROM {table} {where}")
        if isinstance(stored, int):
            spoiled = [stored ^ 1 << bit for bit in range(32)]
        else:
            spoiled = list(flipped(stored)) if isinstance(stored, bytes) else [stored[:-1], stored + "0"]
        for other in spoiled:
            spoil(log, f"UPDATE {table} SET {column} = ? {where}", other)
            log._heard.clear()
            with pytest.raises(UserError, match=r"is damaged.*table \w+ does not fit its checksum.*restore it"):
                use()
        spoil(log, f"UPDATE {table} SET {column} = ? {where}", stored)
        assert use() == before
    for key in ("document", "document check", "shuffled"):
        [(stored,)] = log._database.query("SELECT value FROM meta WHERE key = ?", (key,))
        spoil(log, "DELETE FROM meta WHERE key = ?", key)
        with pytest.raises(UserError, match="is damaged"):
            (log.crowd_mark if "shuffled" in key else log.document)()
        spoil(log, "INSERT INTO meta VALUES (?, ?)", key, stored)


def flipped(value: bytes) -> Iterator[bytes]:
    for at in range(0, len(value), 7):
        for bit in range(8):
            yield value[:at] + bytes([value[at] ^ 1 << bit]) + value[at + 1 :]


def test_a_value_that_is_replaced_while_it_is_read_is_not_said_to_be_damaged(
    path: Path, log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, crowds = Database.query, 0

    def slow(database: Database, sql: str, *values: Any) -> list[Any]:
        nonlocal crowds
        rows = query(database, sql, *values)
        if database is not other._database and "meta" in sql:
            crowds += 1
            with monkeypatch.context() as patch:
                patch.setattr(Database, "query", query)
                other.append_crowd([], CrowdMark("0" * 32, crowds))
        return rows

    with SqliteLog(path) as other:
        other.claim("0" * 32)
        monkeypatch.setattr(Database, "query", slow)
        assert [log.crowd_mark() for _ in range(2)] == [CrowdMark("0" * 32, number) for number in range(2)]


def test_a_log_deleted_or_replaced_while_in_use_is_noticed(path: Path, log: SqliteLog, tmp_path: Path) -> None:
    owner = log.acquire(0)
    path.rename(tmp_path / "moved.db")
    with SqliteLog(path) as other:
        other.register_task(make_task().document())
        for use in (
            lambda: log.append([(0, b"x")]),
            lambda: log.read(0, 0, 1),
            lambda: owner.commit(b"s", 1),
        ):
            with pytest.raises(MurkError, match="deleted or replaced while it was in use"):
                use()
        assert read_all(other) == []


def test_a_file_that_a_later_version_changes_meanwhile_is_not_said_to_be_damaged(log: SqliteLog) -> None:
    log.append([(0, b"x")])
    spoil(log, "UPDATE meta SET value = 2 WHERE key = 'format'")
    assert read_all(log) == [b"x"]
    spoil(log, "ALTER TABLE batches RENAME TO elsewhere")
    for use in (lambda: read_all(log), lambda: log.append([(0, b"y")])):
        with pytest.raises(UserError, match=r"another version of Murk \(format 2, .*it was left as it is"):
            use()


@pytest.mark.parametrize("limit", [2**63 - 1, 10**30])
def test_no_limit_is_too_large(log: SqliteLog, limit: int) -> None:
    log.append([(0, b"a"), (0, b"b"), (0, b"c")])
    assert [value for _, _, value in log.read(0, 1, limit)] == [b"b", b"c"]
    assert log.read(0, 1, -1) == log.read(0, 1, 0) == []
    with pytest.raises(MurkError, match=r"ends at offset 3, and offset 9223372036854775807 was requested"):
        log.read(0, 2**63 - 1, limit)


def test_a_hostile_file_cannot_fill_the_memory(log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """One read takes rows until their bytes, sizes of messages included, are too many."""
    monkeypatch.setattr(sqlite, "READ_BYTES", 10_000)
    taken: list[int] = []
    monkeypatch.setattr(sqlite, "unpack", lambda rows: taken.append(len(rows)) or [])
    rewrite(log, 'UPDATE streams SET "end" = 1000')
    with log._database.write() as connection:
        for offset in range(1000):
            row = (0, offset, 0, bytes(1024), 256, sqlite.checksum(bytes(1024), 0, offset, 0, 256))
            connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?)", row)
    log.read(0, 0, 1000)
    assert taken == [10]


def test_what_is_removed_is_overwritten_whatever_sqlite_was_built_to_do(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ledgers, too; opened by an SQLite that by itself does not."""
    connect = sqlite3.connect

    def built_otherwise(*given: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*given, **named)
        connection.execute("PRAGMA secure_delete = OFF")
        return connection

    monkeypatch.setattr(sqlite3, "connect", built_otherwise)
    with SqliteLog(path) as log, Ledger(path.with_name("ledger.db")) as ledger:
        for file in (log._database, ledger._file):
            assert file.query("PRAGMA secure_delete") == [(1,)]


def test_writes_survive_a_power_failure(path: Path, log: SqliteLog) -> None:
    """As far as SQLite promises: WAL, and every commit synchronised to the disk."""
    assert log._database.query("PRAGMA journal_mode") == [("wal",)]
    assert log._database.query("PRAGMA synchronous") == [(2,)]


def test_append_times_are_the_clocks_seconds_under_the_lock(path: Path) -> None:
    now = [1_000.75]
    with SqliteLog(path, clock=lambda: now[0]) as log:
        log.register_task(make_task().document())
        log.append([(0, b"a"), (0, b"b")])
        now[0] = 2_000.0
        log.append([(0, b"c")])
        assert [m.time for m in log.read(0, 0, 10)] == [1_000, 1_000, 2_000]


def test_trimming_goes_by_time_from_the_beginning(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "TRIM_CHUNK", 7)
    now = [0.0]
    with SqliteLog(path, clock=lambda: now[0]) as log:
        log.register_task(make_task(duplicates=10).document())
        # The clock is set back once: what stands behind a younger message stays with it.
        for now[0] in (100.0, 200.0, 150.0, 300.0):
            log.append([(0, str(i).encode()) for i in range(25)])
        owner = log.acquire(0)
        owner.commit(b"s", 60, [DeadLetter(0, 5, "schema", "", b"5")])
        assert log.trim(100) == 0
        assert log.trim(180) == 25
        assert log.begin(0) == 25
        assert log.trim(1_000) == 25
        assert log.begin(0) == 50
        owner.commit(b"s", 100)
        assert log.trim(300) == 25
        assert log.trim(1_000) == 15
        assert (log.begin(0), log.end(0)) == (90, 100)
        assert [m.offset for m in log.read(0, 90, 100)] == list(range(90, 100))
        with pytest.raises(MurkError, match=r"begins at offset 90, and offset 3 .*retention has removed"):
            log.read(0, 3, 5)
        assert list(log.dead_letters()) == []


def test_a_batch_leaves_once_all_of_it_has(path: Path) -> None:
    """Until then it begins later for whoever reads, and nothing before is given."""
    with SqliteLog(path, clock=lambda: 0.0) as log:
        log.register_task(make_task(duplicates=10).document())
        for first in (0, 20):
            log.append([(0, str(i).encode()) for i in range(first, first + 20)])
        owner = log.acquire(0)
        for offset, begin, batches in ((25, 15, [0, 20]), (30, 20, [20]), (40, 30, [20]), (50, 40, [])):
            if offset == 50:
                log.append([(0, b"x")] * 10)
            owner.commit(b"s", offset)
            log.trim(1)
            assert log.begin(0) == begin
            kept = [first for (first,) in log._database.query('SELECT "offset" FROM batches')]
            assert kept == batches + [40] * (offset == 50)
            assert log.read(0, begin, 1)[0].offset == begin
            for gone in (begin - 1, kept[0] - 1):
                with pytest.raises(MurkError, match=f"begins at offset {begin}, and offset {gone} was requested"):
                    log.read(0, gone, 100)
        # Of the newest batch, too, nothing stays that has left.
        assert log._trim_to(0, 50) == 10
        assert log._database.query("SELECT * FROM batches") == []
        assert log.read(0, 50, 10) == []


@given(
    appends=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=12), min_size=1, max_size=6),
    asked=st.lists(st.tuples(st.integers(0, 80), st.integers(0, 30)), min_size=1, max_size=10),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_read_does_not_depend_on_how_it_was_appended(
    tmp_path: Path, appends: list[list[int]], asked: list[tuple[int, int]]
) -> None:
    with (
        tempfile.TemporaryDirectory(dir=tmp_path) as folder,
        pytest.MonkeyPatch.context() as patch,
        SqliteLog(Path(folder) / "log.db") as log,
    ):
        patch.setattr(batches, "BATCH_BYTES", 64)
        patch.setattr(batches, "BATCH_MESSAGES", 5)
        log.register_task(make_task(partitions=2).document())
        wanted: dict[int, list[bytes]] = {0: [], 1: []}
        for sizes in appends:
            values = [(size % 2, bytes([65 + size]) * size) for size in sizes]
            log.append(values)
            for partition, value in values:
                wanted[partition].append(value)
        for partition, values_there in wanted.items():
            assert read_all(log, partition) == values_there
            for offset, limit in asked:
                if offset <= len(values_there):
                    found = log.read(partition, offset, limit)
                    assert [(m.offset, m.value) for m in found] == [*enumerate(values_there)][offset : offset + limit]


def test_of_two_batches_at_one_offset_neither_is_believed(log: SqliteLog) -> None:
    log.append([(0, b"a"), (0, b"b")])
    log.append([(0, b"c")])
    spoil(log, 'UPDATE batches SET "offset" = 1 WHERE "offset" = 2')
    with pytest.raises(UserError, match=r"is damaged.*restore it from a copy"):
        read_all(log)


def test_of_two_that_trim_at_once_the_slower_moves_nothing_back(log: SqliteLog) -> None:
    log.append([(0, b"x")] * 100)
    assert log._trim_to(0, 30) == 30
    assert log._trim_to(0, 10) == 0
    assert log.begin(0) == log.read(0, 30, 1)[0].offset == 30


def test_dead_letters_leave_with_their_time_and_not_before(path: Path) -> None:
    now = [100.0]
    with SqliteLog(path, clock=lambda: now[0]) as log:
        log.register_task(make_task().document())
        dead = [DeadLetter(0, 1, "schema", "", b"x")]
        log.acquire(0).commit(b"s", 2, dead)
        log.trim(100)
        assert list(log.dead_letters()) == dead
        log.trim(101)
        assert list(log.dead_letters()) == []


def test_reading_goes_on_while_somebody_writes(path: Path, log: SqliteLog) -> None:
    log.append([(0, b"a")])
    with (
        SqliteLog(path) as writer,
        open_log(f"sqlite:///{path}", create=False) as reader,
        writer._database.write() as connection,
    ):
        connection.execute("INSERT INTO batches VALUES (0, 1, 0, 'unfinished', 1, 0)")
        assert read_all(reader) == [b"a"]
        assert reader.checkpoint(0) == (None, 0)


def test_a_lock_held_for_too_long_is_said_so(path: Path, log: SqliteLog) -> None:
    words = r"another process kept the log .* locked for more than 0.05 s"
    with (
        SqliteLog(path, timeout=0.05) as hasty,
        log._database.write(),
        pytest.raises(MurkError, match=words),
    ):
        hasty.append([(0, b"x")])
    log.append([(0, b"y")])
    assert read_all(log) == [b"y"]


def test_a_full_disk_loses_nothing_and_the_log_carries_on_after(path: Path, log: SqliteLog) -> None:
    """A real SQLITE_FULL: the file may have no more pages than these."""
    task = make_task()
    pages = log._database.query("PRAGMA page_count")[0][0]
    log._database.query(f"PRAGMA max_page_count = {pages + 30}")
    with pytest.raises(MurkError, match=r"the disk is full: the log .*log.db .*nothing is lost"):
        fill(log, 10)
    done = log.end(0)
    assert done > 0
    assert done % 10 == 0
    assert read_all(log) == [message(task, i) for i in range(done)]
    owner = log.acquire(0)
    with pytest.raises(MurkError, match="the disk is full"):
        owner.commit(bytes(10**6), done, [DeadLetter(0, 1, "schema", "", b"x")], b"model")
    assert owner.load() == (None, 0)
    assert (list(log.dead_letters()), log.model(0)) == ([], None)
    log._database.query(f"PRAGMA max_page_count = {2**30}")
    log.append([(0, message(task, done))])
    owner.commit(b"s", done)
    with SqliteLog(path) as again:
        assert read_all(again) == [message(task, i) for i in range(done + 1)]
        assert again.checkpoint(0) == (b"s", done)


def test_a_disk_that_refuses_to_write_loses_nothing(path: Path, log: SqliteLog, start: Start) -> None:
    """A real failing write (EFBIG) in the middle of a transaction, in a process whose files may not grow."""
    log.close()
    said = finish(start("crowd", f"sqlite:///{path}", 250_000))
    count, words = said[0].split(" ", 1)
    assert re.search(r"(disk failed|disk is full).*log\.db.*as it was before this write", words)
    assert int(count) > 0
    with SqliteLog(path) as again:
        assert read_all(again) == [message(make_task(), i) for i in range(int(count) + 100)]


def test_a_log_that_may_only_be_read(start: Start) -> None:
    """With a writer's files beside it and without; then every write says what to do."""
    folder = Path(tempfile.mkdtemp())
    try:
        path = folder / "log.db"
        for closed in (False, True):
            log = SqliteLog(path)
            log.register_task(make_task().document())
            log.append([(0, b"x")] * 3)
            if closed:
                log.close()
            for file in folder.iterdir():
                file.chmod(0o444)
            folder.chmod(0o555)
            try:
                count, *refused = finish(start("unprivileged", path))
            finally:
                folder.chmod(0o755)
                for file in folder.iterdir():
                    file.chmod(0o644)
                log.close()
            assert count == ("6 6" if closed else "3 3")
            assert len(refused) == 3
            for words in refused[:2]:
                assert re.search(r"log\.db is read-only for this user.*writable", words)
            assert re.search(r"new\.db cannot be opened.*able to read and write", refused[2])
    finally:
        shutil.rmtree(folder)


def test_an_appender_killed_at_any_moment_leaves_whole_batches(path: Path, log: SqliteLog, start: Start) -> None:
    """kill -9, eight times at random moments: every batch is there as a whole or not at all."""
    rng, task, first = random.Random(5), make_task(), 0
    for _ in range(8):
        process = start("append", f"sqlite:///{path}", first, 10**9, 20)
        at_once([process])
        time.sleep(rng.uniform(0.0, 0.1))
        assert process.kill() == -9
        count = log.end(0)
        assert count % 20 == 0
        first = count
    assert first > 0
    assert read_all(log) == [message(task, i) for i in range(first)]


def test_processes_that_create_at_once_share_one_log(tmp_path: Path, start: Start) -> None:
    """Opening creates: none may see half a log or make another one over it."""
    for attempt in range(3):
        url = f"sqlite:///{tmp_path}/{attempt}.db"
        processes = [start("register_task", url, 21) for _ in range(3)]
        at_once(processes)
        assert [finish(process) for process in processes] == [["won"]] * 3


def test_a_process_opens_no_descriptors_that_stay(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        SqliteLog(path).close()
        with pytest.raises(UserError):
            SqliteLog(Path(__file__))
    assert len(os.listdir("/proc/self/fd")) == before


class Failing:
    """A connection that never comes to the write-ahead log."""

    def __init__(self, code: int) -> None:
        self.code, self.asked = code, 0

    def execute(self, sql: str) -> None:
        self.asked += 1
        assert self.asked < 50
        error = sqlite3.OperationalError("no")
        error.sqlite_errorcode = self.code
        raise error


def test_whoever_waits_for_the_write_ahead_log_waits_for_others_alone() -> None:
    """Its mode is changed by one process at a time; every other error is one at once."""
    for code, timeout, asked in ((sqlite3.SQLITE_IOERR, 60.0, (1, 1)), (sqlite3.SQLITE_BUSY, 0.05, (2, 6))):
        database = object.__new__(Database)
        database._connection, database._timeout = Failing(code), timeout
        with pytest.raises(sqlite3.OperationalError):
            database._use_wal()
        assert asked[0] <= database._connection.asked <= asked[1]


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        (sqlite3.OperationalError, sqlite3.SQLITE_FULL, "the disk is full: the log {path} could not be written"),
        (sqlite3.OperationalError, sqlite3.SQLITE_IOERR, "the disk failed while the log {path} was in use (no \u2603)"),
        (sqlite3.OperationalError, sqlite3.SQLITE_READONLY, "the log {path} is read-only for this user (no \u2603)"),
        (sqlite3.OperationalError, sqlite3.SQLITE_PERM, "the log {path} is read-only for this user (no \u2603)"),
        (sqlite3.OperationalError, sqlite3.SQLITE_CANTOPEN, "the log {path} cannot be opened (no \u2603)"),
        (sqlite3.OperationalError, sqlite3.SQLITE_BUSY, "another process kept the log {path} locked"),
        (sqlite3.OperationalError, sqlite3.SQLITE_PROTOCOL, "another process kept the log {path} locked"),
        (sqlite3.OperationalError, sqlite3.SQLITE_LOCKED, "another process kept the log {path} locked"),
        (sqlite3.DatabaseError, sqlite3.SQLITE_NOTADB, "{path} is not a log: it is not an SQLite database"),
        (sqlite3.DatabaseError, sqlite3.SQLITE_CORRUPT, "the log {path} is damaged (no \u2603) and was left as it is"),
        # Words that may quote what is in the file hold nothing that a terminal obeys.
        (sqlite3.OperationalError, sqlite3.SQLITE_ERROR, r"the log {path} is damaged (no \u2603) and was left"),
        (sqlite3.OperationalError, None, r"the log {path} is damaged (no \u2603) and was left"),
        (sqlite3.IntegrityError, sqlite3.SQLITE_CONSTRAINT, r"the log {path} is damaged (no \u2603) and was left"),
        (sqlite3.DataError, sqlite3.SQLITE_TOOBIG, r"the log {path} is damaged (no \u2603) and was left"),
    ],
)
def test_what_is_said_of_an_error_of_sqlites(
    path: Path, log: SqliteLog, kind: type[sqlite3.Error], code: int | None, words: str
) -> None:
    """Also by an extended code, whose low byte it is."""
    for extended in (0, 11 << 8):
        error = kind("no \u2603")
        if code is not None:
            error.sqlite_errorcode = code | extended
        assert str(log._database._explained(error)).startswith(words.format(path=path))


@pytest.mark.parametrize("kind", [sqlite3.ProgrammingError, sqlite3.InterfaceError])
def test_what_is_a_mistake_of_ours_is_said_as_it_is(log: SqliteLog, kind: type[sqlite3.Error]) -> None:
    for code in (None, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISUSE):
        error = kind("a bug")
        if code is not None:
            error.sqlite_errorcode = code
        assert log._database._explained(error) is error


@pytest.mark.parametrize(("simulated", "heard", "fresh"), [(False, 1e9, False), (False, 0.0, True), (True, 1e9, True)])
def test_how_old_a_devices_model_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simulated: bool, heard: float, fresh: bool
) -> None:
    monkeypatch.setattr(sqlite, "HEARD", heard)
    path = tmp_path / "log.db"
    with SqliteLog(path) as device, SqliteLog(path) as learner:
        device.register_task(make_task().with_simulated(simulated).document())
        assert device.cached_model(0) == (None, 0)
        learner.append([(0, b"one")])
        learner.publish(0, b"model")
        assert device.cached_model(0) == ((b"model", 1) if fresh else (None, 0))
        # The log itself is read whenever it is asked, and what was published through it is known.
        assert (device.model(0), device.end(0)) == (b"model", 1)
        device.publish(0, b"own")
        assert device.cached_model(0) == (b"own", 1)
        path.unlink()
        with pytest.raises(MurkError, match="was deleted or replaced"):
            device.cached_model(0)
