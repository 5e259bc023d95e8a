"""The page on the wire is the one that the models give, its examples are read, and its release is learned."""

import copy
import json
import math
import random
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from pydantic import ValidationError

from murk.errors import MurkError, UserError
from murk.privacy import GaussianDP, ZeroConcentratedDP, calibrate
from murk.protocols.device import device_for
from murk.protocols.gradients.device import GradientDevice
from murk.protocols.scores.model import Model
from murk.stream.log.sqlite import SqliteLog
from murk.stream.wire.codec import MAX_MESSAGE, REASONS, RejectedError, WireRules, decode, decode_model
from murk.stream.wire.state import Counters, EstimateMessage, decode_state
from murk.stream.worker.worker import DEAD_BYTES, Worker
from murk.task.task import Task
from tests.learners.scores.people import learn
from tests.stream.by_hand import PAGE, code, release
from tests.stream.harness import drain
from tools.wire import examples as wire_examples
from tools.wire.examples import TASK, examples, rules
from tools.wire.page import page
from tools.wire.schemas import files, meaning, schemas
from tools.wire.text import ALWAYS, CAUSES, FIELDS, MESSAGES, RELEASE

PROBLEM = device_for(TASK)
MAGNITUDE = PROBLEM.mechanisms["default"].magnitude
EXAMPLES = examples(MAGNITUDE)
OTHERS = {
    # The page's sketch is shortened, to two rows.
    kind: WireRules(
        task.hash,
        False,
        (6,) if kind == "sketch" else device_for(task).admission().lengths,
        {"default": 2**40},
        kind=kind,
    )
    for kind, task in (
        ("score", wire_examples.SCORES),
        ("example", wire_examples.EXAMPLES),
        ("moment", wire_examples.MOMENTS),
        ("sketch", wire_examples.SKETCH),
        ("gram", wire_examples.GRAM),
        ("newton", wire_examples.NEWTON),
    )
}
# Blocks of the committed page in their order, and the files of schemas that it links to.
BLOCKS = [
    json.loads(block) for block in re.findall(r"^```json\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
]
SHOWN = dict(zip(MESSAGES, BLOCKS, strict=True))
LINKED = re.findall(r"^Schema: \[\S+\]\((\S+)\)$", PAGE.read_text("utf-8"), re.MULTILINE)
SCHEMAS = {
    kind: json.loads((PAGE.parent / path).read_text("utf-8")) for kind, path in zip(MESSAGES, LINKED, strict=True)
}


def valid(kind: str, content: Any) -> bool:
    validator: bool = jsonschema.Draft202012Validator(SCHEMAS[kind]).is_valid(content)
    return validator


def accepted(kind: str, content: Any) -> bool:
    """Whether the code that reads such messages takes one."""
    data = json.dumps(content).encode()
    try:
        if kind in OTHERS:
            decode(data, OTHERS[kind])
        elif kind == "gradient":
            decode(data, rules(TASK, MAGNITUDE))
        elif kind == "model":
            decode_model(data, task_hash=TASK.hash, dimension=3, partition=0)
        elif kind == "task":
            Task.from_document(data)
        elif kind == "estimate":
            EstimateMessage.model_validate_json(data)
        else:
            PROBLEM.engine().load_state_dict(decode_state(data, "the page").learner)
    except (RejectedError, UserError, MurkError, ValidationError):
        return False
    return True


def changed(content: Any, path: str, value: Any) -> Any:
    """A copy with one field set, or removed where the value is ``...``."""
    content = copy.deepcopy(content)
    *way, last = path.split(".")
    place = content
    for key in way:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return content


def test_the_schemas_that_the_page_links_to_are_schemas_and_the_code_s_own() -> None:
    assert schemas() == SCHEMAS
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    # What pydantic calls its bounds outside JSON Schema says nothing to anybody else.
    assert not re.search(r'"(gt|ge|lt|le)":', json.dumps(SCHEMAS))


@pytest.mark.parametrize("kind", sorted(FIELDS))
def test_the_page_explains_each_field_of_a_message(kind: str) -> None:
    fields = SCHEMAS[kind]["properties"].keys()
    assert fields == {*(RELEASE if "payload" in fields else ALWAYS), *FIELDS[kind]}
    text = PAGE.read_text("utf-8")
    section = text.split(f"\n### {MESSAGES[kind][0]}\n")[1].split("\n### ")[0]
    for name in FIELDS[kind]:
        assert f"- `{name}` (" in section


def test_a_field_without_an_explanation_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FIELDS, "gradient", {})
    with pytest.raises(ValueError, match="gradient: explain \\['version'\\]"):
        page()


