"""What a person reads about themselves, and what may be told of everybody."""

import math
from pathlib import Path

import pytest

from murk.errors import UserError
from murk.privacy import ApproxDP, GaussianDP, PrivacyLoss, PureDP, ZeroConcentratedDP, cap_of
from murk.producers import Ledger, Policy
from murk.producers.ledger.costs import Charge
from murk.producers.ledger.names import ReleaseRequests
from murk.producers.ledger.statements import CapStatus, LevelAccount, describe_together
from murk.task.task import AboutBlock, ArchiveBlock
from tests.producers.ledger.accounts import FILE, LOG, OTHER, TASK, ask, booked, charge, rho, spend
from tests.producers.world import RECORD, SECRET, World, Wrapped, make_task, paid_task


def test_an_empty_account(tmp_path: Path) -> None:
    with World(tmp_path, make_task()) as world:
        account = world.ledger.account("nobody")
        [words] = account.describe()
        assert words.startswith("Nothing was ever released by this ledger under this name.")
        assert account.accountant.releases == 0
        assert world.ledger.account(3, source=FILE).tasks == ()
        totals = world.ledger.totals()
        assert (totals.people, totals.releases, totals.levels) == (0, 0, {})


def test_says_what_was_promised_and_spent(tmp_path: Path) -> None:
    with World(tmp_path, paid_task(2.5), policy=Policy(lifetime=GaussianDP(3.0))) as world:
        for level in ("open", "default", "default", "strict"):
            world.producer.release(RECORD, person="ann", level=level)
        world.producer.flush()
        account = world.ledger.account("ann")
        [task] = account.tasks
        # mu composes as a root of squares: 2^2 + 1^2 + 1^2 is 6 of 2.5^2 = 6.25, and 0.5^2 still fits.
        assert [(one.level, one.released, one.sent, one.refused) for one in task.levels] == [
            ("default", 2, 2, 0),
            ("strict", 1, 1, 0),
            ("open", 1, 1, 0),
        ]
        together = task.accountant.spent("gdp")
        assert isinstance(together, GaussianDP)
        assert 2.5 - 1e-5 < together.mu < 2.5 + 1e-9
        assert account.accountant.spent("gdp") == together
        assert task.accountant.describe() in "\n".join(account.describe())
        [standing] = task.caps
        assert standing.spent is not None
        assert standing.spent <= standing.cap
        # Steps of a lattice are integers: a mechanism spends up to a part in 10^5 less than it may.
        assert standing.cap.units - standing.spent.units < standing.cap.units / 1e5
        text = "\n".join(account.describe())
        for words in (
            "third-child, level 'open': 1 released (1 sent",
            "Promised for third-child: at most mu = 2.5; spent mu = 2.5",
        ):
            assert words in text
        assert "Promised over all tasks: at most mu = 3; spent mu = 2.5" in text
        assert GaussianDP(2.0).describe() in text
        assert "ann" not in text


@pytest.mark.parametrize("declared", [False, True])
def test_says_how_long_an_archive_keeps_what_was_sent(tmp_path: Path, declared: bool) -> None:
    archive = ArchiveBlock.model_validate({"kept": "90d", "readers": "the registry", "writers": "its archiver"})
    about = AboutBlock(archive=archive if declared else None)
    with World(tmp_path, make_task().model_copy(update={"about": about})) as world:
        world.producer.release(RECORD, person="ann")
        text = "\n".join(world.ledger.account("ann").describe())
    assert ("third-child: A copy of what was sent is kept in an archive for at most 90 days. Who may read it: the "
            "registry. Who may write to it: its archiver." in text) == declared  # fmt: skip
    assert ("archive" in text) == declared


def test_one_release_is_no_sum(tmp_path: Path) -> None:
    with World(tmp_path, paid_task(2.0)) as world:
        for count in (1, 2):
            world.producer.release(RECORD, person="ann")
            lines = world.ledger.account("ann").describe()
            assert sum(" together: " in line for line in lines) == (count > 1), lines


