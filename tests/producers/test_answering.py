"""One record's answer by a compiled kernel is what it is otherwise, and nothing of the record stays behind."""

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murk.privacy.noise import LATTICE_WIDTH, SecureNoise, SimulatedNoise
from murk.producers import producer as randomization
from murk.producers.producer import MOST_HELD, RecordRandomizer, randomize_records
from murk.protocols import one_record as record_kernel
from murk.protocols.device import device_for
from murk.protocols.scores import fast_records as kernels
from murk.protocols.scores.fast_records import AnswerKernel
from murk.protocols.scores.model import Model
from murk.task.task import Task
from tests.kernels import compiled_at_once
from tests.producers.world import World, make_task

TARGETS = {
    "binary": '{name: y, kind: binary, positive: "yes"}',
    "real": "{name: y, kind: real, low: 0, high: 1}",
    "classes": "{name: y, kind: classes, classes: [a, b, c]}",
    "once": '{name: y, kind: binary, positive: "yes"}',
}
NONE = np.empty(0)
TEXT = """
name: answering
features: [{{name: a, low: 0, high: 1}}, {{name: b, low: 0, high: 1}}]
target: {target}
privacy: {{guarantee: {{gdp: {{mu: 1.0}}}}, levels: {{open: {{gdp: {{mu: 4.0}}}}}}}}
"""
SECRETS = (0.123456789, -0.987654321)


