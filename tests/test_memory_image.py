"""What stays in a process's memory of a record that it has learned or released: nothing of what Murk computed of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import murk.learners
from murk import Task
from murk.inference.target_range import TargetRange
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import device_for
from murk.protocols.scores.model import Model
from tests.learners.catalogue import bounds_of
from tests.memory_image import Image, complements
from tests.memory_scenarios import learner

FEATURES = [f"f{place}" for place in range(5)]
SEED = 20_240_607


class NoNoise:
    """A source of zeros: what a mechanism releases with it is what it adds noise to."""

    simulated = True

    def gaussian(self, records: Any, size: int) -> Any:
        """Zeros."""
        return np.zeros((len(records), size), dtype=np.int64)

    laplace = gaussian

    def words(self, records: Any, size: int, purpose: Any) -> Any:
        """Zeros."""
        return np.zeros((len(records), size), dtype=np.uint64)


def telling(values: Any, own: Any = ()) -> list[Any]:
    """Numbers that say something: none that any process has, and none of those that the caller keeps."""
    flat = np.asarray(values).ravel()
    large = 1e-9 if flat.dtype.kind == "f" else 2**20
    kept = np.asarray(own).ravel()
    common = np.abs(np.mod(flat * 4, 1)) == 0 if flat.dtype.kind == "f" else np.zeros(flat.shape, dtype=bool)
    return list(flat[(np.abs(flat) > large) & ~common & ~np.isin(flat, kept)])


def records(count: int, target: str, bounds: Any = (-1.0, 1.0), seed: int = 5) -> list[Any]:
    """Records without round numbers."""
    low, high = bounds
    source = np.random.default_rng(seed)
    rows = source.uniform(-0.43, 0.43, (count, len(FEATURES)))
    if target == "real":
        ys = (low + (high - low) * source.uniform(0.05, 0.95, count)).tolist()
    else:
        ys = (source.uniform(size=count) < 0.5).tolist()
    return [(dict(zip(FEATURES, row.tolist(), strict=True)), y) for row, y in zip(rows, ys, strict=True)]


def secrets_of(model: Any, x: Any, y: Any, seed: int | None) -> list[int]:
    """Numbers that learning one record computes of it: its vector and noise, as needles."""
    from murk.protocols.examples.device import ExampleDevice
    from murk.protocols.gradients import kernels as gradients
    from murk.protocols.scores.device import ScoreDevice

    engine = model._engine
    if engine is None:
        engine = model._get_engine(tuple(sorted(x)))
    X, own = np.array([[*x.values(), 1.0]]), [*x.values(), y]
    index = np.array([engine.n_releases])
    found: list[int] = []
    noise_sizes = []
    if engine.kind == "gradient":
        out, target, memory = np.zeros((1, engine.dimension)), np.array([float(y)]), engine.memory
        gradients.gradients(memory.real, memory.whole, np.array(engine.iterate), X, target, out)
        given = [(engine.mechanisms["default"], out)]
    elif engine.kind == "example":
        given = [(engine.current, ExampleDevice(engine.settings, {}).vectors(X, np.array([float(y)])))]
    elif engine.kind == "moment":
        coded = X.copy()
        coded[:, :-1] *= engine.layout.gain
        target = 2.0 * y - 1.0 if isinstance(y, bool) else y
        given = [(engine.mechanisms["default"], engine.layout.vectors(coded, np.array([target])))]
        # The moment of the constant with itself is everybody's.
        nobody = np.array([[0.0] * len(x) + [1.0]])
        own += engine.layout.vectors(nobody, np.zeros(1)).ravel().tolist()
    else:
        pair = engine.mechanisms["default"]
        device = ScoreDevice(engine.settings, {"default": pair})
        model_now = engine.now.rounds[-1].model.flat
        given = [
            (pair.mechanism(query), device.vectors(X, np.array([float(y)]), model_now, query))
            for query in device.queries
        ]
    for mechanism, vectors in given:
        found += complements(telling(vectors, own), "f8")
        if mechanism.kind in ("gaussian", "laplace", "composite"):
            found += complements(telling(mechanism.randomize(vectors, NoNoise(), index)), "i8")
        noise_sizes.append(mechanism.dimension)
    if seed is not None:
        found += complements(telling(SimulatedNoise(seed).gaussian(index, max(noise_sizes))), "i8")
    return found


INTERPRETED = ("PublicGLMRegressor", "ScoreClassifier")
"""Learners whose first records are learned by interpreted kernels; those of others are compiled at once."""

KINDS: list[tuple[str, dict[str, Any], str]] = [
    ("LDPSGDClassifier", {"guarantee": "gdp"}, "label"),
    ("LDPSGDClassifier", {"guarantee": "pure", "mechanism": "privunit"}, "label"),
    ("LDPSGDClassifier", {"guarantee": "pure", "mechanism": "l2-ball"}, "label"),
    ("LDPSGDRegressor", {"guarantee": "pure", "mechanism": "laplace"}, "real"),
    ("IWPSGDClassifier", {"guarantee": "gdp"}, "label"),
    ("IWPSGDClassifier", {"guarantee": "gdp", "release": "joint"}, "label"),
    ("IWPSGDClassifier", {"guarantee": "gdp", "release": "outer"}, "label"),
    ("IWPSGDRegressor", {"guarantee": "gdp"}, "real"),
    ("PublicGLMRegressor", {"guarantee": "gdp"}, "real"),
    ("PublicGLMRegressor", {"guarantee": "approx", "release": "separate"}, "real"),
    ("ScoreClassifier", {"guarantee": "gdp"}, "label"),
    ("ScoreRegressor", {"guarantee": "gdp"}, "real"),
    ("ScoreClassifier", {"guarantee": "pure"}, "label"),
]


REGRESSORS = [
    ("LDPSGDRegressor", {"guarantee": "gdp"}),
    ("IWPSGDRegressor", {"guarantee": "gdp"}),
    ("PublicGLMRegressor", {"guarantee": "gdp"}),
    ("ScoreRegressor", {"guarantee": "gdp"}),
    ("GaussMixRegressor", {"guarantee": "approx", "window": 2_500, "windows": 2}),
]


@pytest.fixture(scope="module")
def interpreted() -> Iterator[Image]:
    """A process whose kernels are interpreted until compiling them pays, as those of most devices are."""
    image = Image()
    yield image
    image.close()


@pytest.fixture(scope="module")
def compiled() -> Iterator[Image]:
    """A process whose kernels are compiled."""
    image = Image()
    yield image
    image.close()


ONE, SOME = (None, 1, 0), (SEED, 4, 3)
"""A first record with secure noise; a first one and three more at once, with noise that is known."""


def check_learner(
    image: Image, kind: str, settings: dict[str, Any], target: str, *, quick: bool, runs: Sequence[Any] = (SOME,)
) -> None:
    """Learn records, and search for what they became on the way."""
    for seed, count, many in runs:
        rows, bounds = records(count, target), bounds_of(getattr(murk.learners, kind))
        settled = {**bounds, **settings, "features": FEATURES, "seed": seed}
        arguments = {"kind": kind, "settings": settled, "records": rows, "many": many, "compiled": quick}
        told = image.run("learned", **arguments)
        model = learner(kind, settled)
        needles: list[int] = []
        for x, y in rows:
            needles += secrets_of(model, x, y, seed)
            model.learn_one(x, y)
        assert told == count
        assert len(needles) > 4
        assert not image.found(needles) or found_again("learned", arguments, needles) == 0


def found_again(scenario: str, arguments: dict[str, Any], needles: list[int]) -> int:
    """Search another process that does the same: what the code leaves, it leaves there, too.

    What a busy machine leaves now and then, in one process alone, is not told from what nothing leaves.
    """
    another = Image()
    try:
        another.run(scenario, **arguments)
        return another.found(needles)
    finally:
        another.close()


@pytest.mark.parametrize(("kind", "settings", "target"), [one for one in KINDS if one[0] in INTERPRETED])
def test_nothing_of_a_record_stays_where_kernels_are_interpreted(interpreted, kind, settings, target):
    check_learner(interpreted, kind, settings, target, quick=False, runs=(ONE, SOME))


@pytest.mark.parametrize(("kind", "settings", "target"), KINDS)
def test_nothing_of_a_record_stays_where_kernels_are_compiled(compiled, kind, settings, target):
    check_learner(compiled, kind, settings, target, quick=True)


@pytest.mark.parametrize("count", [1, 5_000])
@pytest.mark.parametrize(("kind", "settings"), REGRESSORS)
def test_no_code_of_a_target_stays(compiled, kind, settings, count):
    """Codes of targets in natural units, with secure noise."""
    settled = {**settings, "target_bounds": (0.0, 100.0), "features": FEATURES}
    rows = records(count, "real", (0.0, 100.0))
    many = count if count > 1 else 0
    told = compiled.run("learned", kind=kind, settings=settled, records=rows, many=many, compiled=True)
    assert told == (count // settings["window"] if "window" in settings else count)
    # Not all of 5,000: the search itself would leave numbers in memory that look like some of them.
    codes = TargetRange.stated((0.0, 100.0), seed=None).codes([y for _, y in rows[:: max(count // 100, 1)]])
    needles = complements(telling(codes), "f8")
    assert len(needles) == min(count, 100)
    assert compiled.found(needles) == 0


TASK = """
name: image
features:
  - {name: f0, low: -1.7, high: 2.3}
  - {name: f1, low: -3.1, high: 1.9}
  - {name: f2, low: 0.13, high: 7.7}
