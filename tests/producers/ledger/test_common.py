"""What an open ledger remembers of its file: never beyond what another one has written, and what was rolled back."""

from pathlib import Path

import pytest

from murk.privacy import PrivacyLoss
from murk.producers.ledger.ledger import Ledger
from murk.producers.ledger.names import ReleaseRequests
from tests.producers.ledger.accounts import OTHER, TASK, ask, booked, charge, rho, spend


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def die(ledger: Ledger) -> None:
    with ledger.spending(TASK, ReleaseRequests([None], ["bob"], ["default"])) as spending:
        assert spending.numbers[0] == 2
        raise ZeroDivisionError


def statements(ledger: Ledger, person: str) -> list[str]:
    """What SQLite is asked for a release."""
    said: list[str] = []
    ledger._file._connection.set_trace_callback(said.append)
    assert ask(ledger, person) == "released"
    ledger._file._connection.set_trace_callback(None)
    return said


def test_a_release_reads_what_is_of_the_person_and_nothing_else(path: Path) -> None:
    with booked(path) as ledger:
        # The second one reads the key that was made with the first.
        first, _, third, fourth = (statements(ledger, person) for person in ("ann", "bob", "cat", "dan"))
        assert any("promises" in one for one in first)
        assert [one.split()[0] for one in third] == [
            "BEGIN", "PRAGMA", "SELECT", "INSERT", "INSERT", "INSERT", "UPDATE", "COMMIT",
        ]  # fmt: skip
        assert len(fourth) == len(third)
        with booked(path) as other:
            assert ask(other, "fay") == "released"
        # The twin: where somebody else has written it is read again.
        assert any("promises" in one for one in statements(ledger, "eve"))


def test_two_open_ledgers_never_give_a_number_twice(path: Path) -> None:
    with booked(path) as one, booked(path) as other:
        numbers = [spend(each, ReleaseRequests([None], ["ann"], ["default"])).numbers[0] for each in (one, other, one)]
        assert numbers == [1, 2, 3]
        assert [ask(one), ask(other), ask(other, "bob")] == ["task", "task", "released"]


def test_a_cap_that_another_tightens_or_loosens_holds_at_once(path: Path) -> None:
    with booked(path) as one, booked(path) as other:
        assert ask(one) == "released"
        other.book(TASK, [charge(rho=30)], caps=[("", rho(20))])
        assert ask(one, "bob") == "task"
        other.loosen(rho(60), task_hash=TASK)
        assert [ask(one, "bob"), ask(one, "bob"), ask(one, "bob")] == ["released", "released", "task"]
        one.loosen(rho(90), task_hash=TASK)
        assert [ask(one, "bob"), ask(one, "bob")] == ["released", "task"]
        one.book(TASK, [charge(rho=30)], lifetime=rho(40))
        assert [ask(one, "cat"), ask(one, "cat")] == ["released", "lifetime"]


def test_who_withdraws_through_another_is_left_alone_at_once(path: Path) -> None:
    with booked(path) as one, booked(path) as other:
        assert [ask(one), ask(one, "bob")] == ["released", "released"]
        other.withdraw("ann")
        assert [ask(one), ask(one, "bob")] == ["withdrawn", "released"]
        one.withdraw("bob")
        assert ask(one, "bob") == "withdrawn"


def test_prices_that_another_adds_are_known(path: Path) -> None:
    with booked(path, lifetime=rho(100)) as one:
        assert ask(one) == "released"
        with Ledger(path) as other:
            other.bind("a" * 32, OTHER)
            other.book(OTHER, [charge(rho=60)], caps=[("", rho(60))])
            assert ask(other, task=OTHER) == "released"
        assert ask(one) == "lifetime"


def test_what_is_rolled_back_is_not_remembered(path: Path) -> None:
    with booked(path) as ledger:
        assert ask(ledger) == "released"
        with pytest.raises(ZeroDivisionError):
            die(ledger)
        assert spend(ledger, ReleaseRequests([None], ["bob"], ["default"])).numbers[0] == 2
        assert ledger.next_number == 3


def test_a_cap_in_another_currency_is_asked_of_newcomers_too(path: Path) -> None:
    with booked(path, [charge(rho=30), charge("open", rho=90)]) as ledger:
        outcomes = [ask(ledger, "ann"), ask(ledger, "bob", level="open"), ask(ledger, "ann", level="open")]
        assert outcomes == ["released", "released", "task"]
        ledger.book(TASK, [charge(rho=30), charge("open", rho=90)], caps=[("", PrivacyLoss("epsilon", 5, 0))])
        assert ask(ledger, "cat") == "task"
