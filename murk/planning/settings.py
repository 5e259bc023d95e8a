"""A task from a few settings, for a plan without a task file."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from murk.errors import UserError
from murk.task.errors import nearest
from murk.task.protocols.registry import PROTOCOLS
from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"

EXAMPLE: Final = "features=5, target=binary, mu=1"
MOST_FEATURES: Final = 500

_TARGETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "binary": {"kind": "binary", "positive": "yes"},
    "real": {"kind": "real", "low": -1, "high": 1},
    "classes": {"kind": "classes"},
}
_BUDGETS: Final = ("mu", "epsilon", "delta", "rho")
_KEYS: Final = ("features", "target", "classes", *_BUDGETS, "public", "protocol")


def task_of(text: str) -> Task:
    """Return the task that settings describe: a number of features between -1 and 1, and a target.

    They are ``KEY=VALUE``, separated by commas: *features*, their number; *target*, ``binary``, ``real`` (between -1
    and 1) or ``classes``, with *classes* for their number; the budget of a release, *mu*, *rho*, *epsilon*, or
    *epsilon* and *delta*; *public*, the number of rows set aside as public, or ``none``; *protocol*, by default the
    task's. Raises UserError for a setting that is unknown, missing, repeated, invalid, or inconsistent with another.

    >>> found = task_of("features=2, target=real, epsilon=1, delta=1e-6, public=1000")
    >>> [feature.name for feature in found.features], found.privacy.guarantee
    (['x1', 'x2'], ApproxDP(epsilon=1.0, delta=1e-06))
    """
    settings = _parse(text)
    missing = [key for key in ("features", "target") if key not in settings]
    if missing:
        raise UserError(f"--settings: {missing[0]}= is required, as in {EXAMPLE!r}")
    names = [f"x{index + 1}" for index in range(_integer(settings, "features", 0, MOST_FEATURES))]
    content: dict[str, Any] = {
        "name": "settings",
        "features": [{"name": name, "low": -1, "high": 1} for name in names],
        "target": _target(settings),
        "privacy": {"guarantee": _guarantee(settings)},
    }
    if settings.get("public", "none") not in ("none", "0"):
        content["public"] = {"set_aside": _integer(settings, "public", 2, 1_000_000)}
    if "protocol" in settings:
        if settings["protocol"] not in PROTOCOLS:
            raise UserError(f"--settings: protocol={settings['protocol']}; {nearest(settings['protocol'], PROTOCOLS)}")
        content["protocol"] = settings["protocol"]
    # JSON is valid YAML.
    return Task.parse(json.dumps(content), source="--settings")


def _parse(text: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for part in filter(None, re.split(r"[,\s]+", re.sub(r"\s*=\s*", "=", text.strip()))):
        key, equals, value = part.partition("=")
        if not (key and equals and value):
            raise UserError(f"--settings: {part!r} is not KEY=VALUE; write them as in {EXAMPLE!r}")
        if key not in _KEYS:
            raise UserError(f"--settings: {key!r} is not a setting; {nearest(key, _KEYS)}")
        if key in settings:
            raise UserError(f"--settings: {key}= is given twice")
        settings[key] = value
    return settings


def _target(settings: Mapping[str, str]) -> dict[str, Any]:
    kind = settings["target"]
    if kind not in _TARGETS:
        raise UserError(f"--settings: target={kind}; {nearest(kind, _TARGETS)}")
    if (kind == "classes") != ("classes" in settings):
        fix = "how many are there? Give classes= as well" if kind == "classes" else "leave classes= out"
        raise UserError(f"--settings: target={kind}: {fix}")
    target = {"name": "y", **_TARGETS[kind]}
    if kind == "classes":
        target["classes"] = [f"c{index + 1}" for index in range(_integer(settings, "classes", 2, 100))]
    return target


def _guarantee(settings: Mapping[str, str]) -> dict[str, dict[str, float]]:
    given = [key for key in _BUDGETS if key in settings]
    values = {key: _number(settings, key) for key in given}
    if given == ["epsilon", "delta"]:
        return {"approx": values} if values["delta"] else {"pure": {"epsilon": values["epsilon"]}}
    if len(given) != 1 or given == ["delta"]:
        fix = " and ".join(f"{key}=" for key in given) or "no budget"
        raise UserError(
            f"--settings: {fix}: give the budget of a release by one of mu=, rho=, epsilon=, or epsilon= and delta="
        )
    return {{"mu": "gdp", "rho": "zcdp", "epsilon": "pure"}[given[0]]: values}


def _number(settings: Mapping[str, str], key: str) -> float:
    try:
        value = float(settings[key])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0.0) and not (key == "delta" and value == 0.0):
        raise UserError(f"--settings: {key}={settings[key]} is not a number above 0")
    return value


def _integer(settings: Mapping[str, str], key: str, least: int, most: int) -> int:
    value = settings[key].replace("_", "")
    if not value.isdecimal() or not least <= int(value) <= most:
        raise UserError(f"--settings: {key}={settings[key]} is not a whole number from {least} to {most:,}")
    return int(value)
