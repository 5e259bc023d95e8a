"""A person's records of a window are bounded in number, so that a sketch's promise is the person's."""

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from murk import Task
from murk.errors import UserError
from murk.populations.file_work import PopulationConfig
from murk.populations.organisations import OrganisationPopulation
from murk.populations.people import open_accounts, population_of
from murk.privacy.central import accumulators as gram_accumulator
from murk.producers import Ledger, OrganisationProducer
from murk.producers.organisation import window_device_for
from murk.stream import open_log

TEXT = """\
name: visits
features: [{name: age, low: 20, high: 40}]
target: {name: weeks, kind: real, low: 0, high: 52}
privacy: {guarantee: {gdp: {mu: 1.0}}, per_person: {gdp: {mu: 9.0}}}
protocol: summaries
"""


def task_of(sketch: str) -> Task:
    return Task.parse(TEXT + f"summaries: {{{sketch}}}\n").with_simulated(True)


def record(patient: Any, age: int = 30) -> dict[str, Any]:
    return {"patient": patient, "age": age, "weeks": 26}


@pytest.fixture
def producer(tmp_path: Path) -> Any:
    from murk.privacy import SimulatedNoise

    task = task_of("window: 6, person: patient, rows_per_person: 2")
    with open_log(f"sqlite:///{tmp_path}/log.db") as log, Ledger(tmp_path / "ledger.db") as ledger:
        log.register_task(task.document())
        yield OrganisationProducer(task, log, ledger, noise=SimulatedNoise(1))


def seen(producer: OrganisationProducer) -> float:
    """Records of the open window that are not zeros: the sum of their squared constants."""
    window = producer._window
    assert window is not None
    assert window.accumulator is not None
    sums = window.accumulator
    steps = (int(sums._high[1, 1]) << gram_accumulator._LOW) + int(sums._low[1, 1])
    return steps * float(producer._device.mechanisms["default"].feature_step ** 2)


@pytest.mark.parametrize("names", [["ann"] * 5, ["ann", "bob", "ann", "ann", "bob"], [None, "", 1.5, True, "  "]])
def test_records_beyond_the_bound_or_of_nobody_count_and_say_nothing(
    producer: OrganisationProducer, names: list[Any]
) -> None:
    """When a window is full and what it counts is the same, whosever the records are."""
    outcomes = [producer.add(record(name)).outcome for name in names]
    assert outcomes == ["added"] * 5
    counted = sum(min(2, count) for name, count in Counter(names).items() if type(name) is str and name.strip())
    assert seen(producer) == pytest.approx(counted)
    assert producer.add(record("di")).outcome == "released"
    producer.add(record("ann"))
    assert (producer.records, seen(producer)) == (1, pytest.approx(1.0))


def test_blocks_say_whose_they_are(producer: OrganisationProducer) -> None:
    coded = producer.task.coding.encode_record(record("ann"))
    x, y = np.array([list(coded.x)] * 5), np.array([coded.y] * 5)
    with pytest.raises(UserError, match="people="):
        producer.add_block(x, y)
    receipts = producer.add_block(x, y, people=["ann", "ann", "ann", "bob", None])
    assert (receipts[-1].records, seen(producer)) == (5, pytest.approx(3.0))
    assert np.isfinite(y).all()


def test_the_noise_grows_with_the_bound_and_the_promise_stays() -> None:
    one = window_device_for(task_of("window: 6, person: patient")).mechanisms["default"]
    three = window_device_for(task_of("window: 6, person: patient, rows_per_person: 3")).mechanisms["default"]
    plain = window_device_for(task_of("window: 6")).mechanisms["default"]
    assert three.scale == pytest.approx(3 * one.scale, rel=1e-12)
    assert one.scale == plain.scale
    assert three.guarantee == one.guarantee == plain.guarantee


@pytest.mark.parametrize(
    ("sketch", "message"),
    [
        ("rows_per_person: 2", "summaries.person"),
        ("person: patient, rows: 8", "method: moments"),
        ("person: clinic, organisation: clinic", "column of organisations"),
        ("person: patient, rows_per_person: 0", "rows_per_person"),
    ],
)
def test_what_does_not_fit_is_refused(sketch: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        task_of(sketch)


def test_a_task_without_it_is_the_one_that_it_was() -> None:
    assert b"person" not in task_of("window: 6").document().replace(b"per_person", b"")
    assert task_of("window: 6").hash != task_of("window: 6, person: patient").hash


def test_of_a_file_the_rest_is_drawn_at_random_and_the_same_when_it_goes_on(tmp_path: Path) -> None:
    task = task_of("window: 40, person: patient, rows_per_person: 3, organisation: clinic")
    owners = [f"p{row * row % 17}" for row in range(400)]
    with (tmp_path / "records.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["clinic", "patient", "age", "weeks"])
        table.writerows([("north", "south")[row % 2], owner, 20 + row % 20, 26] for row, owner in enumerate(owners))

    def work(steps: int) -> OrganisationPopulation:
        with open_log(f"sqlite:///{tmp_path}/log.db") as log, open_accounts(log, tmp_path / "ledger.db") as ledger:
            people = population_of(task, PopulationConfig(tmp_path / "records.csv", seed=7, block=50), log, ledger)
            assert isinstance(people, OrganisationPopulation)
            try:
                for _, _ in zip(range(steps), people.steps(), strict=False):
                    pass
                figures.append(people.figures())
            finally:
                people.close()
        return people

    figures: list[dict[str, Any]] = []
    first, second = work(3), work(100)
    assert first.beyond == second.beyond
    kept = [row for row in range(400) if row not in second.beyond]
    counts = Counter((row % 2, owners[row]) for row in kept)
    assert max(counts.values()) == 3
    whole = Counter((row % 2, owner) for row, owner in enumerate(owners))
    assert len(kept) == sum(min(3, count) for count in whole.values())
    # Not the first ones of each: late rows are kept as well.
    assert sum(row >= 200 for row in kept) > len(kept) / 4
    assert figures[-1]["records_beyond_cap"] == len(second.beyond) > 0
    assert figures[-1]["records_released"] + figures[-1]["records_left_out"] == 400
