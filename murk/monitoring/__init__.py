"""The monitor: what was learned and how far it still is, for Prometheus, Grafana and its own live page."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murk.monitoring.monitor import Monitor

_HOMES = {"Monitor": "murk.monitoring.monitor"}

__all__ = ["Monitor"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
