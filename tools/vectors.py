"""Test vectors for devices in other languages, one JSON object a line.

A line with a ``document`` is a task: the device must find the same hash, coding, model of version 0 and costs. Any
other line is a record of that task: from the same random words the device must find the same coded numbers, query,
quantised integers, noise and message, and of a record that is held its window, whether it is drawn, and when it is
due; of a task that repeats answers, whether a further record repeats this one's. A line with ``refused`` must be
refused with that reason.

Words are those of `murk.privacy.noise.SimulatedNoise` (Philox4x32-10), one stream for each purpose, so that a vector
carries a seed instead of thousands of words. Before the noise, integers may differ by ``slack`` steps, where ``exp`` or
an eigenvector is computed; everything after them is exact.

    python -m tools.vectors --protocol scores --records 10000 --seed 1 | node devices/web/test/vectors.mjs
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from murk.errors import UserError
from murk.privacy.mechanisms.base import means_of
from murk.privacy.mechanisms.drawn import DrawnMechanism
from murk.privacy.mechanisms.thresholds import ThresholdMechanism
from murk.privacy.noise import Purpose, SimulatedNoise, below, identifiers
from murk.producers.ledger.names import NameKey
from murk.producers.producer import marks_of, randomize_rows, weighed
from murk.protocols.device import SingleQueryDevice, person_device_for
from murk.protocols.examples.cells_device import CellDevice
from murk.stream.log.interface import FIRST_PARTITION, truncate_time
from murk.stream.wire.codec import encode, writer
from murk.stream.wire.releases import KINDS, ModelMessage, query_fields
from murk.task.task import Task
from murk.task.windows import NONE, end_of, spread_of, start_of, window_of

PROTOCOLS = ("scores", "gradients", "examples", "moments", "univariate")
KINDS_WITHOUT_NOISE = ("l2-ball", "privunit", "subset-selection", "window-selection")
WEIGHED, REPEATING = ("scores", "moments", "univariate"), ("examples", "moments", "univariate")
CURRENCIES = ("gdp", "rho", "epsilon", "approx")
TASKS = 40
KINDS_OF_TARGETS = ("binary", "real", "binary", "classes")
ODD = (
    None, "", "  ", "nan", "inf", "1e3", "-.5", "3.", "2_4", "\uff12\uff14", "TRUE", " false ", True, False, 0, 1, "1",
    "1.0", math.nan, math.inf, -math.inf, -0.0, 1e300, 2**53 + 1, 10**400, "9007199254740993", "?", "\u2003yes\x1c",
    "0x10", "+5", "00005", "Yes", "on", 1e-7, "12345678901234567890.0",
)  # fmt: skip
DATES = (
    "2024-02-29", "2023-02-29", "2024-05-31T23:30:00+02:00", "20240531", "31/05/2024", "+12024-05-31", "0000-03-01",
    "-0400-02-29", " 2024-12-31 ", "2024-13-01", "1969-12-31 08:15", "2024-05-31 24:00:00 +0200 CEST",
    "9999-12-31", "0001-01-01",
)  # fmt: skip


class _Still:
    """A source without noise, which shows the integers of the row that is drawn before noise is added."""

    simulated = True

    def __init__(self, noise: SimulatedNoise) -> None:
        self._noise = noise

    def gaussian(self, records: Any, size: int) -> Any:
        return np.zeros((len(records), size), dtype=np.int64)

    laplace = gaussian

    def words(self, records: Any, size: int, purpose: Purpose) -> Any:
        if purpose == Purpose.RECORD:
            return self._noise.words(records, size, purpose)
        return np.zeros((len(records), size), dtype=np.uint64)


def _feature(draw: random.Random, place: int) -> dict[str, Any]:
    name, kind = f"f{place}", draw.random()
    feature: dict[str, Any]
    if kind < 0.45:
        low = draw.choice([0, -1, 21, 0.1, -1e6, 1e-3])
        feature = {"name": name, "low": low, "high": low + draw.choice([1, 14, 0.7, 1e6, 3])}
        fill = feature["low"] + 0.25 * (feature["high"] - feature["low"])
    elif kind < 0.8:
        pool = ["no", "yes", "0", "1", "1.0", "true", "false", "EWR", "JFK", "on", "Off", "5", "9007199254740993"]
        feature = {"name": name, "categories": draw.sample(pool, draw.choice([2, 2, 3, 5]))}
        fill = draw.choice(feature["categories"])
        if fill == "indicator":
            fill = None
    else:
        parts = draw.choice([["number"], ["weekday"], ["month"], ["weekday", "number"]])
        feature = {"name": name, "kind": "date", "as": parts}
        if "number" in parts:
            feature |= {"low": "2023-01-01", "high": "2024-12-31"}
        fill = "2024-05-31"
    if "low" in feature and draw.random() < 0.3:
        low, high = feature["low"], feature["high"]
        inner = (
            ["2023-02-01", "2023-04-30"]
            if isinstance(low, str)
            else [low + 0.2 * (high - low), low + 0.4 * (high - low)]
        )
        feature["typical"] = inner
    chosen = draw.choice([None, None, None, "indicator", fill])
    return feature if chosen is None else feature | {"missing": chosen}


def _known(draw: random.Random, place: int) -> dict[str, Any]:
    categories = draw.sample(["no", "yes", "0", "1.0", "true", "EWR", "on"], draw.choice([2, 2, 3, 5]))
    chosen = draw.choice([None, None, "indicator", categories[1]])
    feature = {"name": f"f{place}", "categories": categories, "known": True}
    return feature if chosen is None else feature | {"missing": chosen}


def _experiment(draw: random.Random, features: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an experiment whose arms are the categories of the last column."""
    *others, arm = features
    weights = [draw.choice([1, 1, 3]) for _ in arm["categories"]]
    by = draw.choice(["device", "device", "server"])
    assigned = {"by": by, "shares": [weight / sum(weights) for weight in weights]}
    assigned |= {"salt": draw.choice(["checkout-7", "e\u0301", "s" * 80])} if by == "device" else {}
    guardrail = draw.choice([None, {"margin": 0.01, "worse": "lower"}])
    control = draw.choice(arm["categories"])
    metrics = [_metric(draw, place) for place in range(draw.choice([0, 1, 1, 3]))]
    of_all = [each["name"] for each in metrics if each["missing_share"] == 0]
    ratios = [{"name": "r", "numerator": of_all[0], "denominator": of_all[1]}] if len(of_all) > 1 else []
    if guardrail is not None and metrics:
        guardrail = guardrail | {"metric": draw.choice([None, "y", metrics[-1]["name"], *(["r"] if ratios else [])])}
    return {
        "arm": arm["name"],
        "control": control,
        "guardrail": guardrail,
        "metrics": metrics,
        "ratios": ratios,
        "segments": [each["name"] for each in others if draw.random() < 0.5],
        "assigned": draw.choice([assigned, assigned, None]),
    }


