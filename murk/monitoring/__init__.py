"""The monitor: what was learned and how far it still is, for Prometheus, Grafana and its own live page."""

from typing import TYPE_CHECKING

from murk._lazy import lazy_exports

if TYPE_CHECKING:
    from murk.monitoring.monitor import Monitor

__all__ = ["Monitor"]

_HOMES = {
    "Monitor": ".monitor",
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
