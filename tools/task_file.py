"""The reference of task files, made from the model that checks them."""

import datetime
import json
import re
import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import PlainSerializer
from pydantic.fields import FieldInfo

from murk.task.experiment import AssignmentBlock, ExperimentBlock, GuardrailBlock, RatioBlock
from murk.task.features import BinaryTarget, CategoryFeature, ClassTarget, DateFeature, NumberFeature, RealTarget
from murk.task.fields import Block, format_duration
from murk.task.learning import (
    LARGEST,
    ContrastBlock,
    Covariates,
    IntervalsBlock,
    LearnerBlock,
    LogBlock,
    MaxStaleness,
    PredictionsBlock,
    PublicBlock,
    StepSchedule,
    TrackBlock,
    WeightBlock,
)
from murk.task.privacy import PARAMETERS, LevelGrid, PrivacyBlock
from murk.task.protocols.examples import ExamplesBlock
from murk.task.protocols.moments import MomentsBlock
from murk.task.protocols.scores import ScoresBlock
from murk.task.protocols.summaries import SummariesBlock
from murk.task.shuffling import PromiseBlock, ShuffleBlock
from murk.task.task import AboutBlock, ArchiveBlock, Task
from tools.task_file_text import GUARANTEES, HEAD, MINIMAL, TAIL

SECTIONS: Final[tuple[tuple[str, str, type[Block]], ...]] = (
    ("about", "", AboutBlock),
    ("about.archive", "", ArchiveBlock),
    ("features: a number", "", NumberFeature),
    ("features: categories", "", CategoryFeature),
    ("features: a date", "", DateFeature),
    ("target: binary", "", BinaryTarget),
    ("target: classes", "", ClassTarget),
    ("target: real", "", RealTarget),
    ("privacy", "privacy", PrivacyBlock),
    ("privacy.levels: a grid", "", LevelGrid),
    ("learner", "learner", LearnerBlock),
    ("learner.step", "", StepSchedule),
    ("max_staleness", "max_staleness", MaxStaleness),
    ("public", "", PublicBlock),
    ("shuffle", "", ShuffleBlock),
    ("shuffle.promise", "", PromiseBlock),
    ("scores", "", ScoresBlock),
    ("examples", "", ExamplesBlock),
    ("moments", "", MomentsBlock),
    ("summaries", "", SummariesBlock),
    ("predictions", "", PredictionsBlock),
    ("track", "", TrackBlock),
    ("weight: rows", "", WeightBlock),
    ("intervals", "", IntervalsBlock),
    ("contrasts", "", ContrastBlock),
    ("experiment", "", ExperimentBlock),
    ("experiment.assigned", "", AssignmentBlock),
    ("experiment.guardrail", "", GuardrailBlock),
    ("experiment.ratios", "", RatioBlock),
    ("log", "log", LogBlock),
)
_BOUNDS: Final = (
    (annotated_types.Gt, "gt", "above"),
    (annotated_types.Ge, "ge", "of at least"),
    (annotated_types.Lt, "lt", "below"),
    (annotated_types.Le, "le", "of at most"),
)


def page() -> str:
    """Return the reference page, as Markdown."""
    defaults = json.loads(Task.parse(MINIMAL).document())
    parts = [HEAD, "## The task\n", *_table(Task, defaults)]
    for title, key, block in SECTIONS:
        parts += [f"\n## {title}\n", f"{_summary(block)}\n", *_table(block, defaults.get(key, {}))]
    parts += ["\n## Guarantees\n", "| guarantee | written | promises |\n|---|---|---|"]
    for kind, names in PARAMETERS.items():
        written = ", ".join(f"{name}: " for name in names)
        parts.append(f"| {kind} | `{{{kind}: {{{written}}}}}` | {GUARANTEES[kind]} |")
    return "\n".join(parts) + "\n" + TAIL


def _summary(block: type[Block]) -> str:
    return (block.__doc__ or "").strip().splitlines()[0]


def _table(block: type[Block], defaults: dict[str, Any]) -> Iterator[str]:
    yield "| key | value | default | meaning |\n|---|---|---|---|"
    for name, field in block.model_fields.items():
        key = field.alias or name
        if key in block.hidden:
            continue
        default = _default(field, key, defaults)
        annotation = _without_null(field.annotation) if default == "`null`" else field.annotation
        value = _kind(annotation, field.metadata).replace("|", "\\|")
        yield f"| `{key}` | {value} | {default} | {field.description} |"


def _without_null(annotation: Any) -> Any:
    """Return a type without None, which the default `null` shows to be allowed."""
    others = tuple(kind for kind in get_args(annotation) if kind is not types.NoneType)
    return Union[others] if get_origin(annotation) in (Union, types.UnionType) else annotation  # noqa: UP007


def _default(field: FieldInfo, key: str, defaults: dict[str, Any]) -> str:
    if key == "objective":
        return "by the target's kind"
    if field.is_required():
        return "*required*"
    if isinstance(field.default, Block):
        return "as below"
    default = defaults.get(key, field.default)
    if _kind(field.annotation, field.metadata) == "duration" and isinstance(default, int):
        default = format_duration(default)
    return f"`{json.dumps(default)}`"


def _kind(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """Return what a value may be, in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0], arguments[1:])
    if origin is Literal:
        return _either(_choices(annotation, ()))
    if origin in (Union, types.UnionType):
        kinds = dict.fromkeys(kind for argument in arguments for kind in _choices(argument, metadata))
        return "guarantee" if "guarantee" in kinds else _either(list(kinds))
    if origin is tuple:
        return f"list of {_plural(_kind(arguments[0]))}"
    if origin is dict:
        return f"mapping of name to {_kind(arguments[1])}"
    if annotation is types.NoneType:
        return "`null`"
    if isinstance(annotation, type) and issubclass(annotation, Block):
        return "mapping"
    if annotation is int and any(isinstance(item, PlainSerializer) for item in metadata):
        return "duration"
    word = {
        bool: "`true` or `false`",
        int: "whole number",
        float: "number",
        str: "text",
        Covariates: "covariates",
        datetime.date: "date",
    }.get(annotation)
    return "guarantee" if word is None else word + _range(metadata)


def _choices(annotation: Any, metadata: Sequence[Any]) -> list[str]:
    """Return what a value may be, one item for each literal."""
    if get_origin(annotation) is Annotated:
        annotation, *metadata = get_args(annotation)
    literal = get_origin(annotation) is Literal
    return [f"`{value}`" for value in get_args(annotation)] if literal else [_kind(annotation, metadata)]


def _either(kinds: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))


def _plural(word: str) -> str:
    if word == "text" or word.startswith("`"):
        return word
    return re.sub("number|$", r"\g<0>s", word, count=1)


def _range(metadata: Sequence[Any]) -> str:
    parts = [part for item in metadata for part in (item.metadata if isinstance(item, FieldInfo) else [item])]
    limits = {
        word: limit
        for part in parts
        for kind, name, word in _BOUNDS
        if isinstance(part, kind) and (limit := _limit(getattr(part, name)))
    }
    if {"of at least", "of at most"} <= limits.keys():
        return f" from {limits['of at least']} to {limits['of at most']}"
    text = " and ".join(f"{word} {limit}" for word, limit in limits.items()).replace("and of", "and")
    return f" {text}" if text else ""


def _limit(value: float) -> str:
    # The largest numbers are a guard against overflow, nothing to read about.
    if abs(value) >= LARGEST:
        return ""
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"
