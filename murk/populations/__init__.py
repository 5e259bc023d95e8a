"""The people or organisations of a file, who release its records: simulations, gateways and local runs."""

from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports

if TYPE_CHECKING:
    from murk.populations.file_source import FileSource as FileSource
    from murk.populations.records.records import open_records as open_records

__all__, __getattr__, __dir__ = lazy_exports(__name__)
