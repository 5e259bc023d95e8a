"""Sums over a ledger's people, and the count of those whom new sums would be about."""

from pathlib import Path

import pytest

from murk.producers import FileSource
from murk.producers.ledger.aggregates import _share
from murk.producers.ledger.prices import Price, Promise
from tests.producers.world import World, make_task, paid_task, run_blocks, write_people


def test_sums_of_one_release_each(tmp_path: Path) -> None:
    task = make_task()
    path = write_people(tmp_path / "people.csv", 50)
    with World(tmp_path, task) as world:
        world.ledger.bind(world.log.identity, task.hash)
        sums = world.ledger.group_sums(task.hash)
        assert (sums.read().people, sums.read().changed) == (0, 0)
        run_blocks(world, FileSource(path, task))
        found = sums.read()
        assert (found.people, found.changed, found.refused, found.queued) == (50, 50, 0, 0)
        # One release at their level is all that the task has for them.
        assert found.spent == ((pytest.approx(1.0, abs=1e-4), 50),)
        sums.told()
        assert sums.read().changed == 0


def test_shares_refusals_and_what_has_changed(tmp_path: Path) -> None:
    # Every name has two rows, and each costs 1/2.1^2 of the cap.
    task = paid_task(2.1)
    path = write_people(tmp_path / "people.csv", 60)
    with World(tmp_path, task) as world:
        source = FileSource(path, task, person_column="who")
        run_blocks(world, source)
        totals = world.ledger.totals()
        sums = world.ledger.group_sums(task.hash)
        found = sums.read()
        # What stood there before this began is told by nobody.
        assert (found.people, found.changed) == (30, 0)
        assert found.refused == totals.refused == 0
        [(share, people)] = found.spent
        assert (share, people) == (pytest.approx(2 / 2.1**2, abs=1e-4), 30)


def test_refusals_and_withdrawals_change_accounts(tmp_path: Path) -> None:
    task = make_task()
    # Every name has two rows, and room for one.
    path = write_people(tmp_path / "people.csv", 60)
    with World(tmp_path, task) as world:
        world.ledger.bind(world.log.identity, task.hash)
        sums = world.ledger.group_sums(task.hash)
        run_blocks(world, FileSource(path, task, person_column="who"))
        found = sums.read()
        assert (found.people, found.changed, found.refused) == (30, 30, 30)
        sums.told()
        another = write_people(tmp_path / "more.csv", 6)
        run_blocks(world, FileSource(another, task, person_column="who"))
        # Three people ask again and are refused twice each: not enough to tell.
        assert (sums.read().people, sums.read().changed, sums.read().refused) == (30, 3, 36)
        other = world.ledger.group_sums(task.hash)
        assert other.read().changed == 0


def test_the_largest_share_of_a_cap() -> None:
    """Of the caps that a person has: of the task, and of the levels that were asked for; what nobody knows is all."""

    def price(number: int, level: str, rho: int | None, approx: tuple[int, int] | None = None) -> Price:
        return Price(number, 1, level, "any", "[]", rho, None, *(approx or (None, None)), None)

    prices = {1: price(1, "low", 10, (1, 30)), 2: price(2, "high", 25), 3: price(3, "free", 0, (0, 0))}
    caps = [Promise(1, "", "rho", 100, 0), Promise(1, "low", "rho", 40, 0), Promise(1, "high", "rho", 80, 0)]
    assert _share({}, caps, prices) == 0.0
    assert _share({1: 1}, caps, prices) == 0.25
    assert _share({1: 1, 2: 1}, caps, prices) == 35 / 40
    assert _share({2: 3}, caps, prices) == 75 / 80
    # What was refused costs nothing, and is of its level all the same.
    assert _share({1: 0, 2: 1}, caps, prices) == 25 / 40
    assert _share({3: 5}, caps, prices) == 0.0
    assert _share({1: 1}, [Promise(1, "", "approx", 100, 50)], prices) == 0.6
    assert _share({1: 1, 2: 1}, [Promise(1, "", "approx", 100, 50)], prices) == 1.0
    assert _share({1: 1}, [Promise(1, "", "approx", 100, 0)], prices) == 1.0
    assert _share({1: 1}, [Promise(1, "high", "rho", 0, 0)], prices) == 0.0
