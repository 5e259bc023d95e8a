"""Tasks, releases and their codec, logs, and the worker that feeds a learner; names are imported on first use."""

from typing import TYPE_CHECKING

from murk._lazy import lazy_exports

if TYPE_CHECKING:
    from murk.stream.log.open import open_log
    from murk.stream.messages.releases import (
        ExampleRelease,
        GradientRelease,
        GramRelease,
        MomentRelease,
        NewtonRelease,
        ScoreRelease,
        SketchRelease,
        TargetRelease,
    )
    from murk.stream.task.model import Model
    from murk.stream.task.task import Task
    from murk.stream.worker.worker import Worker

__all__ = [
    "ExampleRelease",
    "GradientRelease",
    "GramRelease",
    "Model",
    "MomentRelease",
    "NewtonRelease",
    "ScoreRelease",
    "SketchRelease",
    "TargetRelease",
    "Task",
    "Worker",
    "open_log",
]

_HOMES = {
    **dict.fromkeys((name for name in __all__ if name.endswith("Release")), ".messages.releases"),
    "Model": ".task.model",
    "Task": ".task.task",
    "Worker": ".worker.worker",
    "open_log": ".log.open",
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