def test_says_what_waits_and_what_was_refused(tmp_path: Path) -> None:
    def down(batch: object) -> None:
        raise ConnectionError("no route")

    with World(tmp_path, make_task()) as world:
        producer = world.produce(Wrapped(world.log, append=down))  # type: ignore[arg-type]
        producer.release(RECORD, person="ann"), producer.release(RECORD, person="ann")
        [level] = world.ledger.account("ann").tasks[0].levels
        assert (level.released, level.queued, level.sent, level.refused) == (1, 1, 0, 1)
        world.ledger.withdraw("ann")
        text = "\n".join(world.ledger.account("ann").describe())
    assert "1 deleted before the log confirmed it, perhaps after sending" in text
    assert "withdrawn" in text


def test_totals_name_nobody(tmp_path: Path) -> None:
    with World(tmp_path, make_task()) as world:
        for person in (SECRET, "bob"):
            world.producer.release(RECORD, person=person, level="strict")
        world.ledger.withdraw("bob")
        totals = world.ledger.totals()
    assert (totals.people, totals.releases, totals.withdrawn) == (2, 2, 1)
    assert totals.levels == {("third-child", "strict"): 2}
    assert SECRET not in repr(totals)


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (None, None, ""),
        (None, 86_400, ", last on 1970-01-02"),
        (86_400, 86_400, ", on 1970-01-02"),
        (0, 86_400, ", from 1970-01-01 to 1970-01-02"),
    ],
)
def test_days_are_said_as_far_as_they_are_known(first: int | None, last: int | None, words: str) -> None:
    account = LevelAccount("open", GaussianDP(1.0), "gaussian", 3, 1, 1, 0, first, last)
    assert account.days == words
    assert account.sent == 2


def test_what_is_spent_together_is_said_beside_its_cap() -> None:
    """In the cap's terms: said once where a figure says them already, and in full where there is no figure."""
    tight, loose = cap_of(ApproxDP(1.0, 1e-6)), cap_of(ApproxDP(2.0, 1e-5))
    standings = [
        CapStatus(cap_of(GaussianDP(1.5)), cap_of(GaussianDP(1.0))),
        CapStatus(cap_of(PureDP(3.0)), None),
        CapStatus(loose, tight),
        CapStatus(loose, None),
        CapStatus(None, tight),
        CapStatus(None, tight, joint=GaussianDP(0.25)),
        CapStatus(loose, tight, joint=ApproxDP(0.7, 1e-6)),
    ]
    assert [line.removeprefix("All tasks together: ") for line in describe_together(standings)] == [
        "mu = 1 of 1.5 at most for a person",
        "an amount unknown in its currency of epsilon = 3 at most for a person",
        "epsilon = 1, delta = 1e-06 of epsilon = 2, delta = 1e-05 at most for a person",
        "an amount unknown in its currency of epsilon = 2, delta = 1e-05 at most for a person",
        "epsilon = 1, delta = 1e-06 at most for a person; no cap over all tasks (--lifetime)",
        "mu = 0.25 at most for a person; no cap over all tasks (--lifetime)",
        (
            "epsilon = 0.7, delta = 1e-06 at most for a person; of the cap, epsilon = 1, delta = 1e-06 of "
            "epsilon = 2, delta = 1e-05 (the sum of the releases' own, which the cap counts)"
        ),
    ]


def test_levels_are_added_with_their_days() -> None:
    def account(released: int, first: int | None, last: int | None) -> LevelAccount:
        return LevelAccount("open", GaussianDP(1.0), "gaussian", released, 1, 2, 3, first, last)

    both = account(1, 10, 20).plus(account(2, 5, 15))
    assert (both.released, both.refused, both.queued, both.dropped) == (3, 2, 4, 6)
    assert (both.first, both.last) == (5, 20)
    # A refusal has no day; and where one day is not known, the first of all is not.
    assert account(1, 10, 20).plus(account(0, None, None)).first == 10
    assert account(1, 10, 20).plus(account(2, None, 30)) == account(3, None, 30).plus(account(0, 1, 1))


