"""People's own budgets: rounded down to the task's grid, paid for by each at their own level."""

import json
from pathlib import Path

import pytest

from murk import Task
from murk.errors import MurkError, UserError
from murk.populations import FileSource
from murk.populations.file_work import PopulationConfig
from murk.privacy import GaussianDP, cap_of
from murk.producers import Ledger, Policy
from tests.cli.harness import query
from tests.producers.world import RECORD, TEXT, World, run_blocks

GRID = TEXT[: TEXT.index("  levels")] + "  levels: {from: 0.5, to: 2}\nprotocol: moments\n"
BUDGETS = ["0.5", "1", "1.37", "1.9999", "2", "77", "0.50995"]


def grid_task(simulated: bool = True) -> Task:
    return Task.parse(GRID).with_simulated(simulated)


def write(path: Path, budgets: list[str], names: list[str] | None = None) -> Path:
    names = names or [f"p{place}" for place in range(len(budgets))]
    rows = [f"28,yes,JFK,no,{budget},{name}" for budget, name in zip(budgets, names, strict=True)]
    path.write_text("\n".join(["age,same_sex,origin,third_child,budget,who", *rows]) + "\n")
    return path


def opened(task: Task, people: Path, person: str | None = "who") -> FileSource:
    return PopulationConfig(people, person, "guarantee:budget").open(task)


def test_everybody_releases_and_pays_at_their_own_level(tmp_path: Path) -> None:
    task = grid_task()
    people = write(tmp_path / "people.csv", BUDGETS)
    with World(tmp_path, task) as world:
        run_blocks(world, opened(task, people))
        releases = [json.loads(message.value) for message in world.messages()]
        expected = [task.privacy.level_of(float(budget)) for budget in BUDGETS]
        assert sorted(release["level"] for release in releases) == sorted(expected)
        assert len(set(expected)) == 6
        for place, (budget, level) in enumerate(zip(BUDGETS, expected, strict=True)):
            account = world.ledger.account(f"p{place}")
            [own] = [each for each in account.tasks[0].levels if each.released]
            spent = own.guarantee
            assert (own.level, own.released) == (level, 1)
            assert isinstance(spent, GaussianDP)
            assert min(float(budget), 2) / 1.02 < spent.mu <= float(budget)
            # Their cap is one release at their own level, and nothing is left of it.
            [cap] = [each for each in account.tasks[0].caps if each.level == level]
            assert cap.cap == cap_of(spent)
            assert cap.spent is not None
            assert cap.spent <= cap_of(spent)
        # Only the levels that people have, and the ends, are in the ledger.
        booked = {level for (level,) in query(tmp_path / "ledger.db", "SELECT level FROM tariffs")}
        assert booked == {"default", "0", "71", *expected}


def test_a_second_record_finds_the_budget_spent_whatever_its_level(tmp_path: Path) -> None:
    task = grid_task()
    people = write(tmp_path / "people.csv", ["1", "1.9", "0.6"], ["ann", "ann", "ann"])
    with World(tmp_path, task) as world:
        run_blocks(world, opened(task, people))
        assert [json.loads(message.value)["level"] for message in world.messages()] == [task.privacy.level_of(1.0)]
        # The second asks for more than the first: what is left of 1.9 is less than a release at it.
        assert world.ledger.totals().refused == 2


def test_one_record_and_a_restart_keep_to_the_grid(tmp_path: Path) -> None:
    task = grid_task()
    with World(tmp_path, task) as world:
        level = task.privacy.level_of(1.7)
        assert world.producer.release(RECORD, person="ann", level=level).level == level
        with pytest.raises(UserError, match=r"no level '999': choose one of default, or 0 to 71 for mu = 0.5 to 2"):
            world.producer.release(RECORD, person="bob", level="999")
    with World(tmp_path, task) as world:
        assert world.producer.release(RECORD, person="ann", level=level).outcome == "refused"
        assert world.producer.release(RECORD, person="bob", level=level).outcome == "released"
        assert world.producer.release(RECORD, person="eve").level == "default"


@pytest.mark.parametrize("budget", ["0.4999", "0", "-1", "nan", "inf", "much", "", "true"])
def test_a_budget_below_the_grid_stops_a_simulation_without_being_named(tmp_path: Path, budget: str) -> None:
    task = grid_task()
    people = write(tmp_path / "people.csv", ["1", budget])
    with World(tmp_path, task) as world, pytest.raises(UserError) as refused:
        run_blocks(world, opened(task, people))
    assert "row 2" in str(refused.value)
    assert "not a budget of at least mu = 0.5, the grid's lowest" in str(refused.value)
    assert not any(f" {word}" in str(refused.value) for word in (budget, repr(budget)) if len(word) > 2)


def test_with_real_noise_nothing_of_such_a_row_is_released_but_a_blank_in_its_place(tmp_path: Path) -> None:
    task = grid_task(simulated=False)
    people = write(tmp_path / "people.csv", ["1", "0.1", "1.5"])
    source = opened(task, people)
    [block] = source.blocks()
    assert block.levels == [task.privacy.level_of(1), "0", task.privacy.level_of(1.5)]
    assert block.unreadable == 1
    assert (block.x[1] == 0).sum() >= len(block.x[1]) - 1
    assert block.people is not None
    assert "p1" not in block.people
    with World(tmp_path, task) as world:
        run_blocks(world, source)
        assert len(world.messages()) == 3
        assert not world.ledger.account("p1").is_known


