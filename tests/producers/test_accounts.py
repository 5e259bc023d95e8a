"""What a person reads about themselves, and what may be told of everybody."""

from pathlib import Path

import pytest

from murk.privacy import ApproxDP, GaussianDP, PureDP, cap_of
from murk.producers import Policy
from murk.producers.account_words import describe_together
from murk.producers.accounts import LevelAccount, Standing
from tests.producers.accounts import FILE
from tests.producers.world import RECORD, SECRET, World, Wrapped, make_task, paid_task


def test_an_empty_account(tmp_path: Path) -> None:
    with World(tmp_path, make_task()) as world:
        account = world.ledger.account("nobody")
        [words] = account.describe()
        assert words.startswith("Nothing was ever released under this name.")
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
    assert "1 let go of unsent" in text
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
        Standing(cap_of(GaussianDP(1.5)), cap_of(GaussianDP(1.0))),
        Standing(cap_of(PureDP(3.0)), None),
        Standing(loose, tight),
        Standing(loose, None),
        Standing(None, tight),
    ]
    assert [line.removeprefix("All tasks together: ") for line in describe_together(standings)] == [
        "mu = 1 of 1.5 at most for a person",
        "an amount that has no figure in its terms of epsilon = 3 at most for a person",
        "epsilon = 1, delta = 1e-06 of epsilon = 2, delta = 1e-05 at most for a person",
        "an amount that has no figure in its terms of epsilon = 2, delta = 1e-05 at most for a person",
        "epsilon = 1, delta = 1e-06 at most for a person; no cap over all tasks (--lifetime)",
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
