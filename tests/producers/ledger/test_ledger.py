"""The ledger: caps to the unit, all or nothing, each record once."""

import copy
import os
import pickle
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from murk.errors import MurkError, UserError
from murk.privacy import PrivacyLoss
from murk.producers.ledger.ledger import Ledger
from murk.producers.ledger.names import ReleaseRequests
from murk.producers.ledger.statements import Totals
from tests.producers.ledger.accounts import FILE, LOG, OTHER, TASK, ask, booked, charge, rho, spend


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def rows(count: int, start: int = 0, people: list[str] | None = None) -> ReleaseRequests:
    return ReleaseRequests(range(start, start + count), people, ["default"] * count, source=FILE)


class Interrupted(Exception):
    """What a program dies of in the middle of a block."""


def die_within(ledger: Ledger, claims: ReleaseRequests) -> None:
    with ledger.spending(TASK, claims) as spending:
        count = len(spending.granted)
        assert count == len(claims.keys)
        spending.freeze([b"x"] * count, [0] * count, [0] * count, 1_000)
        if claims.keys[0]:
            spending.progress(count, {"released": count})
        raise Interrupted


class TestCaps:
    @pytest.mark.parametrize(("cost", "room"), [(30, 3), (50, 2), (100, 1), (101, 0), (1, 100), (34, 2)])
    def test_are_exact_to_the_unit(self, path: Path, cost: int, room: int) -> None:
        with booked(path, [charge(rho=cost)]) as ledger:
            outcomes = [ask(ledger) for _ in range(room + 2)]
        assert outcomes == ["released"] * room + ["task"] * 2

    def test_are_of_each_person(self, path: Path) -> None:
        with booked(path, [charge(rho=100)]) as ledger:
            assert [ask(ledger, "ann"), ask(ledger, "bob"), ask(ledger, "ann")] == ["released", "released", "task"]

    def test_say_which_one_has_no_room_and_what_is_left(self, path: Path) -> None:
        with booked(path, lifetime=rho(70)) as ledger:
            ask(ledger), ask(ledger)
            refusal = spend(ledger, ReleaseRequests(["k"], ["ann"], ["default"])).refusals[0]
        assert (refusal.person, refusal.key, refusal.level, refusal.scope) == ("ann", "k", "default", "lifetime")
        assert (refusal.needed, refusal.left) == (rho(30), rho(10))
        assert "ann" not in refusal.reason

    def test_refused_by_one_draws_on_none(self, path: Path) -> None:
        with booked(path, lifetime=rho(40)) as ledger:
            assert [ask(ledger), ask(ledger)] == ["released", "lifetime"]
            ledger.loosen(rho(1_000))
            # The task's cap of 100 still has room for 70: the refused release took nothing of it.
            assert [ask(ledger) for _ in range(3)] == ["released", "released", "task"]

    def test_hold_over_all_tasks(self, path: Path) -> None:
        with booked(path, lifetime=rho(50)) as ledger:
            ledger.bind(LOG, OTHER)
            ledger.book(OTHER, [charge(rho=20)], caps=[("", rho(100))])
            assert ask(ledger) == "released"
            assert [ask(ledger, task=OTHER), ask(ledger, task=OTHER)] == ["released", "lifetime"]

    @pytest.mark.parametrize("units", [(25, 100), (100, 25)])
    def test_in_several_currencies_all_hold(self, path: Path, units: tuple[int, int]) -> None:
        caps = [("", rho(units[0])), ("", PrivacyLoss("epsilon", units[1], 0))]
        with booked(path, [charge(rho=10, epsilon=10)], caps=caps) as ledger:
            assert [ask(ledger) for _ in range(3)] == ["released", "released", "task"]

    def test_count_delta(self, path: Path) -> None:
        cap = PrivacyLoss("approx", 1_000, 5)
        with booked(path, [charge(approx=(1, 2))], caps=[("", cap)]) as ledger:
            assert [ask(ledger) for _ in range(3)] == ["released", "released", "task"]
            refusal = spend(ledger, ReleaseRequests([None], ["ann"], ["default"])).refusals[0]
        assert refusal.left == PrivacyLoss("approx", 998, 1)

    def test_in_a_currency_without_a_figure_refuse(self, path: Path) -> None:
        with booked(path, [charge(rho=1)], caps=[("", PrivacyLoss("epsilon", 100, 0))]) as ledger:
            refusal = spend(ledger, ReleaseRequests([None], ["ann"], ["default"])).refusals[0]
        assert refusal.needed is None
        assert "no valid bound" in refusal.reason

    def test_refuse_after_a_release_without_a_figure(self, path: Path) -> None:
        charges = [charge("a", rho=1), charge("b", rho=1, epsilon=1)]
        caps = [("a", rho(10)), ("b", PrivacyLoss("epsilon", 10, 0))]
        with booked(path, charges, caps) as ledger:
            assert [ask(ledger, level="b"), ask(ledger, level="a"), ask(ledger, level="b")] == [
                "released",
                "released",
                "level",
            ]
            refusal = spend(ledger, ReleaseRequests([None], ["ann"], ["b"])).refusals[0]
        assert refusal.left is None
        assert "earlier release" in refusal.reason

    def test_of_a_level_count_the_other_levels(self, path: Path) -> None:
        charges = [charge("low", rho=10), charge("high", rho=40)]
        with booked(path, charges, [("low", rho(10)), ("high", rho(40))]) as ledger:
            assert [ask(ledger, "ann", level="low"), ask(ledger, "ann", level="high")] == ["released", "level"]
            assert [ask(ledger, "bob", level="high"), ask(ledger, "bob", level="low")] == ["released", "level"]

    def test_may_be_tightened_and_not_loosened_by_accident(self, path: Path) -> None:
        with booked(path) as ledger:
            ask(ledger)
            ledger.book(TASK, [charge(rho=30)], caps=[("", rho(20))])
            assert ask(ledger) == "task"
            with pytest.raises(UserError, match="promises each person a cap of"):
                ledger.book(TASK, [charge(rho=30)], caps=[("", rho(21))])
            ledger.loosen(rho(60), task_hash=TASK)
            assert [ask(ledger), ask(ledger)] == ["released", "task"]

    def test_outlive_a_policy_that_forgets_them(self, path: Path) -> None:
        booked(path, lifetime=rho(30)).close()
        with booked(path) as ledger:
            assert [ask(ledger), ask(ledger)] == ["released", "lifetime"]

    def test_hold_within_one_block(self, path: Path) -> None:
        with booked(path) as ledger:
            ledger.begin_run(TASK, FILE, people="column who")
            spending = spend(ledger, rows(6, people=["ann", "bob", "ann", "ann", "ann", "bob"]))
        assert spending.granted == [0, 1, 2, 3, 5]
        assert list(spending.refusals) == [4]

    def test_changed_costs_are_remembered_apart(self, path: Path) -> None:
        with booked(path) as ledger:
            ask(ledger)
            ledger.book(TASK, [charge(rho=31)], caps=[("", rho(100))])
            ask(ledger)
            [standing] = ledger.account("ann").tasks[0].caps
        assert standing.spent == rho(61)


