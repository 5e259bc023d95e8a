"""Murk: online learning on streams of locally private data."""

import logging
from typing import TYPE_CHECKING

from murk._lazy import lazy_exports

if TYPE_CHECKING:
    from murk.learners.models.fit import fit
    from murk.learners.results.result import Result
    from murk.producers.populations.local_run import run

__version__ = "0.4.0.dev0"
__all__ = ["Result", "__version__", "fit", "run"]

_HOMES = {
    "Result": ".learners.results.result",
    "fit": ".learners.models.fit",
    "run": ".producers.populations.local_run",
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES, ("__version__",))

# A library stays silent until the application configures logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())
