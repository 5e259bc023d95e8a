"""A ledger that cannot be trusted fails closed, as it is, and nobody is told to do without it."""

import errno
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from murk.errors import MurkError, UserError
from murk.producers.ledger.ledger import Ledger
from murk.producers.ledger.names import ReleaseRequests
from murk.producers.ledger.schema import FORMAT
from murk.stream.log.interface import UnreachableError
from tests.producers.ledger.accounts import FILE, TASK, ask, booked, charge, rho, spend
from tests.producers.world import RECORD, World, Wrapped, make_task

TEMPTATIONS = re.compile(
    r"\b(delet|remov|recreat|create|discard|start (over|afresh)|new ledger|another file|a copy\b)", re.IGNORECASE
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def filled(path: Path) -> None:
    with booked(path, [charge(rho=1)]) as ledger:
        spend(ledger, ReleaseRequests(range(500), None, ["default"] * 500, source=FILE))


def damage_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for page in range(1, len(data) // 4096):
        data[4096 * page : 4096 * page + 200] = os.urandom(200)
    path.write_bytes(data)


def damage_an_empty_table(path: Path) -> None:
    """Nothing is read of it before something is written to it."""
    with closing(sqlite3.connect(path)) as connection:
        [page] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'withdrawals'").fetchone()
    data = bytearray(path.read_bytes())
    data[4096 * (page - 1) : 4096 * page] = b"\xa5" * 4096
    path.write_bytes(data)


def too_long_a_cell(path: Path) -> None:
    """The first cell of the schema says that it, and a text in it, take two gigabytes."""
    data = bytearray(path.read_bytes())
    place = int.from_bytes(data[108:110], "big")
    cell = b"\x87\xff\xff\xff\x7f\x01\x0a\x87\xff\xff\xff\x71\x17\x17\x01\x17"
    data[place : place + len(cell)] = cell
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("person,spent\nann,0\n" * 1000),
    "cut short": lambda path: os.truncate(path, path.stat().st_size // 2),
    "header lost": lambda path: path.write_bytes(b"\0" * 100 + path.read_bytes()[100:]),
    "pages overwritten": damage_page,
    "too long a cell": too_long_a_cell,
    "a page of an empty table": damage_an_empty_table,
    "newer version": lambda path: change(path, "UPDATE meta SET value = 99 WHERE key = 'format'"),
    "version gone": lambda path: change(path, "DELETE FROM meta WHERE key = 'format'"),
    "another application": lambda path: change(path, "PRAGMA application_id = 1"),
    "a table gone": lambda path: change(path, "DROP TABLE debits"),
    "a debit taken out": lambda path: change(path, "DELETE FROM debits WHERE key = 7"),
    "an account emptied": lambda path: change(path, "UPDATE spending SET released = 0 WHERE person = 7"),
    "an account taken out": lambda path: change(path, "DELETE FROM spending WHERE person = 7"),
    "a cap raised": lambda path: change(path, "UPDATE promises SET units = units | 1 << 50"),
    "a price lowered": lambda path: change(path, "UPDATE tariffs SET rho = rho - 1"),
    "gone, with its log left": lambda path: (
        path.with_name(path.name + "-wal").write_bytes(b"x"),
        path.unlink(),
    ),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_ledger_is_refused_and_left_as_it_is(path: Path, what: str) -> None:
    filled(path)
    DAMAGES[what](path)
    before = path.read_bytes() if path.exists() else None
    for _ in range(2):
        with pytest.raises(UserError) as caught:
            Ledger(path)
        assert str(path) in str(caught.value)
        assert "Nothing was spent or sent" in str(caught.value)
        assert "newest intact copy" in str(caught.value)
        assert not TEMPTATIONS.search(str(caught.value)), str(caught.value)
        # Nor does what was refused stay open as long as somebody holds the error.
        opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
        assert str(path) not in opened
    assert (path.read_bytes() if path.exists() else None) == before


SAID = {
    "emptied": "is empty: its content was lost",
    "text": "is not a ledger, or its beginning was destroyed",
    "header lost": "is not a ledger, or its beginning was destroyed",
    "newer version": f"was written by another version of Murk (format 99; this one reads format {FORMAT}): use",
    "version gone": f"was written by another version of Murk (format unknown; this one reads format {FORMAT})",
    "another application": "is a database of something else, not a ledger",
    "a table gone": "is damaged (its tables are not the ones that Murk makes)",
    "a debit taken out": "is damaged (its debits and its accounts do not agree)",
    "an account taken out": "is damaged (its debits and its accounts do not agree)",
    "a cap raised": "is damaged (a row of the table promises does not fit its checksum)",
    "a price lowered": "is damaged (a row of the table tariffs does not fit its checksum)",
    "gone, with its log left": "is gone, and its companion ledger.db-wal is still there",
}


@pytest.mark.parametrize("what", SAID)
def test_what_is_wrong_with_a_damaged_ledger_is_said(path: Path, what: str) -> None:
    filled(path)
    DAMAGES[what](path)
    with pytest.raises(UserError) as caught:
        Ledger(path)
    assert SAID[what] in str(caught.value)


def test_no_flipped_bit_of_a_waiting_release_is_sent(tmp_path: Path) -> None:
    """JSON stays JSON where one digit turns into another, and a gateway would take it."""
    with World(tmp_path, make_task()) as world:
        away = Wrapped(world.log, append=lambda batch: fail("away"))
        assert world.produce(away).release(RECORD).delivery == "queued"  # type: ignore[arg-type]
        connection = world.ledger._file._connection
        [(message, expires)] = connection.execute("SELECT message, expires FROM outbox").fetchall()
        spoilt = [message[:at] + bytes([message[at] ^ 1 << at % 8]) + message[at + 1 :] for at in range(len(message))]
        for row in (*((each, expires) for each in spoilt), (message, expires ^ 1 << 20), (message, "no number")):
            connection.execute("UPDATE outbox SET message = ?, expires = ?", row)
            with pytest.raises(UserError, match=r"is damaged \(a release in its outbox does not fit its checksum\)"):
                world.producer.flush()
        assert world.log.end(0) == 0
        connection.execute("UPDATE outbox SET message = ?, expires = ?", (message, expires))
        assert world.producer.flush().sent == 1


def fail(words: str) -> None:
    raise UnreachableError(words)


@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        (sqlite3.SQLITE_NOTADB, "", "{path} is not a ledger, or its beginning was destroyed"),
        (
            sqlite3.SQLITE_CORRUPT,
            "SQLITE_CORRUPT_INDEX",
            "the ledger {path} is damaged (SQLITE_CORRUPT_INDEX). Nothing",
        ),
        (sqlite3.SQLITE_CORRUPT, "", "the ledger {path} is damaged (unreadable). Nothing"),
        (sqlite3.SQLITE_READONLY, "", "the ledger {path} is read-only for this user"),
        (sqlite3.SQLITE_PERM, "", "the ledger {path} is read-only for this user"),
        (sqlite3.SQLITE_FULL, "", "the disk is full"),
        (sqlite3.SQLITE_ERROR, "", "the ledger {path} is damaged (no such table)"),
    ],
)
def test_what_is_said_of_an_error_of_sqlites(path: Path, code: int, name: str, words: str) -> None:
    """Also by an extended code, whose low byte it is; and before the file was found to be whole, of a missing table."""
    with booked(path) as ledger:
        for extended in (0, 3 << 8):
            error = sqlite3.OperationalError("no such table")
            error.sqlite_errorcode, error.sqlite_errorname = code | extended, name
            assert str(ledger._file._explained(error)).startswith(words.format(path=path))
            ledger._file._examined = False
            found = str(ledger._file._explained(error))
            assert ("its tables are not the ones that Murk makes" in found) == (code == sqlite3.SQLITE_ERROR)
            ledger._file._examined = True


@pytest.mark.parametrize("version", [FORMAT, 99, None])
def test_a_table_that_is_gone_from_an_open_ledger_is_damage_unless_another_version_took_it(
    path: Path, version: int | None
) -> None:
    """Another process, of an earlier version, may have been quicker; it changes no table."""
    with booked(path) as ledger:
        connection = ledger._file._connection
        connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", (version or 0,))
        if version is None:
            connection.execute("DELETE FROM meta WHERE key = 'format'")
        connection.execute("ALTER TABLE spending RENAME TO elsewhere")
        with pytest.raises(UserError) as caught:
            ledger._file.query("SELECT * FROM spending")
    known = version == FORMAT
    assert ("is damaged (no such table: spending)" in str(caught.value)) == known
    assert ("was written by another version of Murk" in str(caught.value)) != known


def test_a_new_ledger_is_on_the_disk_before_it_has_its_name_and_its_name_then(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = [], os.fsync

    def noted(handle: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{handle}"), path.exists()))
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    before = len(os.listdir("/proc/self/fd"))
    with Ledger(path) as ledger:
        assert len(ledger.identity) == 32
    assert len(os.listdir("/proc/self/fd")) == before
    [(draft, named), (folder, there)] = synced
    assert Path(draft).name.startswith(".ledger.db.")
    assert (named, folder, there) == (False, str(path.parent), True)
    assert [each.name for each in path.parent.iterdir()] == ["ledger.db"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_ledger_that_cannot_be_made(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*names: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    def gone(*names: object) -> None:
        raise FileExistsError

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", refused)
        with pytest.raises(MurkError, match=r"cannot be made \(Operation not permitted\): its directory must be"):
            Ledger(path)
    assert list(tmp_path.iterdir()) == []
    # Another process was quicker, and its ledger is gone again.
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", gone)
        with pytest.raises(FileExistsError):
            Ledger(path)
    # It was quicker: that is the ledger.
    link = os.link

    def quicker(draft: Path, place: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        Ledger(place).close()
        link(draft, place)

    monkeypatch.setattr(os, "link", quicker)
    with Ledger(path) as ledger:
        assert ledger.totals().people == 0
    assert [each.name for each in tmp_path.iterdir()] == ["ledger.db"]


def test_a_database_of_something_else_is_refused(path: Path) -> None:
    change(path, "CREATE TABLE songs (title TEXT)")
    with pytest.raises(UserError, match="something else"):
        Ledger(path)


def test_a_log_is_no_ledger(path: Path) -> None:
    from murk.stream import open_log

    open_log(f"sqlite:///{path}").close()
    with pytest.raises(UserError, match="something else"):
        Ledger(path)


def test_another_identity_is_refused(path: Path, tmp_path: Path) -> None:
    with booked(path) as ledger:
        identity = ledger.identity
    with Ledger(path, identity=identity) as ledger:
        assert ledger.identity == identity
    other = tmp_path / "other.db"
    Ledger(other).close()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UserError, match="is not the ledger") as caught:
        Ledger(other, identity=identity)
    # The error holds on to what it met.
    assert caught.value
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_missing_ledger_that_was_there_before_is_not_made(path: Path) -> None:
    for options in ({"identity": "0" * 32}, {"create": False}):
        with pytest.raises(UserError, match="no ledger") as caught:
            Ledger(path, **options)  # type: ignore[arg-type]
        assert not TEMPTATIONS.search(str(caught.value))
        assert not path.exists()


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no ledger"):
        Ledger(tmp_path / "nowhere" / "ledger.db")
    with pytest.raises(UserError, match="directory"):
        Ledger(tmp_path)


def test_identities_differ(tmp_path: Path) -> None:
    with Ledger(tmp_path / "a.db") as one, Ledger(tmp_path / "b.db") as other:
        assert one.identity != other.identity


def test_is_for_its_owner_alone(path: Path) -> None:
    with booked(path) as ledger:
        ask(ledger)
        for file in path.parent.iterdir():
            assert file.stat().st_mode & 0o077 == 0, file


def test_survives_a_power_failure(path: Path) -> None:
    with booked(path) as ledger:
        # 2 is FULL: every commit is on the disk before anything is sent.
        assert ledger._file.query("PRAGMA synchronous") == [(2,)]
        assert ledger._file.query("PRAGMA journal_mode") == [("wal",)]


def test_leaves_nothing_else_behind(path: Path) -> None:
    booked(path).close()
    assert [file.name for file in path.parent.iterdir()] == ["ledger.db"]


def test_a_file_put_in_its_place_is_noticed(path: Path, tmp_path: Path) -> None:
    with booked(path) as ledger:
        Ledger(tmp_path / "other.db").close()
        (tmp_path / "other.db").replace(path)
        with pytest.raises(MurkError, match="replaced"):
            ask(ledger)


def fill(ledger: Ledger) -> tuple[int, MurkError]:
    """Release until the ledger cannot be written; the first row of the block that failed, and how."""
    for start in range(0, 100_000, 50):
        try:
            spend(ledger, ReleaseRequests(range(start, start + 50), None, ["default"] * 50, source=FILE))
        except MurkError as error:
            return start, error
    raise AssertionError("the disk was never full")


def test_a_full_disk_debits_nothing_and_sends_nothing(path: Path) -> None:
    with booked(path, [charge(rho=1)]) as ledger:
        connection = ledger._file._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 3}")
        start, error = fill(ledger)
        assert "disk is full" in str(error)
        assert not isinstance(error, UserError)
        assert ledger.totals().releases == ledger.pending() == start
        connection.execute("PRAGMA max_page_count = 1000000")
        claims = ReleaseRequests(range(start, start + 50), None, ["default"] * 50, source=FILE)
        assert len(spend(ledger, claims).granted) == 50
    with booked(path, [charge(rho=1)]) as ledger:
        assert ledger.totals().releases == ledger.pending() == start + 50


FILE_LIMIT = """
import resource, sys
from pathlib import Path
from murk.errors import MurkError
from murk.producers.ledger.names import ReleaseRequests
from murk.producers.ledger.schema import FORMAT
from murk.stream.log.interface import UnreachableError
from tests.producers.ledger.accounts import FILE, booked, charge, spend
ledger = booked(Path(sys.argv[1]), [charge(rho=1)])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
for start in range(0, 1_000_000, 100):
    try:
        spend(ledger, ReleaseRequests(range(start, start + 100), None, ["default"] * 100, source=FILE))
    except MurkError as error:
        print(start, ledger.totals().releases, ledger.pending(), error)
        break
"""


@pytest.mark.parametrize("limit", [200_000, 123_457])
def test_a_limit_on_file_sizes_is_like_a_full_disk(path: Path, limit: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILE_LIMIT, str(path), str(limit)],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    start, releases, pending, message = done.stdout.split(maxsplit=3)
    assert int(start) == int(releases) == int(pending) > 0
    assert "disk" in message
    assert str(path) in message
    with booked(path, [charge(rho=1)]) as ledger:
        assert ledger.totals().releases == ledger.pending() == int(start)


def test_a_ledger_that_cannot_be_written(path: Path) -> None:
    with booked(path) as ledger:
        ledger._file._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(MurkError, match="read-only"):
            ask(ledger)
        assert ledger.totals().releases == 0


def test_a_ledger_that_another_process_holds(path: Path) -> None:
    with booked(path):
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with Ledger(path, timeout=0.05) as ledger, pytest.raises(MurkError, match="another process"):
            ledger.withdraw("ann")
        holder.close()


MAKE = """
import sys, time
from pathlib import Path
from murk.producers.ledger.ledger import Ledger
start = Path(sys.argv[2])
while not start.exists():
    time.sleep(0.001)
with Ledger(sys.argv[1]) as ledger:
    print(ledger.identity)
"""

SPEND = """
import sys, time
from pathlib import Path
from murk.stream.log.interface import UnreachableError
from tests.producers.ledger.accounts import ask, booked, charge
ledger = booked(Path(sys.argv[1]), [charge(rho=1)])
start = Path(sys.argv[2])
while not start.exists():
    time.sleep(0.001)
print(sum(ask(ledger, key=f"{number}") == "released" for number in range(150)))
"""


def run_together(program: str, path: Path, count: int) -> list[str]:
    start = path.with_name("start")
    arguments = [sys.executable, "-c", program, str(path), str(start)]
    processes = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    start.touch()
    outputs = [process.communicate(timeout=100)[0].strip() for process in processes]
    assert all(process.returncode == 0 for process in processes)
    return outputs


def test_two_processes_that_make_one_ledger_share_it(path: Path) -> None:
    identities = run_together(MAKE, path, 3)
    assert len(set(identities)) == 1
    assert identities[0]


def test_two_processes_spend_no_unit_twice(path: Path) -> None:
    booked(path, [charge(rho=1)]).close()
    # The cap has room for 100; both try 150 records, the same ones.
    granted = [int(output) for output in run_together(SPEND, path, 2)]
    assert sum(granted) == 100
    with booked(path, [charge(rho=1)]) as ledger:
        assert ledger.totals().releases == ledger.pending() == 100
        assert ledger.account("ann").tasks[0].caps[0].spent == rho(100)
        assert ledger.promises(TASK)[0].amount == rho(100)


def test_a_table_whose_name_is_no_text_is_damage(path: Path) -> None:
    """SQLite's own message then quotes bytes that are no text, and the file's version cannot be read either."""
    with booked(path):
        pass
    found = path.read_bytes()
    for before, after in ((b"tabletaskstasks", b"tablet\xffskstasks"), (b"CREATE TABLE tasks", b"CREATE TABLX tasks")):
        assert before in found
        found = found.replace(before, after)
    path.write_bytes(found)
    with pytest.raises(UserError, match="is damaged"):
        Ledger(path)
