"""What a refusal for a used-up cap proposes works: each remedy is followed to the letter, and releases go on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from murk import Task, privacy
from murk.errors import UserError
from murk.privacy import ApproxDP, GaussianDP, ZeroConcentratedDP, cap_of, guarantee_from_dict
from murk.privacy.noise import SimulatedNoise
from murk.producers import OrganisationProducer, Policy, Producer
from murk.producers.organisation import window_device_for
from murk.stream import open_log
from tests.producers.sketches.organisations import TEXT, WINDOW, SketchWorld, coded, make_task
from tests.producers.world import RECORD, World, paid_task

MOMENTS = TEXT.replace("approx: {epsilon: 1.0, delta: 1.0e-6}", "gdp: {mu: 1.0}").replace(
    "approx: {epsilon: 0.5, delta: 1.0e-6}", "gdp: {mu: 0.5}"
)
MIXTURES = f"{TEXT}summaries: {{rows: 8, window: {WINDOW}}}\n"
CAP = "privacy:\n  per_person: {approx: {epsilon: 3.0, delta: 3.0e-6}}\n"
SKETCHES = {
    "mixtures": MIXTURES.replace("privacy:\n", CAP),
    "mixtures, one window": MIXTURES,
    "moments": f"{MOMENTS}summaries: {{method: moments, window: {WINDOW}}}\n",
}


def windows(producer: OrganisationProducer, count: int) -> list[str]:
    return [producer.add_block(*coded(WINDOW))[-1].outcome for _ in range(count)]


def loosen(world: World | SketchWorld, words: str) -> None:
    """Make the call that a message names."""
    found = re.search(r"Ledger\.loosen\((.+)\) once the people", words)
    assert found is not None, words
    public = {name: getattr(privacy, name) for name in privacy.__all__}
    eval(f"ledger.loosen({found[1]})", {**public, "ledger": world.ledger, "task": world.task})


@pytest.mark.parametrize("name", SKETCHES)
def test_a_larger_cap_of_windows_in_another_task_allows_as_many_as_it_says(tmp_path: Path, name: str) -> None:
    text = SKETCHES[name]
    task = Task.parse(text).with_simulated(True)
    allowed = 3 if task.privacy.per_person else 1
    with SketchWorld(tmp_path, task) as world:
        assert windows(world.producer, allowed + 1) == ["released"] * allowed + ["refused"]
        words = world.producer.add_block(*coded(WINDOW))[-1].reason
        proposed = re.search(rf"(\d+) windows \({allowed} spent\), .* privacy\.(per_person: \{{.*?\}}\}})", words)
        assert proposed is not None, words
        plain = re.sub("  per_person: .*\n", "", text)
        larger = Task.parse(plain.replace("privacy:\n", f"privacy:\n  {proposed[2]}\n")).with_simulated(True)
        assert larger.name == task.name
        device = window_device_for(larger)
        with pytest.raises(UserError, match="use another log"):
            world.log.register_task(larger.document())
        assert "another log" in words
        with open_log(f"sqlite:///{tmp_path}/another.db") as log:
            log.register_task(larger.document())
            again = OrganisationProducer(
                larger, log, world.ledger, organisation="clinic", noise=SimulatedNoise(8), device=device
            )
            count = int(proposed[1])
            assert windows(again, count + 1) == ["released"] * count + ["refused"]
            # The name stays so that a withdrawal from the first task holds.
            world.ledger.withdraw("clinic", task_hash=task.hash)
            assert "withdrawn" in again.open().reason


def test_a_larger_cap_of_people_in_another_task_of_the_same_name(tmp_path: Path) -> None:
    with World(tmp_path, paid_task(2.0)) as world:
        assert world.producer.release(RECORD, key="a", level="open").outcome == "released"
        refused = world.producer.release(RECORD, key="b", level="open")
        assert refused.outcome == "refused"
        for words in ("privacy.per_person", "another log", "keep its name", "released again"):
            assert words in refused.reason
        larger = paid_task(4.0)
        with pytest.raises(UserError, match="use another log"):
            world.log.register_task(larger.document())
        with open_log(f"sqlite:///{tmp_path}/another.db") as log:
            log.register_task(larger.document())
            again = Producer(larger, log, world.ledger, noise=SimulatedNoise(8))
            outcomes = [again.release(RECORD, key=key, level="open").outcome for key in "abcde"]
            assert outcomes == ["released"] * 4 + ["refused"]


def test_a_cap_over_all_tasks_is_raised_in_the_ledger_and_in_the_policy(tmp_path: Path) -> None:
    with World(tmp_path, paid_task(4.0), policy=Policy(lifetime=GaussianDP(1.1))) as world:
        assert world.producer.release(RECORD, key="a").outcome == "released"
        refused = world.producer.release(RECORD, key="b")
        assert "call Ledger.loosen(cap), then give this cap as --lifetime or Policy(lifetime=" in refused.reason
        world.policy = Policy(lifetime=GaussianDP(1.7))
        with pytest.raises(UserError, match="promises each person a cap") as error:
            world.produce()
        loosen(world, str(error.value))
        # What was refused was never spent, so the same record may come again.
        assert world.produce().release(RECORD, key="b").outcome == "released"
        # One who keeps the former cap tightens it again.
        world.policy = Policy(lifetime=GaussianDP(1.1))
        assert world.produce().release(RECORD, key="c").outcome == "refused"
        assert [one.amount for one in world.ledger.promises()] == [cap_of(GaussianDP(1.1))]


def test_a_cap_over_all_tasks_of_an_organisation(tmp_path: Path) -> None:
    with SketchWorld(tmp_path, make_task(windows=9), policy=Policy(lifetime=ApproxDP(2.0, 2e-6))) as world:
        assert windows(world.producer, 3) == ["released", "released", "refused"]
        words = world.producer.open().reason
        assert "Policy(lifetime=" in words
        assert "per_person" not in words
        world.policy = Policy(lifetime=ApproxDP(3.0, 3e-6))
        with pytest.raises(UserError, match="promises each person a cap") as error:
            world.produce()
        loosen(world, str(error.value))
        assert windows(world.produce(), 2) == ["released", "refused"]


def test_a_policys_cap_for_a_task_is_raised_in_both_too(tmp_path: Path) -> None:
    with World(tmp_path, paid_task(4.0), policy=Policy(per_task=ZeroConcentratedDP(0.5))) as world:
        assert world.producer.release(RECORD).outcome == "released"
        refused = world.producer.release(RECORD)
        assert "call Ledger.loosen(cap, task_hash=...), then give this cap as Policy(per_task=" in refused.reason
        world.policy = Policy(per_task=ZeroConcentratedDP(1.0))
        with pytest.raises(UserError, match="for this task, and rho = 1 was requested") as error:
            world.produce()
        loosen(world, str(error.value))
        assert [world.produce().release(RECORD).outcome for _ in range(2)] == ["released", "refused"]


@pytest.mark.parametrize(
    "cap", [{"gdp": {"mu": 0.1}}, {"gdp": {"mu": 1.23456789}}, {"zcdp": {"rho": 0.3}}, {"pure": {"epsilon": 0.7}}]
)
def test_the_call_that_is_named_raises_the_cap_to_the_very_unit(tmp_path: Path, cap: dict[str, Any]) -> None:
    lower = {kind: {name: value * 0.9 for name, value in figures.items()} for kind, figures in cap.items()}
    with World(tmp_path, paid_task(4.0)) as world:
        world.ledger.book(world.task.hash, [], lifetime=cap_of(guarantee_from_dict(lower)))
        with pytest.raises(UserError) as error:
            world.ledger.book(world.task.hash, [], lifetime=cap_of(guarantee_from_dict(cap)))
        loosen(world, str(error.value))
        world.ledger.book(world.task.hash, [], lifetime=cap_of(guarantee_from_dict(cap)))
