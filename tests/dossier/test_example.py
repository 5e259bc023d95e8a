"""The example of a dossier is what a device sends, of a record that nobody has."""

import json
from functools import cache

import pytest

from murk import Task
from murk.dossier.example import Example, example_of, made_up, with_sample
from murk.protocols.device import device_for
from murk.stream.wire.codec import WireRules, decode

FEATURES = "features: [{name: age, low: 18, high: 90}, {name: smokes, categories: ['no', 'yes']}]\n"
REAL = "target: {name: hours, kind: real, low: 0, high: 14}\n"
BINARY = "target: {name: ill, kind: binary, positive: 'yes'}\n"
CLASSES = "target: {name: kind, kind: classes, classes: [a, b, c]}\n"
MU = "privacy: {guarantee: {gdp: {mu: 1}}}\n"
TASKS = {
    "scores": FEATURES + REAL + MU,
    "gradients": FEATURES + CLASSES + MU + "protocol: gradients\n",
    "examples": FEATURES + BINARY + MU + "protocol: examples\n",
    "moments, with a sample that is not there yet": FEATURES + BINARY + MU
    + "protocol: moments\npublic: {set_aside: 50}\n",
    "moments": FEATURES + REAL + "privacy: {guarantee: {pure: {epsilon: 2}}}\nprotocol: moments\n",
    "summaries": FEATURES + REAL + MU + "protocol: summaries\n",
    "sketch by mixing": FEATURES + REAL + "privacy: {guarantee: {approx: {epsilon: 1, delta: 1.0e-5}}}\n"
    "protocol: summaries\nsummaries: {rows: 8}\n",
    "shuffled": FEATURES + REAL + "shuffle: {crowd: 20000, promise: {epsilon: 0.5}}\n",
    "dates": "features: [{name: born, kind: date, low: 1950-01-01, high: 2005-12-31, as: [number, weekday]}, "
    "{name: seen, kind: date, as: month}]\n" + REAL + MU,
}  # fmt: skip


def task_of(text: str) -> Task:
    return Task.parse("name: sleep\n" + text)


@cache
def example(name: str) -> Example:
    return example_of(task_of(TASKS[name]))


@pytest.mark.parametrize("name", TASKS)
def test_the_bytes_are_those_of_a_device(name: str) -> None:
    task = task_of(TASKS[name])
    found = example(name)
    learner = device_for(with_sample(task)).engine()
    magnitudes = {level: one.magnitude for level, one in learner.mechanisms.items()}
    # Read as a learner reads them, by every rule that it has.
    rules = WireRules(
        with_sample(task).hash, False, learner.admission.lengths, magnitudes, partitions=1, kind=learner.kind
    )
    release = decode(found.messages[0], rules)
    assert release.kind == task.release_kind
    assert not release.simulated
    assert found.made_up_public == (task.public is not None)


def test_two_releases_of_one_record_have_settings_in_common_and_no_more() -> None:
    found = example("examples")
    one, other = (json.loads(message) for message in found.messages)
    assert one["payload"] != other["payload"]
    assert one["id"] != other["id"]
    assert {key: one[key] for key in ("task", "level", "kind")} == {
        key: other[key] for key in ("task", "level", "kind")
    }


def test_a_made_up_record_fits_the_task() -> None:
    for text in TASKS.values():
        task = task_of(text)
        coded = task.coding.encode_record(made_up(task))
        assert (coded.clamped, coded.missing) == (0, 0)


FIELDS = {"schema", "kind", "id", "task", "level", "partition", "payload", "time", "expires", "simulated"}


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("scores", {"version", "query", "item"}), ("gradients", {"version"}), ("examples", set()),
        ("moments", set()), ("summaries", {"records"}), ("sketch by mixing", {"rows", "records", "spread"}),
    ],
)  # fmt: skip
def test_its_fields_are_those_that_are_documented_and_no_others(name: str, more: set[str]) -> None:
    """docs/wire.md has them: whoever adds one to what leaves a device has to say so there."""
    assert set(example(name).fields) == FIELDS | more


def test_the_longest_message_is_that_of_a_matrix() -> None:
    """The example answers the survey with one number, others release as many as a matrix has."""
    found, task = example("scores"), task_of(TASKS["scores"])
    size, more = task.coding.size, len(found.messages[0])
    assert len(found.fields["payload"]) == 1
    assert found.numbers == size * (size + 1) // 2
    assert more + 2 * (found.numbers - 1) < found.longest < more + 20 * found.numbers
    assert example("examples").longest == 0
