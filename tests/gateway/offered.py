"""Tasks of every protocol, and honest and hostile releases to them."""

import json
import random
import time
from typing import Any

import numpy as np

from murk import Task
from murk.privacy.noise import SimulatedNoise
from murk.producers.producer import randomize_records
from murk.protocols.device import device_for, querying_of
from murk.stream.wire.releases import KINDS, MOST_ITEMS, SketchRelease, query_fields
from tests.protocols import BY_NAME, HONEST, contents

TASK = """
name: alike
features: [{{name: a, low: 0, high: 1}}, {{name: b, categories: [no, maybe, "yes"]}}]
target: {target}
privacy: {{guarantee: {{{guarantee}}}, levels: {{strict: {{{strict}}}}}}}
"""
BINARY, REAL = '{name: y, kind: binary, positive: "1"}', "{name: y, kind: real, low: 0, high: 1}"
CLASSES, QUANTILES = "{name: y, kind: classes, classes: [p, q, r]}", REAL[:-1] + ", quantiles: [0.5]}"
GDP, PURE = ("gdp: {mu: 2.0}", "gdp: {mu: 0.5}"), ("pure: {epsilon: 3.0}", "pure: {epsilon: 1.0}")
PEOPLE: dict[str, tuple[str, str, tuple[str, str]]] = {
    "scores": (BINARY, "", GDP),
    "scores at shared models": (REAL, "scores: {models: shared}\nlog: {partitions: 2}\n", GDP),
    "scores of classes, pure": (CLASSES, "protocol: scores\n", PURE),
    "scores with prediction sets": (BINARY, "predictions: {coverage: 0.9}\n", GDP),
    "scores without rounds": (BINARY, "scores: {interactive: false}\npublic: {set_aside: 10}\n", GDP),
    "gradients": (BINARY, "protocol: gradients\n", GDP),
    "gradients, pure": (BINARY, "protocol: gradients\n", PURE),
    "outer products": (BINARY, "protocol: examples\n", GDP),
    "joint examples": (BINARY, "protocol: examples\nexamples: {release: joint}\n", GDP),
    "separate examples": (BINARY, "protocol: examples\nexamples: {release: separate}\n", GDP),
    "cells": (BINARY, "protocol: examples\nexamples: {release: cells, grid: 3}\n", PURE),
    "moments": (REAL, "protocol: moments\n", GDP),
    "separate moments": (REAL, "protocol: moments\nmoments: {release: separate}\npublic: {set_aside: 10}\n", GDP),
    "classes alone": (CLASSES, "", PURE),
    "quantiles": (QUANTILES, "", PURE),
}
ORGANISATIONS = ("summaries", "sketch of moments", "Newton steps")


def task_of(name: str) -> Task:
    if name in ORGANISATIONS:
        return Task.parse(BY_NAME[name].text())
    target, more, (guarantee, strict) = PEOPLE[name]
    text = TASK.format(target=target, guarantee=guarantee, strict=strict) + more
    if name in ("classes alone", "quantiles"):
        text = "\n".join("features: []" if line.startswith("features") else line for line in text.splitlines())
    task = Task.parse(text)
    if task.public is not None:
        points = np.random.default_rng(1).choice([-1.0, 1.0], (40, len(task.coding.names)))
        points[:, -1] = 1.0
        task = task.with_public(*np.unique(points, axis=0, return_counts=True))
    return task


