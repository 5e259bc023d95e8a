"""Features and targets of a task: the columns of a record with their public bounds."""

import datetime
import re
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist
from typing import Annotated, Any, Final, Literal
from unicodedata import normalize

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from murk.task.errors import nearest, shown, task_error
from murk.task.fields import Block, Number, Text

UNIT_DAYS: Final = {"day": 1.0, "week": 7.0, "month": 365.25 / 12, "year": 365.25}  # days in a unit of a date


def _date(value: object) -> object:
    if isinstance(value, datetime.date):
        return value
    if isinstance(value, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value, re.ASCII):
        try:
            return datetime.date.fromisoformat(value)
        except ValueError:
            pass
    raise task_error(f"{shown(value)} is not a date; write it as in 2024-05-31")


def _words(value: object) -> object:
    return (value,) if isinstance(value, str) else value


ADDED: Final[dict[str, tuple[str, ...]]] = {
    "NumberFeature": ("unit", "typical", "missing", "missing_share", "label", "description"),
    "CategoryFeature": ("known", "missing", "missing_share", "label", "description", "labels"),
    "DateFeature": ("typical", "missing", "missing_share", "label", "description"),
    "BinaryTarget": ("rate", "missing_share", "label", "description", "labels"),
    "ClassTarget": ("rate", "missing_share", "label", "description", "labels"),
    "RealTarget": ("typical", "missing_share", "quantiles", "label", "description"),
}
"""Keys that are in a document only if a task file gives them: a new key changes no hash of a task that omits it."""
Date = Annotated[datetime.date, BeforeValidator(_date)]
Share = Annotated[Number, Field(gt=0, lt=1)]
ShareOrZero = Annotated[Number, Field(ge=0, lt=1)]


def _fill_kind(value: Any) -> str:
    return "<word>" if value == INDICATOR else "<number>"


_Part = Literal["number", "weekday", "month"]
_Indicator = Annotated[Literal["indicator"], Tag("<word>")]
NumberFill = Annotated[_Indicator | Annotated[Number, Tag("<number>")], Discriminator(_fill_kind)]
DateFill = Annotated[_Indicator | Annotated[Date, Tag("<number>")], Discriminator(_fill_kind)]
_ROUNDED: Final = 0.02
INDICATOR: Final = "indicator"  # code a missing value as the middle, and indicate it in a further coded feature
_MISSING: Final = (
    "code of a missing, undeclared or malformed value: a number within the bounds, as in `missing: 0.75`, or "
    "`indicator` for the middle and a further coded feature, +1 where missing and -1 elsewhere; `null`: the middle. A "
    "value that is not typical biases the coefficient"
)
_MISSING_SHARE: Final = (
    "publicly known share of missing values: forecasts assume it, and values of `public: {file: ...}` are removed up "
    "to this share; `null`: its rows must be complete"
)
_MISSING_TARGETS: Final = (
    "publicly known largest share of missing targets among any kind of people, 0 if all have a target: forecasts "
    "assume it, and intervals of `gradients` with public covariates allow for it; `null`: these allow for 0.5"
)
_TYPICAL: Final = (
    "publicly known range of about nine of ten values, as in `typical: [0, 2]`; never from people's records. Forecasts "
    "use it, and the survey of `scores` begins with it, until its answers outweigh it. Without public covariates it "
    "also whitens `gradients`, and gives the coordinates of what is released once (`moments`, outer products, "
    "directions, classes without rounds). `null`: unknown"
)
MOST_QUANTILES: Final = 16
_QUANTILES: Final = (
    "quantiles to learn instead of the mean, as in `quantiles: [0.5, 0.9]` for the median and the 90% quantile, of a "
    "task with `features: []`; `null`: the mean"
)
_AS_FOR_A_NUMBER: Final = "as for a number"
_AS_FOR_BINARY: Final = "as for a binary target"


_LABEL: Final = (
    "what people are shown instead of the name, before they consent and in reports; part of the task's hash, so that "
    "nobody else can reword it; `null`: the name"
)
_DESCRIPTION: Final = "what people are told about the column before they consent; `null`: nothing"
_LABELS: Final = "what people are shown instead of the values, as in `labels: {f: female, m: male}`; `null`: the values"
Words = Annotated[str, Field(min_length=1, max_length=1_000)]


