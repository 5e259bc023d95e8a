"""The monitor: estimates and their precision for Prometheus, Grafana and a live page."""

from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports

if TYPE_CHECKING:
    from murk.monitoring.monitor import Monitor as Monitor

__all__, __getattr__, __dir__ = lazy_exports(__name__)
