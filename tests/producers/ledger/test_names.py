"""Nobody's name is in a ledger; and whatever becomes of its key, nobody gets a second budget."""

import os
import signal
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from murk.errors import UserError
from murk.producers.ledger import ledger as names
from murk.producers.ledger import names as key
from murk.producers.ledger.ledger import Ledger
from murk.producers.ledger.names import NameKey, ReleaseRequests, key_path
from murk.producers.ledger.spending import Spending
from tests.producers.ledger.accounts import FILE, TASK, ask, booked, charge, rho, spend

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

ANN, RECORD = "Annette Vandermeer", "visit to the clinic of 3 May"
ONE = {"charges": [charge(rho=30)], "caps": [("", rho(30))]}
"""A task in which everybody may release once."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def everything(path: Path) -> bytes:
    """All bytes of a ledger's files, of the key's too."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.iterdir()))


def first_name(path: Path) -> None:
    with booked(path, **ONE) as ledger:
        ask(ledger, ANN, RECORD)


def killed(work: Callable[[], Any], owner: Any, name: str, when: str, calls: int = 1) -> bool:
    """Kill a child, as SIGKILL does, around the n-th call of a function; whether it came to that."""
    child = os.fork()
    if child == 0:
        # Whatever fails: a child that went on would run the other tests.
        try:
            inner, left = getattr(owner, name), [calls]

            def wrapped(*arguments: Any, **options: Any) -> Any:
                left[0] -= 1
                if when == "before" and not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                result = inner(*arguments, **options)
                if when == "after" and not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            setattr(owner, name, wrapped)
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_nobody_is_named_in_a_new_ledger(path: Path) -> None:
    with booked(path, **ONE) as ledger:
        assert ask(ledger, ANN, RECORD) == "released"
        # Before and after the write-ahead log is merged into the file.
        assert ANN.encode() not in everything(path)
        assert RECORD.encode() not in everything(path)
        assert ledger.account(f" {ANN} ").tasks[0].levels[0].released == 1
        # What is refused says whose it was, to the caller alone.
        assert spend(ledger, ReleaseRequests([None], [ANN], ["default"])).refusals[0].person == ANN
    assert ANN.encode() not in everything(path)
    assert RECORD.encode() not in everything(path)
    with sqlite3.connect(path) as look:
        kinds = {kind for (kind,) in look.execute("SELECT typeof(person) FROM spending")}
        assert kinds == {"blob"}


def test_the_key_is_for_its_owner_alone_and_says_no_name(path: Path) -> None:
    first_name(path)
    lies = key_path(path)
    assert stat.S_IMODE(lies.stat().st_mode) == 0o600
    assert sorted(file.name for file in path.parent.iterdir()) == ["ledger.db", "ledger.db.key", "ledger.db.last"]
    assert bytes.fromhex(lies.read_text().split()[-1]) not in path.read_bytes()
    assert lies.read_text().split()[-1].encode() not in path.read_bytes()