def _metric(draw: random.Random, place: int) -> dict[str, Any]:
    target = _target(draw, ["binary", "real"])
    return target | {"name": f"m{place}", "missing_share": draw.choice([None, 0, 0.05])}


def _guarantee(draw: random.Random) -> dict[str, dict[str, float]]:
    kind = draw.choice(["gdp", "gdp", "zcdp", "pure", "approx"])
    size = float(f"{draw.choice([0.25, 0.5, 1, 2, 4]) * draw.uniform(0.8, 1.25):.3g}")
    if kind == "approx":
        return {"approx": {"epsilon": size, "delta": draw.choice([1e-6, 1e-9, 1.5e-5])}}
    return {kind: {{"gdp": "mu", "zcdp": "rho", "pure": "epsilon"}[kind]: size}}


def _target(draw: random.Random, kinds: Sequence[str]) -> dict[str, Any]:
    kind = draw.choice(kinds)
    if kind == "binary":
        return {"name": "y", "kind": kind, "positive": "yes", "negative": draw.choice([None, "no"])}
    if kind == "real":
        return {"name": "y", "kind": kind, "low": 0, "high": draw.choice([1, 52, 0.3])}
    return {
        "name": "y",
        "kind": kind,
        "classes": draw.sample(["red", "green", "blue", "1", "true"], draw.choice([2, 3, 4])),
    }


def _settings(draw: random.Random, protocol: str, target: str) -> dict[str, Any]:
    """Return a protocol's own keys of a task."""
    if protocol == "scores":
        if draw.random() < 0.2:
            return {"scores": {"interactive": False}}
        own: dict[str, Any] = {"exponent": draw.choice([None, 0.5])} if target == "binary" else {}
        return {"scores": own, "forget": draw.choice([None, 24_000, 25_000])}
    if protocol == "gradients":
        objective = {"binary": ["balanced", "logistic"], "classes": ["softmax"], "real": ["huber", "squared", "median"]}
        weights = draw.choice(["norm", "mallows", "clip"])
        learner: dict[str, Any] = {"weights": weights, "radius": draw.choice([None, 2.0, "unbounded"])}
        learner |= {"step": {"eta": 0.2}} if learner["radius"] == "unbounded" else {}
        learner |= {"clip": 0.7} if weights == "clip" else {}
        chosen = draw.choice(objective[target])
        if chosen == "huber":
            learner |= {"huber_c": draw.choice([0.5, 1.345]), "scale": draw.choice(["estimate", 0.4])}
            learner["scale_multiplier"] = draw.choice([4.0, 1.0])
        if chosen == "softmax":
            learner["coordinates"] = draw.choice(["contrasts", "classes"])
        return {"objective": chosen, "learner": learner}
    if protocol == "examples":
        release = draw.choice([None, "outer", "directions", "joint", "separate"])
        split = {"split": draw.choice([0.05, 0.5, 0.95])} if release == "separate" else {}
        further = {"for": ["quadratic"]} if target == "binary" and draw.random() < 0.2 else {}
        return {"examples": {"release": release, **further, **split}}
    return {"moments": {"release": draw.choice(["observed", "observed", "joint", "separate"])}}


def _of_learners(draw: random.Random, features: list[dict[str, Any]]) -> dict[str, Any]:
    """Return keys that change no release, but are part of a task's hash."""
    contrasts = [
        {"feature": each["name"], "category": each["categories"][0], "against": each["categories"][1]}
        for each in features
        if "categories" in each
    ]
    return {
        "people": draw.choice([None, None, 50_000]),
        "intervals": draw.choice([None, None, {"validity": "fixed-n"}, {"tightest_at": 20_000}]),
        "contrasts": contrasts if draw.random() < 0.3 else [],
    }


