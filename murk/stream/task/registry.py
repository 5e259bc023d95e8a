"""Registry of protocols, and the checks of a task across its parts. A new protocol needs a folder and a line here.

A folder's module ``protocol`` defines ``PROTOCOL``, a `TaskProtocol`. Its modules ``problem`` and
``forecast`` are imported when they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BeforeValidator

from murk.errors import UserError
from murk.privacy.guarantees import Guarantee
from murk.privacy.mechanisms import BEST
from murk.stream.task.block import Block, format_duration
from murk.stream.task.data.coding import INTERCEPT, class_clash
from murk.stream.task.data.features import CategoryFeature, ClassTarget, Feature, Target
from murk.stream.task.errors import nearest, shown, task_error
from murk.stream.task.learner import ContrastBlock, IntervalsBlock, LearnerBlock, MaxStaleness, PublicBlock
from murk.stream.task.protocol import TaskProtocol, coded_features

OBJECTIVES: Final = {
    "binary": ("balanced", "logistic"),
    "classes": ("softmax",),
    "real": ("huber", "squared", "median"),
}
"""Objectives of `gradients` by kind of target, the default first."""
FORMER_OBJECTIVE: Final = "logistic"  # default objective of a binary target up to version 0.3
HUBER_KEYS: Final = ("huber_c", "scale", "scale_floor", "scale_start", "scale_multiplier")


def check_names(
    features: Sequence[Feature], target: Target, names_of: Callable[[int], tuple[str, ...]], constant: str
) -> None:
    """Raise `PydanticCustomError` if columns or coded names are not distinct."""
    taken: dict[str, str] = {constant: "the constant's name"}
    columns: dict[str, int] = {}
    for index, feature in enumerate(features):
        at = ("features", index, "name")
        if feature.name in columns:
            first = columns[feature.name] + 1
            raise task_error(f"{shown(feature.name)} is feature {first} too; remove or rename one", *at)
        columns[feature.name] = index
        for coded in names_of(index):
            if coded in taken:
                raise task_error(f"its coded name {shown(coded)} is {taken[coded]} already; rename it", *at)
            if coded.endswith(f":{constant}"):
                raise task_error(f"its coded name {shown(coded)} ends like that of a class's constant; rename it", *at)
            taken[coded] = f"a coded name of feature {index + 1}"
    if isinstance(target, ClassTarget) and (clash := class_clash(target.classes, taken)) is not None:
        label, other, name = clash
        raise task_error(
            f"its coefficient {shown(f'{label}:{name}')} would have the name of one of the class {shown(other)}; "
            "rename the class or the feature",
            *("target", "classes", target.classes.index(label)),
        )
    if target.name in columns:
        raise task_error(
            f"{shown(target.name)} is a feature too, and cannot predict itself: remove one", "target", "name"
        )


def check_objective(objective: str | None, target: Target, learner: LearnerBlock) -> None:
    """Raise `PydanticCustomError` if the objective does not fit the target, or the learner's settings the objective."""
    able = OBJECTIVES[target.kind]
    if objective is not None and objective not in able:
        raise task_error(
            f"{objective!r} does not fit a target of kind {target.kind!r}; use {' or '.join(map(repr, able))}, "
            "or leave it out",
            "objective",
        )
    key = learner.beyond_defaults(HUBER_KEYS) if objective != "huber" else None
    key = key or (learner.beyond_defaults(("coordinates",)) if objective != "softmax" else None)
    if key:
        raise task_error(f"has no effect with objective {objective!r}; remove it", "learner", key)
    if learner.intervals == "complete" and target.missing_share:
        raise task_error(
            f"complete states that no target is missing, but the target's missing_share is {target.missing_share:g}; "
            "remove one",
            *("learner", "intervals"),
        )


def check_times(expiry: int, granularity: int, retention: int) -> None:
    """Check that a release does not expire immediately, and that the log keeps it until its expiry.

    Devices send again until the expiry, truncated to the granularity; a repeated release that the log has already
    removed would count twice. Raises `PydanticCustomError`, naming the key.
    """
    if expiry < granularity:
        raise task_error(
            f"{format_duration(expiry)} is below granularity {format_duration(granularity)}, so that "
            "releases would expire immediately; raise it or lower granularity",
            "expiry",
        )
    if retention < expiry:
        raise task_error(
            f"{format_duration(retention)} is below expiry {format_duration(expiry)}, so that a release sent "
            "again after the log has removed it would count twice; raise it or lower expiry",
            "log",
            "retention",
        )


