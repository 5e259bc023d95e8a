"""Tasks, releases and their codec, logs, and the worker that feeds a learner; names are imported on first use."""

from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports

if TYPE_CHECKING:
    from murk.stream.log.open import open_log as open_log
    from murk.stream.wire.releases import ExampleRelease as ExampleRelease
    from murk.stream.wire.releases import GradientRelease as GradientRelease
    from murk.stream.wire.releases import GramRelease as GramRelease
    from murk.stream.wire.releases import MomentRelease as MomentRelease
    from murk.stream.wire.releases import NewtonRelease as NewtonRelease
    from murk.stream.wire.releases import ScoreRelease as ScoreRelease
    from murk.stream.wire.releases import SketchRelease as SketchRelease
    from murk.stream.wire.releases import TargetRelease as TargetRelease
    from murk.stream.worker.worker import Worker as Worker

__all__, __getattr__, __dir__ = lazy_exports(__name__)
