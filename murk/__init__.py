"""Murk: online learning on streams of locally private data."""

import logging
from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports

if TYPE_CHECKING:
    from murk.populations.local_run import run
    from murk.results.fit import fit
    from murk.results.result import Result
    from murk.task.task import Task

__version__ = "0.4.0.dev0"
__all__ = ["Result", "Task", "__version__", "fit", "run"]

_HOMES = {
    "Result": "murk.results.result",
    "Task": "murk.task.task",
    "fit": "murk.results.fit",
    "run": "murk.populations.local_run",
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES, ("__version__",))

# A library stays silent until the application configures logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())
