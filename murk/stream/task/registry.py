"""Registry of protocols. A new protocol is a folder and a line here.

A folder's module ``protocol`` defines ``PROTOCOL``, the `TaskProtocol`. Its other parts are imported when they are used:
``problem``, ``forecast`` and ``audit``.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BeforeValidator

from murk.errors import UserError
from murk.privacy.guarantees import Guarantee
from murk.stream.task.block import Block
from murk.stream.task.checks import OBJECTIVES
from murk.stream.task.data.features import Target
from murk.stream.task.errors import nearest, shown, task_error
from murk.stream.task.learner import LearnerBlock, MaxStaleness
from murk.stream.task.protocol import TaskProtocol, coded_features

FOLDERS: Final[Mapping[str, str]] = {
    "gradients": "murk.learners.gradients",
    "scores": "murk.learners.scores",
    "examples": "murk.learners.examples",
    "moments": "murk.learners.moments",
    "sketch": "murk.learners.sketches",
}
"""Package of each protocol, by the name that a task file uses."""


def part(protocol: str, module: str) -> Any:
    """Import a module of a protocol's package, such as ``problem``.

    Raises
    ------
    UserError
        If the protocol has none.
    """
    name = f"{FOLDERS[protocol]}.{module}"
    if find_spec(name) is None:
        raise UserError(f"protocol: {protocol} has no {module}: a simulated run (--seed) shows what it learns")
    return import_module(name)


PROTOCOLS: Final[dict[str, TaskProtocol]] = {name: part(name, "protocol").PROTOCOL for name in FOLDERS}
"""Protocols by name."""
BLOCKS: Final = {name: protocol.block for name, protocol in PROTOCOLS.items() if protocol.block is not None}
"""Settings models by protocol; a task has a field for each."""

FORMER_PROTOCOL: Final = "gradients"
"""Protocol that versions up to 0.3 took for a task file that names none; logs that were begun so go on."""
FORMER_SET_ASIDE: Final = 1000
"""Records that versions up to 0.3 set aside of moments' own accord; logs that were begun so go on."""


def _known(value: object) -> object:
    if isinstance(value, str) and value not in PROTOCOLS:
        raise task_error(f"{shown(value)} is not a protocol; {nearest(value, PROTOCOLS)}")
    return value


if TYPE_CHECKING:
    _Name = str
else:
    _Name = Literal[tuple(PROTOCOLS)]
ProtocolName = Annotated[_Name, BeforeValidator(_known)]

_OF_GRADIENTS: Final = ("objective", "learner", "max_staleness")


def protocol_by_rule(data: Mapping[str, Any]) -> str:
    """Choose the protocol of a task file that names none.

    It is `scores`, except where the file has what only `gradients` read (an objective, a learner's settings, a limit of
    staleness), or so many coded features that a matrix of their second moments is too much to ask of a person.
    """
    many = bool(PROTOCOLS["scores"].why_impractical(coded_features(data), public=False))
    if many or any(data.get(key) for key in _OF_GRADIENTS):
        return "gradients"
    return "scores"


