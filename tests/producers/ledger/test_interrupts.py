"""An interrupt may come between any two instructions: the ledger goes on, with each debit whole or not made."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import murk
from murk.producers.ledger.ledger import Ledger
from murk.producers.ledger.requests import ReleaseRequests
from tests.producers.ledger.accounts import FILE, TASK, booked, charge, rho

PLACES = tuple(str(Path(murk.__file__).parent / name) for name in ("_sqlite.py", "producers/ledger/"))
MANY = {"charges": [charge(rho=1)], "caps": [("", rho(10**6))]}


def interrupted(work: Callable[[], object], stop: int) -> int:
    """Interrupt work at an instruction of what writes a ledger; give the number of those that it ran."""
    seen = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.startswith(PLACES):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == stop:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return seen


def release(ledger: Ledger, row: int) -> range:
    with ledger.spending(TASK, ReleaseRequests([row], None, ["default"], source=FILE)) as spend:
        if not len(spend.granted):
            return range(0)
        spend.freeze([b"bytes"], [0], [0], expires=1_000, order=range(1))
    return spend.numbers


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
            return ran

        ran = disturbed(0, 0)
        assert ran > 20
        for row, stop in enumerate(range(1, ran + 1, 1 + ran // 500), start=1):
            disturbed(row, stop)
