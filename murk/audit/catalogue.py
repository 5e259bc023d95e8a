"""The catalogue of `murk audit --all`: every mechanism by itself, and small tasks of every protocol."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from murk._internal.lazy import of_each_kind
from murk.audit.trials import Trial, mechanism_trial, task_trial
from murk.errors import UserError
from murk.privacy.guarantees import GaussianDP, PureDP
from murk.privacy.mechanisms import KINDS, Mechanism, RandomizedResponse, calibrate
from murk.protocols.device import Device, SingleQueryDevice, device_for, querying_of
from murk.protocols.scores.model import above
from murk.task.privacy import DEFAULT_LEVEL
from murk.task.task import Task

_BINARY = "{name: label, kind: binary, positive: 'yes', negative: 'no'}"
_REAL = "{name: dose, kind: real, low: 0, high: 10}"
_CLASSES = "{name: kind, kind: classes, classes: [a, b, c]}"
_FEATURES = "[{name: age, low: 20, high: 60}, {name: size, low: 0, high: 1}, {name: sex, categories: [m, f]}]"
_MU, _PURE = "{gdp: {mu: 1}}", "{pure: {epsilon: 1}}"
_SKETCH = "features: [{name: age, low: 20, high: 60}]\ntarget: {name: dose, kind: real, low: 0, high: 10}\n"


@dataclass(frozen=True)
class Case:
    """A mechanism or task to audit; ``prepare`` searches for its worst neighbours."""

    name: str
    prepare: Callable[[], Trial]


def cases_of(task: Task) -> list[Case]:
    """Return a case for each level and query of a task."""
    cases = []
    for query, device in _queries(device_for(task)):
        for level in of_each_kind(device.mechanisms, lambda each: each.kind):
            words = [level] * (len(device.mechanisms) > 1) + [query] * bool(query)
            name = f"{task.name}: {', '.join(words)}" if words else task.name
            cases.append(Case(name, partial(task_trial, task, device, level)))
    return cases


def _queries(device: Device) -> list[tuple[str, Any]]:
    """Return the name and device of each query; for a Newton step, of both parts of a window."""
    first_part = getattr(device, "first_part", None)
    if first_part is not None:
        return [("first part", first_part), ("step", device)]
    asking = querying_of(device)
    if asking is None:
        return [("", device)]
    return [(name, SingleQueryDevice(asking, name)) for name in asking.queries]


def catalogue() -> list[Case]:
    """Return cases for every mechanism and every protocol."""
    tasks = [(name, "", text) for name, text in _tasks()]
    asked = (Case(name, partial(_of_text, text, query)) for name, query, text in (*tasks, *_scores(), *_steps()))
    return [*_mechanisms(), *asked]


def _of_text(text: str, query: str) -> Trial:
    task = Task.parse("name: audited\n" + text)
    return task_trial(task, dict(_queries(device_for(task)))[query], DEFAULT_LEVEL)


def _example(kind: str) -> Mechanism:
    """Return a mechanism of a kind, a pure one if possible."""
    try:
        return calibrate(kind, PureDP(1.0), dimension=5, radius=1.0)
    except UserError:
        return calibrate(kind, GaussianDP(1.0), dimension=5, radius=1.0)


def _guarantees() -> Iterator[tuple[str, str]]:
    """Yield each kind of mechanism with a guarantee in the syntax of tasks."""
    for kind in KINDS:
        yield kind, _PURE if isinstance(_example(kind).guarantee, PureDP) else _MU


def _mechanisms() -> Iterator[Case]:
    """Yield a case per mechanism, with the two vectors that are furthest apart in its norm."""
    axis = np.eye(1, 5)[0]
    for kind in KINDS:
        mechanism = _example(kind)
        vector = mechanism.sensitivity / 2 * axis
        yield Case(f"mechanism {kind}", partial(mechanism_trial, mechanism, vector, -vector))
    for classes in (2, 5):
        response = RandomizedResponse.calibrate(PureDP(1.0), classes=classes)
        yield Case(f"randomized response, k={classes}", partial(mechanism_trial, response, 0, 1))


def _tasks() -> Iterator[tuple[str, str]]:
    for objective, target in (("logistic", _BINARY), ("softmax", _CLASSES), ("huber", _REAL)):
        for mechanism, guarantee in _guarantees():
            text = _people("gradients", target, guarantee, mechanism)
            yield f"gradients {objective}, {mechanism}", f"{text}objective: {objective}\n"
    yield "gradients balanced, gaussian", _people("gradients", _BINARY, _MU, "gaussian") + "objective: balanced\n"
    for mechanism, guarantee in _guarantees():
        for name, target in (("label", _BINARY), ("real", _REAL)):
            text = _people("examples", target, guarantee, mechanism)
            yield f"examples outer, {name}, {mechanism}", f"{text}examples: {{release: outer}}\n"
    for release in ("directions", "joint", "separate"):
        for name, target in (("label", _BINARY), ("real", _REAL)):
            block = f"examples: {{release: {release}}}\n"
            yield f"examples {release}, {name}", _people("examples", target, _MU) + block
    for name, target in (("label", _BINARY), ("real", _REAL)):
        text = _people("examples", target, _PURE, "laplace")
        yield f"examples joint, {name}, laplace", f"{text}examples: {{release: joint}}\n"
    few = _FEATURES.replace("{name: age, low: 20, high: 60}, ", "")
    for name, target in (("label", _BINARY), ("real", _REAL), ("classes", _CLASSES)):
        for guarantee in (_MU, _PURE):
            text = _people("examples", target, guarantee).replace(_FEATURES, few)
            yield f"examples cells, {name}, {guarantee[1:4]}", f"{text}examples: {{release: cells, grid: 3}}\n"
    for mechanism, guarantee in _guarantees():
        text = _people("moments", _BINARY, guarantee, mechanism)
        yield f"moments observed, {mechanism}", f"{text}moments: {{release: observed}}\n"
    text = _people("moments", _BINARY, _MU)
    for release in ("joint", "separate"):
        yield f"moments {release}", f"{text}moments: {{release: {release}}}\n"
    quantiles = _REAL.replace("}", ", quantiles: [0.5]}")
    for name, target in (("two", _BINARY), ("several", _CLASSES), ("real", _REAL), ("quantiles", quantiles)):
        for guarantee in (_MU, _PURE):
            text = _people("univariate", target, guarantee).replace(_FEATURES, "[]")
            yield f"univariate, {name}, {guarantee[1:4]}", text
    known = "[{name: arm, categories: [a, b], known: true}]"
    for name, target in (("two", _BINARY), ("real", _REAL)):
        text = _people("univariate", target, _PURE).replace(_FEATURES, known)
        yield f"univariate, known column, {name}, {_PURE[1:4]}", text
    mixed = f"{known[:-1]}, {{name: age, low: 20, high: 60}}]"
    for guarantee in (_MU, _PURE):
        text = _people("univariate", _BINARY, guarantee).replace(_FEATURES, mixed)
        yield f"univariate, known and private, {guarantee[1:4]}", text
    for neighbours in ("zero-out", "replace-one"):
        # Linear mixing has the smaller delta: with that of mixing it would release no eigenvalue.
        for method, delta in (("mixing", 0.05), ("linear-mixing", 0.01)):
            block = f"summaries: {{rows: 8, method: {method}, neighbours: {neighbours}}}\n"
            guarantee = f"{{approx: {{epsilon: 1, delta: {delta}}}}}"
            text = f"{_SKETCH}protocol: summaries\nprivacy: {{guarantee: {guarantee}}}\n{block}"
            yield f"sketch {method}, {neighbours}", text
        text = f"{_SKETCH}protocol: summaries\nprivacy: {{guarantee: {_MU}}}\nsummaries: {{neighbours: {neighbours}}}\n"
        yield f"sketch moments, {neighbours}", text


def _steps() -> Iterator[tuple[str, str, str]]:
    for neighbours in ("zero-out", "replace-one"):
        text = f"features: [{{name: age, low: 20, high: 60}}]\ntarget: {_BINARY}\nprotocol: summaries\n"
        text += f"privacy: {{guarantee: {_MU}}}\nsummaries: {{method: newton, first: 20, neighbours: {neighbours}}}\n"
        for part in ("first part", "step"):
            yield f"sketch newton, {part}, {neighbours}", part, text


def _scores() -> Iterator[tuple[str, str, str]]:
    for mechanism, guarantee in _guarantees():
        # Curvatures are largest at zero logits, where they equal scatter matrices: one mechanism is enough.
        for query in ("score", "scatter", "curvature") if mechanism == "gaussian" else ("score", "scatter"):
            yield f"scores {query}, {mechanism}", query, _people("scores", _BINARY, guarantee, mechanism)
        yield f"scores above, {mechanism}", above(0), _people("scores", _BINARY, guarantee, mechanism)
    for mechanism, guarantee in (("gaussian", _MU), ("privunit", _PURE)):
        text = f"{_people('scores', _BINARY, guarantee, mechanism)}public: {{set_aside: 100}}\n"
        text += "scores: {interactive: false}\n"
        yield f"scores once, {mechanism}", "score", text
    yield "scores once, matrix", "curvature", text
    yield "scores once, real", "score", text.replace(_BINARY, _REAL)
    yield "scores score, real", "score", _people("scores", _REAL, _MU)
    yield "scores score, classes", "score", f"{_people('scores', _CLASSES, _MU)}public: {{set_aside: 100}}\n"


def _people(protocol: str, target: str, guarantee: str, mechanism: str | None = None) -> str:
    chosen = f", mechanism: {mechanism}" if mechanism else ""
    return (
        f"features: {_FEATURES}\ntarget: {target}\nprotocol: {protocol}\nprivacy: {{guarantee: {guarantee}{chosen}}}\n"
    )
