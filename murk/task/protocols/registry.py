"""Registry of what task files say about protocols, and the defaults that follow. A new protocol needs a line here.

Each module defines ``PROTOCOL``, a `TaskProtocol`. What devices and learners do is in `murk.protocols`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BeforeValidator

from murk.task.errors import nearest, shown, task_error
from murk.task.protocols import examples, gradients, moments, scores, summaries, univariate
from murk.task.protocols.base import TaskProtocol, coded_features

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


_MODULES: Final = (gradients, scores, examples, moments, summaries, univariate)
PROTOCOLS: Final[dict[str, TaskProtocol]] = {module.PROTOCOL.name: module.PROTOCOL for module in _MODULES}
"""Protocols by name."""
BLOCKS: Final = {name: protocol.block for name, protocol in PROTOCOLS.items() if protocol.block is not None}
"""Models of settings by protocol; a task has a field for each."""


def _known(value: object) -> object:
    if isinstance(value, str) and value not in PROTOCOLS:
        raise task_error(f"{shown(value)} is not a protocol; {nearest(value, PROTOCOLS)}")
    return value


if TYPE_CHECKING:
    _Name = str
else:
    _Name = Literal[tuple(PROTOCOLS)]

_ERROR_CODE = "MURK-TASK-001"
ProtocolName = Annotated[_Name, BeforeValidator(_known)]


def _kind(data: Mapping[str, Any], default: str | None = None) -> Any:
    """Return the kind of a task file's target; the target may be invalid."""
    target = data.get("target")
    return target.get("kind", default) if isinstance(target, dict) else getattr(target, "kind", None)


def protocol_by_rule(data: Mapping[str, Any]) -> str:
    """Return the protocol of a task file that names none.

    It is `scores`, unless the file has settings that only `gradients` read, or so many coded features that their second
    moments are too large a release. Without features, or with known ones, it is `univariate`.
    """
    features = data.get("features")
    if features in ([], ()) or (isinstance(features, list | tuple) and any(univariate.is_known(features))):
        return "univariate"
    many = bool(PROTOCOLS["scores"].why_impractical(coded_features(data), public=False))
    if many or any(data.get(key) for key in ("objective", "learner", "max_staleness")):
        return "gradients"
    return "scores"


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
            f"has no effect with protocol: {protocol.name}, which is not from a paper; say protocol: "
            f"{' or '.join(able)}",
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


def with_delays(data: dict[str, Any]) -> dict[str, Any]:
    """Fill in ``delays``, the default of tasks of gradients; return the file's content."""
    learner = {} if data.get("learner") is None else data["learner"]
    if data.get("protocol") != "gradients" or not isinstance(learner, dict) or "delays" in learner:
        return data
    if learner.get("step", "noise-aware") != "noise-aware":
        return data
    return {**data, "learner": {**learner, "delays": "adaptive"}}


def with_rules_of_scores(data: dict[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of tasks of scores; return the file's content."""
    log, block = data.get("log"), {} if data.get("scores") is None else data["scores"]
    if data.get("protocol") != "scores" or not isinstance(block, dict):
        return data
    in_rounds = block.get("interactive") is not False
    several = in_rounds and isinstance(log, dict) and log.get("partitions", 1) != 1
    lines = ("binary", "classes") if in_rounds else ("classes",)
    line = _kind(data, "binary") in lines and not data.get("public")
    rules = {"models": "shared" if several else "per-partition", "effects": "linear" if line else "logistic"}
    return {**data, "scores": rules | block}


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
