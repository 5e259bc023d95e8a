"""Ledgers of format 1, as the versions before wrote them, opened by this one."""

import re
import sqlite3
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from murk.errors import UserError
from murk.privacy import (
    GaussianDP,
    GaussianMechanism,
    L2BallMechanism,
    PureDP,
    ZeroConcentratedDP,
    cap_of,
)
from murk.producers.ledger import migration
from murk.producers.ledger.ledger import Ledger
from murk.producers.ledger.names import ReleaseRequests, folded_name
from murk.producers.ledger.prices import Charge
from tests.producers.ledger.accounts import ask, booked

OLD = Path(__file__).parent / "data" / "format-1.sql"
WEEKS, PURE, MIXED, SKETCH = ("1" * 64, "2" * 64, "3" * 64, "4" * 64)
GAUSS = Charge.of(
    "default", GaussianDP(1.0), GaussianMechanism.calibrate(GaussianDP(1.0), dimension=3, radius=1.0)
)  # fmt: skip
BALL = Charge.of("default", PureDP(1.0), L2BallMechanism.calibrate(PureDP(1.0), dimension=3, radius=1.0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger that the version before wrote: tasks, levels, several spellings, withdrawals, windows."""
    path = tmp_path / "ledger.db"
    connection = sqlite3.connect(path)
    connection.executescript(OLD.read_text(encoding="utf-8"))
    connection.close()
    return path


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    found = connection.execute(query).fetchall()
    connection.close()
    return found


def test_caps_and_costs_in_gdp(path: Path) -> None:
    with Ledger(path) as ledger:
        # All that these are for stated GDP; the lifetime's cap is also for pure releases, and was kept in rho.
        assert [one.amount for one in ledger.promises(WEEKS)] == [cap_of(GaussianDP(1.0)), cap_of(GaussianDP(0.5))]
        assert [one.amount for one in ledger.promises(MIXED)] == [cap_of(ZeroConcentratedDP(0.5))]
        assert [one.amount.currency for one in ledger.promises()] == ["rho"]
        assert ask(ledger_of(ledger, WEEKS, GAUSS), "carl", task=WEEKS) == "level"
        assert ask(ledger, "eve", task=WEEKS) == "released"
    costs = dict(rows(path, "SELECT number, gdp FROM tariffs"))
    assert costs[1] == GAUSS.costs["gdp"].units
    assert costs[3] == BALL.costs["gdp"].units
    assert costs[5] is None
    assert rows(path, "SELECT value FROM meta WHERE key IN ('format', 'naming') ORDER BY key") == [(5,), ("plain",)]


def ledger_of(ledger: Ledger, task: str, charge: Charge, **promised: object) -> Ledger:
    ledger.book(task, [charge], **promised)  # type: ignore[arg-type]
    return ledger


def test_a_cap_that_may_have_been_of_another_kind_becomes_one_of_gdp_when_it_is_booked_again(path: Path) -> None:
    with Ledger(path) as ledger:
        assert ledger.promises(PURE)[0].amount.currency == "rho"
        ledger_of(ledger, PURE, BALL, caps=[("", cap_of(GaussianDP(2.0)))], lifetime=cap_of(GaussianDP(3.0)))
        assert [one.amount for one in ledger.promises(PURE)] == [cap_of(GaussianDP(2.0))]
        assert [one.amount for one in ledger.promises()] == [cap_of(GaussianDP(3.0))]
        # Of one person four were released under rho = 2, under each of two spellings one; of a new one two are.
        assert ask(ledger, "dora", task=PURE) == "lifetime"
        assert [ask(ledger, "eve", task=PURE) for _ in range(3)] == ["released", "released", "task"]


def test_no_cap_becomes_looser(path: Path) -> None:
    with Ledger(path) as ledger:
        for caps, lifetime in (
            ([("default", cap_of(GaussianDP(1.1)))], None),
            ([], cap_of(ZeroConcentratedDP(4.6))),
        ):
            with pytest.raises(UserError, match="promises each person a cap of"):
                ledger.book(WEEKS, [GAUSS], caps=caps, lifetime=lifetime)
        # In other terms it is one more cap beside the one that stands.
        ledger.book(WEEKS, [GAUSS], lifetime=cap_of(GaussianDP(5.0)))
        assert len(ledger.promises()) == 2


def test_the_odd_unit_that_rho_had_no_half_for(path: Path) -> None:
    odd = GaussianDP(1.000001)
    charge = Charge.of("odd", odd, GaussianMechanism.calibrate(odd, dimension=3, radius=1.0))
    change = sqlite3.connect(path)
    values = (1, "odd", "gaussian", '[{"gdp": {"mu": 1.000001}}]', charge.costs["rho"].units)
    change.execute("INSERT INTO tariffs VALUES (NULL, ?, ?, ?, ?, ?, NULL, NULL, NULL)", values)
    change.execute("INSERT INTO promises VALUES (1, 'odd', 'rho', ?, 0)", (cap_of(odd).units // 2,))
    change.commit()
    change.close()
    with Ledger(path) as ledger:
        ledger.book(WEEKS, [charge], caps=[("odd", cap_of(odd))])
        promised = next(one for one in ledger.promises(WEEKS) if one.level == "odd")
        assert promised.amount.units == cap_of(odd).units - 1
        assert ask(ledger, "eve", level="odd", task=WEEKS) == "released"


def test_levels_are_one_line_each_whatever_the_version_that_priced_them(path: Path) -> None:
    change = sqlite3.connect(path)
    change.execute("UPDATE tariffs SET rho = rho + 1 WHERE number = 1")
    change.commit()
    change.close()
    with ledger_of(Ledger(path), WEEKS, GAUSS, caps=[("", cap_of(GaussianDP(9.0)))]) as ledger:
        ledger.loosen(cap_of(GaussianDP(9.0)), task_hash=WEEKS, level="default")
        assert ask(ledger, "carl", task=WEEKS) == "released"
        assert ask(ledger, "carl", task=WEEKS) == "released"
        levels = ledger.account("carl").tasks[0].levels
        assert [(one.level, one.released) for one in levels] == [("strict", 1), ("default", 2)]


@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (migration, "_add_gdp"),
        (migration, "_seal_outbox"),
        (migration, "_merge_windows"),
        (migration, "merge_accounts"),
    ],
)
def test_a_crash_in_the_middle_leaves_the_ledger_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch, owner: ModuleType, step: str
) -> None:
    def half(*arguments: Any) -> None:
        change(*arguments)
        raise KeyboardInterrupt

    change = getattr(owner, step)
    before = list(sqlite3.connect(path).iterdump())
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, half)
        with pytest.raises(KeyboardInterrupt):
            Ledger(path)
    assert list(sqlite3.connect(path).iterdump()) == before
    with Ledger(path) as ledger:
        assert ledger.totals().releases == 17
        assert ledger.account("ann").tasks[0].levels[0].released == 3


def test_windows_whose_key_is_taken_are_numbered(path: Path) -> None:
    old = {key for (key,) in rows(path, "SELECT key FROM windows")}
    Ledger(path).close()
    new = {key for (key,) in rows(path, "SELECT key FROM windows")} - old
    assert new
    assert all(re.fullmatch(r"window [1-9][0-9]*", str(key)) for key in new)


def test_nothing_of_the_work_stays_in_an_open_ledger(path: Path) -> None:
    with Ledger(path) as ledger:
        assert ledger._file.query("SELECT name FROM temp.sqlite_master") == []


def test_a_damaged_old_ledger_is_not_migrated(path: Path) -> None:
    change = sqlite3.connect(path)
    change.execute("UPDATE spending SET released = 0 WHERE person = 'carl'")
    change.commit()
    change.close()
    before = path.read_bytes()
    with pytest.raises(UserError, match="damaged"):
        Ledger(path)
    assert path.read_bytes() == before


def test_a_pure_release_enters_a_cap_of_mu_with_its_mu(tmp_path: Path) -> None:
    charges = [BALL]
    with booked(tmp_path / "new.db", charges, caps=(("", cap_of(GaussianDP(1.0))),)) as ledger:
        assert ask(ledger) == "task"
    with booked(tmp_path / "two.db", charges, caps=(("", cap_of(GaussianDP(2.0))),)) as ledger:
        claims = ReleaseRequests([None] * 4, ["ann"] * 4, ["default"] * 4)
        with ledger.spending("7" * 64, claims) as spend:
            assert spend.granted == [0, 1]
            spend.cancel()


def test_several_spellings_become_one_account_and_what_was_spent_adds_up(path: Path) -> None:
    before = rows(path, "SELECT sum(released), sum(refused) FROM spending")
    with Ledger(path) as ledger:
        for spelling in ("ann", " ann", "ann\u00a0"):
            weeks, mixed = ledger.account(spelling).tasks
            # Two releases of one record under two spellings, one more with an unseen character, one from a file.
            assert [(one.level, one.released, one.sent, one.refused) for one in weeks.levels] == [
                ("default", 3, 2, 1),
                ("strict", 1, 0, 0),
            ]
            assert [one.released for one in mixed.levels] == [1]
        ledger_of(ledger, WEEKS, GAUSS)
        assert ask(ledger, "ann", key="k", task=WEEKS) == "known"
        assert ask(ledger, "ann", key="new", task=WEEKS) == "level"
        # One withdrew as "Zoe" with an accent of its own, and one from everything, with a space at the end.
        assert ask(ledger, "Zo\u00e9", task=WEEKS) == ask(ledger, "bob", task=WEEKS) == "withdrawn"
        assert [one.released for one in ledger.account("Zoe\u0301").tasks[0].levels] == [1, 1]
        assert [one.released for one in ledger.account("dora").tasks[0].levels] == [5]
        clinic = ledger.account("clinic").tasks[0].windows
        assert clinic is not None
        assert (clinic.released, clinic.records) == (2, 200)
        assert ledger.windows(SKETCH).count("clinic") == 2
        assert ledger.pending() == 14
        # What waited of somebody's other spelling goes with the withdrawal, too.
        assert ledger.withdraw("ann") == 3
    # Nothing was lost on the way; three were refused just now.
    released, refused = before[0]
    assert rows(path, "SELECT sum(released), sum(refused) FROM spending") == [(released, refused + 3)]  # type: ignore[operator]
    with Ledger(path) as ledger:
        assert ledger.totals().releases == 17


def test_records_of_every_spelling_are_known_by_the_one_name(path: Path) -> None:
    """What was released under a spelling is not released again; of two with one key the later has its number for it."""
    query = "SELECT task, source, key, person, number FROM debits ORDER BY number"
    before = rows(path, query)
    assert any(folded_name(row[3]) != row[3] for row in before if isinstance(row[3], str))
    Ledger(path).close()
    after = rows(path, query)
    assert [row[4] for row in after] == [row[4] for row in before]
    seen = set()
    for (task, source, key, person, number), found in zip(before, after, strict=True):
        name = folded_name(person) if isinstance(person, str) else person
        assert found[:2] == (task, source)
        assert found[3] == name
        assert found[2] == key or found[2] == number or re.fullmatch(r"window [1-9][0-9]*", str(found[2]))
        seen.add(found[:4])
    assert len(seen) == len(after)


def test_a_name_that_is_nothing_but_unseen_stays_what_it_is(path: Path) -> None:
    change = sqlite3.connect(path)
    for query in (
        "UPDATE spending SET person = ? WHERE person = 'carl'",
        "UPDATE debits SET person = ? WHERE person = 'carl'",
    ):
        change.execute(query, ("\u200b",))
    change.commit()
    change.close()
    with Ledger(path) as ledger:
        assert ledger.totals().releases == 17
        with pytest.raises(UserError, match="an invisible or non-text character"):
            ledger.account("\u200b")