def _check_labels(labels: dict[str, str] | None, values: Sequence[str | None]) -> None:
    for value in labels or ():
        if value not in values:
            raise task_error(
                f"{shown(value)} is not one of the values; {nearest(value, [v for v in values if v])}", "labels"
            )


def _bounds(block: "NumberFeature | RealTarget") -> None:
    if not block.low < block.high:
        raise task_error(f"low {block.low:g} is not below high {block.high:g}; give low < high", "low")
    if not block.high - block.low < float("inf"):
        raise task_error("the distance from low to high overflows; give bounds of a plausible size", "low")


def _check_typical(low: Any, high: Any, typical: tuple[Any, Any] | None) -> None:
    if typical is not None and not low <= typical[0] < typical[1] <= high:
        words = f"is not a range within the bounds {low} to {high}; give two values, the smaller first"
        raise task_error(f"[{typical[0]}, {typical[1]}] {words}", "typical")


def _check_fill(low: Any, high: Any, fill: Any) -> None:
    if not (fill is None or fill == INDICATOR or low <= fill <= high):
        words = f"{fill} is outside the bounds {low} to {high}; give a value within them, or indicator"
        raise task_error(words, "missing")


def _check_quantiles(quantiles: tuple[float, ...] | None) -> None:
    if quantiles is None:
        return
    if not 0 < len(quantiles) <= MOST_QUANTILES:
        words = f"{len(quantiles)} quantiles; give 1 to {MOST_QUANTILES}, or leave the key out for the mean"
        raise task_error(words, "quantiles")
    for index, quantile in enumerate(quantiles):
        if not 0.001 <= quantile <= 0.999:
            remedy = "give shares from 0.001 to 0.999, as in [0.5, 0.9]"
            raise task_error(f"{quantile:g} is not the share of people below a quantile; {remedy}", "quantiles", index)
        if index and not quantiles[index - 1] < quantile:
            words = f"{quantile:g} does not exceed the one before it; give each quantile once, in ascending order"
            raise task_error(words, "quantiles", index)


def _unique(values: tuple[str, ...]) -> tuple[str, ...]:
    # Canonically equal texts look the same to everybody.
    twice = [value for value, count in Counter(normalize("NFC", value) for value in values).items() if count > 1]
    if twice:
        raise task_error(f"{shown(twice[0])} is given twice; remove one of them")
    return values


Distinct = Annotated[tuple[Text, ...], Field(min_length=2, max_length=10_000), AfterValidator(_unique)]


def _without_false(data: Any) -> Any:
    """Return the content of a feature without ``known: false``: features are private by default."""
    if isinstance(data, dict) and data.get("known") is False:
        return {key: value for key, value in data.items() if key != "known"}
    return data


def _refuse_known(data: Any) -> Any:
    data = _without_false(data)
    if isinstance(data, dict) and "known" in data:
        words = (
            "only declared categories are sent as they are; give categories, such as bands of a number, or remove it"
        )
        raise task_error(words, "known")
    return data


class NumberFeature(Block):
    """A number, coded to [-1, 1] by its public bounds; values outside are clamped."""

    name: Text = Field(description="the column's name")
    low: Number = Field(description="public lower bound; smaller values are clamped to it")
    high: Number = Field(description="public upper bound; larger values are clamped to it")
    unit: Annotated[Number, Field(gt=0)] | None = Field(
        default=None, description="unit of reported coefficients, as in `unit: 10000` for an income; `null`: 1"
    )
    typical: tuple[Number, Number] | None = Field(default=None, description=_TYPICAL)
    missing: NumberFill | None = Field(default=None, description=_MISSING)
    missing_share: Share | None = Field(default=None, description=_MISSING_SHARE)
    label: Words | None = Field(default=None, description=_LABEL)
    description: Words | None = Field(default=None, description=_DESCRIPTION)

    _declared = model_validator(mode="before")(_refuse_known)

    @model_validator(mode="after")
    def _check(self) -> "NumberFeature":
        _bounds(self)
        _check_typical(self.low, self.high, self.typical)
        _check_fill(self.low, self.high, self.missing)
        return self


