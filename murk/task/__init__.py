"""The public specification that devices and learners share."""

from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports

if TYPE_CHECKING:
    from murk.task.models import Model
    from murk.task.task import Task

__all__ = ["Model", "Task"]

_HOMES = {"Model": ".models", "Task": ".task"}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