def check_intervals(intervals: IntervalsBlock | None, forget: int | None, learner: LearnerBlock) -> None:
    """Raise `PydanticCustomError` if intervals for every look are asked of a task that has none."""
    if intervals is None or intervals.valid != "always":
        return
    at = ("intervals", "valid")
    if forget is not None:
        raise task_error(
            f"always does not go with forget: {forget}, as the estimand may move; say valid: fixed, or remove forget",
            *at,
        )
    if learner.intervals == "random-scaling":
        raise task_error(
            "always needs a covariance, which intervals: random-scaling does not have; say valid: fixed, or give "
            "public covariates",
            *at,
        )


def check_contrasts(contrasts: Sequence[ContrastBlock], features: Sequence[Feature]) -> None:
    """Raise `PydanticCustomError` for a contrast of an unknown feature or category, or one that compares nothing."""
    by_name = {feature.name: feature for feature in features}
    for index, contrast in enumerate(contrasts):
        at = ("contrasts", index)
        feature = by_name.get(contrast.feature)
        if not isinstance(feature, CategoryFeature):
            known = [name for name, each in by_name.items() if isinstance(each, CategoryFeature)]
            remedy = nearest(contrast.feature, known) if known else "this task has none"
            raise task_error(f"{shown(contrast.feature)} is not a feature with categories; {remedy}", *at, "feature")
        for key in ("category", "against"):
            value = getattr(contrast, key)
            if value not in feature.categories:
                raise task_error(
                    f"{shown(value)} is not a category of {feature.name}; {nearest(value, feature.categories)}",
                    *at,
                    key,
                )
        if contrast.category == contrast.against:
            raise task_error(f"{shown(contrast.against)} is compared with itself; name another one", *at, "against")
        if contrast in contrasts[:index]:
            raise task_error(f"contrast {contrasts.index(contrast) + 1} is the same; remove one", *at)


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

_OF_GRADIENTS: Final = ("objective", "learner", "max_staleness")


def protocol_by_rule(data: Mapping[str, Any]) -> str:
    """Return the protocol of a task file that names none.

    It is `scores`, unless the file has settings that only `gradients` read, or so many coded features that their second
    moments are too large a release. Without features it is `moments`, except for several classes.
    """
    many = bool(PROTOCOLS["scores"].why_impractical(coded_features(data), public=False))
    if many or any(data.get(key) for key in _OF_GRADIENTS):
        return "gradients"
    target = data.get("target")
    kind = target.get("kind") if isinstance(target, dict) else getattr(target, "kind", None)
    return "moments" if data.get("features") in ([], ()) and kind in ("binary", "real") else "scores"


def with_published(data: dict[str, Any]) -> dict[str, Any]:
    """Return a task file's content with the paper's settings in place of ``as_published: true``.

    Raises `PydanticCustomError` for a setting of the file that contradicts them.
    """
    if data.get("as_published") is not True:
        return data
    protocol = PROTOCOLS.get(str(data.get("protocol")))
    if protocol is None:
        return data
    if data.get("features") in ([], ()):
        raise task_error("the papers' algorithms need features; name some, or remove it", "as_published")
    privacy, target = data.get("privacy"), data.get("target")
    guarantee = privacy.get("guarantee") if isinstance(privacy, dict) else None
    kind = target.get("kind") if isinstance(target, dict) else None
    settings = protocol.published(str(kind), next(iter(guarantee), "") if isinstance(guarantee, dict) else "")
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
            raise task_error(
                f"{shown(given)} contradicts as_published: true, with which it is "
                f"{'null' if value is None else shown(value)}; remove one",
                *blocks,
                key,
            )
        block[key] = given
    return content


