"""Murk: online learning on streams of locally private data."""

import logging
from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports

if TYPE_CHECKING:
    from murk.populations.local_run import run as run
    from murk.results.archives import archive as archive
    from murk.results.fit import fit as fit
    from murk.results.result import Result as Result
    from murk.task.task import Task as Task

__version__ = "1.0.0"
__all__, __getattr__, __dir__ = lazy_exports(__name__, ("__version__",))

# A library stays silent until the application configures logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())
