"""One record's answer by a compiled kernel is what it is otherwise, and nothing of the record stays behind."""

import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murk.learners import in_place
from murk.learners.problem import problem_for
from murk.learners.scores import record as kernels
from murk.learners.scores.model import Model
from murk.privacy.noise import LATTICE_WIDTH, SecureNoise, SimulatedNoise
from murk.producers import randomization
from murk.producers.randomization import MOST_HELD, Answering, answer_of
from tests.kernels import compiled_at_once
from tests.producers.world import make_task

TARGETS = {
    "binary": '{name: y, kind: binary, positive: "yes"}',
    "real": "{name: y, kind: real, low: 0, high: 1}",
    "classes": "{name: y, kind: classes, classes: [a, b, c]}",
}
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


def problem_of(kind: str = "binary") -> Any:
    # Scores of classes are of public rows.
    public = ["public: {set_aside: 50}"] if kind == "classes" else []
    task = make_task("protocol: scores", *public, text=TEXT.format(target=TARGETS[kind]))
    if public:
        points = np.column_stack([np.random.default_rng(1).uniform(-1, 1, (50, 2)), np.ones(50)])
        task = task.with_public(points, np.ones(50, dtype=np.int64))
    return problem_for(task)


def model_of(problem: Any, **changes: Any) -> Any:
    """A model of three questions, as devices share it."""
    first = Model.of(problem.initial, problem.settings.features)
    flat = Model(**{**first.__dict__, "scatter": 0.2, "curvature": 0.3, **changes}).flat
    flat.setflags(write=False)
    return flat


PROBLEMS = {kind: problem_of(kind) for kind in TARGETS}
unit = st.floats(-1, 1)
CODED = {"binary": st.sampled_from([0.0, 1.0]), "real": unit, "classes": st.sampled_from([0.0, 1.0, 2.0])}


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_kernel_answers_as_everything_else_does(data: st.DataObject) -> None:
    """The same question and payload of a seed, at any model and level, for any coded record, one after another."""
    kind = data.draw(st.sampled_from(list(TARGETS)))
    problem = PROBLEMS[kind]
    origin = np.array(data.draw(st.lists(st.floats(-3, 3), min_size=problem.dimension, max_size=problem.dimension)))
    model = model_of(problem, origin=origin, exponent=data.draw(st.floats(0, 1)), reach=data.draw(st.floats(0.1, 10)))
    noise = SimulatedNoise(data.draw(st.integers(0, 2**64 - 1)))
    answering = Answering(problem, noise)
    for _ in range(3):
        x = np.array([*data.draw(st.tuples(unit, unit)), 1.0])
        y = data.draw(CODED[kind] | st.just(math.nan))
        level, index = data.draw(st.sampled_from(["default", "open"])), np.array([data.draw(st.integers(0, 2**41))])
        assert answering._kernel(0, model, level) is not None, "the kernel is not used"
        found = answering.answer(x, y, 0, model, level, index)
        assert found == answer_of(problem, x[None, :], np.array([y]), model, level, noise, index)


def test_secure_answers_have_the_models_shares_and_the_mechanisms_noise() -> None:
    """Each within 5 standard errors (a false alarm once in 4e5); shares swapped, and half of the noise, are not."""
    problem, count = problem_of(), 6000
    model, answering = model_of(problem), Answering(problem, SecureNoise())
    # Of a missing target a score is zeros, and its release the noise.
    x, index, numbers, asked = np.array([0.3, -0.2, 1.0]), np.zeros(1, dtype=np.int64), [], []
    for _ in range(count):
        payload, question = answering.answer(x, math.nan, 0, model, "default", index)
        asked.append(question)
        if question == "score":
            numbers += payload

    def fits(share: float, name: str) -> bool:
        error = math.sqrt(share * (1 - share) / count)
        return abs(sum(one == name for one in asked) / count - share) < 5 * error

    assert all(fits(share, name) for name, share in (("score", 0.5), ("scatter", 0.2), ("curvature", 0.3)))
    assert not fits(0.3, "scatter")
    size = float(np.mean(np.square(numbers, dtype=float))) / LATTICE_WIDTH**2
    bound = 5 * math.sqrt(2 / len(numbers))
    assert abs(size - 1.0) < bound
    assert not abs(size / 4 - 1.0) < bound
    assert abs(float(np.mean(np.array(numbers, dtype=float)))) / LATTICE_WIDTH < 5 / math.sqrt(len(numbers))
    assert len({tuple(numbers[at : at + 3]) for at in range(0, len(numbers), 3)}) == len(numbers) // 3


def left(memory: Any) -> list[float]:
    return [value for value in SECRETS if struct.pack("<d", value) in memory.real.tobytes()]


def clean(memory: Any) -> bool:
    return not (left(memory) or memory.noise.any() or memory.words.any() or memory.whole[kernels.ASKED])


@pytest.mark.parametrize("missing", [None, in_place.TOO_FEW, in_place.NO_WORDS])
def test_nothing_of_a_record_is_left_whatever_randomness_comes(missing: int | None, monkeypatch: Any) -> None:
    problem = problem_of()
    model, answering = model_of(problem), Answering(problem, SecureNoise())
    memory: Any = answering._kernel(0, model, "default")
    if missing == in_place.TOO_FEW:
        memory._trials = 1
    if missing == in_place.NO_WORDS:
        monkeypatch.setattr(kernels, "learn_record", lambda at, y, trials: in_place.NO_WORDS)
    x, asked = np.array([*SECRETS, 1.0]), set()
    for _ in range(60):
        payload, question = answering.answer(x, 1.0, 0, model, "default", np.zeros(1, dtype=np.int64))
        assert len(payload) == (3 if question == "score" else 6)
        assert clean(memory)
        asked.add(question)
    assert len(asked) == 3
    memory.features[:] = SECRETS
    assert len(left(memory)) == 2, "the search would not find a record"


def test_an_interrupted_answer_leaves_nothing_of_the_record_and_nothing_in_the_next(monkeypatch: Any) -> None:
    problem, noise, index = problem_of(), SimulatedNoise(5), np.array([9])
    model, answering, x = model_of(problem), Answering(problem, noise), np.array([*SECRETS, 1.0])
    wanted = answering.answer(x, 1.0, 0, model, "default", index)
    memory: Any = answering._kernel(0, model, "default")
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

    problem = problem_of()
    model = model_of(problem)
    other = Answering(problem, Other())
    assert other._kernel(0, model, "default") is None
    payload, question = other.answer(np.array([0.1, 0.2, 1.0]), 1.0, 0, model, "default", np.zeros(1, dtype=np.int64))
    assert len(payload) == (3 if question == "score" else 6)


def test_few_records_load_no_kernel(monkeypatch: Any) -> None:
    monkeypatch.setattr(randomization, "FEW", 2)
    problem = problem_of()
    model, answering = model_of(problem), Answering(problem, SecureNoise())
    assert [answering._kernel(0, model, "default") is None for _ in range(4)] == [True, True, False, False]


def test_another_model_has_another_memory_and_few_are_held() -> None:
    problem = problem_of()
    model, answering = model_of(problem), Answering(problem, SecureNoise())
    first = answering._kernel(0, model, "default")
    assert answering._kernel(0, model, "default") is first
    assert answering._kernel(0, model_of(problem, reach=1.0), "default") is not first
    for chain in range(3 * MOST_HELD):
        answering._kernel(chain, model, "open")
        assert len(answering._held) <= MOST_HELD