def test_two_ledgers_call_a_person_differently(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    for one in (path, other):
        first_name(one)
    called = [sqlite3.connect(one).execute("SELECT person, key FROM debits").fetchall() for one in (path, other)]
    assert called[0] != called[1]


def test_equal_texts_of_two_people_are_called_differently(path: Path) -> None:
    with booked(path, **ONE) as ledger:
        for person in (ANN, "Bernadette"):
            assert ask(ledger, person, RECORD) == "released"
            assert ask(ledger, person, RECORD) == "known"
    assert len(sqlite3.connect(path).execute("SELECT DISTINCT key FROM debits").fetchall()) == 2


def rows(path: Path) -> None:
    """Rows of a file are worked through, and release; one withdraws."""
    with booked(path, **ONE) as ledger:
        ledger.begin_run(TASK, FILE)
        with ledger.spending(TASK, ReleaseRequests([0, 1], None, ["default"] * 2, source=FILE)) as spending:
            count = len(spending.granted)
            spending.freeze([b"sent"] * count, [0] * count, [0] * count, expires=1_000)
            spending.progress(2, {})
        ledger.withdraw(1, source=FILE)


def rows_kept(path: Path) -> None:
    """Everything that rows have done is known."""
    with booked(path, **ONE) as ledger:
        assert (run := ledger.run(TASK, FILE)) is not None
        assert run.next_row == 2
        assert ledger.has_released(FILE, task_name="demo")
        assert ledger.withdrawn(FILE, task_name="demo") == {1}
        assert ledger.account(0, source=FILE).is_known
        asked = spend(ledger, ReleaseRequests([0, 1], None, ["default"] * 2, source=FILE))
        assert len(asked.known) == 2


def test_no_digest_of_a_file_is_in_a_new_ledger(path: Path) -> None:
    """From the digest of a file whoever knows all its records but one guesses that one exactly."""
    rows(path)
    for digest in (FILE.encode(), bytes.fromhex(FILE)):
        assert digest not in everything(path)
    [(called,)] = sqlite3.connect(path).execute("SELECT digest FROM sources").fetchall()
    fingerprint = sqlite3.connect(path).execute("SELECT value FROM meta WHERE key = 'key'").fetchone()[0]
    assert called == key.read_key(path, fingerprint).source(FILE)
    # Nobody without the key computes it; and no two ledgers call a file the same.
    assert called not in (NameKey(bytes(32)).source(FILE), NameKey(None).source(FILE))
    rows_kept(path)


def test_without_its_key_a_ledger_finds_no_file_and_releases_nothing(path: Path) -> None:
    rows(path)
    copy = key_path(path).read_bytes()
    key_path(path).unlink()
    with booked(path, **ONE) as ledger:
        asked = ReleaseRequests([5], None, ["default"], source=FILE)
        for attempt in (
            lambda: spend(ledger, asked),
            lambda: ledger.begin_run(TASK, FILE),
            lambda: ledger.begin_run(TASK, "e" * 64),
            lambda: ledger.withdraw(0, source=FILE),
            lambda: ledger.account(0, source=FILE),
        ):
            with pytest.raises(UserError, match="with a key, and"):
                attempt()
    key_path(path).write_bytes(copy)
    rows_kept(path)


def test_a_ledger_that_has_lost_its_keys_fingerprint_knows_files_by_no_second_key(path: Path) -> None:
    rows(path)
    key_path(path).unlink()
    with sqlite3.connect(path) as change:
        change.execute("DELETE FROM meta WHERE key = 'key'")
    change.close()
    with booked(path, **ONE) as ledger:
        asked = ReleaseRequests([0], None, ["default"], source=FILE)
        for attempt in (lambda: spend(ledger, asked), lambda: ledger.withdraw(0, source=FILE)):
            with pytest.raises(UserError, match="holds hashed names and does not record by which"):
                attempt()


def test_a_key_that_was_made_in_a_transaction_that_failed_is_not_used(path: Path) -> None:
    """People with names release from a file: its key is needed twice in one transaction."""
    asked = ReleaseRequests([0], [ANN], ["default"], source=FILE)
    with booked(path, **ONE) as ledger:
        with pytest.raises(ZeroDivisionError), ledger.spending(TASK, asked):
            raise ZeroDivisionError
        spend(ledger, asked)
    with booked(path, **ONE) as ledger:
        assert spend(ledger, asked).known == {0: 1}
        assert ask(ledger, ANN) == "task"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda lies: lies.unlink(), "hashes names with a key, and"),
        (lambda lies: lies.write_text("murk ledger key 1 " + "00" * 32 + "\n"), "the key of a ledger other than"),
        (lambda lies: lies.write_text(lies.read_text()[:40]), "is damaged, or is the key of a ledger other than"),
        (lambda lies: lies.write_bytes(b"\xff\xfe"), "cannot be read"),
    ],
    ids=["lost", "another's", "cut off", "no text"],
)
def test_without_its_key_a_ledger_finds_nobody_and_releases_nothing(
    path: Path, damage: Callable[[Path], Any], words: str
) -> None:
    first_name(path)
    copy = key_path(path).read_bytes()
    damage(key_path(path))
    with booked(path, **ONE) as ledger:
        for attempt in (
            lambda: ask(ledger, ANN),
            lambda: ask(ledger, "somebody new"),
            lambda: ledger.withdraw(ANN),
            lambda: ledger.account(ANN),
        ):
            with pytest.raises(UserError, match=words) as caught:
                attempt()
            assert "put back any copy of it" in str(caught.value)
            assert ANN not in str(caught.value)
        assert ledger.totals().releases == 1
    key_path(path).write_bytes(copy)
    with booked(path, **ONE) as ledger:
        assert ask(ledger, ANN) == "task"


def test_a_copy_elsewhere_needs_the_key_too(path: Path, tmp_path: Path) -> None:
    first_name(path)
    elsewhere = tmp_path / "elsewhere" / "copy.db"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(path.read_bytes())
    with Ledger(elsewhere) as ledger, pytest.raises(UserError, match=r"copy\.db\.key is missing"):
        ledger.account(ANN)
    key_path(elsewhere).write_bytes(key_path(path).read_bytes())
    with booked(elsewhere, **ONE) as ledger:
        assert ask(ledger, ANN) == "task"