class TestKeys:
    def test_are_released_once(self, path: Path) -> None:
        with booked(path) as ledger:
            assert [ask(ledger, key="monday"), ask(ledger, key="monday")] == ["released", "known"]
            assert ask(ledger, key="tuesday") == "released"

    def test_outlive_the_process(self, path: Path) -> None:
        with booked(path) as ledger:
            ask(ledger, key="monday")
        with booked(path) as ledger:
            assert ask(ledger, key="monday") == "known"

    def test_of_callers_belong_to_a_person(self, path: Path) -> None:
        with booked(path) as ledger:
            assert [ask(ledger, "ann", "1"), ask(ledger, "bob", "1")] == ["released", "released"]

    def test_of_a_file_are_its_rows_whoever_they_are_said_to_be_of(self, path: Path) -> None:
        with booked(path) as ledger:
            assert spend(ledger, rows(2)).granted == [0, 1]
            again = spend(ledger, rows(3, people=["ann", "bob", "cid"]))
        assert again.granted == [2]
        assert list(again.known) == [0, 1]

    def test_twice_in_a_block_are_released_once(self, path: Path) -> None:
        with booked(path) as ledger:
            spending = spend(ledger, ReleaseRequests(["k", "k"], ["ann", "ann"], ["default"] * 2))
        assert (spending.granted, spending.known) == ([0], {1: 1})

    def test_without_one_a_record_is_always_new(self, path: Path) -> None:
        with booked(path) as ledger:
            assert [ask(ledger) for _ in range(3)] == ["released"] * 3

    def test_of_one_task_say_nothing_about_another(self, path: Path) -> None:
        with booked(path) as ledger:
            ledger.bind(LOG, OTHER)
            ledger.book(OTHER, [charge(rho=20)], caps=[("", rho(100))])
            assert [ask(ledger, key="1"), ask(ledger, key="1", task=OTHER)] == ["released", "released"]

    def test_refused_records_may_ask_again(self, path: Path) -> None:
        with booked(path, [charge(rho=100)]) as ledger:
            ask(ledger)
            assert ask(ledger, key="k") == "task"
            ledger.loosen(rho(200), task_hash=TASK)
            assert ask(ledger, key="k") == "released"

    @pytest.mark.parametrize("name", ["", "a\0b", "\udc80", 3.5, True, None])
    def test_people_need_a_name_that_can_be_given_back(self, path: Path, name: object) -> None:
        with booked(path) as ledger, pytest.raises(UserError) as caught:
            spend(ledger, ReleaseRequests(["k"], [name], ["default"]))  # type: ignore[list-item]
        assert repr(name) not in str(caught.value)

    @pytest.mark.parametrize("name", [" ", "a\nb", "ann\u200b", "\ufeffann", "a\u00adnn", "ann\u202e", "\t\u2060"])
    def test_names_with_what_nobody_sees_are_refused(self, path: Path, name: str) -> None:
        with booked(path) as ledger:
            for refused in (lambda: ask(ledger, name), lambda: ledger.withdraw(name), lambda: ledger.account(name)):
                with pytest.raises(UserError, match="a person's name") as caught:
                    refused()
                assert not name.strip() or name not in str(caught.value)
            assert ledger.totals() == Totals(0, 0, 0, 0, 0, 0)

    def test_one_person_has_one_budget_however_the_name_is_spelt(self, path: Path) -> None:
        # The accent composed and on its own, the Angstrom sign for the letter, white space of several kinds.
        spellings = [
            "Zo\u00e9 \u00c5",
            "Zoe\u0301 A\u030a",
            " Zo\u00e9 \u212b",
            "Zo\u00e9 \u00c5\u00a0\n",
            "\u3000Zoe\u0301 \u00c5",
        ]
        with booked(path, [charge(rho=40)]) as ledger:
            assert [ask(ledger, name) for name in spellings] == ["released", "released", "task", "task", "task"]
            claims = ReleaseRequests(range(3), spellings[:3], ["default"] * 3, source=FILE)
            assert len(spend(ledger, claims).refusals) == 3
            assert ledger.totals().people == 1
            assert {ledger.account(name).tasks[0].levels[0].released for name in spellings} == {2}
            ledger.withdraw(spellings[1])
            assert ask(ledger, spellings[0]) == "withdrawn"

    @pytest.mark.parametrize("name", ["O'Neill", "x; DROP TABLE debits", "名前 🎈", "a b", "1", "💥" * 300])
    def test_any_other_name_will_do(self, path: Path, name: str) -> None:
        with booked(path, [charge(rho=100)]) as ledger:
            assert [ask(ledger, name, name), ask(ledger, name, name), ask(ledger, name)] == [
                "released",
                "known",
                "task",
            ]

    def test_rows_are_whole_numbers(self, path: Path) -> None:
        with booked(path) as ledger:
            for key in ("1", -1, None, 2**63):
                with pytest.raises(UserError):
                    spend(ledger, ReleaseRequests([key], None, ["default"], source=FILE))