def _task(draw: random.Random, protocol: str, number: int) -> Task:
    """Return a random task that Murk accepts."""
    while True:
        is_known = protocol == "univariate" and number % 5 > 1
        target = _target(draw, [KINDS_OF_TARGETS[number % 4]] if is_known else KINDS_OF_TARGETS)
        # Means and shares have no features.
        sizes = [0] if protocol == "univariate" else [1, 2, 2, 3, 4]
        features = [_feature(draw, place) for place in range(draw.choice(sizes))]
        if is_known:
            features = [_known(draw, place) for place in range(draw.choice([1, 1, 2, 3]))]
        content: dict[str, Any] = {
            "name": f"{protocol}-{number}",
            "features": features,
            "target": target,
            "protocol": protocol,
            "privacy": {
                "guarantee": _guarantee(draw),
                "levels": {"strict": _guarantee(draw)} if draw.random() < 0.4 else {},
                "mechanism": draw.choice([None, None, None, "best", "gaussian", "laplace", "l2-ball", "privunit"]),
                "window": random.Random(number).choice(["none", "day", "week", "month", "90d", "7d"]),
            },
            "granularity": draw.choice(["1d", "12h", "90s"]),
            "log": {"partitions": draw.choice([1, 1, 2, 3, 7])},
            **(_settings(draw, protocol, target["kind"]) if protocol != "univariate" else {}),
            **_of_learners(draw, features),
        }
        if protocol == "univariate":
            content["privacy"]["mechanism"] = None
            if target["kind"] == "classes" and number % 2:
                target["classes"] = [f"c{place}" for place in range(draw.choice([5, 16, 52]))]
            if number % 3 == 0:
                target["missing_share"] = draw.choice([0, 0, 0.05])
            if features and target["kind"] != "classes" and number % 5 < 4:
                content["experiment"] = _experiment(draw, features)
            if target["kind"] == "real" and number % 2 and not features:
                target["quantiles"] = [[0.5], [0.1, 0.5, 0.9]][number % 4 // 2]
        if protocol in WEIGHED and draw.random() < 0.5:
            content["weight"] = {"rows": draw.choice([2, 3, 9, 10, 30, 100])}
        if protocol in REPEATING and draw.random() < 0.5 and not content.get("experiment", {}).get("metrics"):
            content["privacy"]["repeat"] = "same"
        if protocol == "gradients" and number % 3:
            target["missing_share"] = number % 3 - 1 and 0.05
        if number % 5 == 3:
            content["privacy"]["levels"] = {"from": 0.7, "to": 1.3}
        is_tracked = (protocol == "univariate" and not features) or (
            protocol == "scores" and content["scores"].get("interactive", True)
        )
        if is_tracked and content["privacy"]["window"] != NONE and "quantiles" not in target and number % 3:
            content["track"] = {"window": content["privacy"]["window"], "smooth": number % 5}
        public = draw.random() < 0.3 or (protocol == "moments" and draw.random() < 0.5)
        public = public and bool(features)
        if public:
            content["public"] = {"set_aside": 1000}
        try:
            task = Task.parse(json.dumps(content))
            if public:
                task = task.with_public(*_covariates(draw, task))
            device = person_device_for(task)
        except UserError:
            continue
        # The device refuses combinations of values.
        if isinstance(device, CellDevice):
            continue
        return task


def _covariates(draw: random.Random, task: Task) -> tuple[Any, Any]:
    rng = np.random.default_rng(draw.getrandbits(32))
    points = np.round(rng.uniform(-1, 1, (60, task.coding.size)), 3)
    points[:, -1] = 1.0
    return points, rng.integers(1, 9, len(points))


def _value(draw: random.Random, column: dict[str, Any]) -> Any:
    if draw.random() < 0.12:
        return draw.choice(ODD + DATES)
    names = column.get("categories") or column.get("classes")
    if names:
        return draw.choice(names)
    if column.get("kind") == "binary":
        return draw.choice([column["positive"], column["negative"] or "other"])
    if column.get("kind") == "date":
        day = f"20{draw.choice([22, 23, 24])}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"
        return draw.choice([day, day, draw.choice(DATES)])
    low, high = column["low"], column["high"]
    number = low + draw.uniform(-0.1, 1.1) * (high - low)
    return draw.choice([number, number, round(number, 2), round(number), f"{number:.4f}", f" {number:e} "])


def _iterate(draw: random.Random, device: Any, task: Task) -> tuple[list[float], int]:
    """Return a model that a learner could publish, and its version."""
    if task.protocol == "scores":
        p, start = device.settings.features, np.array(device.initial)
        start[: -p * p - 7] = [draw.gauss(0, 1) for _ in range(len(start) - p * p - 7)]
        start[-p * p - 7 : -7] += [draw.gauss(0, 0.3) for _ in range(p * p)]
        start[-7:-3] = [draw.uniform(0.5, 4), draw.choice([0.0, 0.5, 1.0]), *[0.25 * device.settings.matrices] * 2]
        survey = draw.choice([0, 0, 1, 2, 3]) if device.settings.survey else 0
        start[-3:] = [survey, draw.uniform(-1, 1), draw.choice([1.0, draw.uniform(1e-3, 1)])]
        if survey:
            # Some features are known well enough.
            start[-p * p - 7 : -7 : p + 1] *= [draw.choice([0, 1]) for _ in range(p)]
        version = device.settings.round_start(draw.choice([0, 700, 3_000, 50_000, 10**6, 10**9]))
        return start.tolist(), version
    theta = np.array([draw.gauss(0, 1) for _ in range(device.dimension)])
    slopes = device.dimension - device.settings.scaled
    theta[:slopes] *= draw.random() * min(device.settings.radius, 5.0) / np.linalg.norm(theta[:slopes])
    if device.settings.scaled:
        theta[-1] = draw.uniform(0.05, 3.9) / device.settings.multiplier
    version = draw.choice([1, 2, 128, 4096, 2**20])
    return theta.tolist(), version if device.is_published(version) else 2**20


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")}
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**53:
        return {"integer": str(value)}
    return value


def _numbers(content: dict[str, Any], task: Task) -> dict[str, dict[str, Any]]:
    """Return changes of a document, each with one number that Murk refuses."""
    outside: dict[str, list[Any]] = {
        "learner.huber_c": [0, 1e13], "learner.scale": [-1, "median"], "learner.scale_floor": [0],
        "learner.scale_start": [1e-9, True], "learner.radius": [0, 1e200], "learner.clip": [0],
        "privacy.levels": [{"from": 2, "to": 1}, {"from": 1, "to": 1e9}, {"from": 0, "to": 1}, {"from": 1}, {"to": 1}],
        "max_staleness.releases": [0, 1.5], "max_staleness.share": [0.6], "log.partitions": [4097, 1.5],
    }  # fmt: skip
    if task.protocol == "scores":
        outside["scores.exponent"] = [-0.1, 1.5]
    if task.protocol == "examples":
        outside |= {"examples.split": [15, 1, 0.0499, -1], "examples.regularization": [-1], "examples.batch": [0]}
    if task.protocol == "gradients":
        # Lattice steps that underflow or overflow would tell a zero vector from others.
        tiny = [{"clip": bound, "weights": "clip"} for bound in (1e-200, 1e-310, 1e13)]
        outside["learner"] = [{**content["learner"], **changes} for changes in tiny]
    changes: dict[str, dict[str, Any]] = {
        "forget": {"forget": 23_999}, "people": {"people": 0}, "duplicates": {"duplicates": 2**25},
        "looks": {"intervals": {"validity": "always-valid", "tightest_at": 10}},
        "crowds": {"shuffle": {"crowd": 1000}}, "sooner": {"granularity": "2d", "expiry": "1d"},
        **{f"weight {rows}": {"weight": {"rows": rows}} for rows in (1, 101, 2.5, None)}, "no rows": {"weight": {}},
        "people alike": {"weight": "people"}, "weight of more": {"weight": {"rows": 2, "columns": 1}},
    }  # fmt: skip
    counted = task.protocol in WEIGHED and task.experiment is None
    if not counted or (task.protocol == "scores" and task.public is not None):
        changes["rows"] = {"weight": {"rows": 10}}
    if task.protocol == "moments" and task.block.release != "observed":
        changes["rows"] = {"weight": {"rows": 10}}
    for path, values in outside.items():
        block, _, key = path.partition(".")
        for value in values:
            changes[f"{path} {value}"] = {block: {**content[block], key: value} if key else value}
    number = {"name": "a", "low": 0, "high": 1}
    days = {"name": "a", "kind": "date", "as": ["number"], "low": "2023-01-01", "high": "2024-01-01"}
    features: dict[str, dict[str, Any]] = {
        "bounds that overflow": {"low": -1.7e308, "high": 1.7e308}, "no categories": {"categories": []},
        "both": {"categories": ["a", "b"]}, "fill": {"missing": 2}, "share": {"missing_share": 1},
        "unit": {"unit": 0}, "typical": {"typical": [0.5, 2]},
    }  # fmt: skip
    of_dates: dict[str, dict[str, Any]] = {
        "no last day": {"high": None}, "days before all": {"low": "-0400-01-01", "high": None},
        "days the other way": {"low": "2025-01-01"}, "a month": {"low": "2023-01"},
        "parts twice": {"as": ["month", "month"]}, "no part": {"as": []}, "bounds of no number": {"as": ["month"]},
        "a fill beyond": {"missing": "2030-01-01"},
    }  # fmt: skip
    for base, each in (number, features), (days, of_dates):
        for why, change in each.items():
            changes[why] = {"features": [base | change]}
    changes["one name"] = {"features": [number, number]}
    return changes


def _of_known_columns(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return changes of a document with known columns and experiments that a device refuses."""
    features = content["features"]
    if not (features and all(each.get("known") for each in features)):
        return {}
    arm, private = features[-1], {"name": "q", "low": 0, "high": 1}
    arms, metric = arm["categories"], {"name": "m", "kind": "real", "low": 0, "high": 1}
    assigned: dict[str, Any] = {"by": "device", "salt": "a", "shares": [1.0 / len(arms)] * len(arms)}
    experiment = {"arm": arm["name"], "control": arms[0], "guardrail": None, "assigned": assigned}
    experiments: dict[str, dict[str, Any]] = {
        "no such segment": {"segments": ["q"]}, "the arm's segments": {"segments": [arm["name"]]},
        "no such arm": {"arm": "q"}, "no such control": {"control": "q"}, "key": {"stop": 1},
        "guard rail": {"guardrail": {"margin": 0.01, "better": "lower"}},
        "classes of a metric": {"metrics": [{"name": "m", "kind": "classes", "classes": ["a", "b"]}]},
        "quantiles of a metric": {"metrics": [metric | {"quantiles": [0.5]}]},
        "bounds of a metric": {"metrics": [metric | {"low": 2}]},
        "a metric of the target's name": {"metrics": [metric | {"name": content["target"]["name"]}]},
        "many metrics": {"metrics": [metric | {"name": f"m{place}"} for place in range(21)]},
        "a key of a ratio": {"ratios": [{"name": "r", "numerator": "m", "denominator": "y", "per": "y"}]},
        "guard rail of no metric": {"metrics": [metric], "guardrail": {"margin": 1, "worse": "lower", "metric": "q"}},
    }  # fmt: skip
    assignments: dict[str, dict[str, Any]] = {
        "too much": {"shares": [0.9] * len(arms)}, "too few": {"shares": [1.0]}, "nobody": {"shares": [0, 1]},
        "no salt": {"salt": None}, "somebody": {"by": "person"}, "a salt": {"by": "server"}, "a key": {"to": 1},
    }  # fmt: skip
    experiments |= {why: {"assigned": assigned | changes} for why, changes in assignments.items()}
    more = {"name": "many", "categories": [str(each) for each in range(1_001)], "known": True}
    return {
        "a private column": {"features": [*features, private]},
        "a private category": {"features": [*features, {**arm, "name": "q", "known": None}]},
        "a private column of scores": {"features": [*features, private], "protocol": "scores", "scores": {}},
        "a known number": {"features": [{**private, "known": True}]},
        "known to somebody": {"features": [{**arm, "known": 1}]},
        "many cells": {"features": [more], "experiment": None},
        "a track": {"track": {"window": content["privacy"].get("window", NONE), "windows": 53, "smooth": 2}},
        "another protocol": {"protocol": "scores", "scores": {}},
        "repeated metrics": {
            "experiment": experiment | {"metrics": [metric]},
            "privacy": {**content["privacy"], "window": "week", "repeat": "same", "per_person": None, "lifetime": None},
            "track": None,
        },
        **{f"experiment: {why}": {"experiment": experiment | changes} for why, changes in experiments.items()},
    }


def _other_rounds(task: Task) -> dict[str, dict[str, Any]]:
    """Return a version at which a round would begin if shared models counted the releases of one partition only."""
    block, partitions = task.block, task.log.partitions
    if task.protocol != "scores" or task.forget is None or block.models != "shared" or partitions == 1:
        return {}
    device: Any = person_device_for(task)
    settings = device.settings
    begin = 0 if settings.survey is None else settings.survey.end
    versions = (begin + 3_000 * 2 + step * (task.forget // 8) for step in range(1, 100))
    wrong = [version for version in versions if settings.round_start(version) != version]
    return {"a round of one partition": {"version": wrong[0]}} if wrong else {}


def _of_matrices(device: Any, numbers: list[float]) -> dict[str, dict[str, Any]]:
    """Return a model that asks for matrices, if the task's people release none."""
    if getattr(getattr(device, "settings", None), "matrices", True):
        return {}
    return {"matrices": {"parameters": [*numbers[:-5], 0.0, 0.5, *numbers[-3:]]}}


def _damaged_covariates(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return changes of a document whose public points are not coded features of people."""
    own = content["covariates"]
    if own is None:
        return {}

    def written(values: Any) -> str:
        return base64.b64encode(values.tobytes()).decode("ascii")

    points = np.frombuffer(base64.b64decode(own["points"]), dtype="<f8").reshape(-1, own["size"])
    counts = np.frombuffer(base64.b64decode(own["counts"]), dtype="<i8")
    damages: dict[str, dict[str, Any]] = {"nobody": {"points": "", "counts": ""}, "size": {"size": own["size"] + 1}}
    for why, column, value in (
        ("beyond 1", 0, 1.5), ("tiny constant", -1, 1e-300), ("other constant", -1, -1.0), ("huge", 0, 1e200),
        ("nan", 0, math.nan),
    ):  # fmt: skip
        changed = points.copy()
        changed[0, column] = value
        damages[why] = {"points": written(changed)}
    for why, count in ("no count", 0), ("negative count", -int(counts.sum())):
        changed = counts.copy()
        changed[0] = count
        damages[why] = {"counts": written(changed)}
    return {f"covariates: {why}": {"covariates": own | damage} for why, damage in damages.items()}


def _cost(mechanism: Any, currency: str) -> list[str] | None:
    try:
        loss = mechanism.cost(currency)
    except UserError:
        return None
    return [str(loss.units), str(loss.delta_units)]


class _Vectors:
    """The vectors of one task."""

    def __init__(self, task: Task, draw: random.Random, number: int) -> None:
        self.task, self.draw, self.number = task, draw, number
        self.device: Any = person_device_for(task)
        self.asks, self.interactive = hasattr(self.device, "draw_query"), self.device.interactive
        self.versioned = "version" in KINDS[self.device.kind].model_fields
        self.write = writer(self.device.kind)

    def task_line(self) -> dict[str, Any]:
        task, device = self.task, self.device
        rough = task.covariates is not None or any(each.kind != "gaussian" for each in device.mechanisms.values())
        # Costs of all levels of a range would take most of the time.
        levels = list(device.mechanisms)[:: max(1, len(device.mechanisms) // 8)]
        costs = {
            level: {currency: _cost(device.mechanisms[level], currency) for currency in CURRENCIES} for level in levels
        }
        initial = getattr(device, "initial", None)
        # Of as many rows as may count; the order of a sum decides its last bits.
        draw = random.Random(self.number)
        size = draw.randint(1, 100)
        rows = np.array([[draw.gauss(0, 1) for _ in range(3)] for _ in range(size)])
        return {
            "rows": rows.tolist(), "mean": means_of(rows, np.array([size]))[0].tolist(),
            "name": task.name, "document": task.document().decode(), "hash": task.hash, "size": task.coding.size,
            "initial": None if initial is None else initial.tolist(), "near": 1e-8 if rough else 0.0, "costs": costs,
        }  # fmt: skip

    def message(self, partition: int) -> str | None:
        """Return a published model of a partition, or None for version 0."""
        if not self.interactive or self.draw.random() < 0.3:
            return None
        numbers, version = _iterate(self.draw, self.device, self.task)
        source = FIRST_PARTITION if getattr(self.device, "shares_models", False) else partition
        fields: dict[str, Any] = {
            "task": self.task.hash,
            "partition": source,
            "version": version,
            "parameters": numbers,
        }
        return encode(ModelMessage(**fields)).decode()

    def _rows(self, coded: Any, rows: int) -> tuple[Any, Any, Any]:
        """Return coded features, targets and counts of a record that stands for a number of rows."""
        most = self.task.most_rows
        counts = np.array([min(rows, most)])
        x, y = np.repeat(np.array(coded.x)[None, :], counts, axis=0), np.full(counts, coded.y)
        return weighed(x, y, counts, most) if most > 1 else (x, y, None)

    def _mark(self, coded: Any, rows: int, key: NameKey) -> bytes:
        """Return the fingerprint of a record that stands for a number of rows."""
        most = self.task.most_rows
        counts = np.array([min(rows, most)])
        x, y = np.repeat(np.array(coded.x)[None, :], counts, axis=0), np.full(counts, coded.y)
        return marks_of(self.device, x, y, counts, key, most)[0]

    def _again(self, line: dict[str, Any], record: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any] | None:
        """Return a further record of the person, and the message that answers for it."""
        task, draw = self.task, self.draw
        if not task.privacy.repeats_answers:
            return None
        columns = [feature.model_dump(mode="json", by_alias=True) for feature in (*task.features, task.target)]
        changed = draw.choice([None, None, *columns])
        again = record if changed is None else {**record, changed["name"]: _value(draw, changed)}
        noise, at = SimulatedNoise(int(line["seed"])), line["index"] + 2**32
        level, rows, only = (
            draw.choice([line["level"], *task.privacy.levels]),
            draw.choice([1, 1, 5]),
            draw.random() < 0.2,
        )
        before, after = (task.coding.encode_record(each) for each in (record, again))
        key = NameKey(b"k" * 32)
        prints = [self._mark(*given, key) for given in ((before, 1), (after, rows))]
        same = only or (level == line["level"] and len(set(prints)) == 1)
        answer = line["payload"] if same else self._payload(after, rows, None, level, None, noise, np.array([at]))
        (identifier,) = identifiers(noise, np.array([at]))
        partitions = task.log.partitions
        partition = 0 if partitions == 1 else int(below(noise.words([at], 64, Purpose.PARTITION), partitions)[0])
        own = {"id": identifier, "level": line["level"] if same else level, "partition": partition, "payload": answer}
        return {
            "record": {name: _json(value) for name, value in again.items()}, "index": at, "level": level, "rows": rows,
            "only": only, "same": same, "bytes": self.write(**(fields | own)).decode(),
        }  # fmt: skip

    def _payload(
        self, coded: Any, rows: int, theta: Any, level: str, query: str | None, noise: Any, index: Any
    ) -> list[int]:
        """Return the payload of a record that stands for a number of rows, as a producer makes it."""
        device = SingleQueryDevice(self.device, query) if query is not None else self.device
        x, y, counts = self._rows(coded, rows)
        payload: list[int] = randomize_rows(device, x, y, [0], {0: theta}, [level], noise, index, counts)[0].tolist()
        return payload

    def record_line(self, number: int) -> dict[str, Any]:
        task, draw, device = self.task, self.draw, self.device
        asked = *task.features, *task.metrics, task.target
        columns = [column.model_dump(mode="json", by_alias=True) for column in asked]
        record = {column["name"]: _value(draw, column) for column in columns}
        if draw.random() < 0.05:
            del record[draw.choice(list(record))]
        assigned_by = None
        if task.experiment is not None and getattr(task.experiment.assigned, "salt", None) is not None:
            assigned_by = f"{draw.getrandbits(128):032x}"
            record[task.experiment.arm] = task.arm_of(assigned_by)
        coded = task.coding.encode_record(record)
        seed, index = draw.getrandbits(64), np.array([number])
        noise = SimulatedNoise(seed)
        level = draw.choice(list(task.privacy.levels))
        partitions = task.log.partitions
        partition = 0 if partitions == 1 else int(below(noise.words(index, 64, Purpose.PARTITION), partitions)[0])
        message = self.message(partition)
        version, theta = 0, getattr(device, "initial", None)
        if message is not None:
            version, theta = json.loads(message)["version"], np.array(json.loads(message)["parameters"])
            device.check_model(theta)
        query, mechanism = None, device.mechanisms[level]
        if self.asks:
            (query,) = device.draw_query(noise, index, theta)
            mechanism = device.mechanism(level, query)
        payload, quantised = self._payload(coded, 1, theta, level, query, noise, index), None
        # Beside a cell or a threshold stands another mechanism's payload. Without noise another metric would be drawn.
        inner = getattr(mechanism, "noise", mechanism)
        drawn = isinstance(mechanism, ThresholdMechanism | DrawnMechanism) or inner.kind in KINDS_WITHOUT_NOISE
        if not drawn:
            quantised = self._payload(coded, 1, theta, level, query, _Still(noise), index)
        now = draw.randrange(1_700_000_000, 1_900_000_000)
        (identifier,) = identifiers(noise, index)
        fields: dict[str, Any] = {
            "id": identifier, "task": task.hash, "level": level, "partition": partition, "payload": payload,
            "time": truncate_time(now, task.granularity), "expires": truncate_time(now + task.expiry, task.granularity),
            "simulated": False,
        }  # fmt: skip
        if self.versioned:
            fields["version"] = version
        if query is not None:
            fields |= query_fields(query)
        smooth = task.target.kind == "real" and task.covariates is None
        count, window = 1 + number % 40, task.privacy.window
        number_of = None if window == NONE else window_of(window, now // 86_400)
        held: dict[str, Any] = {"window": None}
        times = {"time": fields["time"]}
        if number_of is not None:
            delay = below(noise.words(index, 64, Purpose.SELECTION), spread_of(window))
            drawn = count == 1 or int(below(noise.words(index, 64, Purpose.RECORD), count)[0]) == 0
            held = {"window": number_of, "due": end_of(window, number_of) + int(delay[0])}
            held |= {"count": count, "drawn": drawn}
            # Of a window that is tracked the time is its beginning, also if the answer comes later.
            begin = {"time": start_of(window, number_of)} if task.track is not None else {}
            times, due = times | begin, held["due"]
            expires = truncate_time(due + task.expiry, task.granularity)
            late = {"time": truncate_time(due, task.granularity), "expires": expires} | begin
            payload_of_all = self._payload(coded, count, theta, level, query, noise, index)
            held["bytes"] = self.write(**(fields | late | {"payload": payload_of_all})).decode()
        line = {
            "name": task.name, "record": {name: _json(value) for name, value in record.items()},
            "x": [None if math.isnan(each) else each for each in coded.x.tolist()],
            "y": None if math.isnan(coded.y) else coded.y,
            "clamped": int(coded.clamped), "missing": int(coded.missing), "level": level, "seed": str(seed),
            "index": number, "partition": partition, "model": message, "query": query, "quantised": quantised,
            "slack": 0 if smooth or query == "scatter" else 1, "payload": payload, "now": now,
            "bytes": self.write(**(fields | times)).decode(), "held": held, "assigned_by": assigned_by,
        }  # fmt: skip
        return line | {"again": self._again(line, record, fields | times)}

    def refusals(self) -> Iterator[dict[str, Any]]:
        """Yield documents and models that a device must refuse."""
        document, name = self.task.document().decode(), f"{self.task.name}-refused"
        content = json.loads(document)
        weaker = document.replace('"guarantee":{', '"guarantee":{ ', 1)
        yield {"name": name, "why": "other bytes", "document": weaker, "hash": self.task.hash, "refused": "wrong-hash"}
        other = json.dumps({**content, "log": {"partitions": 5, "retention": "9d"}}, sort_keys=True)
        yield {"name": name, "why": "white space", "document": other, "hash": self.task.hash, "refused": "task"}
        damages: dict[str, dict[str, Any]] = {
            "simulated": {"simulated": True}, "schema": {"schema": 2}, "unknown key": {"further": 1},
            "unknown protocol": {"protocol": "summaries"}, "no features": {"features": [], "protocol": "examples"},
            "damaged feature": {"features": [{"name": "a", "low": 2, "high": 1}]}, "expiry": {"expiry": "0d"},
            "partitions": {"log": {"partitions": 0}}, "target": {"target": {"name": "y", "kind": "binary"}},
            "missing targets": {"target": {**content["target"], "missing_share": 1}},
            "missing words": {"target": {**content["target"], "missing_share": "never"}},
            "unknown kind": {"target": {"name": "y", "kind": "toString"}}, "no privacy": {"privacy": None},
            "no levels": {"privacy": {"guarantee": {"gdp": {"mu": 1}}, "levels": None}}, "text": {"features": "abc"},
            "no learner": {"learner": 3, "features": [None]},
            "part": {"features": [{"name": "a", "kind": "date", "as": "x"}]},
        }  # fmt: skip
        for why, changes in damages.items():
            text = json.dumps({**content, **changes}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            yield {"name": name, "why": why, "document": text, "refused": "task"}
        others = _damaged_covariates(content) | _of_known_columns(content)
        for why, changes in (_numbers(content, self.task) | others).items():
            text = json.dumps({**content, **changes}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            yield {"name": name, "why": why, "document": text, "refused": "task"}
        if self.number == 0:
            many = [{"high": 1, "low": 0, "name": f"f{i}"} for i in range(60_000)]
            text = json.dumps({**content, "features": many}, sort_keys=True, separators=(",", ":"))
            yield {"name": name, "why": "too many features", "document": text, "refused": "task"}
        privacy = content["privacy"]
        for why, guarantee in {
            "endless": {"gdp": {"mu": 1e6}}, "negative": {"pure": {"epsilon": -1}}, "two": {"gdp": {"mu": 1}, "x": {}},
            "nothing": {"zcdp": {"rho": 0}}, "foreign": {"pure": {"mu": 1}}, "inherited": {"toString": {}}, "none": {},
        }.items():  # fmt: skip
            text = json.dumps(
                {**content, "privacy": {**privacy, "guarantee": guarantee}}, sort_keys=True, separators=(",", ":")
            )
            yield {"name": name, "why": why, "document": text, "refused": "guarantee"}
        for why, changes in {
            "window": {"window": "weekly"}, "window of nothing": {"window": "0d"}, "long window": {"window": "3661d"},
            "lifetime alone": {"window": NONE, "lifetime": privacy["guarantee"]}, "repeated": {"repeat": "always"},
            "repeated at once": {"window": NONE, "repeat": "same"},
            "repeated and more": {"window": "week", "repeat": "same", "per_person": privacy["guarantee"]},
            **({"repeated rounds": {"window": "week", "repeat": "same"}} if self.interactive else {}),
        }.items():  # fmt: skip
            text = json.dumps(
                {**content, "privacy": {**privacy, **changes}},
                sort_keys=True,
                separators=(",", ":"),
                ensure_ascii=False,
            )
            yield {"name": name, "why": why, "document": text, "refused": "task"}
        tracks: dict[str, dict[str, Any]] = {
            "window": {"window": "3d"}, "kept": {"windows": 1}, "reach": {"smooth": 53}, "key": {"by": 1},
        }  # fmt: skip
        for why, track in tracks.items():
            text = json.dumps(
                {**content, "track": {"window": privacy.get("window", NONE), "windows": 53, "smooth": 2} | track},
                sort_keys=True,
                separators=(",", ":"),
                ensure_ascii=False,
            )
            yield {"name": name, "why": f"track: {why}", "document": text, "refused": "task"}
        if not self.interactive:
            return
        numbers, version = _iterate(self.draw, self.device, self.task)
        base = {"schema": 1, "kind": "model", "task": self.task.hash, "partition": 0}
        base |= {"version": version, "parameters": numbers}
        forgeries: dict[str, dict[str, Any]] = {
            "schema": {"schema": 2}, "kind": {"kind": "state"}, "task": {"task": "0" * 64},
            "partition": {"partition": 9},
            "version": {"version": -1}, "fraction": {"version": 1.5}, "unpublished": {"version": 1_000_001},
            "short": {"parameters": numbers[:-1]}, "text": {"parameters": ["1", *numbers[1:]]}, "key": {"note": 1},
            **_other_rounds(self.task), **_of_matrices(self.device, numbers),
            "huge": {"parameters": [1e9, *numbers[1:]]}, "endless": {"parameters": [10**400, *numbers[1:]]},
        }  # fmt: skip
        if self.task.learner.radius == "unbounded":
            del forgeries["huge"]
        for why, changes in forgeries.items():
            yield {
                "name": self.task.name, "why": f"model: {why}", "partition": 0, "refused": "model",
                "model": json.dumps({**base, **changes}),
            }  # fmt: skip
        whole = json.dumps(base)
        for why, text in {
            "cut": whole[:-2], "twice": whole.replace("{", '{"partition": 0, ', 1), "list": f"[{whole}]",
            "long": whole + " " * (600 + 26 * len(numbers)),
        }.items():  # fmt: skip
            yield {"name": self.task.name, "why": f"model: {why}", "partition": 0, "refused": "model", "model": text}


def vectors(protocol: str, records: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the lines of a protocol's vectors: tasks, each followed by its records and refusals.

    >>> lines = list(vectors("scores", 2, seed=1))
    >>> [sorted(set(line) & {"document", "bytes", "refused"}) for line in lines[:2]]
    [['document'], ['bytes']]
    """
    draw, number, several = random.Random(f"{protocol} {seed}"), 0, max(min(10, records), records // TASKS)
    while number < records:
        place = number // several
        own = _Vectors(_task(draw, protocol, place), draw, place)
        yield own.task_line()
        last = min(number + several, records)
        while number < last:
            number += 1
            yield own.record_line(number)
        yield from own.refusals()


def main(arguments: list[str] | None = None) -> None:
    """Write vectors to the standard output."""
    parser = argparse.ArgumentParser(description="Write test vectors for devices in other languages, one a line.")
    parser.add_argument(
        "--protocol", choices=PROTOCOLS, default="scores", help="protocol of the tasks (default scores)"
    )
    parser.add_argument("--records", type=int, default=10_000, help="number of records (default 10000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of tasks, records and words (default 1)")
    options = parser.parse_args(arguments)
    for line in vectors(options.protocol, options.records, options.seed):
        sys.stdout.write(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