def test_a_link_to_a_ledger_has_the_ledgers_key(path: Path, tmp_path: Path) -> None:
    first_name(path)
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with booked(link, **ONE) as ledger:
        assert ask(ledger, ANN) == "task"
    assert not Path(f"{link}.key").exists()


def test_a_ledger_older_than_its_key_is_refused(path: Path) -> None:
    booked(path, **ONE).close()
    before = path.read_bytes()
    first_name(path)
    path.write_bytes(before)
    with pytest.raises(
        UserError, match=r"is an older copy, or has lost its -wal: ledger.db.last beside it knows 1 later"
    ):
        Ledger(path)
    Path(f"{path}.last").unlink()
    with pytest.raises(UserError, match="it is an older copy, in which later spending"):
        Ledger(path)


def test_a_copy_from_before_the_last_release_or_withdrawal_is_refused(path: Path) -> None:
    for write in (lambda: booked(path, **ONE).close(), lambda: first_name(path), lambda: withdraw_alone(path)):
        before = path.read_bytes() if path.exists() else b""
        write()
    after = path.read_bytes()
    path.write_bytes(before)
    with pytest.raises(UserError, match=r"ledger\.db\.last beside it knows 1 later writes\. Nothing was spent or sent"):
        Ledger(path)
    path.write_bytes(after)
    with booked(path, **ONE) as ledger:
        assert ask(ledger, ANN) == "withdrawn"
    # A copy elsewhere is a ledger of its own, and the file beside it may be lost.
    Path(f"{path}.last").unlink()
    Ledger(path).close()


@pytest.mark.parametrize("begin", [first_name, lambda path: withdraw_alone(path)], ids=["spent", "withdrew"])
def test_a_ledger_that_has_lost_its_keys_fingerprint_gets_no_second_key(
    path: Path, begin: Callable[[Path], None]
) -> None:
    begin(path)
    key_path(path).unlink()
    with sqlite3.connect(path) as change:
        change.execute("DELETE FROM meta WHERE key = 'key'")
    change.close()
    with (
        booked(path, **ONE) as ledger,
        pytest.raises(UserError, match="holds hashed names and does not record by which"),
    ):
        ask(ledger, ANN)


def withdraw_alone(path: Path) -> None:
    with booked(path, **ONE) as ledger:
        ledger.withdraw(ANN)


def test_a_key_without_its_ledger_is_a_ledger_that_was_lost(path: Path) -> None:
    first_name(path)
    path.unlink()
    with pytest.raises(UserError, match=r"is gone, and its companion ledger.db.key is still there"):
        Ledger(path)


def test_a_key_that_was_made_for_nothing_is_made_again(path: Path) -> None:
    with booked(path, **ONE) as ledger:
        with pytest.raises(ZeroDivisionError), ledger.spending(TASK, ReleaseRequests([None], [ANN], ["default"])):
            raise ZeroDivisionError
        assert not key_path(path).exists()
        assert ask(ledger, ANN) == "released"
    with booked(path, **ONE) as ledger:
        assert ask(ledger, ANN) == "task"


def test_processes_that_name_people_first_at_once_share_one_key(path: Path) -> None:
    booked(path, **ONE).close()
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            status = 9
            try:
                with booked(path, **ONE) as ledger:
                    status = int(ask(ledger, ANN) == "released")
            finally:
                os._exit(status)
        children.append(child)
    released = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(released) == [0, 0, 0, 1]
    with booked(path, **ONE) as ledger:
        assert ledger.totals().people == 1


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("owner", "name"),
    [(key.os, "replace"), (key, "sync"), (names, "make_key"), (Spending, "write"), (names, "give_name")],
    ids=["replace", "sync", "make", "write", "name"],
)
def test_killed_while_the_key_is_made_everybody_has_one_budget(path: Path, owner: Any, name: str, when: str) -> None:
    booked(path, **ONE).close()
    assert killed(lambda: rows(path), owner, name, when)
    rows(path)
    rows_kept(path)
    for file in path.parent.iterdir():
        file.unlink()
    booked(path, **ONE).close()
    assert killed(lambda: first_name(path), owner, name, when)
    with booked(path, **ONE) as ledger:
        spent = ledger.totals().releases
        assert ask(ledger, ANN, RECORD) == ("known" if spent else "released")
        assert ask(ledger, ANN) == "task"
    names_left = {file.name for file in path.parent.iterdir() if not file.name.endswith(".new")}
    assert names_left - {"ledger.db.last"} == {"ledger.db", "ledger.db.key"}
