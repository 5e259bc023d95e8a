"""Whole files, block by block."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from murk.errors import MurkError, UserError
from murk.populations import FileSource
from murk.privacy.noise import Purpose, SimulatedNoise, below
from murk.producers import Policy
from murk.producers.producer import CANDIDATES
from murk.protocols.device import device_for
from tests.producers.world import TEXT, World, Wrapped, make_task, paid_task, run_blocks, write_people


@pytest.fixture
def people(tmp_path: Path) -> Path:
    return write_people(tmp_path / "people.csv", 200)


def test_releases_everyone_once(tmp_path: Path, people: Path) -> None:
    with World(tmp_path, make_task()) as world:
        source = FileSource(people, world.task)
        run_blocks(world, source)
        assert world.log.end(0) == 200
        run = world.producer.begin(source)
        assert (run.next_row, run.counters["released"], run.counters["refused"]) == (200, 200, 0)
        # Again from the start, by mistake: every row is known.
        for block in source.blocks(size=64):
            report = world.producer.release_block(block)
            assert (report.released, report.known) == (0, len(block))
        assert world.log.end(0) == 200
        assert world.ledger.totals().releases == world.ledger.totals().people == 200
        assert world.ledger.pending() == 0


def test_is_the_mechanism_of_each_rows_gradient(tmp_path: Path, people: Path) -> None:
    with World(tmp_path, make_task("log: {partitions: 3}")) as world:
        device, noise = device_for(world.task), SimulatedNoise(world.seed)
        for partition in range(3):
            parameters = np.full(device.dimension, partition / 10)
            world.publish(parameters, partition=partition)
        source = FileSource(people, world.task, level="lot")
        world.producer.begin(source)
        block = next(source.blocks(size=60))
        assert world.producer.release_block(block).released == 60
        found = {}
        for partition in range(3):
            for message in world.messages(partition):
                release = json.loads(message.value)
                found[release["id"]] = release
        rows = np.arange(60)
        names = list(world.task.privacy.levels)
        levels = below(noise.words(rows, CANDIDATES, Purpose.LEVEL), 3).tolist()
        partitions = below(noise.words(rows, CANDIDATES, Purpose.PARTITION), 3).tolist()
        assert len(found) == 60
        assert len(set(levels)) == len(set(partitions)) == 3
        for row in range(60):
            high, low = noise.words([row], 2, Purpose.IDENTIFIER)[0].tolist()
            release = found[f"{high:016x}{low:016x}"]
            assert (release["level"], release["partition"]) == (names[levels[row]], partitions[row])
            gradient = device.vectors(
                block.x[row : row + 1], block.y[row : row + 1], np.full(device.dimension, partitions[row] / 10)
            )
            mechanism = device.mechanisms[names[levels[row]]]
            expected = mechanism.randomize(gradient, noise, np.array([row]))
            assert release["payload"] == expected[0].tolist()


def by_row(world: World, count: int = 200) -> list[dict[str, Any]]:
    """Simulated releases in the order of the file's rows, whatever that of the log is: their ids say which."""
    drawn = SimulatedNoise(world.seed).words(np.arange(count), 2, Purpose.IDENTIFIER).tolist()
    found = {release["id"]: release for release in (json.loads(message.value) for message in world.messages())}
    assert len(found) == len(world.messages()) == count
    return [found[f"{high:016x}{low:016x}"] for high, low in drawn]


def test_does_not_depend_on_how_rows_are_blocked(tmp_path: Path, people: Path) -> None:
    found = []
    for size in (1, 7, 200):
        folder = tmp_path / str(size)
        folder.mkdir()
        with World(folder, make_task()) as world:
            source = FileSource(people, world.task, level="lot")
            world.producer.begin(source)
            for block in source.blocks(size=size):
                world.producer.release_block(block)
            found.append([message.value for message in world.messages()])
    assert found[0] == found[1] == found[2]


def test_real_noise_is_fresh(tmp_path: Path, people: Path) -> None:
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with World(tmp_path / name, make_task(simulated=False)) as world:
            source = FileSource(people, world.task, level="lot")
            run_blocks(world, source)
            found.append([json.loads(message.value) for message in world.messages()])
    ids = [release["id"] for run in found for release in run]
    assert len(set(ids)) == 400
    assert not any(one["payload"] == other["payload"] for one, other in zip(*found, strict=True))


def test_people_with_several_rows_have_one_account(tmp_path: Path, people: Path) -> None:
    with World(tmp_path, make_task()) as world:
        source = FileSource(people, world.task, person_column="who")
        run_blocks(world, source)
        totals = world.ledger.totals()
        assert (totals.people, totals.releases, totals.refused) == (100, 100, 100)
        counters = world.producer.begin(source).counters
        assert (counters["released"], counters["refused"]) == (100, 100)


def test_refusals_name_whom_on_the_device_alone(tmp_path: Path, people: Path) -> None:
    with World(tmp_path, make_task()) as world:
        source = FileSource(people, world.task, person_column="who")
        world.producer.begin(source)
        report = world.producer.release_block(next(source.blocks(size=4)))
        assert [(refusal.person, refusal.key) for refusal in report.refusals] == [("person-0", 1), ("person-1", 3)]
        assert "person" not in repr(report)
        assert (report.released, report.refused, report.next_position) == (2, 2, 4)