class TestAtomicity:
    def test_a_failure_while_randomizing_debits_nobody(self, path: Path) -> None:
        with booked(path) as ledger:
            with pytest.raises(Interrupted):
                die_within(ledger, rows(3))
            assert ledger.totals().releases == 0
            assert spend(ledger, rows(3)).granted == [0, 1, 2]

    def test_nothing_is_debited_without_its_release(self, path: Path) -> None:
        with booked(path) as ledger:
            with pytest.raises(MurkError, match="nothing was debited"), ledger.spending(TASK, rows(3)):
                pass
            assert ledger.totals().releases == 0

    def test_as_many_messages_as_grants(self, path: Path) -> None:
        with booked(path) as ledger:
            with pytest.raises(ValueError, match="one message"), ledger.spending(TASK, rows(3)) as spending:
                spending.freeze([b"only one"], [0], [0], 1_000)
            assert ledger.totals().releases == 0

    def test_blocks_do_not_nest(self, path: Path) -> None:
        with booked(path) as ledger:
            with pytest.raises(MurkError, match="before the next"), ledger.spending(TASK, rows(1)):
                spend(ledger, rows(1, start=5))
            assert ledger.totals().releases == 0

    def test_numbers_are_never_used_twice(self, path: Path) -> None:
        with booked(path) as ledger:
            first = spend(ledger, rows(3)).numbers
            ledger.confirm(first)
            second = spend(ledger, rows(2, start=3)).numbers
            assert ledger.next_number == 6
        assert (first, second) == (range(1, 4), range(4, 6))

    def test_progress_comes_with_the_block(self, path: Path) -> None:
        with booked(path) as ledger:
            assert ledger.run(TASK, FILE) is None
            ledger.begin_run(TASK, FILE, excluded=[9, 2])
            with ledger.spending(TASK, rows(3)) as spending:
                spending.freeze([b"x"] * 3, [0] * 3, [0] * 3, 1_000)
                spending.progress(3, {"released": 3})
            with pytest.raises(Interrupted):
                die_within(ledger, rows(2, start=3))
        with booked(path) as ledger:
            run = ledger.begin_run(TASK, FILE)
        assert (run.next_row, run.counters, run.excluded) == (3, {"released": 3}, (2, 9))

    def test_progress_adds_up_and_never_goes_back(self, path: Path) -> None:
        with booked(path) as ledger:
            ledger.begin_run(TASK, FILE)
            for start, seen in ((0, 7), (2, 3)):
                with ledger.spending(TASK, rows(2, start=start)) as spending:
                    spending.freeze([b"x"] * 2, [0] * 2, [0] * 2, 1_000)
                    spending.progress(seen, {"released": 2})
            run = ledger.run(TASK, FILE)
        assert run is not None
        assert (run.next_row, run.counters) == (7, {"released": 4})

    def test_progress_needs_a_beginning(self, path: Path) -> None:
        with (
            booked(path) as ledger,
            pytest.raises(MurkError, match="begin_run"),
            ledger.spending(TASK, rows(1)) as spending,
        ):
            spending.progress(1, {})

    def test_people_of_a_file_keep_their_names(self, path: Path) -> None:
        with booked(path) as ledger:
            ledger.begin_run(TASK, FILE, people="column who")
            with pytest.raises(UserError, match="column who"):
                ledger.begin_run(TASK, FILE)


