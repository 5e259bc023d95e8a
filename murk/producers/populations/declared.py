"""What a task declares of a column, in the words of a message about a value that is not among it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from murk.stream.task.data.features import BinaryTarget, CategoryFeature, ClassTarget
from murk.stream.task.errors import shown

if TYPE_CHECKING:
    from murk.stream.task.task import Task

_MOST_SHOWN: Final = 10


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
