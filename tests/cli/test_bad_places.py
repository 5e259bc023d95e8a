"""Logs and ledgers that cannot be used: said clearly, left as they are, and cured without losing anything."""

import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from murk.stream.log.sqlite import checksum
from tests.cli.harness import (
    LEDGER,
    LOG,
    WORD,
    Done,
    murk,
    refused,
    run,
    start,
    traces,
    world,
)
from tests.services.services import missing

FILES = ["third-child.db", LEDGER]
UNTOUCHED = {"third-child.db": "left as it is", LEDGER: "Nothing was spent or sent"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, dict[str, object]]:
    """What comes out where nothing goes wrong."""
    folder = world(tmp_path_factory.mktemp("whole"), rows=400)
    return run(folder), traces(folder)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, dict[str, object]]:
    """The same of fewer people, where nothing has to grow."""
    folder = world(tmp_path_factory.mktemp("few"), rows=60)
    return run(folder), traces(folder)


def same(folder: Path, whole: tuple[Done, dict[str, object]]) -> None:
    """The cured command completes, and nothing shows of what was wrong."""
    found, expected = run(folder).json, whole[0].json
    del found["seconds"], expected["seconds"]
    assert found == expected
    assert traces(folder) == whole[1]


@pytest.mark.parametrize("name", FILES)
def test_files_of_something_else(folder: Path, name: str) -> None:
    world(folder)
    path = folder / name
    path.write_text(f"{WORD} is written here\n" * 100)
    refused(run(folder), name, "is not a", status=2)
    assert path.read_text().startswith(WORD)
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE passwords (word TEXT)")
    other.close()
    refused(run(folder), name, "database of something else")
    path.unlink()
    path.mkdir()
    refused(run(folder), name, "is a directory")


@pytest.mark.parametrize("name", FILES)
def test_another_version(folder: Path, name: str) -> None:
    world(folder, rows=30)
    expected = run(folder).json["state_digest"]
    with sqlite3.connect(folder / name) as file:
        [before] = file.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
        file.execute("UPDATE meta SET value = 99 WHERE key = 'format'")
    file.close()
    refused(run(folder), name, "written by another version of Murk (format 99", UNTOUCHED[name].split()[0])
    with sqlite3.connect(folder / name) as file:
        file.execute("UPDATE meta SET value = ? WHERE key = 'format'", (before,))
    file.close()
    assert run(folder).json["state_digest"] == expected


def test_a_task_or_state_of_another_version(folder: Path) -> None:
    world(folder, rows=30)
    assert run(folder).status == 0
    other = "another version"
    for table, column, status in (
        ("meta WHERE key = 'document'", "value", 2),
        ("states WHERE partition = 0", "state", 1),
    ):
        with sqlite3.connect(folder / "third-child.db") as file:
            [kept] = file.execute(f"SELECT {column} FROM {table}").fetchone()
        file.close()
        for value in (json.dumps({**json.loads(kept), "schema": 7}).encode(), kept):
            with sqlite3.connect(folder / "third-child.db") as file:
                file.execute(f"UPDATE {table.split()[0]} SET {column} = ? {table.partition(' ')[2]}", (value,))
                if column == "value":
                    file.execute("UPDATE meta SET value = ? WHERE key = 'document check'", (checksum(value),))
                else:
                    file.execute('UPDATE states SET "check" = ?', (checksum(value, 0, 30),))
            file.close()
            if value != kept:
                refused(run(folder), "third-child.db", other, status=status)
                refused(murk("status", "--log", LOG, folder=folder), "third-child.db", other, status=status)
    assert run(folder).status == 0


@pytest.mark.parametrize("name", FILES)
def test_damage(folder: Path, name: str) -> None:
    world(folder, rows=60)
    assert run(folder).status == 0
    os.truncate(folder / name, 9000)
    refused(run(folder), name, "damaged")
    assert (folder / name).stat().st_size == 9000


def test_a_damaged_note(folder: Path, few: tuple[Done, dict[str, object]]) -> None:
    world(folder, rows=60)
    assert run(folder).status == 0
    note = folder / "third-child.db.run.json"
    kept = note.read_text()
    note.write_text(kept[:40])
    refused(run(folder), "third-child.db.run.json is damaged", status=1)
    note.write_text(kept)
    same(folder, few)


