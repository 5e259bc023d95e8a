"""An interrupt may come between any two instructions: the ledger goes on, with each debit whole or not made."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

import murk
from murk.errors import UserError
from murk.producers.ledger.ledger import Ledger
from murk.producers.ledger.names import ReleaseRequests
from tests import interrupts
from tests.producers.ledger.accounts import FILE, TASK, booked, charge, rho

PLACES = (
    *(str(Path(murk.__file__).parent / name) for name in ("_internal/sqlite.py", "producers/ledger/")),
    contextlib.__file__,
)
MANY = {"charges": [charge(rho=1)], "caps": [("", rho(10**6))]}


def interrupted(work: Callable[[], object], stop: int) -> int:
    return interrupts.interrupted(work, stop, PLACES)


def release(ledger: Ledger, row: int) -> range:
    with ledger.spending(TASK, ReleaseRequests([row], None, ["default"], source=FILE)) as spend:
        if not len(spend.granted):
            return range(0)
        spend.freeze([b"bytes"], [0], [0], expires=1_000, order=range(1))
    return spend.numbers


def settings_of(ledger: Ledger) -> list[int]:
    """Whether commits wait for the disk (2: they do), and milliseconds to wait for another process."""
    connection = ledger._file._connection
    return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "busy_timeout")]


@pytest.mark.parametrize("step", ["confirm", "release", "tidy"])
def test_after_an_interrupt_anywhere_the_same_call_goes_through(tmp_path: Path, step: str) -> None:
    with booked(tmp_path / "ledger.db", **MANY) as ledger:
        ledger.begin_run(TASK, FILE, people="row")

        def disturbed(row: int, stop: int) -> int:
            numbers = range(row + 1, row + 2)
            works: list[Callable[[], object]] = [
                lambda: release(ledger, row),
                lambda: ledger.confirm(numbers),
                ledger.tidy,
            ]
            at = ["release", "confirm", "tidy"].index(step)
            for work in works[:at]:
                work()
            ran = interrupted(works[at], stop)
            for work in works[at:]:
                work()
            assert ledger.totals().releases == row + 1, stop
            assert ledger.pending() == 0, stop
            with ledger._write():
                assert settings_of(ledger) == [2, 30_000], stop
            return ran

        ran = disturbed(0, 0)
        assert ran > 20
        for row, stop in enumerate(range(1, ran + 1, 1 + ran // 500), start=1):
            disturbed(row, stop)


def test_an_interrupt_amid_the_undoing_of_an_error_leaves_no_transaction(tmp_path: Path) -> None:
    with booked(tmp_path / "ledger.db", **MANY) as ledger:

        def failing() -> None:
            with contextlib.suppress(UserError), ledger._file.write() as connection:
                connection.execute("INSERT INTO meta VALUES ('identity', 'another')")

        for stop in range(1, interrupted(failing, 0) + 1):
            interrupted(failing, stop)
            assert ledger.pending() == 0
            with ledger._write():
                pass


def test_levels_that_were_not_booked_are_not_remembered(tmp_path: Path) -> None:
    """An interrupt anywhere in the booking of two levels, and the same call again: both have the prices of the file."""
    two = [charge("a", rho=5), charge("b", rho=6)]
    with booked(tmp_path / "counted.db", **MANY) as ledger:
        ran = interrupted(lambda: ledger.book(TASK, two, caps=[]), 0)
    for stop in range(1, ran + 1, 7):
        path = tmp_path / f"{stop}.db"
        with booked(path, **MANY) as ledger:
            interrupted(lambda ledger=ledger: ledger.book(TASK, two, caps=[]), stop)
            ledger.book(TASK, two, caps=[])
            levels = ledger._booked(TASK).levels
            rows = ledger._file.query("SELECT number, level FROM tariffs")
            assert {(levels[name], name) for name in "ab"} <= set(rows), stop