def test_columns_and_tasks_that_cannot_give_budgets_are_refused(tmp_path: Path) -> None:
    people = write(tmp_path / "people.csv", ["1"])
    with pytest.raises(UserError, match=r"levels cannot come from the column 'age', a feature"):
        PopulationConfig(people, None, "guarantee:age").open(grid_task())
    named = Task.parse(TEXT + "protocol: moments\n").with_simulated(True)
    with pytest.raises(UserError, match=r"no grid of budgets"):
        opened(named, people)


def test_the_policy_holds_for_each_budget(tmp_path: Path) -> None:
    task = grid_task()
    with World(tmp_path, task, policy=Policy(lifetime=GaussianDP(1.2))) as world:
        assert world.producer.release(RECORD, person="ann", level=task.privacy.level_of(1.2)).outcome == "released"
        with pytest.raises(UserError, match=r"policy does not allow the level '60'"):
            world.producer.release(RECORD, person="bob", level="60")
        # A refusal changes nothing for others.
        assert world.producer.release(RECORD, person="eve", level=task.privacy.level_of(0.9)).outcome == "released"


def test_budgets_are_rounded_down_to_what_the_policy_allows(tmp_path: Path) -> None:
    """One person who would spend more than a device may stops nobody."""
    task = grid_task()
    people = write(tmp_path / "people.csv", ["1", "1.1", "1.9", "0.7"])
    with World(tmp_path, task, policy=Policy(lifetime=GaussianDP(1.5))) as world:
        source = opened(task, people)
        source.allow(world.producer.allowed_levels())
        run_blocks(world, source)
        levels = {json.loads(message.value)["level"] for message in world.messages()}
    assert levels == {task.privacy.level_of(budget) for budget in (1, 1.1, 1.5, 0.7)}


def test_two_producers_of_one_ledger_keep_each_others_levels(tmp_path: Path) -> None:
    task = grid_task()
    with World(tmp_path, task) as world:
        other, [one, two] = world.produce(), [task.privacy.level_of(budget) for budget in (1.2, 1.3)]
        assert world.producer.release(RECORD, person="ann", level=one).outcome == "released"
        assert other.release(RECORD, person="bob", level=two).outcome == "released"
        assert world.producer.release(RECORD, person="eve", level=one).outcome == "released"


def test_a_level_whose_booking_failed_is_booked_at_the_next_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = grid_task()
    with World(tmp_path, task) as world:
        level = task.privacy.level_of(1.2)
        with monkeypatch.context() as patch:
            patch.setattr(world.ledger, "book", lambda *given, **named: _locked())
            with pytest.raises(MurkError, match="locked"):
                world.producer.release(RECORD, person="ann", level=level)
        assert world.producer.release(RECORD, person="ann", level=level).outcome == "released"


def _locked() -> None:
    raise MurkError("another process kept the ledger locked")


def test_ranges_of_two_tasks_of_one_name_are_in_their_own_units(tmp_path: Path) -> None:
    pure = Task.parse(GRID.replace("gdp: {mu: 1.0}", "pure: {epsilon: 1.0}")).with_simulated(True)
    for folder, task in (("gdp", grid_task()), ("pure", pure)):
        (tmp_path / folder).mkdir()
        with World(tmp_path / folder, task) as world:
            if folder == "pure":
                world.ledger.close()
                world.ledger = Ledger(tmp_path / "gdp" / "ledger.db")
                world.producer = world.produce()
            for place in range(0, 72, 4):
                level = str(place)
                assert world.producer.release(RECORD, person=f"{folder}{place}", level=level).outcome == "released"
            ranges = world.ledger.totals().ranges
            world.ledger.close()
    assert ranges == {"third-child": "epsilon = 0.5 to 1.90936; mu = 0.5 to 1.90936"}


def test_by_lot_a_person_keeps_their_level_after_a_restart(tmp_path: Path) -> None:
    task = Task.parse(GRID.replace("privacy:", "privacy:\n  per_person: {gdp: {mu: 20}}")).with_simulated(True)
    people = write(tmp_path / "people.csv", ["1"] * 12, ["ann", "bob", "eve"] * 4)
    source = FileSource(people, task, person_column="who", level="lot")
    for block in source.blocks(size=6):
        with World(tmp_path, task) as world:
            world.producer.begin(source)
            world.producer.release_block(block)
    with World(tmp_path, task) as world:
        for name in ("ann", "bob", "eve"):
            [own] = [each for each in world.ledger.account(name).tasks[0].levels if each.released]
            assert own.released == 4


@pytest.mark.parametrize("levels", [("tiny", "default"), ("default", "tiny"), ("tiny", "tiny")])
@pytest.mark.parametrize("more", ["", "  window: week\n"])
def test_a_tiny_level_leaves_room_for_nothing_further(tmp_path: Path, levels: tuple[str, str], more: str) -> None:
    """One release of each person is a count, too: mu of 1 covers one of 1 and one of 0.0001."""
    head = TEXT[: TEXT.index("  levels")].replace("privacy:\n", f"privacy:\n{more}")
    task = Task.parse(head + "  levels: {tiny: {gdp: {mu: 0.0001}}}\nprotocol: moments\n")
    with World(tmp_path, task) as world:
        outcomes = [world.producer.release(RECORD, person="ann", level=level).outcome for level in levels]
        assert outcomes == ["released", "refused"]
