"""Whose a gateway's releases are: order tells it from block to block, and not within one."""

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from murk.errors import MurkError
from murk.producers import Ledger
from murk.producers.populations.local_run import LocalRun
from murk.producers.populations.people import PopulationConfig, population_of
from murk.stream import open_log
from murk.stream.log.base import Log
from tests.producers.world import World, Wrapped, make_task

LEVELS = ["strict", "open", "open", "default", "strict", "default", "open", "strict", "default", "default"]
MANY = LEVELS * 9
"""Levels in the order of the file. That a fair order of 90 with 27 to 36 of each is this one has a probability of
27! 27! 36! / 90! < 1e-40."""


def crowd_of(folder: Path, levels: list[str], person: str | None = None, seed: int | None = None) -> PopulationConfig:
    rows = [f"p{at},28,yes,JFK,{'yes' if at % 2 else 'no'},{level}" for at, level in enumerate(levels)]
    source = folder / "people.csv"
    source.write_text("\n".join(["who,age,same_sex,origin,third_child,chosen", *rows]) + "\n")
    return PopulationConfig(source, person, "column:chosen", seed=seed)


def sent(url: str) -> list[str]:
    """The levels of the releases in the order of the log."""
    with open_log(url) as log:
        return [json.loads(one.value)["level"] for one in log.read(0, 0, 1000)]


@pytest.mark.parametrize("person", [None, "who"])
def test_order_tells_whose_a_release_is_where_blocks_are_of_one(tmp_path: Path, person: str | None) -> None:
    """Of gradients the first blocks are: the dossier and the threat model say so."""
    crowd, url = crowd_of(tmp_path, LEVELS, person), f"sqlite:///{tmp_path}/log.db"
    with LocalRun(make_task(), crowd, url, tmp_path / "ledger.db") as run:
        for _ in run.steps():
            pass
        digest = run.population.source.digest
    assert sent(url) == LEVELS
    with Ledger(tmp_path / "ledger.db") as ledger:
        keys = [(at, digest) for at in range(10)] if person is None else [(f"p{at}", None) for at in range(10)]
        receipts = [ledger.account(key, source=home).tasks[0].levels[0].receipts for key, home in keys]
    assert receipts == [(number,) for number in range(1, 11)]


@pytest.mark.parametrize("person", [None, "who"])
def test_order_within_a_block_says_nothing(tmp_path: Path, person: str | None) -> None:
    """Neither to who has the file, nor to who has the ledger once the log has confirmed: it numbers by the file."""
    task = make_task("protocol: moments")
    crowd = crowd_of(tmp_path, MANY, person)
    orders = []
    for name in ("one", "two"):
        url = f"sqlite:///{tmp_path}/{name}.db"
        with LocalRun(task, crowd, url, tmp_path / f"{name}.ledger.db") as run:
            for _ in run.steps():
                pass
            digest = run.population.source.digest
        orders.append(sent(url))
        with Ledger(tmp_path / f"{name}.ledger.db") as ledger:
            assert ledger.pending() == 0
            for at in range(0, 90, 13):
                key, home = (at, digest) if person is None else (f"p{at}", None)
                [level] = ledger.account(key, source=home).tasks[0].levels
                assert (level.level, level.receipts) == (MANY[at], (at + 1,))
    for order in orders:
        assert sorted(order) == sorted(MANY)
        assert order != MANY
    # Fresh each time.
    assert orders[0] != orders[1]


def test_a_simulation_keeps_the_order_of_its_file(tmp_path: Path) -> None:
    """It has nobody to protect, and its seed gives the same in every version and however it is cut into blocks."""
    crowd, url = crowd_of(tmp_path, MANY, seed=7), f"sqlite:///{tmp_path}/log.db"
    with LocalRun(make_task("protocol: moments"), crowd, url, tmp_path / "ledger.db") as run:
        for _ in run.steps():
            pass
    assert sent(url) == MANY


def test_blocks_follow_each_other(tmp_path: Path) -> None:
    """So a release is of one of its block's people: what is said is no more than that."""
    crowd, url = crowd_of(tmp_path, ["strict"] * 30 + ["open"] * 30), f"sqlite:///{tmp_path}/log.db"
    with LocalRun(make_task("protocol: moments"), replace(crowd, block=30), url, tmp_path / "ledger.db") as run:
        for _ in run.steps():
            pass
    assert sent(url) == ["strict"] * 30 + ["open"] * 30


@pytest.mark.parametrize("stored", [True, False], ids=["stored, not heard", "not stored"])
def test_what_waits_is_sent_once_in_the_order_that_was_drawn(tmp_path: Path, stored: bool) -> None:
    crowd, url = crowd_of(tmp_path, MANY), f"sqlite:///{tmp_path}/log.db"
    tried: list[list[tuple[int, bytes]]] = []

    def append(log: Log, batch: list[tuple[int, bytes]]) -> None:
        tried.append(batch)
        if stored:
            log.append(batch)
        raise MurkError("the connection was lost")

    task = make_task("protocol: moments", simulated=False)
    with open_log(url) as log, Ledger(tmp_path / "ledger.db") as ledger:
        people = population_of(task, replace(crowd, block=45), log, ledger)
        people.producer = people.producer.__class__(  # type: ignore[attr-defined]
            people.task,
            Wrapped(log, append=lambda batch: append(log, batch)),  # type: ignore[arg-type]
            ledger,
        )
        with pytest.raises(MurkError, match="connection was lost"):
            list(people.steps())
        assert (ledger.pending(), len(tried)) == (45, 1)
        people.close()
    # Another process carries on: the same bytes, in the order in which they were sent or would have been.
    with open_log(url) as log, Ledger(tmp_path / "ledger.db") as ledger:
        people = population_of(task, replace(crowd, block=45), log, ledger)
        list(people.steps())
        people.close()
        values = [one.value for one in log.read(0, 0, 1000)]
        assert ledger.totals().releases == len(values) == len(set(values)) == 90
    assert values[:45] == [value for _, value in tried[0]]
    levels = [json.loads(value)["level"] for value in values]
    assert sorted(levels[:45]) == sorted(MANY[:45])
    assert levels[:45] != MANY[:45]


def chi_square(orders: list[tuple[int, ...]]) -> float:
    """Of six orders of three against even odds."""
    expected = len(orders) / 6
    return sum((orders.count(one) - expected) ** 2 / expected for one in permutations(range(3)))


def test_every_order_is_as_likely(tmp_path: Path) -> None:
    """Chi-square of five degrees of freedom is above 41 with a probability below 1e-7; a wrong shuffle is far above."""
    draws = 6000
    with World(tmp_path, make_task(simulated=False)) as world:
        drawn = [tuple(world.producer._order(np.arange(3))) for _ in range(draws)]
    assert chi_square(drawn) < 41
    # Each place exchanged with any other: the classical mistake, whose orders have odds of 4 and 5 of 27.
    source, wrong = np.random.default_rng(1), []
    for _ in range(draws):
        order = [0, 1, 2]
        for at, other in enumerate(source.integers(0, 3, 3).tolist()):
            order[at], order[other] = order[other], order[at]
        wrong.append(tuple(order))
    assert chi_square(wrong) > 41
