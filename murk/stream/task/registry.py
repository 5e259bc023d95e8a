"""Registry of protocols, and the defaults that follow from one. A new protocol needs a folder and a line here.

A folder's module ``protocol`` defines ``PROTOCOL``, a `TaskProtocol`. Its modules ``problem`` and
``forecast`` are imported when they are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BeforeValidator

from murk.errors import UserError
from murk.privacy.mechanisms import BEST
from murk.stream.task.errors import nearest, shown, task_error
from murk.stream.task.learner import PublicBlock
from murk.stream.task.protocol import TaskProtocol, coded_features

OBJECTIVES: Final = {
    "binary": ("balanced", "logistic"),
    "classes": ("softmax",),
    "real": ("huber", "squared", "median"),
}
"""Objectives of `gradients` by kind of target, the default first."""
OBJECTIVE_KEYS: Final = {
    "huber": ("huber_c", "scale", "scale_floor", "scale_start", "scale_multiplier"),
    "softmax": ("coordinates",),
}
"""Keys of `learner` that only one objective reads."""
FORMER_OBJECTIVE: Final = "logistic"  # default objective of a binary target up to version 0.3


FOLDERS: Final[Mapping[str, str]] = {
    "gradients": "murk.learners.gradients",
    "scores": "murk.learners.scores",
    "examples": "murk.learners.examples",
    "moments": "murk.learners.moments",
    "sketch": "murk.learners.sketches",
}
"""Package of each protocol, by its name in task files."""


def part(protocol: str, module: str) -> Any:
    """Import a module of a protocol's package; raise `UserError` if the protocol has no forecast."""
    name = f"{FOLDERS[protocol]}.{module}"
    if module == "forecast" and find_spec(name) is None:
        raise UserError(f"protocol: {protocol} has no forecast: a simulated run (--seed) shows what it learns")
    return import_module(name)


PROTOCOLS: Final[dict[str, TaskProtocol]] = {name: part(name, "protocol").PROTOCOL for name in FOLDERS}
"""Protocols by name."""
BLOCKS: Final = {name: protocol.block for name, protocol in PROTOCOLS.items() if protocol.block is not None}
"""Models of settings by protocol; a task has a field for each."""

FORMER_PROTOCOL: Final = "gradients"  # default protocol up to version 0.3
FORMER_SET_ASIDE: Final = 1000  # default number of records that moments set aside up to version 0.3


def _known(value: object) -> object:
    if isinstance(value, str) and value not in PROTOCOLS:
        raise task_error(f"{shown(value)} is not a protocol; {nearest(value, PROTOCOLS)}")
    return value


if TYPE_CHECKING:
    _Name = str
else:
    _Name = Literal[tuple(PROTOCOLS)]
ProtocolName = Annotated[_Name, BeforeValidator(_known)]


def _kind(data: Mapping[str, Any], default: str | None = None) -> Any:
    """Return the kind of a file's target, which may be anything."""
    target = data.get("target")
    return target.get("kind", default) if isinstance(target, dict) else getattr(target, "kind", None)


def protocol_by_rule(data: Mapping[str, Any]) -> str:
    """Return the protocol of a task file that names none.

    It is `scores`, unless the file has settings that only `gradients` read, or so many coded features that their second
    moments are too large a release. Without features it is `moments`, except for several classes.
    """
    many = bool(PROTOCOLS["scores"].why_impractical(coded_features(data), public=False))
    if many or any(data.get(key) for key in ("objective", "learner", "max_staleness")):
        return "gradients"
    return "moments" if data.get("features") in ([], ()) and _kind(data) in ("binary", "real") else "scores"


def with_published(data: dict[str, Any]) -> dict[str, Any]:
    """Return a task file's content with the paper's settings in place of ``as_published: true``, or raise the error."""
    if data.get("as_published") is not True:
        return data
    protocol = PROTOCOLS.get(str(data.get("protocol")))
    if protocol is None:
        return data
    if data.get("features") in ([], ()):
        raise task_error("the papers' algorithms need features; name some, or remove it", "as_published")
    privacy = data.get("privacy")
    guarantee = privacy.get("guarantee") if isinstance(privacy, dict) else None
    settings = protocol.published(str(_kind(data)), next(iter(guarantee), "") if isinstance(guarantee, dict) else "")
    if not settings:
        able = [name for name, each in PROTOCOLS.items() if each.published("binary", "")]
        raise task_error(
            f"has no effect with protocol: {protocol.name}, which is of no paper; say protocol: {' or '.join(able)}",
            "as_published",
        )
    content = {key: value for key, value in data.items() if key != "as_published"}
    for (*blocks, key), value in settings.items():
        block = content
        for name in blocks:
            if not isinstance(content.get(name), dict | None):
                return data
            block = content[name] = dict(content.get(name) or {})
        given = value if block.get(key) is None else block[key]
        if isinstance(value, dict) and isinstance(given, dict):
            given = value | given
        words = protocol.left_open.get(key)
        if given != value and (words is None or (isinstance(given, str) and given not in words)):
            published = "null" if value is None else shown(value)
            contradiction = f"{shown(given)} contradicts as_published: true, with which it is {published}; remove one"
            raise task_error(contradiction, *blocks, key)
        block[key] = given
    return content