def test_a_directory_that_may_not_be_written(folder: Path, few: tuple[Done, dict[str, object]]) -> None:
    world(folder, rows=60)
    folder.chmod(0o555)
    try:
        refused(run(folder, unprivileged=True), "third-child.db", "write", status=1)
    finally:
        folder.chmod(0o755)
    same(folder, few)


@pytest.mark.parametrize("name", [*FILES, "third-child.db.lock", "third-child.db.run.json", "people.csv"])
def test_a_file_that_may_not_be_used(folder: Path, few: tuple[Done, dict[str, object]], name: str) -> None:
    world(folder, rows=60)
    command = ["produce", "task.yaml", "--source", "people.csv", "--seed", 1, "--patience", 0]
    assert murk(*command, folder=folder).status == 1
    (folder / "third-child.db.lock").touch()
    (folder / name).chmod(0o444 if name in FILES else 0)
    status = 2 if name == "people.csv" else 1
    refused(run(folder, unprivileged=True), name, "read-only" if name in FILES else "Permission", status=status)
    for path in folder.glob("*"):
        path.chmod(0o644)
    same(folder, few)


def test_what_may_be_read_can_be_looked_at(folder: Path) -> None:
    world(folder, rows=40)
    assert run(folder).status == 0
    for name in FILES:
        (folder / name).chmod(0o444)
    folder.chmod(0o555)
    try:
        assert murk("status", "--log", LOG, folder=folder, unprivileged=True).status == 0
        assert murk("dead-letters", "--log", LOG, folder=folder, unprivileged=True).status == 0
        assert murk("ledger", LEDGER, folder=folder, unprivileged=True).status == 0
    finally:
        folder.chmod(0o755)


def test_files_that_may_not_grow(folder: Path, whole: tuple[Done, dict[str, object]]) -> None:
    """The limit is met at another place each time, and the work is taken up from where it was left."""
    world(folder, rows=400)
    for size in (0, 100, 40_000, 70_000, 80_000):
        refused(run(folder, file_limit=size), "Check the disk", "start again", status=1)
    same(folder, whole)


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        missing("no small disk can be mounted here: run as root, with the right to mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize(("full", "size"), [(FILES[0], "160k"), (LEDGER, "100k"), (LEDGER, "160k")])
def test_a_full_disk(folder: Path, whole: tuple[Done, dict[str, object]], full: str, size: str) -> None:
    """In 160 kB a ledger can be written but not closed."""
    world(folder, rows=400)
    place = folder / "disk"
    where = ["--log", "sqlite:///disk/third-child.db"] if full == FILES[0] else ["--ledger", f"disk/{LEDGER}"]
    with small_disk(place, size):
        filler = place / "filler"
        filler.write_bytes(bytes(4096))
        refused(run(folder, *where), f"disk/{full}", "Free some space and start again", status=1)
        subprocess.run(["mount", "-o", "remount,size=8m", place], check=True)
        found, expected = run(folder, *where).json, whole[0].json
    for key in ("state_digest", "releases", "refusals", "duplicates", "dead_letters", "by_level"):
        assert found[key] == expected[key], key


def test_a_log_removed_while_it_is_in_use(folder: Path) -> None:
    """What is written to a removed file would be lost: the run stops, and nobody was debited for nothing."""
    world(folder, rows=400)
    process = start("run", "task.yaml", "--source", "people.csv", "--seed", 1, "--block", 1, "--json", folder=folder)
    while not (folder / "third-child.db.run.json").exists():
        time.sleep(0.001)
    (folder / "third-child.db").rename(folder / "elsewhere.db")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert "was deleted or replaced while it was in use" in err
    for end in ("", "-wal", "-shm"):
        path = folder / f"elsewhere.db{end}"
        if path.exists():
            path.rename(folder / f"third-child.db{end}")
    found = run(folder, "--block", 1).json
    assert (found["releases"], found["duplicates"], found["dead_letters"]) == (400, 0, {})
