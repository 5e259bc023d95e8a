"""Checks that involve several parts of a task."""

from collections.abc import Callable, Sequence
from typing import Final

from murk.stream.task.block import format_duration
from murk.stream.task.data.coding import class_clash
from murk.stream.task.data.features import CategoryFeature, ClassTarget, Feature, Target
from murk.stream.task.errors import nearest, shown, task_error
from murk.stream.task.learner import ContrastBlock, IntervalsBlock, LearnerBlock

OBJECTIVES: Final = {
    "binary": ("balanced", "logistic"), "classes": ("softmax",), "real": ("huber", "squared", "median"),
}  # fmt: skip
"""Objectives of `gradients` by kind of target, the default first."""
FORMER_OBJECTIVE: Final = "logistic"  # default objective of a binary target up to version 0.3
HUBER_KEYS: Final = ("huber_c", "scale", "scale_floor", "scale_start")


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
            f"{shown(target.name)} is a feature too; a target cannot predict itself: remove one", *("target", "name")
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
    key = learner.beyond_defaults(HUBER_KEYS)
    if objective != "huber" and key:
        raise task_error(f"has no effect with objective {objective!r}; remove it", "learner", key)


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
            f"always does not go with forget: {forget}, as what is estimated may move; say valid: fixed, or remove "
            "forget",
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
            raise task_error(
                f"{shown(contrast.against)} is compared with itself; name another category", *at, "against"
            )
        if contrast in contrasts[:index]:
            raise task_error(f"contrast {contrasts.index(contrast) + 1} is the same; remove one", *at)