@pytest.mark.parametrize("kind", ["gradient", *OTHERS, "model", "task", "state", "estimate"])
def test_an_example_fits_its_schema_and_is_read(kind: str) -> None:
    assert SHOWN[kind] == json.loads(EXAMPLES[kind].value)
    assert valid(kind, SHOWN[kind])
    assert accepted(kind, SHOWN[kind])


def test_the_dead_letter_fits_its_schema_and_is_refused_for_its_reason() -> None:
    example = EXAMPLES["dead letter"]
    record = {"key": example.key, "headers": example.headers, "value": example.value.decode()}
    assert valid("dead letter", record)
    for path, value in (("key", "0"), ("headers.reason", "ugly"), ("headers.detail", ...), ("value", ...)):
        assert not valid("dead letter", changed(record, path, value))
    assert valid("gradient", SHOWN["dead letter"])  # the schema cannot know the task's bound
    with pytest.raises(RejectedError) as caught:
        decode(example.value, rules(TASK, MAGNITUDE))
    assert example.headers == {"reason": caught.value.reason, "detail": caught.value.detail}


@pytest.mark.parametrize("kind", ["gradient", *OTHERS, "model"])
def test_a_message_without_a_field_or_with_one_more_is_refused_by_schema_and_code(kind: str) -> None:
    for name in SHOWN[kind]:
        spoiled = changed(SHOWN[kind], name, ...)
        assert not valid(kind, spoiled)
        assert not accepted(kind, spoiled)
    assert not valid(kind, SHOWN[kind] | {"person": "Ada"})
    assert not accepted(kind, SHOWN[kind] | {"person": "Ada"})


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("gradient", "schema", 2),
        ("gradient", "schema", "1"),
        ("gradient", "kind", "model"),
        ("gradient", "id", "F" * 32),
        ("gradient", "id", "f" * 31),
        ("gradient", "task", "f" * 63),
        ("gradient", "level", "a b"),
        ("gradient", "level", "a" * 33),
        ("gradient", "partition", -1),
        ("gradient", "version", 2**62),
        ("gradient", "version", None),
        ("gradient", "payload", [0.5, 0, 0]),
        ("gradient", "payload", [2**62, 0, 0]),
        ("gradient", "payload", "0,0,0"),
        ("gradient", "time", 2**53),
        ("gradient", "expires", "tomorrow"),
        ("gradient", "simulated", 0),
        ("example", "kind", "gradient"),
        ("example", "version", 3),
        ("example", "payload", [0.5, 0, 0]),
        ("moment", "kind", "example"),
        ("moment", "payload", None),
        ("sketch", "payload", [1, 2, 3, 4, 5, 6]),
        ("sketch", "payload", "not base64!"),
        ("sketch", "rows", 0),
        ("sketch", "records", -1),
        ("sketch", "spread", -1.0),
        ("sketch", "spread", "much"),
        ("gram", "payload", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        ("gram", "records", -1),
        ("gram", "rows", 8),
        ("newton", "model", [0.5, None, 0.0]),
        ("newton", "model", "0.5"),
        ("newton", "records", -1),
        ("newton", "spread", 1.0),
        ("model", "schema", 2),
        ("model", "kind", "gradient"),
        ("model", "version", -1),
        ("model", "parameters", ["0.1", 0.2, 0.3]),
        ("model", "parameters", None),
        ("task", "schema", 2),
        ("task", "schema", ...),
        ("task", "name", ...),
        ("task", "colour", "blue"),
        ("task", "objective", "guess"),
        ("task", "features", {}),
        ("task", "max_staleness.share", 0.9),
        ("task", "learner.step", "huge"),
        ("task", "learner.radius", -1),
        ("task", "target.kind", "ternary"),
        ("task", "log.partitions", 0),
        ("state", "schema", 3),
        ("state", "kind", "model"),
        ("state", "offset", ...),
        ("state", "offset", -1),
        ("state", "last_id", 7),
        ("state", "counters.learned", "2"),
        ("state", "counters.mood", 1),
        ("state", "learner.schema", 2),
        ("state", "learner.rows.average", ...),
        ("state", "learner.rows.average", "not base64!"),
        ("state", "learner.published.versions", None),
        ("state", "more", 1),
        ("estimate", "schema", 2),
        ("estimate", "releases", -1),
        ("estimate", "scale", "guess"),
        ("estimate", "coefficients.age.value", None),
        ("estimate", "coefficients.age.person", "Ada"),
        ("estimate", "coefficients.age.effect.low", "0.1"),
    ],
)  # fmt: skip
def test_a_spoiled_message_is_refused_by_schema_and_code(kind: str, path: str, value: Any) -> None:
    spoiled = changed(SHOWN[kind], path, value)
    assert not valid(kind, spoiled)
    assert not accepted(kind, spoiled)


