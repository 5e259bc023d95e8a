"""Devices of `protocol: scores`: which query a person answers, and that nothing of the record decides it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from murk.errors import UserError
from murk.populations import FileSource
from murk.populations.people import Population, PopulationConfig, open_accounts
from murk.privacy.noise import Purpose, SecureNoise, SimulatedNoise
from murk.producers.producer import Models, randomize_records
from murk.protocols.device import device_for
from murk.protocols.scores.device import ScoreDevice
from murk.protocols.scores.model import Model
from murk.stream import open_log
from murk.stream.wire.codec import WireRules, decode
from tests.producers.world import RECORD, TEXT, Untouchable, World, Wrapped, make_task, write_people

SCORES = "protocol: scores"
OWN = f"{SCORES}\nscores: {{models: per-partition}}"
SHARES = {"score": 0.5, "scatter": 0.2, "curvature": 0.3}


def model_of(device: ScoreDevice, **changes: Any) -> list[float]:
    """A model with shares of all three queries."""
    first = Model.of(device.initial, device.dimension)
    shares = {"scatter": SHARES["scatter"], "curvature": SHARES["curvature"]}
    fields = {**first.__dict__, "survey": 0, "width": 1.0, **shares, **changes}
    return Model(**fields).flat.tolist()


def rules(world: World) -> WireRules:
    device: Any = device_for(world.task)
    magnitudes = {level: mechanism.magnitude for level, mechanism in device.mechanisms.items()}
    return WireRules(world.task.hash, True, device.lengths, magnitudes, world.task.log.partitions, kind="score")


def test_is_the_mechanism_of_each_rows_answer(tmp_path: Path) -> None:
    with World(tmp_path, make_task(OWN, "log: {partitions: 2}")) as world:
        device: Any = device_for(world.task)
        noise, models = SimulatedNoise(world.seed), []
        for partition in range(2):
            models.append(np.array(model_of(device, origin=np.full(device.dimension, partition / 10))))
            world.publish(models[-1].tolist(), partition=partition)
        source = FileSource(write_people(tmp_path / "people.csv", 80), world.task, level="lot")
        world.producer.begin(source)
        block = next(source.blocks(size=80))
        assert world.producer.release_block(block).released == 80
        found = {}
        for partition in range(2):
            for message in world.messages(partition):
                release: Any = decode(message.value, rules(world))
                assert release.version == 0
                found[release.id] = release
        assert {release.query for release in found.values()} == set(SHARES)
        for row in range(80):
            high, low = noise.words([row], 2, Purpose.IDENTIFIER)[0].tolist()
            release = found.pop(f"{high:016x}{low:016x}")
            word = int(noise.words([row], 1, Purpose.QUERY)[0, 0]) / 2.0**64
            assert release.query == ("scatter" if word < 0.2 else "curvature" if word < 0.5 else "score")
            one = slice(row, row + 1)
            vectors = device.vectors(block.x[one], block.y[one], models[release.partition], release.query)
            mechanism = device.mechanism(release.level, release.query)
            assert release.payload == mechanism.randomize(vectors, noise, [row])[0].tolist()
        assert not found


def test_people_of_all_partitions_answer_at_the_first_partitions_model(tmp_path: Path) -> None:
    with World(tmp_path, make_task(SCORES, "log: {partitions: 3}")) as world:
        device: Any = device_for(world.task)
        shown = model_of(device, origin=np.full(device.dimension, 0.25))
        surveyed = device.settings.survey.end
        version = surveyed + 6_000
        world.publish(shown, version=version)
        models = Models(world.log, world.task, device)
        for partition, count in ((0, 2_000 + surveyed), (2, 3_999)):
            world.log.append([(partition, b"a release")] * count)
            with pytest.raises(UserError, match=rf"it has learned {version} releases, more than the log has"):
                models.newest(1)
        world.log.append([(1, b"a release")])
        # It is one request, and nobody begins to follow all partitions for it.
        watched = Models(Wrapped(world.log, cached_model=None), world.task, device)  # type: ignore[arg-type]
        assert watched.newest(1).version == version
        # What stands where a partition's own model would is nobody's to look at.
        world.log.publish(1, b"somebody else's")
        for partition, end in enumerate((2_000 + surveyed, 1, 3_999)):
            for model in (models.newest(partition), models.cached_model(partition)):
                # There are fewer releases on any partition: the version counts those of all.
                assert (model.version, model.parameters.tolist(), model.end) == (version, shown, end)
        source = FileSource(write_people(tmp_path / "people.csv", 60), world.task, level="lot")
        world.producer.begin(source)
        assert world.producer.release_block(next(source.blocks(size=60))).released == 60
        messages = [message.value for partition in range(3) for message in world.messages(partition)]
        releases = [decode(message, rules(world)) for message in messages if message != b"a release"]
        assert {(release.version, release.partition) for release in releases} == {
            (version, partition) for partition in range(3)
        }
        world.publish(shown, version=version + 1)
        with pytest.raises(UserError, match=rf"partition 0 .*no model is published at its version {version + 1}"):
            models.newest(2)


@pytest.mark.parametrize("noise", [SimulatedNoise(3), SecureNoise()], ids=["simulated", "secure"])
def test_questions_are_drawn_by_the_models_shares(noise: Any) -> None:
    """Of 40,000 each share within 5 standard errors: a false alarm once in 6e5; shares that are swapped are 40 off."""
    device: Any = device_for(make_task(SCORES))
    count = 40_000
    asked = np.array(device.draw_query(noise, np.arange(count), np.array(model_of(device))))

    def fits(shares: dict[str, float]) -> bool:
        return all(
            abs((asked == name).mean() - share) < 5 * np.sqrt(share * (1 - share) / count)
            for name, share in shares.items()
        )

    assert fits(SHARES)
    assert not fits({**SHARES, "scatter": SHARES["curvature"], "curvature": SHARES["scatter"]})


def test_the_record_decides_neither_question_nor_what_is_drawn() -> None:
    """Two crowds that have nothing in common draw the same words in the same order, and answer the same questions."""

    class Listening(SimulatedNoise):
        def words(self, records: Any, size: int, purpose: Purpose) -> Any:
            heard.append((purpose, np.asarray(records).tolist(), size))
            return super().words(records, size, purpose)

        def gaussian(self, records: Any, size: int) -> Any:
            heard.append(("gaussian", np.asarray(records).tolist(), size))
            return super().gaussian(records, size)

    device: Any = device_for(make_task(SCORES))
    p, count, told = device.dimension, 60, []
    model = np.array(model_of(device))
    for x, y in ((np.ones((count, p)), np.ones(count)), (np.full((count, p), -1.0), np.full(count, np.nan))):
        heard: list[Any] = []
        partitions, levels = [0, 1] * (count // 2), ["default", "strict", "open"] * (count // 3)
        payloads, queries = randomize_records(
            device, x, y, partitions, {0: model, 1: device.initial}, levels, Listening(1), np.arange(count)
        )
        told.append((queries, [len(payload) for payload in payloads], heard))
    assert told[0] == told[1]
    assert {purpose for purpose, *_ in heard} == {Purpose.QUERY, "gaussian"}
    assert sorted(row for name, rows, _ in heard if name == "gaussian" for row in rows) == list(range(count))


def test_answers_do_not_depend_on_the_block() -> None:
    device: Any = device_for(make_task(SCORES))
    rng, count = np.random.default_rng(2), 40
    x, y = rng.uniform(-1, 1, (count, device.dimension)), rng.choice([0.0, 1.0], count)
    model, noise = np.array(model_of(device)), SimulatedNoise(4)

    def answers(rows: list[int]) -> list[Any]:
        at = np.array(rows)
        ones = ["default"] * len(at)
        payloads, queries = randomize_records(device, x[at], y[at], [0] * len(at), {0: model}, ones, noise, at)
        assert queries is not None
        return list(zip(queries, payloads, strict=True))

    whole = answers(list(range(count)))
    assert whole == answers(list(range(7))) + answers(list(range(7, count)))
    assert whole == [answers([row])[0] for row in range(count)]


def test_one_record_of_a_device(tmp_path: Path) -> None:
    with World(tmp_path, make_task(SCORES)) as world:
        device: Any = device_for(world.task)
        world.publish(model_of(device))
        for person in range(20):
            receipt = world.producer.release(RECORD, person=f"p{person}")
            assert (receipt.outcome, receipt.version) == ("released", 0)
        found: list[Any] = [decode(message.value, rules(world)) for message in world.messages()]
        p = device.dimension
        for release in found:
            assert len(release.payload) == (p if release.query == "score" else p * (p + 1) // 2)
        assert len({release.query for release in found}) > 1


BAD: dict[str, dict[str, Any]] = {
    "of no round": {"version": 2_999},
    "of the future": {"version": 3_000},
    "too short": {"parameters": [0.0]},
    "not a number": {"origin": np.nan},
    "without a reach": {"clipping_norm": 0.0},
    "of more than all people": {"scatter": 0.8},
    "of fewer than nobody": {"curvature": -0.1},
    "with an exponent beyond 1": {"exponent": 2.0},
}


@pytest.mark.parametrize("what", BAD)
def test_a_hostile_model_is_refused_before_the_record_is_looked_at(tmp_path: Path, what: str) -> None:
    change = dict(BAD[what])
    with World(tmp_path, make_task(SCORES)) as world:
        device: Any = device_for(world.task)
        version, parameters = change.pop("version", 0), change.pop("parameters", None)
        if "origin" in change:
            flat = json.dumps([change["origin"], *model_of(device)[1:]])
            honest = {"schema": 1, "kind": "model", "task": world.task.hash, "partition": 0, "version": 0}
            world.log.publish(0, f'{json.dumps(honest)[:-1]}, "parameters": {flat}}}'.encode())
        else:
            world.publish(parameters or model_of(device, **change), version=version)
        with pytest.raises(UserError, match=r"refused|not one that an honest learner publishes"):
            world.producer.release(Untouchable())
        assert (world.ledger.totals().releases, world.log.end(0)) == (0, 0)


def blocks(folder: Path, rows: int, *more: str, scores: str = SCORES) -> list[int]:
    """Releases after each step of a population."""
    write_people(folder / "people.csv", rows)
    task, crowd = make_task(scores, *more, text=TEXT, simulated=False), PopulationConfig(folder / "people.csv", seed=1)
    with open_log(f"sqlite:///{folder}/log.db") as log, open_accounts(log, folder / "ledger.db") as accounts:
        people = Population(task, crowd, log, accounts)
        try:
            return [step.releases for step in people.steps()]
        finally:
            people.close()


STARTS = device_for(make_task(SCORES)).settings.survey.starts  # type: ignore[attr-defined]


def test_a_block_ends_where_an_epoch_does(tmp_path: Path) -> None:
    assert blocks(tmp_path, 4_000) == [*STARTS, STARTS[-1] + 3_000, 4_000]


def test_partitions_that_share_models_have_one_epoch(tmp_path: Path) -> None:
    assert blocks(tmp_path, 4_000, "log: {partitions: 3}") == [*STARTS, STARTS[-1] + 3_000, 4_000]


def test_of_several_partitions_blocks_are_small_since_none_knows_where_another_stands(tmp_path: Path) -> None:
    made = blocks(tmp_path, 3_500, "log: {partitions: 2}", scores=OWN)
    assert max(np.diff(made)) == 256
    assert made[-1] == 3_500
