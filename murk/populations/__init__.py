"""The people or organisations of a file, who release its records: simulations, gateways and local runs."""

from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports

if TYPE_CHECKING:
    from murk.populations.file_source import FileSource
    from murk.populations.records.records import open_records

__all__ = ["FileSource", "open_records"]

_HOMES = {"FileSource": ".file_source", "open_records": ".records.records"}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
