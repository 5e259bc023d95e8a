"""Models: what is learned from a log's releases besides the task's own fit, at no further cost to anybody's budget."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, PrivateAttr, Tag, ValidationError, field_validator

from murk.errors import UserError
from murk.task.coding import INTERCEPT
from murk.task.errors import nearest, shown, task_error, user_error
from murk.task.features import (
    BinaryTarget,
    CategoryFeature,
    ClassTarget,
    DateFeature,
    Feature,
    NumberFeature,
    RealTarget,
    Target,
)
from murk.task.fields import Block, Integer, Number, Text
from murk.task.learning import LearnerBlock
from murk.task.task import Task, canonical_json, check_name
from murk.task.yaml import read_file, read_yaml

_ERROR_CODE = "MURK-TASK-001"

OWN: Final = -1  # position that stands for the task's target in `Columns`; -2 - k stands for its class k


class TargetColumn(Block):
    """A column as a model's target."""

    name: Text = Field(description="the column's name")
    positive: Text | None = Field(
        default=None, description="the category that is learned against the rest; `null`: of two categories the second"
    )


TargetOf = Annotated[
    Annotated[Text, Tag("<word>")] | Annotated[TargetColumn, Tag("<column>")],
    Discriminator(lambda value: "<column>" if isinstance(value, dict | TargetColumn) else "<word>"),
]


