"""What the hash of a task depends on."""

import json
import pickle
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, get_args

import pytest

from murk.errors import UserError
from murk.task.experiment import AssignmentBlock, ExperimentBlock, GuardrailBlock, RatioBlock
from murk.task.features import ADDED as ADDED_TO_FEATURES
from murk.task.features import BinaryTarget, CategoryFeature, ClassTarget, DateFeature, NumberFeature, RealTarget
from murk.task.fields import Block
from murk.task.learning import (
    ADDED,
    ADDED_TO_TASK,
    ContrastBlock,
    IntervalsBlock,
    LearnerBlock,
    LogBlock,
    MaxStaleness,
    PredictionsBlock,
    PublicBlock,
    StepSchedule,
    TrackBlock,
    WeightBlock,
)
from murk.task.privacy import LevelGrid, PrivacyBlock
from murk.task.protocols.examples import ExamplesBlock
from murk.task.protocols.moments import MomentsBlock
from murk.task.protocols.scores import ScoresBlock
from murk.task.protocols.summaries import SummariesBlock
from murk.task.shuffling import PromiseBlock, ShuffleBlock
from murk.task.task import AboutBlock, ArchiveBlock, Task, canonical_json, differences
from tests.stream.tasks import HUBER, LOGISTIC, SOFTMAX, content, parse


def test_files_that_mean_the_same_have_the_same_hash() -> None:
    task = Task.parse(LOGISTIC)
    everything = content()
    written_out = parse(everything)
    reordered = parse(dict(reversed(everything.items())))
    other_words = Task.parse(
        LOGISTIC.replace("low: 21", "low: 21.0").replace("yes", '"yes"') + "expiry: 168h\nlog: {}\nlearner: {}\n"
    )
    for same in (written_out, reordered, other_words):
        assert same.hash == task.hash
        assert same.document() == task.document()
        assert same == task
    assert (
        Task.parse(LOGISTIC.replace("low: 21", "low: 0")).hash
        == Task.parse(LOGISTIC.replace("low: 21", "low: -0.0")).hash
    )


def test_document_is_canonical_and_comes_back() -> None:
    task = parse({**content(), "name": "n", "features": [{"name": "größe", "low": 0.1, "high": 1e300}]})
    document = task.document()
    assert document == canonical_json(json.loads(document))
    assert "größe".encode() in document
    assert b" " not in document
    assert b"1e+300" in document
    again = Task.from_document(document)
    assert (again, again.hash, again.document()) == (task, task.hash, document)
    assert hash(again) == hash(task)
    assert task != Task.parse(LOGISTIC)
    assert repr(task).startswith("Task('n', hash='")
    copy = pickle.loads(pickle.dumps(task))
    assert (copy, copy.coding.names) == (task, task.coding.names)