class TestTasks:
    def test_are_tied_to_their_log(self, path: Path) -> None:
        booked(path).close()
        with Ledger(path) as ledger:
            ledger.bind(LOG, TASK)
            with pytest.raises(UserError, match="another log"):
                ledger.bind("b" * 32, TASK)

    def test_are_bound_before_they_are_booked(self, path: Path) -> None:
        with Ledger(path) as ledger:
            with pytest.raises(MurkError, match="bind"):
                ledger.book(TASK, [charge(rho=1)])
            with pytest.raises(MurkError, match="book"):
                ask(ledger)

    def test_unknown_levels_are_refused(self, path: Path) -> None:
        with booked(path) as ledger, pytest.raises(UserError, match="choose one of default"):
            ask(ledger, level="opne")

    def test_a_level_may_be_kept(self, path: Path) -> None:
        charges = [charge("low", rho=10), charge("high", rho=40)]
        with booked(path, charges, [("", rho(100))]) as ledger:
            claims = ReleaseRequests(range(3), ["ann", "ann", "bob"], ["low", "high", "high"], FILE, keep_levels=True)
            assert spend(ledger, claims).levels == ["low", "low", "high"]
            claims = ReleaseRequests(range(3, 5), ["ann", "bob"], ["high", "low"], FILE, keep_levels=True)
            assert spend(ledger, claims).levels == ["low", "high"]

    def test_of_the_levels_that_somebody_had_any_is_kept(self, path: Path) -> None:
        charges = [charge("low", rho=10), charge("high", rho=20)]
        with booked(path, charges, [("", rho(200))]) as ledger:
            spend(ledger, ReleaseRequests(range(2), ["ann", "ann"], ["low", "high"], FILE))
            claims = ReleaseRequests(range(2, 4), ["ann", "ann"], ["low", "high"], FILE, keep_levels=True)
            assert spend(ledger, claims).levels == ["low", "high"]

    def test_a_level_of_another_task_is_nothing_to_keep(self, path: Path) -> None:
        charges = [charge("low", rho=10), charge("high", rho=20)]
        with booked(path, charges, [("", rho(200))]) as ledger:
            ask(ledger, "ann", level="low")
            ledger.bind("b" * 32, OTHER, name="other")
            ledger.book(OTHER, charges, caps=[("", rho(200))])
            claims = ReleaseRequests([0], ["ann"], ["high"], FILE, keep_levels=True)
            assert spend(ledger, claims, OTHER).levels == ["high"]


