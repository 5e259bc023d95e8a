"""Runs that 0.3.0 left half done, of each of its protocols: logs, states, ledgers and notes as it wrote them.

`data/0.3.0` was made by that release: `murk run --seed 1` over the first 80 women of the demonstration, ended after
half of them; `expected.json` is what the same release learned from all of them without an end in between.
"""

import gzip
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from murk.errors import MurkError
from murk.learners.problem import problem_for
from murk.stream import Task, Worker, open_log
from murk.stream.log.sqlite import SqliteLog, upgrade
from tests.cli.harness import murk, people, query, refused
from tests.upgrade import rules_0_3_0 as rules

DATA = Path(__file__).parent / "data" / "0.3.0"
PROTOCOLS = ("gradients", "examples", "moments", "sketch")
LOG, LEDGER, PEOPLE = "sqlite:///log.db", "ledger.db", 80


@pytest.fixture(params=PROTOCOLS)
def half(request: pytest.FixtureRequest, folder: Path) -> Path:
    """A folder with what 0.3.0 left."""
    return restored(request.param, folder)


def restored(protocol: str, folder: Path) -> Path:
    for name in ("log", "ledger"):
        with closing(sqlite3.connect(folder / f"{name}.db")) as connection:
            connection.executescript(gzip.decompress((DATA / protocol / f"{name}.sql.gz").read_bytes()).decode())
    for name in ("log.db.run.json", "task.yaml", "expected.json"):
        shutil.copy(DATA / protocol / name, folder)
    people(folder / "people.csv", PEOPLE)
    if protocol == "sketch":
        # What the file says of a log that was begun with the analysis of then, as the changelog has it.
        text = (folder / "task.yaml").read_text()
        (folder / "task.yaml").write_text(text.replace("window: 20}", "window: 20, analysis: joint}"))
    return folder


def expected(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    return found


def go_on(folder: Path) -> dict[str, Any]:
    """The command that 0.3.0 was given, again."""
    return murk(
        "run", "task.yaml", "--source", "people.csv", "--log", LOG, "--ledger", LEDGER, "--seed", 1, "--yes", "--json",
        folder=folder,
    ).json  # fmt: skip


def state(folder: Path) -> bytes:
    [(found,)] = query(folder / "log.db", "SELECT state FROM states")
    assert isinstance(found, bytes)
    return found


def test_a_run_that_the_last_release_began_is_finished(half: Path) -> None:
    wanted = expected(half)
    before = murk("status", "--log", LOG, "--json", folder=half).json
    assert (before["releases"], before["lag"]) == (wanted["at_half"], 0)
    found = go_on(half)
    assert (found.get("people", found.get("records")), found["releases"], found["refusals"]) == (
        PEOPLE,
        wanted["releases"],
        0,
    )
    assert (found["duplicates"], found["dead_letters"]) == (0, {})
    # The same noise from the same seed, the same update: what it would have come to without an upgrade.
    assert found["coefficients"] == pytest.approx(wanted["coefficients"], rel=1e-9)
    # Nobody is asked twice, and what was spent before counts.
    totals = murk("ledger", LEDGER, "--json", folder=half).json
    assert (totals["releases"], totals["queued"]) == (wanted["releases"], 0)
    again = go_on(half)
    assert again["releases"] == wanted["releases"]
    assert again["state_digest"] == found["state_digest"]


def test_what_the_last_release_had_not_learned_yet_is_learned(folder: Path) -> None:
    """A learner goes on from its state, over messages that were appended meanwhile; their format is one."""
    restored("gradients", folder)
    go_on(folder)
    with open_log(f"sqlite:///{folder}/log.db", create=False) as log:
        messages = log.read(0, 0, log.end(0))
    half = expected(folder)["at_half"]
    (folder / "later").mkdir()
    restored("gradients", folder / "later")
    with closing(sqlite3.connect(folder / "later" / "log.db")) as connection:
        connection.executemany("INSERT INTO messages VALUES (0, ?, ?, ?)", messages[half:])
        connection.execute('UPDATE streams SET "end" = ?', (len(messages),))
        connection.commit()
    with open_log(f"sqlite:///{folder}/later/log.db") as log:
        document = log.document()
        assert document is not None
        task = Task.from_document(document)
        with Worker(log, task, problem_for(task).engine()) as worker:
            assert worker.step().learned == len(messages) - half
    # Bit for bit what the run came to that released and learned in turns.
    assert state(folder / "later") == state(folder)
    # Devices of both versions send messages of the same keys.
    assert len({tuple(sorted(json.loads(value))) for _, _, value in messages}) == 1


def log_format(folder: Path) -> int:
    [(found,)] = query(folder / "log.db", "SELECT value FROM meta WHERE key = 'format'")
    assert isinstance(found, int)
    return found


def test_a_log_file_is_read_by_the_last_release_until_something_is_written(half: Path) -> None:
    """Back is possible until a device or a learner of this version has written; looking changes nothing."""
    before = state(half)
    rules.decode_state(before)
    murk("status", "--log", LOG, "--json", folder=half)
    murk("dead-letters", "--log", LOG, "--json", folder=half)
    assert state(half) == before
    go_on(half)
    with pytest.raises(rules.Refused, match=r"written by another version of Murk \(schema 2"):
        rules.decode_state(state(half))
    with closing(sqlite3.connect(half / "log.db")) as connection, pytest.raises(rules.Refused, match="format 2"):
        rules.check_file(connection, "log")


def test_the_last_releases_messages_are_read_before_and_after_they_become_batches(folder: Path) -> None:
    restored("examples", folder)
    path = folder / "log.db"
    rows = query(path, 'SELECT "offset", time, value FROM messages ORDER BY "offset"')
    assert len(rows) > 10
    with SqliteLog(path) as reader, SqliteLog(path) as writer:
        assert reader.read(0, 0, 1000) == rows
        assert reader.read(0, 5, 3) == rows[5:8]
        assert log_format(folder) == 1
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("BEGIN")
            upgrade(connection)
            connection.rollback()
        assert log_format(folder) == 1
        # As by a reader that looked just before another process upgraded the log.
        looked, upgraded = iter([False]), SqliteLog._is_upgraded
        writer.append([(0, b"one"), (0, b"two")])
        assert log_format(folder) == 2
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SqliteLog, "_is_upgraded", lambda log: next(looked, None) is None and upgraded(log))
            assert reader.read(0, 5, 3) == rows[5:8]
        assert [m.value for m in reader.read(0, len(rows) - 1, 10)] == [rows[-1][2], b"one", b"two"]
        # What knows only format 1, and has the file open still, fails.
        with pytest.raises(sqlite3.OperationalError, match="no such table: messages"):
            query(path, "SELECT * FROM messages")


