"""Budgets that renew with windows: caps within each, caps over all of them, and windows that never go back."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from murk.errors import MurkError, UserError
from murk.privacy import PrivacyLoss
from murk.producers.ledger.costs import Charge
from murk.producers.ledger.ledger import Ledger
from murk.producers.ledger.names import ReleaseRequests
from murk.producers.ledger.spending import Spending
from tests.producers.ledger.accounts import LOG, TASK, charge, rho, spend

WEEK = 2_900


def renewing(
    path: Path,
    caps: Sequence[tuple[str, PrivacyLoss]] = (),
    within: Sequence[tuple[str, PrivacyLoss]] = (("", rho(60)),),
    charges: Sequence[Charge] = (charge(rho=30),),
) -> Ledger:
    ledger = Ledger(path)
    ledger.bind(LOG, TASK, name="visits", window="week")
    ledger.book(TASK, charges, caps=caps, renewing=within)
    return ledger


def ask(ledger: Ledger, *windows: int, person: str = "ann", level: str = "default") -> Spending:
    people = [person] * len(windows)
    return spend(ledger, ReleaseRequests([None] * len(windows), people, [level] * len(windows), windows=windows))


def scopes(spending: Spending) -> list[str]:
    return [refusal.scope for refusal in spending.refusals.values()]


def test_a_cap_holds_in_each_window_and_one_in_all(tmp_path: Path) -> None:
    with renewing(tmp_path / "ledger.db", caps=[("", rho(100))]) as ledger:
        first = ask(ledger, WEEK, WEEK, WEEK)
        assert (first.granted, scopes(first)) == ([0, 1], ["task"])
        assert first.refusals[2].reason.startswith("the cap for this task in this window has rho = 0 left")
        # The next window has room for two again, and all windows for three.
        second = ask(ledger, WEEK + 1, WEEK + 1)
        assert (second.granted, second.refusals[1].renews) == ([0], False)
        assert "in this window" not in second.refusals[1].reason
        assert ask(ledger, WEEK + 2).granted == []
        # Of another person nothing is spent.
        assert ask(ledger, WEEK + 2, person="ben").granted == [0]


def test_windows_never_go_back(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with renewing(path) as ledger:
        late = ask(ledger, WEEK + 5, WEEK + 4, WEEK + 5, WEEK - 100)
        assert (late.granted, scopes(late)) == ([0, 2], ["late", "late"])
        assert "in a later window" in late.refusals[1].reason
    with renewing(path) as ledger:
        # A clock that jumped ahead and was set back renews nothing, also after a restart.
        assert scopes(ask(ledger, WEEK + 4, WEEK + 5)) == ["late", "task"]
        assert ask(ledger, WEEK + 6).granted == [0]
        # A refusal does not make a window the newest one.
        assert ask(ledger, WEEK + 6, WEEK + 6, WEEK + 7).granted == [0, 2]


def test_without_a_cap_the_task_takes_one_release_in_each_window(tmp_path: Path) -> None:
    charges = charge(rho=30), charge("strict", rho=1)
    with renewing(tmp_path / "ledger.db", (), [("default", rho(30)), ("strict", rho(1))], charges) as ledger:
        assert ask(ledger, WEEK).granted == [0]
        assert ask(ledger, WEEK, WEEK, level="strict").granted == []
        assert ask(ledger, WEEK + 1, level="strict").granted == [0]
        assert ask(ledger, WEEK + 1).granted == []
        assert ask(ledger, WEEK + 2).granted == [0]


def test_what_fails_books_no_window(tmp_path: Path) -> None:
    with renewing(tmp_path / "ledger.db") as ledger:
        with (
            pytest.raises(RuntimeError),
            ledger.spending(TASK, ReleaseRequests([None], ["ann"], ["default"], windows=[WEEK + 9])),
        ):
            raise RuntimeError
        with ledger.spending(TASK, ReleaseRequests([None], ["ann"], ["default"], windows=[WEEK + 9])) as spending:
            spending.cancel()
        assert ask(ledger, WEEK).granted == [0]
        with pytest.raises(MurkError, match="a request to release must give its window"):
            spend(ledger, ReleaseRequests([None], ["ann"], ["default"]))
        with pytest.raises(UserError, match="must have the same length"):
            spend(ledger, ReleaseRequests([None], ["ann"], ["default"], windows=[WEEK, WEEK]))


def test_no_account_is_above_a_cap_whatever_the_clocks(tmp_path: Path) -> None:
    """Random windows, blocks and restarts: what is granted is what a count by hand grants."""
    rng = np.random.default_rng(7)
    path = tmp_path / "ledger.db"
    within: Counter[tuple[str, int]] = Counter()
    whole: Counter[str] = Counter()
    newest: dict[str, int] = {}
    late = 0
    clock = dict.fromkeys((f"p{person}" for person in range(40)), WEEK)
    for _ in range(60):
        with renewing(path, caps=[("", rho(300))]) as ledger:
            people = [f"p{person}" for person in rng.integers(0, 40, 25)]
            # Clocks go on, jump ahead, and are set back.
            windows = []
            for person in people:
                clock[person] += int(rng.choice([0, 0, 0, 1, 1, 4, -3]))
                windows.append(clock[person])
            claims = ReleaseRequests([None] * 25, people, ["default"] * 25, windows=windows)
            granted = set(spend(ledger, claims).granted)
            for index, (person, window) in enumerate(zip(people, windows, strict=True)):
                is_late = window < newest.get(person, window)
                late += is_late
                room = not is_late and within[person, window] < 2 and whole[person] < 10
                assert (index in granted) == room
                if room:
                    within[person, window] += 1
                    whole[person] += 1
                    newest[person] = window
    assert late > 100
    assert max(within.values()) == 2
    assert max(whole.values()) == 10
    with renewing(path, caps=[("", rho(300))]) as ledger:
        for person in ("p0", "p7", "p39"):
            [task] = ledger.account(person).tasks
            assert task.renewed is not None
            assert task.renewed.windows == sum(1 for who, _ in within if who == person and within[who, _])
            assert sum(level.released for level in task.levels) == whole[person]
            each, all_of_them = task.caps
            assert (each.window, all_of_them.window) == ("week", "")
            assert each.spent == rho(30 * within[person, newest[person]])
            assert all_of_them.spent == rho(30 * whole[person])
        # A share spent of a cap that renews is none of all time.
        report = ledger.group_sums(TASK).report()
        assert report is not None
        assert max(share for share, _ in report.spent) == 1.0


def test_statements_say_both(tmp_path: Path) -> None:
    with renewing(tmp_path / "ledger.db", caps=[("", rho(100))]) as ledger:
        ask(ledger, WEEK, WEEK, WEEK + 1)
        lines = ledger.account("ann").describe()
        assert "visits: answers in 2 weeks, the newest from 2025-08-04." in lines
        caps = [line for line in lines if line.startswith("Promised for visits")]
        assert caps[0].endswith("a week; spent rho = 3e-11 in the newest one")
        assert caps[1] == "Promised for visits: at most rho = 1e-10; spent rho = 9e-11"
        [task] = ledger.account("ann").tasks
        assert [cap.to_dict().get("window") for cap in task.caps] == ["week", None]


def test_a_renewing_cap_is_raised_only_with_consent(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    renewing(path).close()
    with pytest.raises(UserError, match="promises each person a cap"):
        renewing(path, within=[("", rho(90))])
    with Ledger(path) as ledger:
        ledger.loosen(rho(90), task_hash=TASK, renews=True)
    with renewing(path, within=[("", rho(90))]) as ledger:
        assert ask(ledger, WEEK, WEEK, WEEK, WEEK).granted == [0, 1, 2]
        assert [(cap.units, cap.renews) for cap in ledger.promises(TASK)] == [(90, 1)]