class TestWithdrawal:
    def test_stops_and_purges_and_refunds_nothing(self, path: Path) -> None:
        with booked(path) as ledger:
            ask(ledger, "ann"), ask(ledger, "bob")
            assert ledger.withdraw("ann") == 1
            assert [ask(ledger, "ann"), ask(ledger, "bob")] == ["withdrawn", "released"]
            assert ledger.pending() == 2
            [level] = ledger.account("ann").tasks[0].levels
            assert (level.released, level.queued, level.dropped, level.refused) == (1, 0, 1, 1)
            assert ledger.account("ann").tasks[0].caps[0].spent == rho(30)

    def test_may_be_from_one_task(self, path: Path) -> None:
        with booked(path) as ledger:
            ledger.bind(LOG, OTHER)
            ledger.book(OTHER, [charge(rho=20)], caps=[("", rho(100))])
            ask(ledger), ask(ledger, task=OTHER)
            assert ledger.withdraw("ann", task_hash=TASK) == 1
            assert [ask(ledger), ask(ledger, task=OTHER)] == ["withdrawn", "released"]

    def test_is_from_every_task_of_the_name(self, path: Path) -> None:
        """A task that was changed is another one, on another log; they withdrew from what they knew by its name."""
        with booked(path) as ledger:
            ask(ledger)
            for task_hash in ledger.tasks_named("demo"):
                ledger.withdraw("ann", task_hash=task_hash, now=0)
            ledger.withdraw(1, task_hash=TASK, source=FILE)
            for changed, name in ((OTHER, "demo"), ("9" * 64, "another")):
                ledger.bind(LOG, changed, name=name)
                ledger.book(changed, [charge(rho=20)], caps=[("", rho(100))])
            assert [ask(ledger, task=OTHER), ask(ledger, "bob", task=OTHER)] == ["withdrawn", "released"]
            assert spend(ledger, rows(3), OTHER).granted == [0, 2]
            assert [ask(ledger, task="9" * 64), len(spend(ledger, rows(3), "9" * 64).granted)] == ["released", 3]
            assert [(one.withdrawn, one.withdrawn_on) for one in ledger.account("ann").tasks] == [
                (True, 0), (True, 0), (False, None),
            ]  # fmt: skip

    def test_of_a_row(self, path: Path) -> None:
        with booked(path) as ledger:
            spend(ledger, rows(3))
            assert ledger.withdraw(1, source=FILE) == 1
            assert spend(ledger, rows(4)).granted == [3]
            assert ledger.account(1, source=FILE).withdrawn
            assert not ledger.account(2, source=FILE).withdrawn

    def test_before_the_first_release(self, path: Path) -> None:
        with booked(path) as ledger:
            ledger.withdraw(7, source=FILE)
            assert spend(ledger, rows(9)).granted == [0, 1, 2, 3, 4, 5, 6, 8]

    def test_needs_a_known_task_and_a_person(self, path: Path) -> None:
        with booked(path) as ledger:
            with pytest.raises(UserError, match="no task"):
                ledger.withdraw("ann", task_hash=OTHER)
            for person, source in (("ann", FILE), (3, None), ("", None)):
                with pytest.raises(UserError):
                    ledger.withdraw(person, source=source)