def honest(task: Task, name: str, number: int) -> list[dict[str, Any]]:
    """Contents of honest releases of made-up records, at each level."""
    if name in ORGANISATIONS:
        return [{"level": "default", **each} for each in contents(name)[:number]]
    device: Any = device_for(task)
    rng, at, noise = np.random.default_rng(1), np.arange(number), SimulatedNoise(1)
    X = np.column_stack([*rng.choice([-1.0, 1.0], (len(task.coding.names) - 1, number)), np.ones(number)])
    y = rng.integers(0, 2, number).astype(np.float64)
    levels = [*rng.choice([*task.privacy.levels], number).tolist()]
    theta = device.initial if device.interactive or querying_of(device) else None
    if querying_of(device) is not None:
        payloads, queries = randomize_records(device, X, y, [0] * number, {0: theta}, levels, noise, at)
        asked = [{"version": 0, **query_fields(query)} for query in queries or ()]
    else:
        vectors = device.vectors(X, y, theta)
        payloads = [
            device.mechanisms[level].randomize(vectors[each : each + 1], noise, at[each : each + 1])[0].tolist()
            for each, level in enumerate(levels)
        ]
        asked = [{"version": 0}] * number if device.interactive else [{}] * number
    return [
        {"level": level, "payload": payload, **fields}
        for level, payload, fields in zip(levels, payloads, asked, strict=True)
    ]


def numbers_of(fields: dict[str, Any]) -> list[int]:
    payload = fields["payload"]
    if isinstance(payload, list):
        return list(payload)
    return KINDS["sketch"].model_construct(payload=payload).integers.tolist()


def spoil_payload(draw: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
    numbers = numbers_of(fields)
    largest = max(map(abs, numbers), default=1) + 1
    how = draw.randrange(7)
    if how == 0:
        numbers.append(0)
    elif how == 1 and len(numbers) > 1:
        numbers.pop()
    elif how == 2:
        numbers = [draw.randrange(-3, 4) for _ in numbers]
    elif how == 3:
        numbers = [draw.choice((1, 2, 4, 16)) * each for each in numbers]
    else:
        # Near the bounds, and far beyond.
        size = draw.choice((1, 2, 8, 100, 2**20, 2**40, 2**61 // largest)) * largest
        places = range(len(numbers)) if how == 6 else [draw.randrange(len(numbers))]
        for place in places:
            numbers[place] = draw.choice((-size, size, numbers[place]))
    packed = not isinstance(fields["payload"], list)
    if packed:
        numbers = [max(-(2**62), min(2**62, each)) for each in numbers]
    return fields | {"payload": SketchRelease.packed(np.array(numbers)) if packed else numbers}


def spoil_field(draw: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
    changes: list[dict[str, Any]] = [
        {"level": "strict"},
        {"level": "other"},
        {"task": "0" * 64},
        {"simulated": True},
        {"partition": 7},
        {"expires": 1_000_000_000},
        {"time": fields["time"] + 10**7},
        {"extra": 1},
        {"schema": 2},
    ]
    changes += [{"version": version} for version in (-1, 3_000_000) if "version" in fields]
    if "query" in fields:
        changes += [{"query": query} for query in ("score", "scatter", "curvature", "covered", "above", "other")]
        changes += [{"item": item} for item in (0, 1, 5, MOST_ITEMS - 1, MOST_ITEMS)]
    changes += [{"records": records} for records in (1, 20, 21, 10**9) if "records" in fields]
    changes += [{"rows": rows} for rows in (7, 9) if "rows" in fields]
    changes += [{"spread": spread} for spread in (1e-9, 1.0, 1e9) if "spread" in fields]
    if "model" in fields:
        changes += [{"model": fields["model"][1:]}, {"model": [1e6, *fields["model"][1:]]}]
    return fields | draw.choice(changes)


def offered(task: Task, name: str, number: int) -> list[bytes]:
    """Honest releases and hostile ones, each with an id of its own."""
    draw, now = random.Random(name), int(time.time())
    expires = now + task.expiry - (now + task.expiry) % task.granularity
    base = {"schema": 1, "kind": task.release_kind, "task": task.hash, "partition": 0}
    base |= {"time": now - now % task.granularity, "expires": expires, "simulated": False}
    good, values = honest(task, name, min(number // 3, HONEST)), []
    for _ in range(number):
        fields = {**base, "id": f"{draw.getrandbits(128):032x}", **draw.choice(good)}
        for _ in range(draw.choice((0, 1, 1, 2))):
            fields = draw.choice((spoil_payload, spoil_field))(draw, fields)
        values.append(json.dumps(fields, separators=(",", ":")).encode())
    return values
