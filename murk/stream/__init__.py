"""The wire: task specification, release records and their codec, logs, and the worker that feeds a learner.

Names are imported when they are first used: a device that only releases loads neither logs nor workers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murk.stream.log import open_log
    from murk.stream.releases import (
        ExampleRelease,
        GradientRelease,
        GramRelease,
        MomentRelease,
        ScoreRelease,
        SketchRelease,
    )
    from murk.stream.task import Task
    from murk.stream.worker import Worker

_HOMES = {
    "ExampleRelease": "murk.stream.releases",
    "GradientRelease": "murk.stream.releases",
    "GramRelease": "murk.stream.releases",
    "MomentRelease": "murk.stream.releases",
    "ScoreRelease": "murk.stream.releases",
    "SketchRelease": "murk.stream.releases",
    "Task": "murk.stream.task",
    "Worker": "murk.stream.worker",
    "open_log": "murk.stream.log",
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
