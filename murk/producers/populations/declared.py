"""What a task declares of a column, and which columns may say more of a record than its task declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from murk.errors import UserError
from murk.stream.task.data.features import BinaryTarget, CategoryFeature, ClassTarget
from murk.stream.task.errors import shown

if TYPE_CHECKING:
    from murk.stream.task.task import Task

_MOST_SHOWN: Final = 10


def check_columns(task: Task, level: str | None, organisation: str | None) -> None:
    """Refuse columns of levels or organisations that hold values of records.

    Raises
    ------
    UserError
        Where one is a feature or the target.
    """
    values = (*task.coding.columns, task.coding.target)
    if level in values:
        what = "the target" if level == task.coding.target else "a feature"
        raise UserError(
            f"levels cannot come from the column {level!r}, {what} of the task {task.name!r}: a level is written "
            "on its release for everybody to read, so it must not say anything about the record. Name a column of "
            "what people chose without looking at their records, or one level for all"
        )
    if organisation in values and not task.simulated:
        raise UserError(
            f"sketch.organisation: the column {organisation!r} is a feature or the target of the task {task.name!r}: "
            "how many windows are released would say how many records have each of its values. Name a column of "
            "organisations, or leave it out"
        )


def declared(task: Task, column: str) -> str:
    """Return what a task declares of a column of categories or labels, which is public, in words."""
    target = task.target
    found: tuple[str, ...] = ()
    if isinstance(target, BinaryTarget) and column == target.name:
        found = tuple(label for label in (target.negative, target.positive) if label is not None)
    elif isinstance(target, ClassTarget) and column == target.name:
        found = target.classes
    for feature in task.features:
        if isinstance(feature, CategoryFeature) and column == feature.name:
            found = feature.categories
    more = f" and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return f"declared: {', '.join(map(shown, found[:_MOST_SHOWN]))}{more}"