class CategoryFeature(Block):
    """One of several categories. Two become -1 and +1; of three or more, each but the first becomes a -1/+1 feature."""

    name: Text = Field(description="the column's name")
    categories: Distinct = Field(
        description="all values of the column, as text, at least two; the others are compared with the first"
    )
    missing: Text | None = Field(default=None, description="as for a number, or a category, as in `missing: unknown`")
    missing_share: Share | None = Field(default=None, description=_AS_FOR_A_NUMBER)
    label: Words | None = Field(default=None, description=_LABEL)
    description: Words | None = Field(default=None, description=_DESCRIPTION)
    labels: dict[str, Words] | None = Field(default=None, description=_LABELS)
    known: Literal[True] | None = Field(
        default=None,
        description="`true`: the receiver knows this column already, such as the arm of an experiment. It is sent as "
        "it is, without noise and under no guarantee, and only the target and private features are randomized; `null`: "
        "private",
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_bounds(cls, data: Any) -> Any:
        for key in ("low", "high"):
            if isinstance(data, dict) and key in data:
                raise task_error("a feature has either bounds or categories; remove one of them", key)
        return _without_false(data)

    @model_validator(mode="after")
    def _check_missing(self) -> "CategoryFeature":
        _check_labels(self.labels, self.categories)
        if self.missing is not None and self.missing not in (*self.categories, INDICATOR):
            words = f"{shown(self.missing)} is not one of the categories; {nearest(self.missing, self.categories)}"
            raise task_error(words, "missing")
        return self


class DateFeature(Block):
    """The day of a date or time: as a number of days between public bounds, as a weekday or as a month."""

    name: Text = Field(description="the column's name")
    kind: Literal["date"] = Field(description="`date`: in records a date, a time, or text as in 2024-05-31")
    low: Date | None = Field(
        default=None, description="public first day, as in 2024-05-31 (with `number`); earlier dates are clamped to it"
    )
    high: Date | None = Field(default=None, description="public last day (with `number`); later ones are clamped to it")
    parts: Annotated[tuple[_Part, ...], Field(min_length=1), BeforeValidator(_words)] = Field(
        default=("number",),
        alias="as",
        description="coding, one word or a list: `number` (of days), `weekday`, `month` (categories, compared with "
        "Monday and January)",
    )
    unit: Literal["day", "week", "month", "year"] = Field(
        default="day", description="unit of a `number`'s reported coefficient"
    )
    typical: tuple[Date, Date] | None = Field(
        default=None, description="as for a number, as in `typical: [2024-01-01, 2024-03-31]`"
    )

    missing: DateFill | None = Field(default=None, description="as for a number, or a date: `missing: 2024-05-31`")
    missing_share: Share | None = Field(default=None, description=_AS_FOR_A_NUMBER)
    label: Words | None = Field(default=None, description=_LABEL)
    description: Words | None = Field(default=None, description=_DESCRIPTION)

    _declared = model_validator(mode="before")(_refuse_known)

    @model_validator(mode="after")
    def _check(self) -> "DateFeature":
        _unique(self.parts)
        for key in ("low", "high"):
            given = getattr(self, key) is not None
            if given and "number" not in self.parts:
                raise task_error("has no effect where the date is not coded as a number; remove it", key)
            if not given and "number" in self.parts:
                raise task_error("missing, and required of a date that is coded as a number, as in 2024-05-31", key)
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise task_error(f"low {self.low} is not before high {self.high}; give low < high", "low")
        if self.typical is not None and "number" not in self.parts:
            raise task_error("has no effect where the date is not coded as a number; remove it", "typical")
        _check_typical(self.low, self.high, self.typical)
        if self.low is not None:
            _check_fill(self.low, self.high, self.missing)
        return self


class BinaryTarget(Block):
    """A target of two classes, coded 1 for the positive one and 0 for the other."""

    name: Text = Field(description="the column's name")
    kind: Literal["binary"] = Field(description="`binary`: one of two classes")
    positive: Text = Field(description="the value that counts as 1")
    negative: Text | None = Field(
        default=None, description="the value that counts as 0; `null`: every value but `positive`"
    )
    rate: Share | None = Field(
        default=None,
        description="publicly known share of `positive`, as in `rate: 0.06`, for forecasts only; never from people's "
        "records; `null`: unknown",
    )
    missing_share: ShareOrZero | None = Field(default=None, description=_MISSING_TARGETS)
    label: Words | None = Field(default=None, description=_LABEL)
    description: Words | None = Field(default=None, description=_DESCRIPTION)
    labels: dict[str, Words] | None = Field(default=None, description=_LABELS)

    @model_validator(mode="after")
    def _check(self) -> "BinaryTarget":
        _check_labels(self.labels, (self.positive, self.negative))
        if self.positive == self.negative:
            raise task_error(f"{shown(self.negative)} is the positive value too; give the other one", "negative")
        return self


class ClassTarget(Block):
    """A target of several classes, coded by position in the list."""

    name: Text = Field(description="the column's name")
    kind: Literal["classes"] = Field(description="`classes`: one of several classes")
    classes: Distinct = Field(description="all classes, as text, at least two")
    rate: tuple[Share, ...] | None = Field(
        default=None,
        description="publicly known share of each class, as in `rate: {red: 0.9, green: 0.07, blue: 0.03}` or a list "
        "in the order of `classes`, for forecasts only; never from people's records; `null`: unknown",
    )
    missing_share: ShareOrZero | None = Field(default=None, description=_AS_FOR_BINARY)
    label: Words | None = Field(default=None, description=_LABEL)
    description: Words | None = Field(default=None, description=_DESCRIPTION)
    labels: dict[str, Words] | None = Field(default=None, description=_LABELS)

    @field_validator("rate", mode="before")
    @classmethod
    def _in_order(cls, rate: Any, info: ValidationInfo) -> Any:
        classes = info.data.get("classes")
        if classes is None or not isinstance(rate, dict):
            return None if classes is None else rate
        for name in rate:
            if name not in classes:
                raise task_error(f"{shown(name)} is not one of the classes; {nearest(str(name), classes)}")
        for name in classes:
            if name not in rate:
                raise task_error(f"no share of the class {shown(name)}; give one of every class")
        return [rate[name] for name in classes]

    @model_validator(mode="after")
    def _check_rate(self) -> "ClassTarget":
        _check_labels(self.labels, self.classes)
        if self.rate is None:
            return self
        if len(self.rate) != len(self.classes):
            raise task_error(f"{len(self.rate)} shares of {len(self.classes)} classes; give one of every class", "rate")
        if abs(sum(self.rate) - 1.0) > _ROUNDED:
            raise task_error(f"the shares add up to {sum(self.rate):g}; give shares that add up to 1", "rate")
        return self

    @property
    def shares(self) -> tuple[float, ...] | None:
        """Stated share of each class, adding up to 1, or None."""
        return None if self.rate is None else tuple(share / sum(self.rate) for share in self.rate)


class RealTarget(Block):
    """A number to learn, coded to [-1, 1] by its public bounds; values outside are clamped."""

    name: Text = Field(description="the column's name")
    kind: Literal["real"] = Field(description="`real`: a number")
    low: Number = Field(description="public lower bound; smaller values are clamped to it")
    high: Number = Field(description="public upper bound; larger values are clamped to it")
    typical: tuple[Number, Number] | None = Field(default=None, description=_AS_FOR_A_NUMBER)
    missing_share: ShareOrZero | None = Field(default=None, description=_AS_FOR_BINARY)
    quantiles: tuple[Number, ...] | None = Field(default=None, description=_QUANTILES)
    label: Words | None = Field(default=None, description=_LABEL)
    description: Words | None = Field(default=None, description=_DESCRIPTION)

    @model_validator(mode="after")
    def _check(self) -> "RealTarget":
        _bounds(self)
        _check_quantiles(self.quantiles)
        _check_typical(self.low, self.high, self.typical)
        return self


def _feature_kind(value: Any) -> str:
    given = value if isinstance(value, dict) else {}
    if isinstance(value, DateFeature) or given.get("kind") == "date":
        return "<date>"
    return "<categories>" if isinstance(value, CategoryFeature) or "categories" in given else "<number>"


_COUNTS = ("count", "counts", "poisson", "integer")
_TARGETS = {"binary": "<binary>", "classes": "<classes>", "real": "<real>"}


def _check_target_kind(value: Any) -> Any:
    if isinstance(value, BinaryTarget | ClassTarget | RealTarget):
        return value
    if not isinstance(value, dict):
        raise task_error(f"{shown(value)} is not a mapping; write name, kind and what the kind needs")
    if "kind" not in value:
        raise task_error(f"missing, and required; use one of {', '.join(_TARGETS)}", "kind")
    kind = value["kind"]
    if isinstance(kind, str) and kind.lower() in _COUNTS:
        remedy = "say kind: real with low: 0 and a public high; for Poisson regression add `protocol: moments` and"
        raise task_error(f"{shown(kind)} is not a kind of target; {remedy} `moments: {{link: exp}}`", "kind")
    if not isinstance(kind, str) or kind not in _TARGETS:
        raise task_error(f"{shown(kind)} is not a kind of target; {nearest(str(kind), _TARGETS)}", "kind")
    return value


def _check_feature_kind(value: Any) -> Any:
    if isinstance(value, dict) and value.get("kind", "date") != "date":
        remedy = "write kind: date for dates, and for numbers (low, high) and categories nothing"
        raise task_error(f"{shown(value['kind'])} is not a kind of feature; {remedy}", "kind")
    return value


def quantile_name(quantile: float, constant: str) -> str:
    """Return the name of a quantile's coefficient, formed like that of a class's constant.

    >>> quantile_name(0.5, "intercept")
    '0.5:intercept'
    """
    return f"{quantile:.12g}:{constant}"


def without_defaults(block: "Feature | Target", content: dict[str, Any]) -> dict[str, Any]:
    """Return a feature's or target's content for a document: without keys of `ADDED` that were not given."""
    added = ADDED[type(block).__name__]
    return {key: value for key, value in content.items() if key not in added or value is not None}


Feature = Annotated[
    Annotated[NumberFeature, Tag("<number>")]
    | Annotated[CategoryFeature, Tag("<categories>")]
    | Annotated[DateFeature, Tag("<date>")],
    Discriminator(_feature_kind),
    BeforeValidator(_check_feature_kind),
]
Target = Annotated[
    Annotated[BinaryTarget, Tag("<binary>")]
    | Annotated[ClassTarget, Tag("<classes>")]
    | Annotated[RealTarget, Tag("<real>")],
    Discriminator(lambda value: _TARGETS[value["kind"] if isinstance(value, dict) else value.kind]),
    BeforeValidator(_check_target_kind),
]


_NINE_TENTHS: Final = NormalDist().inv_cdf(0.95)


def stated_location(block: NumberFeature | DateFeature | RealTarget) -> tuple[float, float]:
    """Return the coded mean and standard deviation of a normal distribution with 90% in the stated range."""
    ends = (block.low, *(block.typical or ()), block.high)
    low, first, last, high = (
        float(each.toordinal()) if isinstance(each, datetime.date) else float(each or 0.0) for each in ends
    )
    half = (high - low) / 2.0
    return ((first + last) / 2.0 - low) / half - 1.0, (last - first) / (2.0 * _NINE_TENTHS * half)


def words_of(column: Feature | Target) -> str:
    """Return what people are shown as a column's name."""
    return column.label or column.name


def words_of_value(column: Feature | Target, value: str) -> str:
    """Return what people are shown as a category or class of a column.

    >>> words_of_value(CategoryFeature(name="sex", categories=("f", "m"), labels={"f": "female"}), "f")
    'female'
    """
    labels = column.labels if isinstance(column, CategoryFeature | BinaryTarget | ClassTarget) else None
    return (labels or {}).get(value, value)