def test_an_account_has_its_own_tasks_levels_and_caps(tmp_path: Path) -> None:
    """Of two tasks with levels of one name: caps of the levels that were used, and of the task that is told of."""
    charges = [charge("low", rho=10), charge("high", rho=30)]
    with booked(tmp_path / "ledger.db", charges, caps=[("", rho(200)), ("low", rho(50)), ("high", rho(60))]) as ledger:
        ledger.bind(LOG, OTHER, name="other")
        ledger.book(OTHER, [charge("low", rho=5)], caps=[("", rho(300)), ("low", rho(70))], lifetime=rho(400))
        for person, level, task in (
            ("ann", "low", TASK), ("ann", "low", OTHER), ("ann", "low", OTHER), ("bob", "high", TASK)
        ):  # fmt: skip
            assert ask(ledger, person, level=level, task=task) == "released"
        ledger.withdraw("cid", task_hash=OTHER)
        found = {person: ledger.account(person) for person in ("ann", "bob", "cid", "dan")}

    def told(person: str) -> list[tuple[str, list[tuple[str, int, int]], list[str]]]:
        return [
            (
                task.name,
                [(cap.level, cap.cap.units, cap.spent.units) for cap in task.caps if cap.cap and cap.spent],
                [level.level for level in task.levels],
            )
            for task in found[person].tasks
        ]

    assert told("ann") == [
        ("demo", [("", 200, 10), ("low", 50, 10)], ["low"]), ("other", [("", 300, 10), ("low", 70, 10)], ["low"])
    ]  # fmt: skip
    assert told("bob") == [("demo", [("", 200, 30), ("high", 60, 30)], ["high"])]
    assert told("cid") == [("other", [("", 300, 0)], [])]
    assert (told("dan"), found["dan"].is_known) == ([], False)
    lifetime = [(cap.cap.units, cap.spent.units) for one in found.values() for cap in one.caps if cap.cap and cap.spent]
    assert lifetime == [(400, 20), (400, 30), (400, 0), (400, 0)]
    assert [task.withdrawn for one in found.values() for task in one.tasks] == [False, False, False, True]
    assert not any(one.withdrawn for one in found.values())


def test_whose_features_were_published_is_told_so_and_nobody_else(tmp_path: Path) -> None:
    with booked(tmp_path / "ledger.db") as ledger:
        ledger.begin_run(TASK, FILE, people="row", excluded=[3, 5])
        spend(ledger, ReleaseRequests([0, 1], None, ["default"] * 2, source=FILE))
        found = [[task.published for task in ledger.account(row, source=FILE).tasks] for row in (0, 3, 5)]
        assert found == [[False], [True], [True]]
        assert ledger.account(3, source=FILE).tasks[0].levels == ()
        assert ledger.account(4, source=FILE).tasks == ()
        assert ledger.account(3, source="e" * 64).tasks == ()


def test_what_anybody_has_spent_on_all_tasks_together(tmp_path: Path) -> None:
    """In the caps' terms where there are caps; else in the first that everybody has a figure in."""
    charges = [charge("low", rho=10, epsilon=4), charge("high", rho=30), charge("odd", approx=(7, 1))]
    with booked(tmp_path / "ledger.db", charges, caps=[]) as ledger:
        assert ledger.together() == ()
        for person, level in (("ann", "low"), ("ann", "low"), ("bob", "low")):
            ask(ledger, person, level=level)
        assert ledger.together() == (CapStatus(None, rho(20)),)
        ask(ledger, "bob", level="high")
        assert ledger.together() == (CapStatus(None, rho(40)),)
        # Of one person there is no figure in rho, of the others none in anything else: only guarantees compose.
        ask(ledger, "cid", level="odd")
        assert ledger.together() == (CapStatus(None, None, joint=GaussianDP(math.sqrt(2.0))),)
    with booked(tmp_path / "other.db", charges, caps=[], lifetime=rho(100)) as ledger:
        assert ledger.together() == (CapStatus(rho(100), rho(0)),)
        ask(ledger, "ann", level="high")
        ask(ledger, "bob", level="low")
        assert ledger.together() == (CapStatus(rho(100), rho(30)),)
        # What is refused, having no figure in rho, costs nothing.
        assert ask(ledger, "cid", level="odd") == "lifetime"
        assert ledger.together() == (CapStatus(rho(100), rho(30)),)