def test_hash_does_not_change_between_versions() -> None:
    # Releases carry it: a task that hashes to something else after an upgrade orphans its stream.
    assert (
        Task.parse(LOGISTIC + "objective: logistic\nlearner: {delays: null}\n").hash
        == "09dedd1ed2d4761cc8b9d359e865330743bf289ce1e0c3e385fe0af8a21dc248"
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"\xff", "not a task's document"),
        (b"[" * 100_000, "not a task's document"),
        (b"[]", "not of schema 1; it was written by another version"),
        (b'{"schema":2}', "not of schema 1"),
        (b'{"schema":1}', "name: missing"),
    ],
)
def test_damaged_and_foreign_documents_are_refused(document: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Task.from_document(document)


def protocol(name: str, **block: Any) -> dict[str, Any]:
    """A task of another protocol."""
    privacy = {"guarantee": {"approx": {"epsilon": 1.0, "delta": 1e-6}}}
    return content() | {"protocol": name, "objective": None, "learner": {}, "privacy": privacy, name: block}


# Every block of the model: a file that has it, and where.
PUBLIC = content(HUBER) | {"public": {"set_aside": 10}}
SCHEDULE = content(HUBER) | {"learner": {"step": {"eta": 1.0, "alpha": 0.5}}}
DATE = {"name": "born", "kind": "date", "low": "1950-01-01", "high": "2005-12-31"}
DATED = content() | {"features": [DATE]}
ARMS = [{"name": name, "categories": ["a", "b", "c"]} for name in ("arm", "other")]
SHUFFLED = protocol("scores") | {
    "privacy": {"guarantee": {"pure": {"epsilon": 4.0}}},
    "shuffle": {"crowd": 20_000, "promise": {"epsilon": 0.6, "delta": 1e-6}},
}
COMPARED = {"feature": "arm", "category": "b", "against": "a"}
KEPT = {"kept": "90d", "readers": "us", "writers": "a service"}
ABOUT = {"purpose": "p", "controller": "c", "contact": "x", "notice": "https://example.org/a", "archive": KEPT}
WEEKLY = {"privacy": {"guarantee": {"gdp": {"mu": 1.0}}, "window": "week"}, "track": {"window": "week"}}
TRACKED = protocol("scores") | WEEKLY
WEIGHED = protocol("moments") | {"weight": {"rows": 10}}
KNOWN = {"categories": ["a", "b"], "known": True}
TRIED = {
    "name": "t",
    "features": [{"name": "arm"} | KNOWN, {"name": "page"} | KNOWN],
    "target": {"name": "y", "kind": "binary", "positive": "yes"},
    "privacy": {"guarantee": {"gdp": {"mu": 1.0}}},
    "experiment": {
        "arm": "arm",
        "control": "a",
        "assigned": {"by": "device", "salt": "s", "shares": [0.5, 0.5]},
        "guardrail": {"margin": 0.01, "worse": "lower"},
        "metrics": [
            {"name": name, "kind": "real", "low": 0, "high": 1, "missing_share": 0} for name in ("l", "m", "n")
        ],
        "ratios": [{"name": "n per m", "numerator": "n", "denominator": "m"}],
    },
}
BLOCKS: dict[type[Block], tuple[dict[str, Any], tuple[str | int, ...]]] = {
    AboutBlock: (content(HUBER) | {"about": ABOUT}, ("about",)),
    ArchiveBlock: (content(HUBER) | {"about": ABOUT}, ("about", "archive")),
    Task: (content(HUBER), ()),
    NumberFeature: (content(), ("features", 0)),
    CategoryFeature: (content(), ("features", 1)),
    DateFeature: (DATED, ("features", 0)),
    BinaryTarget: (content(), ("target",)),
    ClassTarget: (content(SOFTMAX), ("target",)),
    RealTarget: (content(HUBER), ("target",)),
    PrivacyBlock: (content(), ("privacy",)),
    LevelGrid: (
        content() | {"privacy": {"guarantee": {"gdp": {"mu": 1.0}}, "levels": {"from": 0.5, "to": 2}}},
        ("privacy", "levels"),
    ),
    LearnerBlock: (content(HUBER), ("learner",)),
    StepSchedule: (SCHEDULE, ("learner", "step")),
    MaxStaleness: (content(), ("max_staleness",)),
    PublicBlock: (PUBLIC, ("public",)),
    ScoresBlock: (protocol("scores", exponent=0.5) | {"public": {"set_aside": 10}}, ("scores",)),
    ExamplesBlock: (protocol("examples", release="separate", loss="log"), ("examples",)),
    # With a public sample, without which some settings are refused.
    MomentsBlock: (protocol("moments") | {"public": {"set_aside": 10}}, ("moments",)),
    SummariesBlock: (
        content(HUBER) | protocol("summaries", method="linear-mixing") | {"target": content(HUBER)["target"]},
        ("summaries",),
    ),
    LogBlock: (content(), ("log",)),
    IntervalsBlock: (content() | {"intervals": {"tightest_at": 5_000}}, ("intervals",)),
    TrackBlock: (TRACKED, ("track",)),
    WeightBlock: (WEIGHED, ("weight",)),
    ExperimentBlock: (TRIED, ("experiment",)),
    AssignmentBlock: (TRIED, ("experiment", "assigned")),
    GuardrailBlock: (TRIED, ("experiment", "guardrail")),
    RatioBlock: (TRIED, ("experiment", "ratios", 0)),
    PredictionsBlock: (protocol("scores") | {"predictions": {}}, ("predictions",)),
    ShuffleBlock: (SHUFFLED, ("shuffle",)),
    PromiseBlock: (SHUFFLED, ("shuffle", "promise")),
    ContrastBlock: (content() | {"features": ARMS, "contrasts": [COMPARED]}, ("contrasts", 0)),
}
# For every key another value; a mapping of None and values where the change takes others along.
FIXED = "no other value is possible here, or none that is independent of the other keys"
SEVERAL = "several"
WORDS = {"label": "Another", "description": "Other words."}
OTHERS: dict[type[Block], dict[str, Any]] = {
    AboutBlock: {
        "purpose": "To learn.",
        "controller": "We.",
        "contact": "Them.",
        "notice": "https://example.org/b",
        "archive": KEPT | {"kept": "91d"},
    },
    ArchiveBlock: {"kept": "180d", "readers": "them", "writers": "others"},
    Task: {
        "name": "other",
        "about": {"purpose": "Another."},
        "features": content()["features"][:2],
        "target": content(SOFTMAX)["target"] | {SEVERAL: {"objective": "softmax"}},
        "missing": "error",
        "protocol": FIXED,
        "as_published": {SEVERAL: {"learner": {}, "as_published": True}},
        "objective": FIXED,
        "scores": FIXED,
        "examples": FIXED,
        "moments": FIXED,
        "summaries": FIXED,
        "privacy": {"guarantee": {"gdp": {"mu": 2.0}}},
        "learner": {"radius": 5},
        "max_staleness": {"releases": 1_000},
        "forget": {SEVERAL: {"protocol": "scores", "objective": None, "learner": {}, "forget": 24_000}},
        "granularity": "1h",
        "expiry": "6d",
        "duplicates": 7,
        "shuffle": FIXED,
        "public": {"set_aside": 10},
        "log": {"retention": "9d"},
        "people": 50_000,
        "predictions": {SEVERAL: {"protocol": "scores", "objective": None, "learner": {}, "predictions": {}}},
        "track": {SEVERAL: {"protocol": "scores", "objective": None, "learner": {}, **WEEKLY}},
        "weight": {SEVERAL: WEIGHED},
        "intervals": {"validity": "always-valid"},
        "experiment": FIXED,
        "contrasts": [{"feature": "same_sex", "category": "yes", "against": "no"}],
    },
    NumberFeature: {
        "name": "z",
        "low": 20,
        "high": 36,
        "unit": 2,
        "typical": [25, 30],
        "missing": 24,
        "missing_share": 0.1,
        **WORDS,
    },
    DateFeature: {
        "name": "z",
        "kind": FIXED,
        "low": "1950-01-02",
        "high": "2005-12-30",
        "as": ["number", "month"],
        "unit": "year",
        "typical": ["1960-01-01", "1999-12-31"],
        "missing": "1960-01-01",
        "missing_share": 0.1,
        **WORDS,
    },
    CategoryFeature: {
        "name": "z",
        "categories": ["yes", "no"],
        "missing": "no",
        "missing_share": 0.1,
        "labels": {"yes": "Yes!"},
        "known": FIXED,
        **WORDS,
    },
    BinaryTarget: {
        "name": "z",
        "kind": FIXED,
        "positive": "maybe",
        "negative": None,
        "rate": 0.06,
        "missing_share": 0.1,
        "labels": {"yes": "Yes!"},
        **WORDS,
    },
    ClassTarget: {
        "name": "z",
        "kind": FIXED,
        "classes": ["none", "more", "one"],
        "rate": [0.5, 0.3, 0.2],
        "missing_share": 0.1,
        "labels": {"none": "No child"},
        **WORDS,
    },
    RealTarget: {
        "name": "z",
        "kind": FIXED,
        "low": 1,
        "high": 53,
        "typical": [10, 50],
        "quantiles": FIXED,
        "missing_share": 0.1,
        **WORDS,
    },
    PrivacyBlock: {
        "guarantee": {"gdp": {"mu": 1.5}},
        "levels": {"open": {"gdp": {"mu": 2.0}}},
        "per_person": {"gdp": {"mu": 4.0}},
        "window": "week",
        "lifetime": {SEVERAL: {"window": "week", "lifetime": {"gdp": {"mu": 4.0}}}},
        "repeat": FIXED,  # moments, examples and targets alone can repeat answers: tests/producers/test_memos.py
        "mechanism": "gaussian",
        "calibration": {SEVERAL: {"guarantee": {"approx": {"epsilon": 1.0, "delta": 1e-6}}, "calibration": "classic"}},
    },
    LevelGrid: {"from": 0.6, "to": 3},
    LearnerBlock: {
        "weights": "mallows",
        "clip": {SEVERAL: {"weights": "clip", "clip": 1.0}},
        "huber_c": 1.0,
        "scale": 0.5,
        "scale_floor": 0.02,
        "scale_start": 2.0,
        "scale_multiplier": 1.0,
        "coordinates": FIXED,
        "step": {"eta": 1.0, SEVERAL: {"delays": None}},
        "delays": None,
        "averaging": None,
        "weighting": "uniform",
        "intervals": "random-scaling",
        "radius": 3.0,
    },
    StepSchedule: {"eta": 2.0, "alpha": 0.75},
    MaxStaleness: {"releases": 200, "share": 0.03},
    PublicBlock: {"file": {SEVERAL: {"file": "x.csv", "set_aside": None}}, "set_aside": 11},
    ScoresBlock: {
        "exponent": 1.0,
        "interactive": {SEVERAL: {"exponent": None, "interactive": False}},
        "loss": {SEVERAL: {"exponent": None, "interactive": False, "loss": "poisson"}},
        "link": FIXED,
        "models": "shared",
        "effects": "linear",
    },
    ExamplesBlock: {
        "release": "joint",
        "grid": {SEVERAL: {"release": "cells", "grid": 4}},
        "intercept": False,
        "split": 0.6,
        "loss": {SEVERAL: {"loss": "exponential"}},
        "for": ["quadratic"],
        "truncation": 2,
        "regularization": 0.1,
        "batch": 8,
        "newton": False,
    },
    MomentsBlock: {
        "release": "separate",
        "loss": "poisson",
        "link": FIXED,
        "design": "gaussian",
        "covariance": "private",
        "solver": "score",
        "radius": 1.0,
        "outliers": "zero",
        "repair": False,
        "intercept": False,
    },
    SummariesBlock: {
        "rows": 100,
        "window": 1000,
        "organisation": "clinic",
        "person": FIXED,
        "rows_per_person": FIXED,
        "method": "mixing",
        "first": FIXED,
        "analysis": "published",
        "debiased": False,
        "neighbours": "replace-one",
        "range": FIXED,
        "feature_bound": 1.5,
        "target_bound": 0.5,
    },
    LogBlock: {"partitions": 2, "retention": "9d"},
    TrackBlock: {"window": FIXED, "windows": 10, "smooth": 0},
    WeightBlock: {"rows": 12},
    ExperimentBlock: {
        "arm": "page",
        "control": "b",
        "assigned": None,
        "segments": ["page"],
        "guardrail": None,
        "metrics": [
            {"name": name, "kind": "real", "low": 0, "high": 2, "missing_share": 0} for name in ("l", "m", "n")
        ],
        "ratios": [],
    },
    AssignmentBlock: {"by": {SEVERAL: {"by": "server", "salt": None}}, "salt": "t", "shares": [0.4, 0.6]},
    GuardrailBlock: {"margin": 0.02, "worse": "higher", "metric": "m"},
    RatioBlock: {"name": "z", "numerator": "l", "denominator": "l"},
    PredictionsBlock: {"coverage": 0.8, "share": 0.05},
    IntervalsBlock: {"validity": {SEVERAL: {"validity": "fixed-n", "tightest_at": None}}, "tightest_at": 6_000},
    ShuffleBlock: {
        "crowd": 30_000,
        "honest": 0.95,
        "promise": {"epsilon": 0.7, "delta": 1e-6},
        "patience": "2d",
    },
    PromiseBlock: {"epsilon": 0.7, "delta": 2e-6},
    ContrastBlock: {"feature": "other", "category": "c", "against": "c"},
}


def blocks_in(annotation: Any) -> Iterator[type[Block]]:
    if isinstance(annotation, type) and issubclass(annotation, Block):
        yield annotation
        for field in annotation.model_fields.values():
            yield from blocks_in(field.annotation)
    for argument in get_args(annotation):
        yield from blocks_in(argument)


def test_the_table_of_changes_knows_every_key_of_the_model() -> None:
    found = set(blocks_in(Task))
    assert found == set(BLOCKS) == set(OTHERS)
    for block in found:
        assert set(block.keys()) == set(OTHERS[block]), block


@pytest.mark.parametrize(
    ("block", "key"),
    [(block, key) for block in OTHERS for key in OTHERS[block]],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_every_key_but_log_changes_the_hash(block: type[Block], key: str) -> None:
    base, path = BLOCKS[block]
    if OTHERS[block][key] is FIXED:
        return
    before = parse(base)
    hashed = json.loads(before.document())
    for step in path:
        hashed = hashed[step]
    of_features = {(name, key) for name, keys in ADDED_TO_FEATURES.items() for key in keys}
    added = {*ADDED, *of_features, *((Task.__name__, name) for name in ADDED_TO_TASK)}
    assert key in hashed or not added.isdisjoint({(*path[-1:], key), (block.__name__, key)})
    other = OTHERS[block][key]
    changed = deepcopy(base)
    place: Any = changed
    for step in path:
        place = place[step]
    if isinstance(other, dict) and SEVERAL in other:
        others = dict(other)
        place.update(others.pop(SEVERAL))
        other = others or place[key]
    place[key] = other
    after = parse(changed)
    assert after.document() != before.document()
    assert (after.hash == before.hash) is (block is LogBlock or key == "log")
    assert after != before
    assert differences(before.document(), after.document())


def test_known_columns_and_an_experiment_are_part_of_the_hash() -> None:
    plain = {key: value for key, value in TRIED.items() if key != "experiment"}
    private = plain | {"features": [{**each, "known": False} for each in plain["features"]], "protocol": "scores"}
    assert len({parse(each).hash for each in (TRIED, plain, private)}) == 3


def test_simulation_is_part_of_the_hash() -> None:
    task = Task.parse(LOGISTIC)
    simulated = task.with_simulated(True)
    assert simulated.simulated
    assert simulated.hash != task.hash
    assert simulated.with_simulated(False) == task
    assert Task.from_document(simulated.document()) == simulated
