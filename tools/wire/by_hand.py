"""A release made by hand, in the standard library alone: the code that docs/wire.md quotes.

It serves tasks with a binary target, numbers and categories (no dates), `norm` weights, Gaussian noise, guarantees in
gdp or zcdp, and no public covariates; the page says what is otherwise in other tasks.
"""

import hashlib
import json
import math
import secrets
import time
from fractions import Fraction
from typing import Any

WIDTH = 2**20  # S: the noise has this width, in lattice steps
SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def task_hash(document: bytes) -> str:
    """Return the SHA-256 of a task without ``log``, written canonically."""
    content = {key: value for key, value in json.loads(document).items() if key != "log"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def coded(features: list[dict[str, Any]], record: dict[str, Any]) -> list[float]:
    """Return features in [-1, 1] and the constant; missing or undeclared values are 0."""
    x = []
    for feature in features:
        value = record.get(feature["name"])
        if "low" in feature:
            low, high = feature["low"], feature["high"]
            known = isinstance(value, int | float) and math.isfinite(value)
            x.append(2 * (min(max(value, low), high) - low) / (high - low) - 1 if known else 0.0)
            continue
        # Two categories are one feature of -1 and +1; of more, each but the first is one.
        categories = feature["categories"]
        x += [0.0 if value not in categories else 1.0 if value == each else -1.0 for each in categories[1:]]
    return [*x, 1.0]


def gradient(objective: str, theta: list[float], x: list[float], y: float | None) -> list[float]:
    """Return the gradient, no longer than 1; zero without a target."""
    if y is None:
        return [0.0] * len(x)
    fit = sum(a * b for a, b in zip(theta, x, strict=True))
    weight = 1 / max(1.0, math.sqrt(sum(value * value for value in x)))
    if objective == "balanced":
        miss = -math.exp(min(-fit, 0.0)) if y else math.exp(min(fit, 0.0))
    else:
        miss = 1 / (1 + math.exp(-min(max(fit, -700.0), 700.0))) - y
    return [miss * weight * value for value in x]


def lattice_steps(guarantee: dict[str, dict[str, float]]) -> int:
    """Return the number of lattice steps in the gradient's bound."""
    [(kind, parameters)] = guarantee.items()
    if kind not in ("gdp", "zcdp"):
        raise ValueError(f"a guarantee in {kind} takes another rule")
    value = Fraction(repr(next(iter(parameters.values()))))
    if kind == "zcdp":
        return math.isqrt(int(value * 10**12) * WIDTH**2 // (2 * 10**12))
    square = int(value * value * 10**12)
    steps = math.isqrt(square // 2 * WIDTH**2 // (2 * 10**12))
    return min(steps, math.isqrt(square * (WIDTH**2 - 9) // (4 * 10**12)))


def quantised(vector: list[float], steps: int) -> list[int]:
    """Return integers of l2 norm at most ``steps``, for a vector of norm at most 1."""
    whole = [int(value / (1 / steps)) for value in vector]  # int() drops the fraction, towards zero
    while sum(value * value for value in whole) > steps * steps:
        largest = max(range(len(whole)), key=lambda j: abs(whole[j]))
        whole[largest] -= 1 if whole[largest] > 0 else -1
    return whole


def coin(numerator: int, denominator: int) -> bool:
    """Return True with probability exp(-numerator / denominator), exactly."""
    while numerator > denominator:
        if not coin(1, 1):
            return False
        numerator -= denominator
    tries = 1
    while secrets.randbelow(tries * denominator) < numerator:
        tries += 1
    return tries % 2 == 1


def noise() -> int:
    """Draw an integer x with probability ~ exp(-x^2 / 2 S^2) (Canonne, Kamath, Steinke 2020)."""
    while True:
        rest = secrets.randbelow(WIDTH)
        if not coin(rest, WIDTH):
            continue
        size = rest
        while coin(1, 1):
            size += WIDTH
        if coin((size - WIDTH) ** 2, 2 * WIDTH**2):
            sign = secrets.randbelow(2)
            if size or not sign:
                return -size if sign else size


def release(
    document: bytes, model: bytes | None, partition: int, record: dict[str, Any], level: str = "default"
) -> bytes:
    """Return one person's release, given the task's document and the partition's newest model."""
    task, hashed = json.loads(document), task_hash(document)
    features, target, privacy = task["features"], task["target"], task["privacy"]
    objective = task["objective"]
    if objective not in ("balanced", "logistic") or (task["learner"]["weights"], task["covariates"]) != ("norm", None):
        raise ValueError("a task of this kind takes another gradient")
    if privacy["mechanism"] not in (None, "gaussian"):
        raise ValueError("this mechanism takes other noise")
    theta, version = [0.0] * len(coded(features, {})), 0
    if model is not None:
        newest = json.loads(model)
        theta, version = newest["parameters"], newest["version"]
        # A device trusts nobody: it checks the model before it reads the record.
        radius = task["learner"]["radius"] or 3.0
        if newest["schema"] != 1 or newest["task"] != hashed or newest["partition"] != partition:
            raise ValueError("not a model of this partition")
        if len(theta) != len(coded(features, {})) or not math.hypot(*theta) <= radius * (1 + 1e-9):
            raise ValueError("not a model that an honest learner publishes")
    answer = record.get(target["name"])
    y: float | None = None
    if answer == target["positive"]:
        y = 1.0
    elif answer is not None and target["negative"] in (None, answer):
        y = 0.0
    steps = lattice_steps({"default": privacy["guarantee"], **privacy["levels"]}[level])
    payload = [q + noise() for q in quantised(gradient(objective, theta, coded(features, record), y), steps)]
    granularity, expiry = (int(text[:-1]) * SECONDS[text[-1]] for text in (task["granularity"], task["expiry"]))
    now = int(time.time())
    message = {
        "schema": 1,
        "kind": "gradient",
        "id": secrets.token_hex(16),
        "task": hashed,
        "level": level,
        "partition": partition,
        "version": version,
        "payload": payload,
        "time": now - now % granularity,
        "expires": now + expiry - (now + expiry) % granularity,
        "simulated": task["simulated"],
    }
    return json.dumps(message, separators=(",", ":")).encode()