def with_delays(data: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """A task file's content with the steps that new tasks of gradients have, and what was filled in."""
    learner = data.get("learner")
    learner = {} if learner is None else learner
    if data.get("protocol") != "gradients" or not isinstance(learner, dict) or "delays" in learner:
        return data, set()
    if learner.get("step", "noise-aware") != "noise-aware":
        return data, set()
    return {**data, "learner": {**learner, "delays": "adaptive"}}, {"delays"}


def with_rules_of_scores(data: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """A task file's content with what new tasks of scores have, and what was filled in.

    Models that chains share, and average effects that need no curvature.
    """
    log, block, target = data.get("log"), data.get("scores"), data.get("target")
    block = {} if block is None else block
    if data.get("protocol") != "scores" or not isinstance(block, dict):
        return data, set()
    several = isinstance(log, dict) and log.get("partitions", 1) != 1
    kind = target.get("kind", "binary") if isinstance(target, dict) else None
    line = kind in ("binary", "classes") and not data.get("public")
    rules = {"models": "shared" if several else "own", "effects": "line" if line else "curve"}
    filled = {key: value for key, value in rules.items() if key not in block}
    return {**data, "scores": {**block, **filled}}, set(filled)


def resolved(data: dict[str, Any]) -> dict[str, Any]:
    """Fill in what follows from a task's protocol and target, before the task is checked.

    What cannot be made out (a target that is no mapping) is left as it is: its own mistake is reported.
    """
    target = data.get("target")
    kind = target.get("kind") if isinstance(target, dict) else getattr(target, "kind", None)
    if not isinstance(kind, str):
        kind = "binary"
    protocol = data.get("protocol")
    if protocol is None:
        protocol = protocol_by_rule(data)
        data = {**data, "protocol": protocol}
    if protocol == "gradients":
        return (
            data
            if data.get("objective") is not None
            else {**data, "objective": OBJECTIVES.get(kind, OBJECTIVES["binary"])[0]}
        )
    if not isinstance(protocol, str) or protocol not in BLOCKS:
        return data
    block = data.get(protocol)
    if block is None:
        block = {}
    if isinstance(block, dict):
        block = PROTOCOLS[protocol].fill_in(block, kind, data)
    return {**data, protocol: block}


def release_named(data: dict[str, Any]) -> str | None:
    """Release that a task file's block names when it is filled in; None where it names none."""
    protocol = data.get("protocol")
    block = resolved(data).get(protocol) if isinstance(protocol, str) else None
    release = block.get("release") if isinstance(block, dict) else None
    return release if isinstance(release, str) else None


def check_protocol(
    name: str,
    objective: str | None,
    target: Target,
    blocks: Mapping[str, Block | None],
    learner: LearnerBlock,
    staleness: MaxStaleness,
) -> None:
    """Check that a task's protocol, its blocks, its objective and its target fit each other.

    Raises
    ------
    PydanticCustomError
        Naming the key.
    """
    protocol = PROTOCOLS[name]
    for other, block in blocks.items():
        if block is not None and other != name:
            raise task_error(f"has no effect with protocol: {name}; remove it, or say protocol: {other}", other)
    if protocol.block is None:
        return
    if objective is not None:
        raise task_error(
            f"{objective!r} has no effect with protocol: {name}, whose own block says what is learned; remove it",
            "objective",
        )
    if target.kind not in protocol.targets:
        raise task_error(f"{name} learns a binary or a real target, not {target.kind!r}; use gradients", "protocol")
    protocol.check(blocks[name], target.kind)
    # A bound of the coefficients may stand in tasks that take none; the other keys say how gradients or steps are made.
    unread = [key for key in LearnerBlock.model_fields if key not in protocol.learner_keys]
    key = learner.beyond_defaults(tuple(unread))
    if key:
        raise task_error(f"has no effect with protocol: {name}; remove it", "learner", key)
    if staleness != MaxStaleness():
        why = protocol.why_no_staleness
        raise task_error(f"has no effect with protocol: {name}, whose releases are {why}; remove it", "max_staleness")


def check_forgetting(name: str, forget: int | None) -> None:
    """Refuse to forget where a learner keeps but one sum, or one path, of all releases.

    Raises
    ------
    PydanticCustomError
        Saying which protocol can, and what else would do.
    """
    protocol = PROTOCOLS[name]
    if forget is not None and not protocol.forgets:
        raise task_error(
            f"{forget:,} has no effect with protocol: {name}, whose learner {protocol.why_no_forgetting}; remove it "
            "and begin a new task for each period, or say protocol: scores",
            "forget",
        )


def check_guarantee(protocol: str, guarantee: Guarantee, released: str | None = None) -> None:
    """Refuse a guarantee that no mechanism of a protocol can give, with those that it can.

    ``released`` is the kind of its releases, where the protocol has several.

    Raises
    ------
    UserError
        Naming the guarantee and what can be given.
    """
    offer = PROTOCOLS[protocol].offer_of(released)
    if guarantee.kind not in offer.guarantees:
        raise UserError(
            f"protocol: {protocol} cannot give {guarantee.kind}: {offer.why_no_other}; it can give "
            f"{', '.join(offer.guarantees)}"
        )
