"""A block judged at once against each of its messages judged by itself: the same state, dead letters and duplicates."""

import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murk.stream.log.interface import DeadLetter, Message
from murk.stream.wire.admission import wire_rules
from murk.stream.wire.columns import Columns
from murk.stream.wire.duplicates import DuplicateWindow
from murk.stream.wire.packed import Fetched, Packed
from murk.stream.wire.state import Counters
from murk.stream.worker import worker
from murk.stream.worker.worker import StepCounters, Validator
from murk.task.task import Task
from tests.protocols import BY_NAME
from tests.stream.harness import hostile, learner_for, message

WINDOW = 40
LEVELS = ", levels: {open: {gdp: {mu: 2.0}}, strict: {gdp: {mu: 0.5}}}"
TASKS = {
    name: Task.parse(protocol.text(f"duplicates: {WINDOW}\nlog: {{partitions: 2}}\n", LEVELS))
    for name, protocol in BY_NAME.items()
    if protocol.name != "summaries"
}
NAMES = sorted(TASKS)
NOW = 1_700_050_000


class Judging:
    """A partition that learns messages in blocks, with all that it then knows."""

    def __init__(self, task: Task, *, at_once: bool) -> None:
        self.learner = learner_for(task)
        self.validator = Validator(0, wire_rules(task, self.learner.admission), self.learner)
        self.window = DuplicateWindow(task.duplicates)
        self.tally = StepCounters(Counters())
        self.dead: list[DeadLetter] = []
        self.at_once, self.blocks = at_once, 0

    def learn(self, messages: Sequence[Message], sizes: Sequence[int]) -> None:
        at = place = 0
        while at < len(messages):
            block = messages[at : at + min(sizes[place % len(sizes)], self.learner.publish_every)]
            if self.at_once:
                validated = self.validator.validate(fetched(block), self.window, self.tally)
            else:
                validated = self.validator.validate_each(block, self.window, self.tally)
            block = block[: validated.read]
            at, place = at + len(block), place + 1
            self.blocks += isinstance(validated.admitted, Columns)
            if len(validated.admitted):
                assert validated.appended == max(
                    m.time for m in block if m.offset not in {d.offset for d in validated.dead}
                )
            self.dead += validated.dead
            version = self.learner.n_releases
            self.learner.learn_releases(validated.admitted)
            self.tally.learned(validated.admitted, version)

    def outcome(self, end: int) -> tuple[Any, ...]:
        window = self.window
        return (
            json.dumps(self.learner.state_dict(), sort_keys=True), self.tally.counters(), self.dead,
            window.newest(end), window._newer, window._older,
        )  # fmt: skip


def fetched(messages: Sequence[Message]) -> Fetched:
    offsets, times, values = zip(*messages, strict=True)
    return Fetched(np.array(offsets), np.array(times), Packed.of(values))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of any size are read at once: gradients begin with blocks of one."""
    monkeypatch.setattr(worker, "_FEW", 1)


def placed(values: Sequence[bytes], gaps: Sequence[int]) -> list[Message]:
    """Values as a log has them, whose offsets leave gaps."""
    found, offset = [], 0
    for place, value in enumerate(values):
        found.append(Message(offset, NOW, value))
        offset += gaps[place % len(gaps)]
    return found


def compact(fields: dict[str, Any]) -> bytes:
    """A message in the form that is read at once."""
    return json.dumps(fields, separators=(",", ":")).encode()


def unlike(task: Task, number: int, rng: random.Random) -> bytes:
    """A release that is not as most are: of another level or version, as long as none is, or late."""
    way = rng.randrange(5)
    if way < 2:
        level = rng.choice(["open", "strict"])
        return message(task, number, level=level)
    if way == 2:
        good = json.loads(message(task, number))
        scale = rng.choice([1, 3, 8, 13, 30])
        return compact(good | {"payload": [value * scale for value in good["payload"]]})
    if way == 3:
        return message(task, number, version=rng.choice([0, 1, 2, 5, 17, 3000]))
    return message(task, number, expires=rng.choice([NOW - 1, NOW, NOW + 1]) // 86_400 * 86_400)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=40)
@given(
    kinds=st.lists(st.sampled_from("ggggggggggdbu"), max_size=120),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    gaps=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    seed=st.integers(0, 2**16),
)
def test_a_block_comes_to_what_its_messages_come_to(
    name: str, kinds: list[str], sizes: list[int], gaps: list[int], seed: int
) -> None:
    task, rng = TASKS[name], random.Random(seed)
    bad = [value for value, _ in hostile(task) if len(value) < 1_000]
    values: list[bytes] = []
    for number, kind in enumerate(kinds):
        if kind == "d" and values:
            values.append(rng.choice(values))
        elif kind == "b":
            values.append(rng.choice(bad))
        else:
            values.append(unlike(task, number, rng) if kind == "u" else message(task, number))
    messages = placed(values, gaps)
    end = messages[-1].offset + 1 if messages else 0
    at_once, each = Judging(task, at_once=True), Judging(task, at_once=False)
    for one in (at_once, each):
        one.learn(messages, sizes)
    assert at_once.outcome(end) == each.outcome(end)


@pytest.mark.parametrize("name", NAMES)
def test_honest_blocks_are_judged_at_once(name: str) -> None:
    """Otherwise the test above would compare a thing with itself."""
    task = TASKS[name]
    judging = Judging(task, at_once=True)
    judging.learn(
        placed([message(task, number, level=("open", "default")[number % 2]) for number in range(30)], [1]), [10]
    )
    assert judging.blocks >= 3
    assert judging.tally.counters().learned == 30


# Of an example only the direction counts, so it may be as long as it will.
@pytest.mark.parametrize("name", sorted({*NAMES} - {"examples"}))
def test_a_learner_that_admits_too_much_would_be_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin that must fail: a payload that no honest device sends is learned where blocks are not looked at."""
    task = TASKS[name]
    good = json.loads(message(task, 1))
    reach = int(learner_for(task).mechanisms["default"].magnitude)
    forged = compact(good | {"payload": [reach] * len(good["payload"])})
    messages = placed([message(task, 0), forged], [1])
    found = []
    for blind in (False, True):
        judging = Judging(task, at_once=True)
        if blind:
            monkeypatch.setattr(judging.validator, "_admits", lambda releases: True)
        judging.learn(messages, [2])
        found.append(judging.tally.counters().dead)
    assert found == [{"magnitude": 1}, {}]
