"""Tasks, releases and their codec, logs, and the worker that feeds a learner; names are imported on first use."""

from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports

if TYPE_CHECKING:
    from murk.stream.log.open import open_log
    from murk.stream.wire.releases import (
        ExampleRelease,
        GradientRelease,
        GramRelease,
        MomentRelease,
        NewtonRelease,
        ScoreRelease,
        SketchRelease,
        TargetRelease,
    )
    from murk.stream.worker.worker import Worker

__all__ = [
    "ExampleRelease",
    "GradientRelease",
    "GramRelease",
    "MomentRelease",
    "NewtonRelease",
    "ScoreRelease",
    "SketchRelease",
    "TargetRelease",
    "Worker",
    "open_log",
]

_HOMES = {
    **dict.fromkeys((name for name in __all__ if name.endswith("Release")), "murk.stream.wire.releases"),
    "Worker": ".worker.worker",
    "open_log": ".log.open",
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
