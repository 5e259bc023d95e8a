"""Learners of released data.

The estimators are River estimators; their modules are imported when first asked for, so that a device,
which needs objectives but not River, starts fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murk.learners.ldp_sgd import LDPSGDClassifier, LDPSGDRegressor

__all__ = ["LDPSGDClassifier", "LDPSGDRegressor"]

_MODULES = {"LDPSGDClassifier": "ldp_sgd", "LDPSGDRegressor": "ldp_sgd"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
