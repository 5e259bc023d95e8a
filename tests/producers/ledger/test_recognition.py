"""Under a cap over all tasks there is one way of naming people in a ledger."""

from pathlib import Path

import pytest

from murk.errors import UserError
from murk.privacy.guarantees import CENTRAL
from murk.producers.ledger.costs import Charge
from murk.producers.ledger.ledger import Ledger
from murk.producers.ledger.names import ReleaseRequests
from tests.producers.ledger.accounts import FILE, LOG, OTHER, TASK, ask, booked, charge, rho, spend

BIG, THIRD = [("", rho(1000))], "9" * 64
ANOTHER = "e" * 64


def more(ledger: Ledger, *tasks: str, simulated: bool = False, charges: list[Charge] | None = None) -> None:
    for task in tasks:
        ledger.bind(LOG, task, name=f"demo {task[:1]}", simulated=simulated)
        ledger.book(task, charges or [charge(rho=30)], caps=BIG)


def work(ledger: Ledger, task: str, people: str, source: str = FILE) -> None:
    """Release one row, of people who are named in some way."""
    ledger.begin_run(task, source, people=people)
    names = None if people == "row" else ["7"]
    with ledger.spending(task, ReleaseRequests([0], names, ["default"], source=source)) as spending:
        spending.freeze([b"1"] * len(spending.granted), [0], [0], expires=1)
        spending.progress(1, {})


def refused(ledger: Ledger, task: str, people: str, words: str, source: str = FILE) -> None:
    with pytest.raises(UserError, match=words) as caught:
        work(ledger, task, people, source)
    assert "--ledger" in str(caught.value)
    assert ledger.totals().refused == 0


def test_a_column_is_the_one_column(tmp_path: Path) -> None:
    with booked(tmp_path / "ledger.db", caps=BIG, lifetime=rho(60)) as ledger:
        more(ledger, OTHER, THIRD)
        work(ledger, TASK, "column id")
        refused(ledger, OTHER, "column name", "people named by the column 'id' have released already")
        refused(ledger, OTHER, "column name", "Name them by the column 'id', as before", ANOTHER)
        refused(ledger, OTHER, "row", "recognised only in exactly the same records")
        # The same ids in another file are the same people, whose cap has room for two.
        work(ledger, OTHER, "column id", ANOTHER)
        assert (
            spend(ledger, ReleaseRequests([5], ["7.0"], ["default"], source=FILE), TASK).refusals[0].scope == "lifetime"
        )
        assert ledger.totals().people == 1


def test_an_application_is_another_way(tmp_path: Path) -> None:
    with booked(tmp_path / "ledger.db", caps=BIG, lifetime=rho(60)) as ledger:
        more(ledger, OTHER)
        assert ask(ledger, "ann") == "released"
        refused(ledger, OTHER, "column id", "named by an application")
        assert ask(ledger, "ann", task=OTHER) == "released"
    with booked(tmp_path / "two.db", caps=BIG, lifetime=rho(60)) as ledger:
        more(ledger, OTHER)
        work(ledger, TASK, "column id")
        with pytest.raises(UserError, match="named by an application, are of the same"):
            ask(ledger, "ann", task=OTHER)


def test_two_processes_that_begin_at_once_do_not_name_people_in_two_ways(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with booked(path, caps=BIG, lifetime=rho(60)) as one, booked(path, caps=BIG, task=OTHER) as two:
        one.begin_run(TASK, FILE, people="column id")
        two.begin_run(OTHER, FILE, people="column name")
        work(one, TASK, "column id")
        refused(two, OTHER, "column name", "named by the column 'id'")


def test_without_a_cap_it_is_said_and_not_refused_and_a_cap_that_comes_later_holds(tmp_path: Path) -> None:
    with booked(tmp_path / "ledger.db", caps=BIG) as ledger:
        more(ledger, OTHER)
        work(ledger, TASK, "column id")
        names = ledger.names.source(FILE)
        assert names
        assert ledger.strangers(FILE, "column name") == ["column id"]
        assert ledger.strangers(FILE, "column id") == []
        work(ledger, OTHER, "column name")
        ledger.book(TASK, [charge(rho=30)], lifetime=rho(60))
        with pytest.raises(UserError, match="named by the column 'name'"):
            spend(ledger, ReleaseRequests([5], ["8"], ["default"], source=FILE), TASK)


def test_simulations_and_organisations_are_apart(tmp_path: Path) -> None:
    sketch = Charge("default", CENTRAL[0], charge().guarantee, charge(rho=30).costs)
    with booked(tmp_path / "ledger.db", caps=BIG, lifetime=rho(900)) as ledger:
        more(ledger, OTHER, simulated=True)
        work(ledger, OTHER, "column name")
        work(ledger, TASK, "column id")
        more(ledger, THIRD, charges=[sketch])
        work(ledger, THIRD, "organisations of column clinic")
        more(ledger, "a" * 64, charges=[sketch])
        refused(
            ledger,
            "a" * 64,
            "organisations of column region",
            "organisations named by the column 'clinic' have released",
        )
