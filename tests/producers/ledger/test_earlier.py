"""A ledger of the format before, whose people stand under keyed hashes of their names as they were written then."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from murk.errors import UserError
from murk.producers.ledger import migration
from murk.producers.ledger.ledger import Ledger
from murk.producers.ledger.names import ReleaseRequests, key_path
from tests.producers.ledger.accounts import FILE, ask, booked, spend

DATA = Path(__file__).parent / "data"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """As the version before left it: "7", "7.0", "007" and a full-width 7 are four accounts; releases wait."""
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((DATA / "format-4.sql").read_text())
    shutil.copy(DATA / "format-4.key", key_path(path))
    return path


def released(ledger: Ledger, person: str) -> int:
    return sum(level.released for task in ledger.account(person).tasks for level in task.levels)


def test_accounts_of_several_spellings_are_one_and_what_was_spent_adds_up(path: Path) -> None:
    with booked(path) as ledger:
        assert ledger.pending() == 4
        # Whichever spelling comes first finds those that programs make of it; the full-width one comes with its own.
        assert released(ledger, "7") == 3
        [level] = ledger.account("7.0").tasks[0].levels
        assert (level.released, level.queued, level.sent, len(level.receipts)) == (3, 1, 2, 3)
        assert ask(ledger, "+7") == "task"
        assert ask(ledger, "\uff17") == "task"
        assert released(ledger, "7") == 4
        assert ledger.totals().releases == 8
    with booked(path) as ledger:
        assert ask(ledger, "007") == "task"


@pytest.mark.parametrize("spelling", ["7", "7.0", "007", "0007", "\uff17"])
def test_nobody_gets_a_fresh_budget_by_another_spelling(path: Path, spelling: str) -> None:
    """Under a cap of three releases three spellings of a number had one each."""
    with booked(path) as ledger:
        assert ask(ledger, spelling) == "task"


def test_one_block_may_name_a_person_in_several_ways(path: Path) -> None:
    with booked(path) as ledger:
        block = spend(ledger, ReleaseRequests([None] * 3, ["007", "7.0", "dora"], ["default"] * 3))
        assert (block.granted, sorted(block.refusals)) == ([2], [0, 1])


def test_records_that_were_named_then_are_known(path: Path) -> None:
    with booked(path) as ledger:
        assert ask(ledger, "Ann Lee", "first") == "known"
        assert ask(ledger, "7", "visit") == "known"
        # Once more, when the accounts are one already.
        assert ask(ledger, "7.0", "visit") == "known"
        assert ask(ledger, "Ann\u00a0Lee", "second") == "released"
        assert ask(ledger, "Ann  Lee", "second") == "known"


def test_withdrawals_hold_and_what_waits_of_every_spelling_goes(path: Path) -> None:
    with booked(path) as ledger:
        assert ask(ledger, "+8") == "withdrawn"
        assert ask(ledger, "8") == "withdrawn"
        assert ledger.withdraw("7") == 1
        assert ledger.withdraw("carl") == 1
        assert ledger.withdraw(3, source=FILE) == 1
        assert ledger.pending() == 1


def test_the_sums_stay(path: Path) -> None:
    def rows() -> list[tuple[int, ...]]:
        query = "SELECT (SELECT count(*) FROM debits), sum(released), sum(refused), sum(dropped) FROM spending"
        with closing(sqlite3.connect(path)) as look:
            found: list[tuple[int, ...]] = look.execute(query).fetchall()
            return found

    before = rows()
    with booked(path) as ledger:
        for person in ("7", "\uff17", "Ann Lee", "carl", "8"):
            ledger.account(person)
    assert rows() == before


def test_an_interrupted_upgrade_leaves_it_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(sqlite3.connect(path)) as look:
        before = list(look.iterdump())
    with monkeypatch.context() as patch:
        patch.setattr(migration, "_named", lambda connection: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Ledger(path)
    with closing(sqlite3.connect(path)) as look:
        assert list(look.iterdump()) == before


def test_without_its_key_it_is_not_upgraded_while_releases_wait(path: Path) -> None:
    key_path(path).unlink()
    before = path.read_bytes()
    with pytest.raises(UserError, match="put back any copy of it"):
        Ledger(path)
    assert path.read_bytes() == before
