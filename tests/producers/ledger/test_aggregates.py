"""Sums over a ledger's people, and the count of those whom new sums would be about."""

from itertools import combinations
from pathlib import Path

import pytest

from murk.populations import FileSource
from murk.producers.ledger.costs import Cap, Cost
from murk.producers.ledger.ledger import Ledger
from murk.producers.ledger.names import ReleaseRequests
from murk.producers.ledger.statements import SMALLEST_GROUP, PeopleTotals, _share
from tests.producers.ledger.accounts import TASK, booked, charge, rho, spend
from tests.producers.world import World, make_task, paid_task, run_blocks, write_people

MANY = {"charges": [charge(rho=1)], "caps": [("", rho(1000))]}


def test_sums_of_one_release_each(tmp_path: Path) -> None:
    task = make_task()
    path = write_people(tmp_path / "people.csv", 50)
    with World(tmp_path, task) as world:
        world.ledger.bind(world.log.identity, task.hash)
        sums = world.ledger.group_sums(task.hash)
        assert sums.report() is None
        run_blocks(world, FileSource(path, task))
        found = sums.report()
        assert found is not None
        assert (found.people, found.refused, found.queued) == (50, 0, 0)
        # One release at their level is all that the task has for them.
        assert found.spent == ((pytest.approx(1.0, abs=1e-4), 50),)


def test_shares(tmp_path: Path) -> None:
    # Every name has two rows, and each costs 1/2.1^2 of the cap.
    task = paid_task(2.1)
    path = write_people(tmp_path / "people.csv", 60)
    with World(tmp_path, task) as world:
        run_blocks(world, FileSource(path, task, person_column="who"))
        found = world.ledger.group_sums(task.hash).report()
        assert found is not None
        [(share, people)] = found.spent
        assert (share, people) == (pytest.approx(2 / 2.1**2, abs=1e-4), 30)


def more(ledger: Ledger, *people: int) -> None:
    """One more release of some people; the log has those of even ones."""
    names = [f"person-{number}" for number in people]
    ledger.confirm(
        [
            n
            for n in spend(ledger, ReleaseRequests([None] * len(names), names, ["default"] * len(names))).numbers
            if n % 2
        ]
    )


def test_the_difference_of_any_two_sums_is_about_a_group_whoever_reports(tmp_path: Path) -> None:
    """Two exporters at once, and one after another: neither has a baseline of its own."""
    path, reported = tmp_path / "ledger.db", []
    state: dict[int, int] = {}

    def change(ledger: Ledger, *people: int) -> None:
        more(ledger, *people)
        for person in people:
            state[person] = state.get(person, 0) + 1

    def look(*exporters: Ledger) -> None:
        for each in exporters:
            found = each.group_sums(TASK).report()
            if found is not None:
                reported.append((found, dict(state)))

    with booked(path, **MANY) as one, booked(path, **MANY) as two:
        change(one, *range(19))
        look(one, two)
        assert reported == []
        change(one, 19)
        look(one, two)
        # Now each in turn, after one person's change at a time.
        for person in range(45):
            change(one if person % 3 else two, person)
            look(two if person % 2 else one)
    with booked(path, **MANY) as three:
        change(three, 45)
        look(three)
    sums = dict(reversed(reported))
    assert len(sums) == 3
    for (one_sum, before), (other_sum, after) in combinations(sums.items(), 2):
        assert one_sum != other_sum
        assert sum(before.get(person) != after.get(person) for person in {*before, *after}) >= SMALLEST_GROUP


def test_only_one_of_two_exporters_that_are_due_at_once_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    with booked(path, **MANY) as one, booked(path, **MANY) as two:
        more(one, *range(25))
        mine, theirs = one.group_sums(TASK), two.group_sums(TASK)
        take = mine._take

        def slowly() -> None:
            take()
            more(two, 0)
            first.append(theirs.report())

        first: list[PeopleTotals | None] = []
        monkeypatch.setattr(mine, "_take", slowly)
        assert mine.report() == first[0]


def test_the_largest_share_of_a_cap() -> None:
    """Of the caps that a person has: of the task, and of the levels that were asked for; what nobody knows is all."""

    def price(number: int, level: str, rho: int | None, approx: tuple[int, int] | None = None) -> Cost:
        return Cost(number, 1, level, "any", "[]", rho, None, *(approx or (None, None)), None)

    prices = {1: price(1, "low", 10, (1, 30)), 2: price(2, "high", 25), 3: price(3, "free", 0, (0, 0))}
    caps = [Cap(1, "", "rho", 100, 0), Cap(1, "low", "rho", 40, 0), Cap(1, "high", "rho", 80, 0)]
    assert _share({}, caps, prices) == 0.0
    assert _share({1: 1}, caps, prices) == 0.25
    assert _share({1: 1, 2: 1}, caps, prices) == 35 / 40
    assert _share({2: 3}, caps, prices) == 75 / 80
    # What was refused costs nothing, and is of its level all the same.
    assert _share({1: 0, 2: 1}, caps, prices) == 25 / 40
    assert _share({3: 5}, caps, prices) == 0.0
    assert _share({1: 1}, [Cap(1, "", "approx", 100, 50)], prices) == 0.6
    assert _share({1: 1, 2: 1}, [Cap(1, "", "approx", 100, 50)], prices) == 1.0
    assert _share({1: 1}, [Cap(1, "", "approx", 100, 0)], prices) == 1.0
    assert _share({1: 1}, [Cap(1, "high", "rho", 0, 0)], prices) == 0.0