target: {name: y, kind: binary, positive: "yes", negative: "no"}
"""
TASKS = [
    "protocol: gradients\nprivacy: {guarantee: {gdp: {mu: 2.0}}}",
    "protocol: examples\nprivacy: {guarantee: {gdp: {mu: 2.0}}}",
    "protocol: examples\nexamples: {release: joint}\nprivacy: {guarantee: {gdp: {mu: 2.0}}}",
    "protocol: moments\nprivacy: {guarantee: {gdp: {mu: 2.0}}}",
    "protocol: scores\nprivacy: {guarantee: {gdp: {mu: 2.0}}}",
    "protocol: scores\nprivacy: {guarantee: {pure: {epsilon: 3.0}}}",
]


def device_records(count: int, seed: int = 9) -> list[dict[str, Any]]:
    """Records of `TASK`."""
    source = np.random.default_rng(seed)
    return [
        {"f0": source.uniform(-1, 1), "f1": source.uniform(-1, 1), "f2": source.uniform(1, 5), "y": "yes"}
        for _ in range(count)
    ]


def after_survey(document: str) -> list[float] | None:
    """A model that asks three queries; None where a protocol has none."""
    task = Task.parse(document)
    if task.protocol != "scores":
        return None
    device: Any = device_for(task)
    first = Model.of(device.initial, device.settings.features)
    return replace(first, survey=0, width=1.0, exponent=1.0, scatter=0.3, curvature=0.3).flat.tolist()


def device_secrets(
    document: str, rows: list[dict[str, Any]], messages: list[Any], model: list[float] | None
) -> list[int]:
    """Numbers that a device computes of records: coded values, vectors, lattice steps, and noise as it came out."""
    device: Any = device_for(Task.parse(document))
    needles: list[int] = []
    # Numbers of a record without any value are everybody's.
    nobody = Task.parse(document).coding.encode_record({"y": "yes"})
    for number, row in enumerate(rows):
        coded = Task.parse(document).coding.encode_record(row)
        needles += complements(telling(coded.x), "f8")
        X, y, theta = coded.x[None, :], np.array([coded.y]), getattr(device, "initial", None)
        theta = theta if model is None else np.array(model)
        for query in getattr(device, "queries", (None,)):
            if query is not None and query.startswith("above") is not (model is None):
                continue
            about = () if query is None else (query,)
            mechanism = device.mechanism("default", query) if about else device.mechanisms["default"]
            vectors = device.vectors(X, y, theta, *about)
            common = device.vectors(nobody.x[None, :], np.array([nobody.y]), theta, *about)
            needles += complements(telling(vectors, common), "f8")
            if mechanism.kind not in {"gaussian", "composite"}:
                continue
            steps = mechanism.randomize(vectors, NoNoise(), np.zeros(1, dtype=np.int64))
            needles += complements(telling(steps), "i8")
            released = json.loads(messages[number])
            if "payload" in released and released.get("query", query) == query:
                needles += complements(telling(np.array(released["payload"]) - steps[0]), "i8")
    return needles


# A survey's first model, and the models after it.
FIRST = [(protocol, False) for protocol in TASKS]
LATER = [(protocol, True) for protocol in TASKS[4:]]


@pytest.mark.parametrize(
    ("protocol", "later", "seed"), [*((*case, SEED) for case in FIRST + LATER), (TASKS[3], False, None)]
)
def test_nothing_of_a_record_stays_on_a_device(interpreted, protocol, later, seed):
    rows, document = device_records(4), TASK + protocol
    model = after_survey(document) if later else None
    arguments = {"seed": seed, "many": 3, "compiled": False, "model": model}
    messages = interpreted.run("released", document=document, records=rows, **arguments)
    assert len(messages) == 4
    # Blocks of real releases are sent in no order: which row a release of them is of, only a simulation tells.
    told = rows if seed is not None else rows[:1]
    assert interpreted.found(device_secrets(document, told, messages, model)) == 0


@pytest.mark.parametrize(("protocol", "later"), [*FIRST[3:5], *LATER])
def test_nothing_of_several_records_of_a_person_stays(interpreted, protocol, later):
    rows, document = device_records(4, seed=33), TASK + protocol
    model = after_survey(document) if later else None
    arguments = {"seed": SEED, "many": 3, "compiled": False, "model": model, "several": True}
    messages = interpreted.run("released", document=document, records=rows, **arguments)
    assert len(messages) == 2
    assert interpreted.found(device_secrets(document, rows, ['{"query": "none"}'] * 4, model)) == 0


@pytest.mark.parametrize(("protocol", "later"), [*FIRST[3:5], LATER[0]])
def test_nothing_of_a_record_stays_on_a_device_with_compiled_kernels(compiled, protocol, later):
    rows, document = device_records(4), TASK + protocol
    model = after_survey(document) if later else None
    arguments = {"seed": SEED, "many": 3, "compiled": True, "model": model}
    messages = compiled.run("released", document=document, records=rows, **arguments)
    assert compiled.found(device_secrets(document, rows, messages, model)) == 0


@pytest.mark.parametrize(("protocol", "later"), FIRST[3:] + LATER)
def test_nothing_of_a_record_stays_of_a_release_that_is_interrupted(interpreted, protocol, later):
    rows, document = device_records(2, seed=21), TASK + protocol
    model = after_survey(document) if later else None
    arguments = {"seed": SEED, "many": 0, "compiled": False, "interrupted": True, "model": model}
    messages = interpreted.run("released", document=document, records=rows, **arguments)
    assert len(messages) == 1
    assert interpreted.found(device_secrets(document, rows, [*messages, '{"query": "none"}'], model)) == 0


SKETCHES = [
    "summaries: {method: moments}\n", "summaries: {method: newton, first: 100}\n",
    "summaries: {method: linear-mixing, rows: 32}\n",
]  # fmt: skip


@pytest.mark.parametrize("method", SKETCHES)
def test_nothing_of_a_window_stays(compiled, method):
    document = (
        TASK + f"protocol: summaries\n{method}privacy: {{guarantee: {{approx: {{epsilon: 2.0, delta: 1.0e-6}}}}}}"
    )
    device: Any = device_for(Task.parse(document))
    source = np.random.default_rng(3)
    coded = source.uniform(-0.9, 0.9, (300, 4))
    coded[:, -1] = 1.0
    rows = device.records(coded, (source.uniform(size=300) < 0.5).astype(float))
    released = compiled.run("accumulated", document=document, rows=rows.tolist(), seed=SEED, index=5)
    size = np.array(released).size
    noise = SimulatedNoise(SEED).gaussian([5], size + 1)[0]
    both = np.concatenate(
        [noise, np.array(released).ravel() - noise[-size:], np.array(released).ravel() - noise[:size]]
    )
    moments = (rows.T @ rows)[np.triu_indices(rows.shape[1])]
    assert compiled.found(complements(telling(moments), "f8")) == 0
    # Integers of some millions are in any process by chance, one or two; a vector that stayed would be there whole.
    assert compiled.found(complements(telling(both), "i8")) <= 2 < len(telling(both)) / 3


def test_what_is_left_in_memory_is_found(interpreted):
    """The twin: of vectors that are computed without a scope something is found."""
    document = TASK + TASKS[3]
    rows = device_records(8, seed=33)
    interpreted.run("careless", document=document, records=rows)
    needles = device_secrets(document, rows, ["{}"] * 8, None)[:400]
    assert interpreted.found(needles) > 0
    assert found_again("careless", {"document": document, "records": rows}, needles) > 0