def test_all_releases_together_are_stated_in_the_strongest_terms_that_all_allow(tmp_path: Path) -> None:
    """Pure, then mu, then rho, then (epsilon, delta) at twice the delta that the releases have themselves."""
    claims = {
        "pure": PureDP(0.5),
        "gdp": GaussianDP(0.5),
        "zcdp": ZeroConcentratedDP(0.1),
        "approx": ApproxDP(0.5, 1e-6),
        "none": ApproxDP(0.5, 0.5),
    }
    costs = {"epsilon": PrivacyLoss("epsilon", 1), "approx": PrivacyLoss("approx", 1, 1)}
    charges = [Charge(name, "any", claim, costs) for name, claim in claims.items()]
    with booked(tmp_path / "ledger.db", charges, caps=[]) as ledger:
        found = {}
        for level in ("pure", "pure", "gdp", "zcdp", "approx", "approx"):
            ask(ledger, level=level)
            found[level] = ledger.account("ann").guarantee
            assert ledger.account("ann").tasks[0].guarantee == found[level]
        assert ledger.account("bob").guarantee is None
        # A delta of 1 is no promise.
        ask(ledger, level="none")
        assert (ledger.account("ann").guarantee, ledger.account("ann").accountant.releases) == (None, 7)
    assert found["pure"] == PureDP(1.0)
    assert isinstance(found["gdp"], GaussianDP)
    assert isinstance(found["zcdp"], ZeroConcentratedDP)
    assert isinstance(found["approx"], ApproxDP)
    assert found["approx"].delta == 4e-6


def test_what_a_ledger_knows_of_tasks_by_their_names(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        with pytest.raises(UserError, match=r"knows no task of the name 'demo': it knows none$"):
            ledger.tasks_named("demo")
        for name, task in (("demo", TASK), ("other", OTHER), ("demo", "9" * 64)):
            ledger.bind(LOG, task, name=name)
            ledger.book(task, [charge(rho=1)])
        assert ledger.tasks_named("demo") == [TASK, "9" * 64]
        with pytest.raises(UserError, match=r"the name 'third': it knows demo, other$"):
            ledger.tasks_named("third")
        ledger.begin_run(TASK, FILE)
        assert not ledger.has_released(FILE, task_name="demo")
        with ledger.spending(TASK, ReleaseRequests([0, 1], None, ["default"] * 2, source=FILE)) as spending:
            spending.freeze([b"a", b"b"], [0, 0], [0, 0], expires=1)
            spending.progress(2, {})
        assert ledger.has_released(FILE, task_name="demo") is True
        assert not ledger.has_released(FILE, task_name="other")
        assert not ledger.has_released("e" * 64, task_name="demo")
        for row, task_hash in ((1, None), (4, TASK), (5, OTHER)):
            ledger.withdraw(row, source=FILE, task_hash=task_hash)
        assert ledger.withdrawn(FILE, task_name="demo") == {1, 4}
        assert ledger.withdrawn(FILE, task_name="other") == {1, 5}
        assert ledger.withdrawn("e" * 64, task_name="demo") == frozenset()


def test_of_a_task_that_a_ledger_does_not_know_nothing_is_told(tmp_path: Path) -> None:
    with booked(tmp_path / "ledger.db") as ledger:
        for ask_for in (
            ledger.group_sums, ledger.windows, ledger.pending, ledger.promises,
            lambda task: ledger.loosen(rho(1), task_hash=task), lambda task: ledger.withdraw("ann", task_hash=task),
        ):  # fmt: skip
            with pytest.raises(UserError, match=r"knows no task with the hash 888888888888$"):
                ask_for(OTHER)
        assert ledger.totals().withdrawn == 0
        # And without one all tasks are meant.
        assert (ledger.pending(), ledger.promises()) == (0, [])
        ledger.loosen(rho(7))
        assert [cap.units for cap in ledger.promises()] == [7]
        assert [cap.units for cap in ledger.promises(TASK)] == [100]
