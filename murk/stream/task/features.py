"""The features and the target of a task: what a record holds, within which public bounds."""

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from murk.stream.task.block import Block, Number, Text
from murk.stream.task.errors import nearest, problem, shown

Names = Annotated[tuple[Text, ...], Field(min_length=2, max_length=10_000)]


def _bounds(block: "NumberFeature | RealTarget") -> None:
    if not block.low < block.high:
        raise problem(f"low {block.low:g} is not below high {block.high:g}; give low < high", "low")
    if not block.high - block.low < float("inf"):
        raise problem("the distance from low to high overflows; give bounds of a plausible size", "low")


def _unique(values: tuple[str, ...]) -> tuple[str, ...]:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise problem(f"{shown(twice[0])} is given twice; remove one of them")
    return values


class NumberFeature(Block):
    """A number, coded to [-1, 1] by its public bounds; values outside are clamped."""

    name: Text = Field(description="the column's name")
    low: Number = Field(description="public lower bound; smaller values are clamped to it")
    high: Number = Field(description="public upper bound; larger values are clamped to it")

    @model_validator(mode="after")
    def _check(self) -> "NumberFeature":
        _bounds(self)
        return self


class CategoryFeature(Block):
    """One of a few categories. Two become -1 and +1; of more, each but the first becomes a -1/+1 feature."""

    name: Text = Field(description="the column's name")
    categories: Names = Field(
        description="all values that the column takes, as text, at least two; the first is what the others "
        "are compared with"
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_bounds(cls, data: Any) -> Any:
        for key in ("low", "high"):
            if isinstance(data, dict) and key in data:
                raise problem("a feature has either bounds or categories; remove one of them", key)
        return data

    @field_validator("categories")
    @classmethod
    def _check(cls, categories: tuple[str, ...]) -> tuple[str, ...]:
        return _unique(categories)


class BinaryTarget(Block):
    """A target of two classes, coded 1 for the positive one and 0 for the other."""

    name: Text = Field(description="the column's name")
    kind: Literal["binary"] = Field(description="`binary`: one of two classes")
    positive: Text = Field(description="the value that counts as 1")
    negative: Text | None = Field(
        default=None,
        description="the value that counts as 0; where it is not given, every value but `positive` does",
    )

    @model_validator(mode="after")
    def _check(self) -> "BinaryTarget":
        if self.positive == self.negative:
            raise problem(f"{shown(self.negative)} is the positive value too; give the other one", "negative")
        return self


class ClassTarget(Block):
    """A target of several classes, coded by its place in the list."""

    name: Text = Field(description="the column's name")
    kind: Literal["classes"] = Field(description="`classes`: one of several classes")
    classes: Names = Field(description="all classes, as text, at least two")

    @field_validator("classes")
    @classmethod
    def _check(cls, classes: tuple[str, ...]) -> tuple[str, ...]:
        return _unique(classes)


class RealTarget(Block):
    """A target that is a number, coded to [-1, 1] by its public bounds; values outside are clamped."""

    name: Text = Field(description="the column's name")
    kind: Literal["real"] = Field(description="`real`: a number")
    low: Number = Field(description="public lower bound; smaller values are clamped to it")
    high: Number = Field(description="public upper bound; larger values are clamped to it")

    @model_validator(mode="after")
    def _check(self) -> "RealTarget":
        _bounds(self)
        return self


def _feature_kind(value: Any) -> str:
    if isinstance(value, CategoryFeature) or (isinstance(value, dict) and "categories" in value):
        return "<categories>"
    return "<number>"


_TARGETS = {"binary": "<binary>", "classes": "<classes>", "real": "<real>"}


def _target_kind(value: Any) -> str:
    return _TARGETS[value["kind"] if isinstance(value, dict) else value.kind]


def _check_target_kind(value: Any) -> Any:
    if isinstance(value, BinaryTarget | ClassTarget | RealTarget):
        return value
    if not isinstance(value, dict):
        raise problem(f"{shown(value)} is not a mapping; write name, kind and what the kind needs")
    if "kind" not in value:
        raise problem(f"missing, and required; one of {', '.join(_TARGETS)}", "kind")
    kind = value["kind"]
    if not isinstance(kind, str) or kind not in _TARGETS:
        raise problem(f"{shown(kind)} is not a kind of target; {nearest(str(kind), _TARGETS)}", "kind")
    return value


Feature = Annotated[
    Annotated[NumberFeature, Tag("<number>")] | Annotated[CategoryFeature, Tag("<categories>")],
    Discriminator(_feature_kind),
]
Target = Annotated[
    Annotated[BinaryTarget, Tag("<binary>")]
    | Annotated[ClassTarget, Tag("<classes>")]
    | Annotated[RealTarget, Tag("<real>")],
    Discriminator(_target_kind),
    BeforeValidator(_check_target_kind),
]