class Model(Block):
    """What to learn from the releases of a log: columns of its task, a loss or link, and a solver. See docs/models.md.

    >>> Model.parse("{name: by-age, features: [age]}").features
    ('age',)
    """

    name: Annotated[Text, AfterValidator(lambda name: check_name(name, "model"))] = Field(
        description="the model's name: lowercase letters, digits and -; the log keeps its states under it"
    )
    features: tuple[Text, ...] | None = Field(
        default=None, description="columns of the task to learn from; `null`: all its features but the target"
    )
    target: TargetOf | None = Field(
        default=None,
        description="column of the task to learn, or `{name: , positive: }` for a category against the rest; `null`: "
        "the task's target",
    )
    loss: Text | None = Field(default=None, description="loss, as in the task's protocol; `null`: its default")
    link: Text | None = Field(default=None, description="link of a real target (`moments`); `null`: identity")
    intercept: Annotated[bool, Field(strict=True)] = Field(
        default=True, description="whether the constant has a coefficient (`examples`)"
    )
    regularization: Annotated[Number, Field(ge=0, le=1e6)] = Field(
        default=0.0, description="lambda of the ridge penalty lambda/2 |theta|^2 (`examples`)"
    )
    truncation: Annotated[Integer, Field(ge=1, le=3)] | None = Field(
        default=None,
        description="terms of the truncated log loss (`examples`); `null`: the number with the least error",
    )
    batch: Annotated[Integer, Field(ge=1, le=65_536)] = Field(
        default=1, description="releases averaged per step (`examples`)"
    )
    solver: Literal["stein", "score"] = Field(
        default="stein", description="solver of a loss or link, as in a task's `moments` block (`moments`)"
    )
    learner: LearnerBlock = Field(default=LearnerBlock(), description="solver, as in a task's `learner` (`examples`)")

    _source: str = PrivateAttr(default="model")

    @field_validator("features")
    @classmethod
    def _distinct(cls, features: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if features is not None:
            if not features:
                raise task_error("names no column; list at least one, or leave features out for all")
            for name in features:
                if features.count(name) > 1:
                    raise task_error(f"{shown(name)} is listed twice; remove one")
        return features

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model's file; see `parse`. Raises `UserError` if it cannot be read, too."""
        return cls.parse(read_file(path, "model"), source=str(path))

    @classmethod
    def parse(cls, text: str, source: str = "model") -> Self:
        """Read the text of a model's file ``source``; raise `UserError` with line, key and remedy of each mistake."""
        content, lines = read_yaml(text, source)
        if "privacy" in content:
            raise UserError(f"{source}: this is a task, which has `privacy`; give a model's file (docs/models.md)")
        try:
            model = cls.model_validate(content)
        except ValidationError as error:
            raise user_error(error, source, lines) from None
        model._source = source  # noqa: SLF001
        return model

    @property
    def source(self) -> str:
        """File of the model, for messages."""
        return self._source

    @property
    def hash(self) -> str:
        """Hex SHA-256 of the model without its name: a state can be continued only by a model with the same hash."""
        content = self.model_dump(mode="json", by_alias=True, exclude={"name"})
        return hashlib.sha256(canonical_json(content)).hexdigest()

    def refuse(self, key: str, message: str) -> UserError:
        """Return the error for a key of this model that a log cannot serve."""
        return UserError(f"{self.source}: {key}: {message}", code="MURK-TASK-004")

    def refuse_beyond(self, keys: Iterable[str], protocol: str, learner: tuple[str, ...] = ()) -> None:
        """Raise `UserError` if the file sets a key that models of this protocol do not read."""
        allowed = {"name", "features", "target", "learner", *keys}
        for key, field in type(self).model_fields.items():
            if key not in allowed and getattr(self, key) != field.default:
                raise self.refuse(key, f"has no effect on a log of protocol: {protocol}; remove it")
        others = tuple(key for key in LearnerBlock.model_fields if key not in learner)
        if (wrong := self.learner.beyond_defaults(others)) is not None:
            raise self.refuse(f"learner.{wrong}", f"has no effect on a log of protocol: {protocol}; remove it")


@dataclass(frozen=True)
class Columns:
    """Columns of a task that a model uses."""

    features: tuple[Feature, ...]
    target: Target
    places: tuple[int, ...]  # place of each coded feature, the constant last, among the task's; see `OWN`
    aim: int  # place of the coded target; see `OWN`
    sign: int  # -1 if the first of two categories is the positive one, else 1

    @property
    def own_target(self) -> bool:
        """Whether the target is the task's."""
        return self.aim <= OWN

    @property
    def uses_own_target(self) -> bool:
        """Whether the task's target is a feature."""
        return min(self.places) <= OWN


def columns_of(model: Model, task: Task) -> Columns:
    """Return the columns of a task that a model uses; raise `UserError` for one that it cannot use."""
    columns: dict[str, Feature | Target] = {feature.name: feature for feature in task.features}
    columns[task.target.name] = task.target
    for name in model.features or ():
        _check_known(model, "features", name, columns)
    target, aim, sign = _target(model, task, columns)
    names = model.features
    if names is None:
        names = tuple(feature.name for feature in task.features if feature.name != target.name)
        if not names:
            raise model.refuse("features", f"the task {task.name!r} has no column but the target {target.name!r}")
    if target.name in names:
        raise model.refuse("features", f"{shown(target.name)} is the target, which cannot predict itself; remove it")
    features = tuple(_feature(columns[name]) for name in names)
    coded, indices = task.coding.names, []
    of_feature = {feature.name: task.coding.names_of(index) for index, feature in enumerate(task.features)}
    for name in names:
        if name != task.target.name:
            indices += [coded.index(each) for each in of_feature[name]]
        elif isinstance(task.target, ClassTarget):
            indices += [OWN - 1 - k for k in range(1, len(task.target.classes))]
        else:
            indices += [OWN]
    return Columns(features, target, (*indices, coded.index(INTERCEPT)), aim, sign)


def _check_known(model: Model, key: str, name: str, known: Mapping[str, Any]) -> None:
    if name not in known:
        released = f"the log's task, which released {', '.join(known)}; {nearest(name, known)}"
        raise model.refuse(key, f"{shown(name)} is not a column of {released}")


def _target(model: Model, task: Task, known: Mapping[str, Feature | Target]) -> tuple[Target, int, int]:
    given = model.target
    name = task.target.name if given is None else given if isinstance(given, str) else given.name
    positive = given.positive if isinstance(given, TargetColumn) else None
    _check_known(model, "target", name, known)
    column = known[name]
    if isinstance(column, BinaryTarget):
        if positive not in (None, column.positive):
            raise model.refuse("target.positive", f"{shown(positive)} is not the positive value {column.positive!r}")
        return column, OWN, 1
    if isinstance(column, RealTarget | NumberFeature) and positive is not None:
        raise model.refuse("target.positive", f"{shown(name)} is a number, which has no categories; remove it")
    if isinstance(column, RealTarget):
        return column, OWN, 1
    if isinstance(column, ClassTarget):
        if positive is None:
            return column, OWN, 1
        _check_category(model, positive, name, column.classes)
        target = BinaryTarget(name=name, kind="binary", positive=positive)
        return target, OWN - 1 - column.classes.index(positive), 1
    if isinstance(column, DateFeature):
        raise model.refuse("target", f"{shown(name)} is a date, which can be a feature only")
    coded = task.coding.names
    if isinstance(column, NumberFeature):
        return RealTarget(name=name, kind="real", low=column.low, high=column.high), coded.index(name), 1
    first, *others = column.categories
    if positive is None and len(others) > 1:
        served = ", ".join(f"{{name: {name}, positive: {each}}}" for each in others)
        raise model.refuse("target", f"{shown(name)} has several categories; learn one against the rest: {served}")
    positive = others[0] if positive is None else positive
    _check_category(model, positive, name, column.categories)
    if len(others) == 1:
        negative = others[0] if positive == first else first
        target = BinaryTarget(name=name, kind="binary", positive=positive, negative=negative)
        return target, coded.index(name), -1 if positive == first else 1
    if positive == first:
        raise model.refuse(
            "target.positive",
            f"{shown(first)} is the category with which the others of {name!r} are compared, and has no number of its "
            f"own in a release; one of these can be learned against the rest: {', '.join(others)}",
        )
    return BinaryTarget(name=name, kind="binary", positive=positive), coded.index(f"{name}={positive}"), 1


def _check_category(model: Model, positive: str, name: str, known: Sequence[str]) -> None:
    if positive not in known:
        words = f"{shown(positive)} is not a category of {name!r}; {nearest(positive, known)}"
        raise model.refuse("target.positive", words)


def _feature(column: Feature | Target) -> Feature:
    if isinstance(column, RealTarget):
        return NumberFeature(name=column.name, low=column.low, high=column.high)
    if isinstance(column, BinaryTarget):
        other = f"not {column.positive}" if column.negative is None else column.negative
        return CategoryFeature(name=column.name, categories=(other, column.positive))
    if isinstance(column, ClassTarget):
        return CategoryFeature(name=column.name, categories=column.classes)
    return column


def task_of(model: Model, task: Task, columns: Columns, block: Mapping[str, Any]) -> Task:
    """Return a task that fits this model itself, with the protocol's ``block``; its releases differ from the log's.

    Raises `UserError` if the block has mistakes.
    """
    try:
        return task.with_model(model.name, columns.features, columns.target, block, model.learner)
    except UserError as error:
        raise UserError(f"{model.source}: {error}", code="MURK-TASK-004") from None