PUBLISHED = json.loads((Path(__file__).parent / "published-schemas.json").read_text())
"""What the schemas of each name take: add names, and once Murk is published never change a digest."""


def test_what_a_published_name_means_never_changes() -> None:
    """A release made to the schema of yesterday is learned today: whoever changes what is taken takes a new number."""
    found = {schema["$id"]: meaning(schema) for kind, schema in schemas().items() if kind not in ("task", "state")}
    assert found.keys() <= PUBLISHED.keys(), "add the new name's digest"
    for name, digest in found.items():
        assert PUBLISHED[name] == digest, f"{name} is published: give the message a new schema number"


def test_words_do_not_change_a_meaning_and_all_else_does() -> None:
    schema = schemas()["estimate"]
    assert meaning({**schema, "description": "other words"}) == meaning(schema)
    # A field that is called so is no description.
    field = {**schema, "properties": {**schema["properties"], "description": {"type": "string"}}}
    assert meaning(field) != meaning(schema)
    assert meaning({**schema, "additionalProperties": True}) != meaning(schema)


def test_a_registry_s_files_name_themselves() -> None:
    folder = Path(__file__).parents[2] / "deploy" / "schemas"
    assert {path.name for path in folder.iterdir()} >= files().keys()
    for path in folder.iterdir():
        schema = json.loads(path.read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["$id"] == f"urn:murk:wire:{'-'.join(path.stem.split('-')[:-1])}:{path.stem.split('-')[-1]}"


def test_every_reason_has_its_cause_on_the_page() -> None:
    assert set(CAUSES) == set(REASONS)
    text = PAGE.read_text(encoding="utf-8")
    assert f"{DEAD_BYTES:,} bytes" in text
    assert f"{MAX_MESSAGE:,} bytes" in text


# Made by hand: the code on the page, with nothing of Murk in it


RECORDS = [
    {"age": 28, "same_sex": "yes", "third_child": "no"},
    {"age": 21, "same_sex": "no", "third_child": "yes"},
    {"age": None, "same_sex": "perhaps", "third_child": None},
    {"age": 99.5, "same_sex": "yes", "third_child": "yes"},
    {},
]
LEVELS = """
name: by-hand
features: [{name: age, low: 21, high: 35}, {name: origin, categories: [EWR, JFK, LGA]}]
target: {name: late, kind: binary, positive: "yes"}
privacy: {guarantee: {gdp: {mu: 1.0}}, levels: {strict: {zcdp: {rho: 0.07}}, open: {gdp: {mu: 2.3}}}}
learner: {radius: 5}
granularity: 1h
expiry: 2d
log: {partitions: 2}
"""


@pytest.mark.parametrize("text", [None, LEVELS], ids=["the smallest task", "levels and partitions"])
def test_releases_made_by_hand_are_learned(tmp_path: Path, text: str | None) -> None:
    task = TASK if text is None else Task.parse(text)
    rng = random.Random(5)
    with SqliteLog(tmp_path / "log.db") as log:
        log.register_task(task.document())
        document = log.document()
        assert document is not None
        for partition in range(task.log.partitions):
            with Worker(log, task, device_for(task).engine(), partition) as worker:
                # The first before there is a model.
                for count, record in enumerate(RECORDS):
                    level = rng.choice(sorted(task.privacy.levels))
                    message = release(document, log.model(partition), partition, record, level)
                    log.append([(partition, message)])
                    assert worker.step().learned == 1
                    assert json.loads(message)["version"] == count
                assert worker.counters.dead == {}
                state = log.checkpoint(partition).state
                assert state is not None
                assert valid("state", json.loads(state))
            assert valid("model", json.loads(log.model(partition) or b""))
        assert valid("task", json.loads(document))


@pytest.mark.parametrize("objective", ["balanced", "logistic"])
def test_the_page_s_code_computes_what_a_device_computes(objective: str) -> None:
    """Hash, coding, gradient and quantisation; the rest is noise, of which the distribution is tested below."""
    task = Task.parse(LEVELS + f"objective: {objective}\n")
    device: GradientDevice = device_for(task)
    names = code()
    features = json.loads(task.document())["features"]
    assert names["task_hash"](task.document()) == task.hash
    steps = device.mechanisms["default"].steps
    rng = np.random.default_rng(6)
    for origin in ("EWR", "JFK", "LGA", "SFO", None):
        record = {"age": float(rng.uniform(15, 40)), "origin": origin, "late": "yes"}
        coded = task.coding.encode_record(record)
        x = names["coded"](features, record)
        assert x == coded.x.tolist()
        for y in (0.0, 1.0, None):
            theta = rng.normal(size=4)
            ours = device.vectors(coded.x[None, :], np.array([math.nan if y is None else y]), theta)[0]
            theirs = names["gradient"](task.objective, theta.tolist(), x, y)
            assert theirs == pytest.approx(ours.tolist(), abs=1e-12)
            whole = names["quantised"](theirs, steps)
            assert sum(value * value for value in whole) <= steps**2
            assert whole == pytest.approx((ours * steps).tolist(), abs=1.001)
    assert sum(value * value for value in names["quantised"]([1.0, 1e-8, -1e-8], steps)) <= steps**2


def test_the_page_s_lattice_is_the_learner_s() -> None:
    names, rng = code(), random.Random(7)
    for value in (1.0, 0.5, 2.0, 1e-3, *(rng.uniform(0.01, 20) for _ in range(200))):
        for guarantee in (GaussianDP(value), ZeroConcentratedDP(value)):
            mechanism = calibrate("gaussian", guarantee, dimension=3, radius=1.0)
            assert names["lattice_steps"](guarantee.to_dict()) == mechanism.steps
    with pytest.raises(ValueError, match="pure"):
        names["lattice_steps"]({"pure": {"epsilon": 1.0}})


def rejects(draws: "np.ndarray[Any, Any]", width: float) -> bool:
    """Whether draws are not of mean 0 and standard deviation ``width``, by two z-tests at |z| > 5."""
    n = len(draws)
    mean = draws.mean() / (width / math.sqrt(n))
    variance = (np.mean(draws**2) / width**2 - 1) / math.sqrt(2 / n)
    return bool(abs(mean) > 5 or abs(variance) > 5)


def test_the_page_s_noise_has_the_lattice_s_width() -> None:
    """False alarms: below 2e-6 (two normal tests at 5 sigma, 40,000 draws); widths 10% off are 14 sigma off."""
    names = code()
    names["secrets"] = _Seeded(8)
    draws = np.array([names["noise"]() for _ in range(40_000)], dtype=np.float64)
    assert not rejects(draws, 2**20)
    assert rejects(draws, 1.1 * 2**20)
    assert rejects(draws, 2**20 / 1.1)
    # A normal distribution in its shape too: the fourth moment over the variance squared is 3 +- 5 sqrt(24 / n).
    assert abs(np.mean(draws**4) / np.mean(draws**2) ** 2 - 3) < 5 * math.sqrt(24 / len(draws))


class _Seeded:
    """`secrets`, from a seed: a statistical test is to give the same answer every time."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def randbelow(self, bound: int) -> int:
        return self._random.randrange(bound)


def test_a_device_by_hand_refuses_a_hostile_model() -> None:
    document = TASK.document()
    for change in (
        {"schema": 2},
        {"task": "f" * 64},
        {"partition": 1},
        {"parameters": [0.0, 0.0]},
        {"parameters": [9.0, 0.0, 0.0]},
        {"parameters": [math.nan, 0.0, 0.0]},
    ):
        with pytest.raises(ValueError, match="not a model"):
            release(document, json.dumps(SHOWN["model"] | change).encode(), 0, RECORDS[0])


def test_each_way_of_spoiling_a_release_gives_the_reason_that_the_page_says(tmp_path: Path) -> None:
    now = [1_000_000_000.0]
    task = Task.parse(LEVELS.replace("partitions: 2", "partitions: 2, retention: 3650d"))
    with SqliteLog(tmp_path / "log.db", clock=lambda: now[0]) as log:
        log.register_task(task.document())
        good = release(task.document(), None, 0, RECORDS[0])
        fields = json.loads(good)
        spoiled = {
            "too-large": good + b" " * (512 + 22 * 4),
            "malformed": good[:-1],
            "schema": json.dumps(fields | {"schema": 2}).encode(),
            "wrong-task": json.dumps(fields | {"task": "f" * 64}).encode(),
            "simulated": json.dumps(fields | {"simulated": True}).encode(),
            "partition": json.dumps(fields | {"partition": 1, "id": "1" * 32}).encode(),
            "level": json.dumps(fields | {"level": "loud"}).encode(),
            "dimension": json.dumps(fields | {"payload": [1]}).encode(),
            "magnitude": json.dumps(fields | {"payload": [2**61, 0, 0, 0]}).encode(),
            "expired": json.dumps(fields | {"expires": int(now[0]) - 1, "id": "2" * 32}).encode(),
            "future": json.dumps(fields | {"version": 1, "id": "3" * 32}).encode(),
        }
        log.append([(0, message) for message in spoiled.values()])
        with Worker(log, task, device_for(task).engine(), clock=lambda: now[0]) as worker:
            drain(worker)
            assert [letter.reason for letter in log.dead_letters()] == list(spoiled)
            # A partition so long that some versions are too old, and some were never published.
            log.append(
                [(0, json.dumps(fields | {"id": f"{i:032x}", "version": min(i, 400)}).encode()) for i in range(450)]
            )
            drain(worker)
            assert worker.counters.learned == 450
            for version, name in ((401, "4"), (300, "5"), (400, "4"), (400, "5")):  # ids are taken by dead letters too
                log.append([(0, json.dumps(fields | {"id": name * 32, "version": version}).encode())])
            drain(worker)
            assert (worker.counters.learned, worker.counters.duplicates) == (450, 2)
            assert worker.counters.dead == dict.fromkeys([*spoiled, "version", "stale"], 1)
    # Only scores have several queries: at version 0 those of a survey, by number.
    task = wire_examples.SCORES
    score = json.loads(EXAMPLES["score"].value) | {"version": 0}
    first = Model.of(device_for(task).initial, 3)
    asked = {"query": "above", "item": first.items - 1, "payload": [7]}
    offered = [asked, asked | {"item": first.items}, {"query": "score", "item": 0}]
    with SqliteLog(tmp_path / "scores.db", clock=lambda: score["time"]) as log:
        log.register_task(task.document())
        log.append([(0, json.dumps(score | each | {"id": f"{i:032x}"}).encode()) for i, each in enumerate(offered)])
        with Worker(log, task, device_for(task).engine(), clock=lambda: score["time"]) as other:
            drain(other)
            assert (other.counters.learned, other.counters.dead) == (1, {"query": 2})
    assert {*worker.counters.dead, *other.counters.dead, "duplicate"} == set(REASONS)


def test_the_counters_on_the_page_are_all_there_are() -> None:
    assert set(SHOWN["state"]["counters"]) == set(Counters.model_fields)


Y = {"binary": "kind: binary, positive: x", "classes": "kind: classes, classes: [x, y, z]"}


def scores_task(target: str, more: str = "") -> Task:
    return Task.parse(
        f"name: t\nfeatures: [{{name: a, low: 0, high: 1}}]\ntarget: {{name: y, {Y[target]}}}\n"
        f"privacy: {{guarantee: {{gdp: {{mu: 1}}}}}}\n{more}"
    )


def first_model_in(row: str) -> list[str]:
    """What the page's table of a model's numbers says of the first model, by its parts."""
    [line] = [line for line in PAGE.read_text("utf-8").splitlines() if row in line and line.startswith("|")]
    return line.strip("| ").split(" | ")[-1].split("; ")


@pytest.mark.parametrize(
    ("target", "public", "written"),
    [
        ("binary", False, "0, 1/2"),
        ("classes", False, "classes 3/8, 1/8"),
        ("binary", True, "`covariates` 0, 1/10"),
        ("classes", True, "`covariates` 0, 1/10"),
    ],
)
def test_shares_of_the_first_model_are_those_of_the_code(target: str, public: bool, written: str) -> None:
    """At version 0 with public covariates, and otherwise after the survey, which people answer here."""
    task = scores_task(target, "public: {set_aside: 2}\n" if public else "")
    if public:
        task = task.with_public(np.array([[-1.0, 1.0], [0.5, 1.0]]), np.array([1, 1]))
    device = device_for(task)
    engine = device.engine()
    assert (device.settings.survey is None) == (engine.model.survey == 0) == public
    if not public:
        # A survey's own.
        assert (engine.model.survey, engine.model.scatter, engine.model.curvature) == (1, 0.0, 0.0)
        rng, people = np.random.default_rng(9), device.settings.survey.end
        X = np.column_stack([rng.uniform(-1, 1, people), np.ones(people)])
        engine = learn(device, X, rng.integers(2, size=people).astype(float), 9)
    model = engine.model
    assert written in first_model_in("shares of `scatter`")
    shares = written.removeprefix("classes ").removeprefix("`covariates` ").split(", ")
    assert [model.scatter, model.curvature] == [float(Fraction(each)) for each in shares]
    assert [f"{model.survey}"] == first_model_in("list of a [survey]")