@pytest.fixture(autouse=True, scope="module")
def _at_once() -> Iterator[None]:
    with compiled_at_once(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(randomization, "FEW", 0)
        yield


def task_of(kind: str) -> Task:
    # Scores of classes, and those without rounds, are of public rows.
    public = ["public: {set_aside: 50}"] if kind in ("classes", "once") else []
    block = ["scores: {interactive: false}"] if kind == "once" else []
    task = make_task("protocol: scores", *block, *public, text=TEXT.format(target=TARGETS[kind]))
    if public:
        points = np.column_stack([np.random.default_rng(1).uniform(-1, 1, (50, 2)), np.ones(50)])
        task = task.with_public(points, np.ones(50, dtype=np.int64))
    return task


def device_of(kind: str = "binary") -> Any:
    return device_for(task_of(kind))


def model_of(device: Any, **changes: Any) -> Any:
    """A model of three queries, as devices share it once a survey is over; of scores without rounds there is none."""
    if not device.interactive:
        return NONE
    first = Model.of(device.initial, device.settings.features)
    asks = {"survey": 0, "width": 1.0, "exponent": 1.0, "scatter": 0.2, "curvature": 0.3}
    flat = Model(**{**first.__dict__, **asks, **changes}).flat
    flat.setflags(write=False)
    return flat


def prepared(answering: RecordRandomizer, partition: int, model: Any, level: str) -> Any:
    """The kernel's memory that answers at a model, if any."""
    answering.prepare(partition, model, level)
    return answering._kernel(partition, model, level)


PROBLEMS = {kind: device_of(kind) for kind in TARGETS}
unit = st.floats(-1, 1)
BINARY = st.sampled_from([0.0, 1.0])
CODED = {"binary": BINARY, "real": unit, "classes": st.sampled_from([0.0, 1.0, 2.0]), "once": BINARY}


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_the_kernel_answers_as_everything_else_does(data: st.DataObject) -> None:
    """The same question and payload of a seed, at any model and level, for any coded record, one after another."""
    kind = data.draw(st.sampled_from(list(TARGETS)))
    device = PROBLEMS[kind]
    origin = np.array(data.draw(st.lists(st.floats(-3, 3), min_size=device.dimension, max_size=device.dimension)))
    model = model_of(
        device, origin=origin, exponent=data.draw(st.floats(0, 1)), clipping_norm=data.draw(st.floats(0.1, 10))
    )
    noise = SimulatedNoise(data.draw(st.integers(0, 2**64 - 1)))
    answering = RecordRandomizer(device, noise)
    for _ in range(3):
        x = np.array([*data.draw(st.tuples(unit, unit)), 1.0])
        y = data.draw(CODED[kind] | st.just(math.nan))
        level, index = data.draw(st.sampled_from(["default", "open"])), np.array([data.draw(st.integers(0, 2**41))])
        assert prepared(answering, 0, model, level) is not None, "the kernel is not used"
        found = answering.answer(x, y, 0, model, level, index)
        payloads, queries = randomize_records(device, x[None, :], np.array([y]), [0], {0: model}, [level], noise, index)
        assert queries is not None
        assert found == (payloads[0], queries[0])


@pytest.mark.parametrize("kind", TARGETS)
def test_a_producer_releases_the_same_with_the_kernel_and_without(kind: str, tmp_path: Path) -> None:
    """Bytes for bytes, at two levels; with models, at each of three as it comes."""
    target = {"real": 0.25, "classes": "b"}.get(kind, "yes")
    found = []
    for name, direct in (("with", True), ("without", False)):
        (tmp_path / name).mkdir()
        with World(tmp_path / name, task_of(kind)) as world:
            answering, device = world.producer._answering, device_of(kind)
            if not direct:
                answering._record_kernel = None
            for turn in range(3):
                if turn and device.interactive:
                    world.publish(model_of(device, origin=np.full(device.dimension, turn / 4)).tolist())
                for number in range(8):
                    record, person = {"a": number / 8, "b": 0.5, "y": target}, f"p{turn}-{number}"
                    level = ("default", "open")[number % 2]
                    assert world.producer.release(record, person=person, level=level).outcome == "released"
            assert (len(answering._held) == 2) is direct
            found.append([message.value for message in world.messages()])
    assert len(found[0]) == 24
    assert found[0] == found[1]


def test_a_kernel_is_compiled_before_an_account_is_held(tmp_path: Path, monkeypatch: Any) -> None:
    held, real = [], AnswerKernel.give
    with World(tmp_path, task_of("once")) as world:
        database = world.ledger._file._connection

        def give(*given: Any) -> Any:
            held.append(database.in_transaction)
            return real(*given)

        monkeypatch.setattr(AnswerKernel, "give", give)
        world.producer.release({"a": 0.5, "b": 0.5, "y": "yes"}, person="p")
    # Of nobody, and of the person.
    assert held == [False, True]


def test_secure_answers_have_the_models_shares_and_the_mechanisms_noise() -> None:
    """Each within 5.3 standard errors: seven are looked at, a false alarm once in 10^6 runs.

    Twins: shares swapped, half of the noise, and noise of a mean of a tenth of its width are refused.
    """
    device, count = device_of(), 6000
    model, answering = model_of(device), RecordRandomizer(device, SecureNoise())
    # Of a missing target a score is zeros, and its release the noise.
    x, index = np.array([0.3, -0.2, 1.0]), np.zeros(1, dtype=np.int64)
    answers: dict[str | None, list[list[int]]] = {"score": [], "scatter": [], "curvature": []}
    answering.prepare(0, model, "default")
    for _ in range(count):
        payload, query = answering.answer(x, math.nan, 0, model, "default", index)
        answers[query].append(payload)

    def fits(share: float, name: str) -> bool:
        return abs(len(answers[name]) / count - share) < 5.3 * math.sqrt(share * (1 - share) / count)

    assert all(fits(share, name) for name, share in (("score", 0.5), ("scatter", 0.2), ("curvature", 0.3)))
    assert not fits(0.3, "scatter")
    for name in ("score", "curvature"):
        numbers = np.array(answers[name], dtype=float) / LATTICE_WIDTH
        many = numbers.size
        assert abs(np.mean(numbers**2) - 1.0) < 5.3 * math.sqrt(2 / many)
        assert not abs(np.mean((numbers / 2) ** 2) - 1.0) < 5.3 * math.sqrt(2 / many)
        assert abs(np.mean(numbers)) < 5.3 / math.sqrt(many)
        assert not abs(np.mean(numbers + 0.1)) < 5.3 / math.sqrt(many)
        # No number is left without noise, and no words came twice.
        assert np.count_nonzero(numbers) > many - 10
        assert len({tuple(row) for row in answers[name]}) == len(answers[name])


def left(memory: Any) -> list[float]:
    return [value for value in SECRETS if struct.pack("<d", value) in memory.real.tobytes()]


def clean(memory: Any) -> bool:
    return not (left(memory) or memory.noise.any() or memory.words.any() or memory.whole[kernels.ASKED])


@pytest.mark.parametrize("missing", [None, record_kernel.TOO_FEW, record_kernel.NO_WORDS])
def test_nothing_of_a_record_is_left_whatever_randomness_comes(missing: int | None, monkeypatch: Any) -> None:
    device = device_of()
    model, answering = model_of(device), RecordRandomizer(device, SecureNoise())
    memory: Any = prepared(answering, 0, model, "default")
    if missing == record_kernel.TOO_FEW:
        memory._trials = 1
    if missing == record_kernel.NO_WORDS:
        monkeypatch.setattr(kernels, "learn_record", lambda at, y, trials: record_kernel.NO_WORDS)
    x, asked = np.array([*SECRETS, 1.0]), set()
    for _ in range(60):
        payload, query = answering.answer(x, 1.0, 0, model, "default", np.zeros(1, dtype=np.int64))
        assert len(payload) == (3 if query == "score" else 6)
        assert clean(memory)
        asked.add(query)
    assert len(asked) == 3
    memory.features[:] = SECRETS
    assert len(left(memory)) == 2, "the search would not find a record"


def test_an_interrupted_answer_leaves_nothing_of_the_record_and_nothing_in_the_next(monkeypatch: Any) -> None:
    device, noise, index = device_of(), SimulatedNoise(5), np.array([9])
    model, answering, x = model_of(device), RecordRandomizer(device, noise), np.array([*SECRETS, 1.0])
    wanted = answering.answer(x, 1.0, 0, model, "default", index)
    memory: Any = prepared(answering, 0, model, "default")
    real = kernels.learn_record
    for before in (True, False):

        def interrupted(at: int, y: float, trials: int, before: bool = before) -> int:
            if not before:
                real(at, y, trials)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(kernels, "learn_record", interrupted)
            with pytest.raises(KeyboardInterrupt):
                answering.answer(x, 1.0, 0, model, "default", index)
        assert clean(memory)
        assert answering.answer(x, 1.0, 0, model, "default", index) == wanted


def test_what_the_kernel_does_not_do_is_done_without() -> None:
    """Noise of another source."""

    class Other(SecureNoise):
        pass

    device = device_of()
    model = model_of(device)
    other = RecordRandomizer(device, Other())
    assert prepared(other, 0, model, "default") is None
    payload, query = other.answer(np.array([0.1, 0.2, 1.0]), 1.0, 0, model, "default", np.zeros(1, dtype=np.int64))
    assert len(payload) == (3 if query == "score" else 6)


def test_few_records_load_no_kernel(monkeypatch: Any) -> None:
    monkeypatch.setattr(randomization, "FEW", 2)
    device = device_of()
    model, answering = model_of(device), RecordRandomizer(device, SecureNoise())
    assert [prepared(answering, 0, model, "default") is None for _ in range(4)] == [True, True, False, False]


def test_another_model_has_another_memory_and_few_are_held() -> None:
    device = device_of()
    model, answering = model_of(device), RecordRandomizer(device, SecureNoise())
    first = prepared(answering, 0, model, "default")
    assert prepared(answering, 0, model, "default") is first
    assert prepared(answering, 0, model_of(device, clipping_norm=1.0), "default") is not first
    for partition in range(3 * MOST_HELD):
        assert prepared(answering, partition, model, "open") is not None
        assert len(answering._held) <= MOST_HELD
