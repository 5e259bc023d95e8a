"""What a person sees of their own account, on one screen and without their name; and how names leave old ledgers."""

import json
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from murk._internal.sqlite import row_checksum
from murk.cli.commands.ledger import command
from murk.privacy import GaussianDP, cap_of
from murk.producers import Ledger
from murk.producers.ledger.costs import PRICE_COLUMNS
from murk.producers.ledger.names import ReleaseRequests, key_path
from tests.producers.ledger.accounts import LOG, OTHER, TASK, ask, charge, spend

NAME = "Annette Vandermeer"
UNITS = cap_of(GaussianDP(1.0)).units
DAY = 1_700_006_400
"""15 November 2023."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger in which somebody has released twice of a budget of two."""
    path = tmp_path / f"{NAME}.db"
    with Ledger(path) as ledger:
        ledger.bind(LOG, TASK, name="sleep", simulated=False)
        ledger.book(TASK, [charge(gdp=UNITS)], caps=[("", cap_of(GaussianDP(1.5)))], lifetime=cap_of(GaussianDP(3.0)))
        for _ in range(2):
            with ledger.spending(TASK, ReleaseRequests([None], [NAME], ["default"])) as spending:
                spending.freeze([b"1"], [0], [0], expires=1, day=DAY)
        assert ask(ledger, NAME) == "task"
        ledger.confirm([1])
    return path


def ledger(*arguments: object) -> str:
    done = CliRunner().invoke(command, [*map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output


def test_one_screen_says_what_was_sent_what_it_can_say_and_the_way_out(path: Path) -> None:
    screen = ledger(path, "--person", NAME)
    text = " ".join(screen.split())
    assert "1 answer, randomized by the device that holds this ledger before it was sent, on 2023-11-15" in text
    assert "1 more waiting for the log to confirm it; 1 refused, beyond your budget" in text
    # Two releases of mu = 1: mu = sqrt(2), Phi(mu / 2) = 0.7602...
    assert "tells your record from any other in at most 76.1% of cases; guessing gives 50%" in text
    assert "mu = 1.415 spent of at most mu = 1.5." in text
    assert "Receipt No. 1, 2 in this ledger" in text
    assert "may recognise it by its position in the log" in text
    assert "leads nowhere" not in text
    assert "--withdraw` deletes waiting answers and stops further ones" in text
    assert "What was sent cannot be taken back, or removed from a result that was learned from it" in text
    assert len(screen.splitlines()) <= 24
    assert max(map(len, screen.splitlines())) <= 100


def test_nothing_on_it_says_whose_it_is(path: Path) -> None:
    for options in ([], ["--details"], ["--json"], ["--withdraw", "--yes"], ["--json"]):
        said = ledger(path, "--person", NAME, *options)
        assert NAME not in said
        assert NAME.split(maxsplit=1)[0] not in said


def test_a_name_may_be_asked_for(path: Path) -> None:
    """An argument is in the shell's history, and in everybody's list of processes."""
    done = CliRunner().invoke(command, [str(path), "--person", "-"], input=f"{NAME}\n")
    assert done.exit_code == 0, done.output
    assert "1 answer, randomized by" in done.output
    assert NAME not in done.output


def test_it_says_that_somebody_has_withdrawn(path: Path) -> None:
    ledger(path, "--person", NAME, "--withdraw", "--yes", "--task", "sleep")
    assert "You no longer take part in this task." in ledger(path, "--person", NAME)
    ledger(path, "--person", NAME, "--withdraw", "--yes")
    text = " ".join(ledger(path, "--person", NAME).split())
    assert "Nothing more is released to any task." in text
    assert "To stop" not in text


def test_all_tasks_together_are_a_figure_of_their_own(path: Path) -> None:
    with Ledger(path) as open_ledger:
        open_ledger.bind(LOG, OTHER, name="food", simulated=False)
        open_ledger.book(OTHER, [charge(gdp=UNITS)])
        spend(open_ledger, ReleaseRequests([None], [NAME], ["default"]), OTHER)
    text = " ".join(ledger(path, "--person", NAME).split())
    together = text[text.index("All tasks") :]
    # Phi(sqrt(3) / 2) = 0.8068...
    assert "From all answers together" in together
    assert "at most 80.7% of cases" in together
    assert "mu = 1.733 spent of at most mu = 3." in together


def test_a_simulation_promises_nothing(path: Path) -> None:
    with sqlite3.connect(path) as change:
        change.execute("UPDATE tasks SET simulated = 1")
    text = ledger(path, "--person", NAME)
    assert "sleep, a simulation: its noise can be recomputed and protects nobody" in text
    assert "Kept private" not in text


def test_a_name_that_was_never_seen_does_not_withdraw_unasked(path: Path) -> None:
    wrong = CliRunner().invoke(command, [str(path), "--person", NAME.lower(), "--withdraw", "--yes"])
    assert wrong.exit_code != 0
    assert "capitals count" in str(wrong.exception)
    with Ledger(path) as open_ledger:
        assert open_ledger.totals().withdrawn == 0
    # Who has not released yet may say so beforehand.
    assert "Withdrawn from every task" in ledger(path, "--person", NAME.lower(), "--withdraw", "--yes", "--new")


def test_a_name_that_is_no_row_is_not_repeated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been typed where nobody was to see it."""
    done = CliRunner().invoke(command, [str(path), "--person", "-", "--source", "people.csv"], input=f"{NAME}\n")
    assert "is not a row: with --source give the row's number" in str(done.exception)
    assert NAME not in str(done.exception) + done.output


def test_a_lost_key_is_said(path: Path) -> None:
    assert json.loads(ledger(path, "--json"))["key"] == "found"
    assert "The key is missing" not in ledger(path)
    key_path(path).unlink()
    said = " ".join(ledger(path).split())
    assert "The key is missing" in said
    assert json.loads(ledger(path, "--json"))["key"] == "missing"


def test_an_organisation_is_no_person(path: Path) -> None:
    with sqlite3.connect(path) as change:
        change.execute("UPDATE tariffs SET mechanism = 'gram'")
        for number, *row in change.execute(f"SELECT number, {PRICE_COLUMNS} FROM tariffs").fetchall():
            check = row_checksum("tariffs", *row), number
            change.execute('UPDATE tariffs SET "check" = ? WHERE number = ?', check)
    change.close()
    said = " ".join(ledger(path).split())
    assert said.startswith("1 organisation, 2 releases")
    # mu = sqrt(2): any two records at twice the blank's square, Phi(1) = 0.8413...; against a blank one 0.7602...
    together = (
        "any two records are told apart in at most 84.2%, a record and a blank one in at most 76.1%: mu = 1.415 of 3"
    )
    assert f"All tasks together: {together} at most for an organisation's account" in said
    assert "for a person" not in said
    own = " ".join(ledger(path, "--person", NAME, "--details").split())
    assert (
        "Each release: any two records are told apart in at most 76.1%, a record and a blank one in at most 69.2%"
        in own
    )
