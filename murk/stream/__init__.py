"""The wire: task specification, release records and their codec, logs, and the worker that feeds a learner.

Names are imported when they are first used: a device that only releases loads neither logs nor workers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murk.stream.log.open import open_log
    from murk.stream.messages.releases import (
        ExampleRelease,
        GradientRelease,
        GramRelease,
        MomentRelease,
        ScoreRelease,
        SketchRelease,
    )
    from murk.stream.task.task import Task
    from murk.stream.worker.worker import Worker

_HOMES = {
    "ExampleRelease": "murk.stream.messages.releases",
    "GradientRelease": "murk.stream.messages.releases",
    "GramRelease": "murk.stream.messages.releases",
    "MomentRelease": "murk.stream.messages.releases",
    "ScoreRelease": "murk.stream.messages.releases",
    "SketchRelease": "murk.stream.messages.releases",
    "Task": "murk.stream.task.task",
    "Worker": "murk.stream.worker.worker",
    "open_log": "murk.stream.log.open",
}

__all__ = [
    "ExampleRelease",
    "GradientRelease",
    "GramRelease",
    "MomentRelease",
    "ScoreRelease",
    "SketchRelease",
    "Task",
    "Worker",
    "open_log",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