def with_delays(data: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Fill in ``delays``, the default of new tasks of gradients; return the file's content and the keys filled in."""
    learner = data.get("learner")
    learner = {} if learner is None else learner
    if data.get("protocol") != "gradients" or not isinstance(learner, dict) or "delays" in learner:
        return data, set()
    if learner.get("step", "noise-aware") != "noise-aware":
        return data, set()
    return {**data, "learner": {**learner, "delays": "adaptive"}}, {"delays"}


def with_rules_of_scores(data: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Fill in the defaults of new tasks of scores; return the file's content and the keys filled in."""
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
    """Fill in what follows from a task's protocol and target, leaving invalid parts to the validation."""
    target = data.get("target")
    kind = target.get("kind") if isinstance(target, dict) else getattr(target, "kind", None)
    if not isinstance(kind, str):
        kind = "binary"
    protocol = data.get("protocol")
    if protocol is None:
        protocol = protocol_by_rule(data)
        data = {**data, "protocol": protocol}
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


def check_protocol(
    name: str,
    objective: str | None,
    target: Target,
    blocks: Mapping[str, Block | None],
    learner: LearnerBlock,
    staleness: MaxStaleness,
) -> None:
    """Raise `PydanticCustomError` if a task's protocol, blocks, objective and target do not fit each other."""
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
        raise task_error(
            f"{name} learns binary or real targets, not {target.kind!r}; use scores, gradients, moments or examples",
            "protocol",
        )
    if target.missing_share is not None:
        raise task_error(
            f"has no effect with protocol: {name}; remove it, or say protocol: gradients", "target", "missing_share"
        )
    protocol.check(blocks[name], target.kind)
    if learner.radius == "unbounded":
        raise task_error(f"unbounded has no effect with protocol: {name}; remove it", "learner", "radius")
    key = learner.beyond_defaults(tuple(key for key in LearnerBlock.model_fields if key not in protocol.learner_keys))
    if key:
        raise task_error(f"has no effect with protocol: {name}; remove it", "learner", key)
    if staleness != MaxStaleness():
        raise task_error(
            f"has no effect with protocol: {name}, whose releases are {protocol.why_no_staleness}; remove it",
            "max_staleness",
        )


def check_forgetting(name: str, forget: int | None) -> None:
    """Raise `PydanticCustomError` if ``forget`` is set for a protocol whose learner cannot forget."""
    protocol = PROTOCOLS[name]
    if forget is not None and not protocol.forgets:
        raise task_error(
            f"{forget:,} has no effect with protocol: {name}, whose learner {protocol.why_no_forgetting}; remove it "
            "and begin a new task for each period, or say protocol: scores",
            "forget",
        )


def check_guarantee(protocol: str, guarantee: Guarantee, released: str | None = None) -> None:
    """Raise `UserError` if a protocol cannot give a guarantee with a kind of release (None: the default)."""
    offer = PROTOCOLS[protocol].offer_of(released)
    if guarantee.kind not in offer.guarantees:
        raise UserError(
            f"protocol: {protocol} cannot give {guarantee.kind}: {offer.why_no_other}; it can give "
            f"{', '.join(offer.guarantees)}"
        )


def former_defaults(task: Any, carried: Any, by_rule: Set[str]) -> dict[str, Any]:
    """Return the log's values for the keys ``by_rule`` that a task file leaves out and earlier versions filled in
    differently.

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
            changes[name] = block.model_dump(mode="json") | kept
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


def check_parts(task: Any) -> None:
    """Raise `PydanticCustomError` if parts of a task do not fit each other."""
    check_names(task.features, task.target, task.coding.names_of, INTERCEPT)
    if task.as_published:
        raise task_error("stands for settings where a task file is read; give these, or use Task.parse", "as_published")
    blocks = {name: getattr(task, name) for name in BLOCKS}
    if not task.features:
        if task.public is not None:
            raise task_error("a task without features has no covariates that could be public; remove it", "public")
        PROTOCOLS[task.protocol].check_without_features(task.block, task.target.kind)
    check_protocol(task.protocol, task.objective, task.target, blocks, task.learner, task.max_staleness)
    check_forgetting(task.protocol, task.forget)
    if task.predictions is not None:
        PROTOCOLS[task.protocol].check_predictions(task.block, len(task.features), task.log.partitions)
    check_intervals(task.intervals, task.forget, task.learner)
    check_contrasts(task.contrasts, task.features)
    check_objective(task.objective, task.target, task.learner)
    check_times(task.expiry, task.granularity, task.log.retention)