def test_a_full_disk_leaves_the_last_releases_log_as_it_was(folder: Path) -> None:
    restored("examples", folder)
    path = folder / "log.db"
    rows = query(path, 'SELECT "offset", time, value FROM messages ORDER BY "offset"')
    with SqliteLog(path) as log:
        pages = log._database.query("PRAGMA page_count")[0][0]
        log._database.query(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(MurkError, match="the disk is full"):
            log.append([(0, bytes(10_000))])
        assert log_format(folder) == 1
        assert log.read(0, 0, 1000) == query(path, 'SELECT "offset", time, value FROM messages') == rows
        log._database.query(f"PRAGMA max_page_count = {2**30}")
        log.append([(0, bytes(10_000))])
        assert log.read(0, 0, 1000)[:-1] == rows
    assert log_format(folder) == 2


def test_removing_the_last_releases_messages_makes_batches_of_them(folder: Path) -> None:
    restored("examples", folder)
    path = folder / "log.db"
    rows = query(path, 'SELECT "offset", time, value FROM messages ORDER BY "offset"')
    with SqliteLog(path) as log:
        assert log._trim_to(0, 7) == 7
        assert log.read(0, 7, 1000) == rows[7:]
    assert log_format(folder) == 2


def test_a_ledger_goes_one_way(folder: Path) -> None:
    half = restored("gradients", folder)
    with closing(sqlite3.connect(half / LEDGER)) as connection:
        rules.check_file(connection, "ledger")
    spent = murk("ledger", LEDGER, "--json", folder=half).json
    assert spent["releases"] == expected(half)["at_half"]
    with closing(sqlite3.connect(half / LEDGER)) as connection, pytest.raises(rules.Refused, match="format 5"):
        rules.check_file(connection, "ledger")


def test_states_and_ledgers_of_a_version_to_come_are_refused_in_words(folder: Path) -> None:
    half = restored("gradients", folder)
    later = json.dumps({**json.loads(state(half)), "schema": 3}).encode()
    with closing(sqlite3.connect(half / "log.db")) as connection:
        connection.execute("UPDATE states SET state = ?", (later,))
        connection.commit()
    with closing(sqlite3.connect(half / LEDGER)) as connection:
        connection.execute("UPDATE meta SET value = 99 WHERE key = 'format'")
        connection.commit()
    refused(murk("status", "--log", LOG, folder=half), "written by another version", "MURK-STATE-002", status=1)
    refused(murk("ledger", LEDGER, folder=half), "written by another version", "MURK-LEDGER-004")
    assert state(half) == later