def test_levels_by_lot_are_kept_by_people(tmp_path: Path, people: Path) -> None:
    with World(tmp_path, paid_task(10.0)) as world:
        source = FileSource(people, world.task, person_column="who", level="lot")
        run_blocks(world, source)
        levels = [release["level"] for release in by_row(world)]
    assert len(levels) == 200
    assert levels[::2] == levels[1::2]
    assert set(levels) == {"default", "strict", "open"}


def test_levels_from_a_column(tmp_path: Path, people: Path) -> None:
    with World(tmp_path, make_task()) as world:
        run_blocks(world, FileSource(people, world.task, level_column="level"))
        levels = [release["level"] for release in by_row(world)]
    assert levels == [("default", "strict", "open")[row % 3] for row in range(200)]


def test_levels_by_lot_are_even(tmp_path: Path, people: Path) -> None:
    # 200 draws of 3 levels: a count is binomial(200, 1/3), and 67 +- 40 is 6 standard deviations (1e-9 a side);
    # with one level left out a count would be 0.
    with World(tmp_path, make_task(simulated=False)) as world:
        run_blocks(world, FileSource(people, world.task, level="lot"))
        counts = world.ledger.totals().levels
    assert all(27 < counts["third-child", level] < 107 for level in ("default", "strict", "open"))


def test_a_level_that_the_policy_forbids_stops_the_block(tmp_path: Path, people: Path) -> None:
    from murk.privacy import GaussianDP

    with World(tmp_path, make_task(), policy=Policy(lifetime=GaussianDP(1.0))) as world:
        source = FileSource(people, world.task, level_column="level")
        world.producer.begin(source)
        with pytest.raises(UserError, match="'open'"):
            world.producer.release_block(next(source.blocks(size=10)))
        assert world.ledger.totals().releases == world.log.end(0) == 0


def test_excluded_rows_release_nothing_ever(tmp_path: Path, people: Path) -> None:
    with World(tmp_path, make_task()) as world:
        source = FileSource(people, world.task)
        world.producer.begin(source, excluded=[0, 5, 6, 199])
        run_blocks(world, source)
        assert world.log.end(0) == 196
        for row in (0, 5, 6, 199):
            [task] = world.ledger.account(row, source=source.digest).tasks
            assert (task.published, task.levels) == (True, ())
        assert world.producer.begin(source, excluded=[1]).excluded == (0, 5, 6, 199)


def test_missing_values_and_targets_are_released_like_all_others(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("age,same_sex,origin,third_child\n,,,\n28,yes,JFK,\n,no,,yes\n99,no,EWR,no\n")
    with World(tmp_path, make_task()) as world:
        source = FileSource(path, world.task)
        run_blocks(world, source)
        assert world.log.end(0) == 4
        counters = world.producer.begin(source).counters
        assert (counters["missing"], counters["clamped"]) == (7, 1)
        counts = world.producer.counts
        assert (counts.records, counts.missing, counts.clamped) == (4, 7, 1)


def test_a_log_that_fails_loses_nothing(tmp_path: Path, people: Path) -> None:
    with World(tmp_path, make_task()) as world:
        calls = []

        def append(batch: list[tuple[int, bytes]]) -> None:
            calls.append(len(batch))
            if len(calls) == 3:
                raise MurkError("the disk is full")
            world.log.append(batch)

        source = FileSource(people, world.task)
        producer = world.produce(Wrapped(world.log, append=append))  # type: ignore[arg-type]
        with pytest.raises(MurkError, match="disk is full"):
            run_blocks(world, source, producer)
        assert world.ledger.pending() == calls[2]
        # The same producer may go on: what waits goes first.
        row = world.producer.begin(source).next_row
        for block in source.blocks(row, 30):
            producer.release_block(block)
        assert world.log.end(0) == 200
        assert len(by_row(world)) == 200


def test_a_bad_row_stops_its_block_and_no_other(tmp_path: Path, people: Path) -> None:
    lines = people.read_text().splitlines()
    lines[51] = lines[51].replace("yes", "perhaps").replace("no", "perhaps")
    people.write_text("\n".join(lines))
    with World(tmp_path, make_task()) as world:
        source = FileSource(people, world.task)
        with pytest.raises(UserError, match="row 51"):
            run_blocks(world, source)
        done = world.producer.begin(source).next_row
        assert 0 < done <= 50
        assert world.log.end(0) == world.ledger.totals().releases == done


def test_a_regression_on_a_file(tmp_path: Path) -> None:
    text = TEXT.replace(
        'target: {name: third_child, kind: binary, positive: "yes", negative: "no"}',
        "target: {name: weeks, kind: real, low: 0, high: 52}",
    )
    path = tmp_path / "people.csv"
    path.write_text("age,same_sex,origin,weeks\n" + "".join(f"{20 + n},yes,EWR,{n}\n" for n in range(30)))
    with World(tmp_path, make_task(text=text)) as world:
        run_blocks_at_start(world, FileSource(path, world.task))
        assert world.log.end(0) == 30


def run_blocks_at_start(world: World, source: FileSource) -> None:
    """All blocks at the initial model."""
    world.producer.begin(source)
    for block in source.blocks(size=8):
        world.producer.release_block(block)