class TestOneOwner:
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_fork_must_open_it_again(self, path: Path) -> None:
        with booked(path) as ledger:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    ask(ledger)
                except MurkError as error:
                    status = 0 if "another process" in str(error) else 2
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
            # Closing in the child would have let go of this process's locks.
            assert ask(ledger) == "released"

    def test_a_thread_must_open_its_own(self, path: Path) -> None:
        with booked(path) as ledger:
            caught: list[str] = []

            def run() -> None:
                try:
                    ask(ledger)
                except MurkError as error:
                    caught.append(str(error))

            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        assert "another process or thread" in caught[0]

    def test_is_not_copied(self, path: Path) -> None:
        with booked(path) as ledger:
            for act in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(MurkError, match="open it by its path"):
                    act(ledger)

    def test_closing_twice(self, path: Path) -> None:
        ledger = booked(path)
        ledger.close()
        ledger.close()


def test_what_the_log_has_confirmed_waits_no_more(path: Path) -> None:
    with booked(path) as ledger:
        for person in ("ann", "bob", "cyd"):
            assert ask(ledger, person) == "released"
        first, second, third = (queued.number for queued in ledger.queued(TASK))
        ledger.confirm([first, third])
        assert [ledger.is_queued(TASK, number) for number in (first, second, third)] == [False, True, False]
        assert ledger.pending() == 1


def test_claims_name_nobody_when_they_are_shown() -> None:
    shown = repr(ReleaseRequests(["a key"], ["ann"], ["a level"], source="f" * 64))
    assert not any(word in shown for word in ("a key", "ann", "a level"))


def test_closing_lets_go_of_what_was_confirmed(path: Path) -> None:
    ledger = booked(path)
    ask(ledger)
    ledger.confirm([queued.number for queued in ledger.queued(TASK)])
    ledger.close()
    ledger.close()
    with closing(sqlite3.connect(path)) as found:
        assert found.execute("SELECT (SELECT count(*) FROM debits), (SELECT count(*) FROM outbox)").fetchone() == (1, 0)
