"""What waits says to nobody whose it is, is gone with its confirmation, and can still be purged by name."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from murk.errors import MurkError
from murk.producers.ledger import ledger as settling
from murk.producers.ledger.ledger import Ledger
from murk.producers.ledger.names import NameKey, ReleaseRequests
from murk.producers.ledger.spending import Owner, seal, unseal
from tests.producers.ledger.accounts import FILE, TASK, ask, booked, charge, rho

KEY = NameKey(bytes(range(32)))
MANY = {"charges": [charge(rho=1)], "caps": [("", rho(1000))]}


def release(ledger: Ledger, people: list[str] | None, rows: list[int], message: str = "bytes of release {}") -> range:
    """Release a block of a file; the bytes of each are known."""
    asked = ReleaseRequests(rows, people, ["default"] * len(rows), source=FILE)
    with ledger.spending(TASK, asked) as spend:
        count = len(spend.granted)
        messages = [message.format(number).encode() for number in spend.numbers]
        spend.freeze(messages, [0] * count, [0] * count, expires=1_000, order=range(count)[::-1])
    return spend.numbers


def files(path: Path) -> bytes:
    """All bytes of a ledger's file and of what SQLite keeps beside it."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")) if file.suffix != ".key")


@pytest.mark.parametrize(
    "owner", [Owner(0, b"0123456789abcdef"), Owner(0, bytes(16)), Owner(3, 0), Owner(2**40, 2**62 - 1)]
)
def test_owners_come_back_under_their_key_alone(owner: Owner) -> None:
    one, other = seal([owner, owner], KEY)
    assert one != other
    assert len(one) == len(seal([Owner(1, 1)], KEY)[0])
    assert unseal(one, KEY) == unseal(other, KEY) == owner
    for wrong in (NameKey(bytes(32)), NameKey(None)):
        with pytest.raises(ValueError, match="another key"):
            unseal(one, wrong)


@pytest.mark.parametrize("named", [True, False])
def test_a_row_of_the_outbox_has_nothing_in_common_with_any_account(tmp_path: Path, named: bool) -> None:
    people = [f"person-{number}" for number in range(50)] if named else None
    with booked(tmp_path / "ledger.db", **MANY) as ledger:
        ledger.begin_run(TASK, FILE, people="column id" if named else "row")
        release(ledger, people, list(range(50)))
        with closing(sqlite3.connect(ledger.path)) as look:
            columns = [row[1] for row in look.execute("PRAGMA table_info(outbox)")]
            owners = [owner for (owner,) in look.execute("SELECT owner FROM outbox")]
            called = [name for (name,) in look.execute("SELECT person FROM spending")]
        assert set(columns) == {
            "number",
            "task",
            "partition",
            "since",
            "expires",
            "message",
            "owner",
            "tariff",
            "check",
        }
        assert len(set(owners)) == len(called) == 50
        if named:
            assert not any(name in owner for name in called for owner in owners)
        # And still one's own can be purged, and is counted.
        one: tuple[object, str | None] = ("person-7", None) if named else (7, FILE)
        assert ledger.account(one[0], source=one[1]).tasks[0].levels[0].queued == 1  # type: ignore[arg-type]
        assert ledger.withdraw(one[0], source=one[1]) == 1  # type: ignore[arg-type]
        assert ledger.pending() == 49
        level = ledger.account(one[0], source=one[1]).tasks[0].levels[0]  # type: ignore[arg-type]
        assert (level.released, level.queued, level.dropped) == (1, 0, 1)
        assert ledger.expire(TASK, now=1_000) == 49
        assert ledger.totals().dropped == 50


def test_what_the_log_has_is_gone_from_the_file_at_once_and_from_its_log_when_there_is_time(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with booked(path, **MANY) as ledger:
        ledger.begin_run(TASK, FILE)
        ledger.confirm(release(ledger, None, list(range(3000))))
        with closing(sqlite3.connect(path)) as look:
            assert look.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
        ledger.tidy()
        # The process lives, and its files say nothing of any release.
        assert b"bytes of release" not in files(path)
        numbers = release(ledger, None, list(range(3000, 3010)))
        assert b"bytes of release" in files(path)
        ledger.confirm(numbers)
    assert b"bytes of release" not in files(path)


def test_releases_that_follow_each_other_are_removed_from_the_log_every_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(settling.time, "monotonic", lambda: now[0])
    path = tmp_path / "ledger.db"
    with booked(path, **MANY) as ledger:
        ledger.begin_run(TASK, FILE)
        ledger.confirm(release(ledger, None, [0], "the first one"))
        assert b"the first one" in files(path)
        now[0] = 1.5
        ledger.confirm(release(ledger, None, [1], "the second one"))
        assert b"the first one" not in files(path)
        assert b"the second one" not in files(path)


def test_a_reader_delays_that_and_stops_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with booked(path, **MANY) as ledger:
        ledger.begin_run(TASK, FILE)
        numbers = release(ledger, None, [0])
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM outbox").fetchall()
            ledger.confirm(numbers)
            ledger.tidy()
            assert ledger.pending() == 0
            reader.execute("ROLLBACK")
        ledger.tidy()
        assert b"bytes of release" not in files(path)


def test_what_is_on_its_way_out_has_deleted_what_the_log_has(tmp_path: Path) -> None:
    """Ctrl-C, a signal, a refusal: the ledger is closed by an exception, after the log confirmed."""
    path = tmp_path / "ledger.db"

    def interrupted() -> None:
        with booked(path, **MANY) as ledger:
            ledger.begin_run(TASK, FILE)
            ledger.confirm(release(ledger, None, list(range(300))))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with closing(sqlite3.connect(path)) as look:
        assert look.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
    assert b"bytes of release" not in files(path)


def test_a_confirmation_that_cannot_be_written_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has them, and the caller hears nothing else; the next transaction deletes them or says what is wrong."""

    def full(**how: object) -> None:
        raise MurkError("the disk is full")

    with booked(tmp_path / "ledger.db", **MANY) as ledger:
        assert ask(ledger, "ann") == "released"
        with monkeypatch.context() as patch:
            patch.setattr(ledger._file, "write", full)
            ledger.confirm([1])
            with pytest.raises(MurkError, match="full"):
                ask(ledger, "bob")
        assert ledger.pending() == 0
        assert ask(ledger, "bob") == "released"
        assert [one.number for one in ledger.queued(TASK)] == [2]
