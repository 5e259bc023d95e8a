"""A fixed share of the long campaign; and that what must not happen would be noticed."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.harness import LEDGER
from tests.protocols import EXAMPLES, GRADIENTS, SKETCH
from tests.services import services
from tests.services.faults.nursery import Nursery
from tests.soak.__main__ import campaign, total
from tests.soak.life import Life
from tests.soak.people import CASES, LOG, Case
from tests.stream.harness import restate


def small(case: Case, part: int) -> Case:
    """Enough for a few kills."""
    return replace(case, rows=case.rows // part, groups=case.groups if case.groups < 10 else case.groups // part)


MINUTES = float("inf")


def fought(kills: int, cases: list[Case], log: str) -> None:
    said: list[str] = []
    lives = list(campaign(kills, MINUTES, 1, [(case, log) for case in cases], said.append))
    everything = total(result for *_, result in lives)
    assert everything.violations == []
    assert everything.kills.total() == kills
    assert (everything.lost, everything.doubled) == (0, 0)
    assert everything.learned == everything.released > 0
    assert everything.identical == everything.partitions == 2 * len(lives)
    assert {protocol for protocol, *_ in lives} == {str(case.protocol) for case in cases}


@pytest.mark.slow
def test_kills_on_a_file() -> None:
    # Examples are fought over on Kafka; moments and scores in the whole campaign alone.
    fought(4, [small(case, 12) for case in CASES["file"] if case.protocol in (GRADIENTS, SKETCH)], "file")


@pytest.mark.slow
def test_kills_on_kafka() -> None:
    services.require_kafka()
    fought(3, [small(case, 16) for case in CASES["kafka"] if case.protocol is EXAMPLES], "kafka")


def test_damage_is_noticed(tmp_path: Path) -> None:
    """A debit that is gone, a release that nobody has paid for, and a state that is another's."""
    case = replace(CASES["file"][1], rows=60, block=20)
    with Nursery(tmp_path / "children", [case.protocol]) as nursery:
        life = Life(case, None, tmp_path, nursery, "1", lambda what: None)
        life.fight(0)
        life.audit()
        life.check_debits()
        assert life.result.violations == []
        with sqlite3.connect(life.folder / LEDGER) as ledger:
            ledger.execute("DELETE FROM debits WHERE number = 1")
        life.audit()
        assert any("debits" in violation for violation in life.result.violations)
        life.result.violations.clear()
        life.check_debits()
        assert any("debits" in violation for violation in life.result.violations)
        life.result.violations.clear()
        with sqlite3.connect(life.folder / LOG) as file:
            file.execute("UPDATE states SET state = replace(CAST(state AS TEXT), '\"learned\":', '\"learned\":1')")
            file.execute("UPDATE states SET state = CAST(state AS BLOB)")
            restate(file)
        life.audit()
        assert any("replay" in violation for violation in life.result.violations)
