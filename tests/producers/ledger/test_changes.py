"""Changes of caps leave a trace, and a closed ledger holds nobody and releases nothing."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from murk.cli.commands.ledger import command
from murk.dossier.deployment import read_accounts
from murk.errors import UserError
from murk.producers import Ledger
from murk.producers.ledger.names import key_path
from tests.producers.ledger.accounts import FILE, LOG, TASK, ask, booked, charge, rho

NAME = "Annette Vandermeer"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def said(*arguments: object, status: int = 0) -> str:
    done = CliRunner().invoke(command, [*map(str, arguments)])
    assert (0 if done.exception is None else 1) == status, done.output
    return f"{done.output}{done.exception or ''}"


def test_a_raised_cap_leaves_a_trace_and_an_unchanged_one_does_not(path: Path) -> None:
    with booked(path, lifetime=rho(200)) as ledger:
        ask(ledger, NAME)
        assert [(one.task, one.before, one.is_raise) for one in ledger.changes()] == [
            ("demo", None, False),
            ("", None, False),
        ]
        # Booked again, as by every start of a producer: the same caps are no change, a smaller one is no raise.
        ledger.book(TASK, [charge(rho=30)], caps=[("", rho(100))], lifetime=rho(150))
        [*_, tightened] = ledger.changes()
        assert (len(ledger.changes()), tightened.is_raise) == (3, False)
        assert read_accounts(path).raised == ()
        ledger.loosen(rho(900))
        ledger.loosen(rho(300), task_hash=TASK)
        raised = [one for one in ledger.changes() if one.is_raise]
        assert [(one.task, one.before, one.after) for one in raised] == [
            ("", rho(150), rho(900)),
            ("demo", rho(100), rho(300)),
        ]
        # A cap of another kind in its place promises something else, and is a raise, too.
        ledger.loosen(rho(400), task_hash=TASK, instead_of=rho(300))
        assert [one.after for one in ledger.changes()[-2:]] == [None, rho(400)]
        assert ledger.changes()[-2].is_raise
    found = read_accounts(path)
    assert len(found.raised) == 3
    assert "all tasks: at most rho" in found.raised[0]
    assert "A cap was RAISED on 20" in said(path)
    assert "Budgets raised" in said(path, "--person", NAME)
    assert "A cap was raised on" in said(path, "--person", NAME, "--details")


def test_a_refused_change_leaves_no_trace(path: Path) -> None:
    with booked(path) as ledger:
        before = ledger.changes()
        with pytest.raises(UserError, match="promises no cap of"):
            ledger.loosen(rho(900), task_hash=TASK, instead_of=rho(77))
        with pytest.raises(UserError, match="promises each person a cap"):
            ledger.book(TASK, [charge(rho=30)], caps=[("", rho(101))])
        assert ledger.changes() == before


def test_a_closed_ledger_knows_nobody_and_releases_nothing(path: Path) -> None:
    with booked(path) as ledger, Ledger(path) as other:
        # It was opened, and has booked, before the ledger is closed.
        other.bind(LOG, TASK, name="demo")
        other.book(TASK, [charge(rho=30)], caps=[("", rho(100))])
        assert ask(ledger, NAME) == "released"
        ledger.begin_run(TASK, FILE)
        ledger.withdraw("Bernadette")
        known = ledger.names.reading().person(NAME)
        secret = key_path(path).read_text().split()[-1]
        ledger.close_accounts()
        assert ledger.totals().people == ledger.totals().withdrawn == ledger.pending() == 0
        assert ledger.closed_on is not None
        for open_one in (ledger, other):
            with pytest.raises(UserError, match="was closed: its accounts are deleted"):
                ask(open_one, "Clara")
        assert not key_path(path).exists()
    content = b"".join(file.read_bytes() for file in path.parent.iterdir())
    needle = known if isinstance(known, bytes) else str(known).encode()
    assert needle not in content
    assert secret.encode() not in content
    with Ledger(path) as ledger:
        with pytest.raises(UserError, match="was closed"):
            ledger.bind(LOG, TASK, name="demo")
        assert ledger.changes()
    assert "Closed on 20" in said(path)
    assert "its accounts are deleted" in said(path, "--person", NAME, status=1)
    assert "already" in said(path, "--close", "--yes", status=1)
    assert read_accounts(path).closed


def test_a_crash_before_the_key_is_deleted_is_made_good(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with booked(path) as ledger:
        ask(ledger, NAME)
        monkeypatch.setattr("murk.producers.ledger.ledger.delete_key", lambda path: None)
        ledger.close_accounts()
    assert key_path(path).exists()
    monkeypatch.undo()
    with Ledger(path) as ledger:
        assert ledger.closed_on is not None
    assert not key_path(path).exists()


def test_closing_asks(path: Path) -> None:
    with booked(path) as ledger:
        ask(ledger, NAME)
    assert "no terminal to ask at: add --yes" in said(path, "--close", status=1)
    assert "without --person" in said(path, "--close", "--person", NAME, "--yes", status=1)
    with Ledger(path) as ledger:
        assert ledger.totals().people == 1
    assert "all accounts are deleted" in said(path, "--close", "--yes")