def with_delays(data: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Fill in ``delays``, the default of new tasks of gradients; return the file's content and the keys filled in."""
    learner = {} if data.get("learner") is None else data["learner"]
    if data.get("protocol") != "gradients" or not isinstance(learner, dict) or "delays" in learner:
        return data, set()
    if learner.get("step", "noise-aware") != "noise-aware":
        return data, set()
    return {**data, "learner": {**learner, "delays": "adaptive"}}, {"delays"}


def with_rules_of_scores(data: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Fill in the defaults of new tasks of scores; return the file's content and the keys filled in."""
    log, block = data.get("log"), {} if data.get("scores") is None else data["scores"]
    if data.get("protocol") != "scores" or not isinstance(block, dict):
        return data, set()
    several = isinstance(log, dict) and log.get("partitions", 1) != 1
    line = _kind(data, "binary") in ("binary", "classes") and not data.get("public")
    rules = {"models": "shared" if several else "own", "effects": "line" if line else "curve"}
    filled = {key: value for key, value in rules.items() if key not in block}
    return {**data, "scores": {**block, **filled}}, set(filled)


def resolved(data: dict[str, Any]) -> dict[str, Any]:
    """Fill in what follows from a task's protocol and target, leaving invalid parts to the validation."""
    kind = _kind(data)
    if not isinstance(kind, str):
        kind = "binary"
    if data.get("protocol") is None:
        data = {**data, "protocol": protocol_by_rule(data)}
    protocol = data["protocol"]
    if protocol == "gradients":
        if data.get("objective") is not None:
            return data
        return {**data, "objective": OBJECTIVES.get(kind, OBJECTIVES["binary"])[0]}
    if not isinstance(protocol, str) or protocol not in BLOCKS:
        return data
    block = {} if data.get(protocol) is None else data[protocol]
    if isinstance(block, dict):
        block = PROTOCOLS[protocol].fill_in(block, kind, data)
    return {**data, protocol: block}


def release_named(data: dict[str, Any]) -> str | None:
    """Return the release that a task file's block names once it is filled in, or None."""
    protocol = data.get("protocol")
    block = resolved(data).get(protocol) if isinstance(protocol, str) else None
    release = block.get("release") if isinstance(block, dict) else None
    return release if isinstance(release, str) else None


def former_defaults(task: Any, carried: Any, by_rule: Set[str]) -> dict[str, Any]:
    """Return the log's values for the keys ``by_rule`` that earlier versions filled in differently.

    Up to version 0.3, a file without ``protocol`` had gradients; binary targets had the logistic loss; moments without
    ``public`` set 1,000 records aside; organisations mixed their records; no mechanism was ``best``; steps did not
    depend on a gradient's age; chains of scores had their own models, at the fitted coefficients; and examples and
    moments were released jointly, later examples as directions.
    """
    changes: dict[str, Any] = {}
    for name in BLOCKS:
        block, former = getattr(task, name), getattr(carried, name)
        kept = {} if block is None or former is None else PROTOCOLS[name].former_settings(former, by_rule)
        if kept:
            changes[name] = block.model_dump(mode="json", by_alias=True) | kept
    if "protocol" in by_rule and carried.protocol == FORMER_PROTOCOL != task.protocol:
        # Take the step settings of the log's task, since the rules for the new default protocol fill in none.
        learner = carried.learner.model_dump(mode="json")
        changes |= {"protocol": FORMER_PROTOCOL, task.protocol: None, "learner": learner}
    same = "protocol" in changes or task.protocol == carried.protocol
    logistic = carried.objective == FORMER_OBJECTIVE and task.target.kind == "binary"
    if same and logistic and "objective" in by_rule:
        changes["objective"] = FORMER_OBJECTIVE
    if "delays" in by_rule and carried.learner.delays is None:
        changes["learner"] = task.learner.model_dump(mode="json") | {"delays": None}
    sample = PublicBlock(set_aside=FORMER_SET_ASIDE)
    if task.protocol == "moments" and task.public is None and carried.public == sample:
        changes["public"] = sample.model_dump(mode="json")
    if task.privacy.mechanism == BEST and carried.privacy.mechanism is None:
        changes["privacy"] = task.privacy.model_dump(mode="json", by_alias=True) | {"mechanism": None}
    return changes
