"""The public specification that devices and learners share."""

from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports

if TYPE_CHECKING:
    from murk.task.models import Model as Model
    from murk.task.task import Task as Task

__all__, __getattr__, __dir__ = lazy_exports(__name__)
