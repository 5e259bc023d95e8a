"""Registry of the protocols' packages, whose modules are imported when first used. A new protocol needs a line here.

A package's module ``device`` defines ``device_for``; it has modules ``forecast`` and ``models`` if the protocol has
forecasts and further models.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from murk.errors import UserError

_ERROR_CODE = "MURK-LEARN-001"

ROOMS: Final[Mapping[str, str]] = {
    "gradients": "murk.protocols.gradients",
    "scores": "murk.protocols.scores",
    "examples": "murk.protocols.examples",
    "moments": "murk.protocols.moments",
    "summaries": "murk.protocols.summaries",
    "univariate": "murk.protocols.univariate",
}
"""Package of each protocol, by its name in task files."""


def has_part(protocol: str, module: str) -> bool:
    """Return whether a protocol's package has a module."""
    return find_spec(f"{ROOMS[protocol]}.{module}") is not None


def part(protocol: str, module: str) -> Any:
    """Import a module of a protocol's package; raise `UserError` if the protocol has no forecast."""
    if module == "forecast" and not has_part(protocol, module):
        raise UserError(f"protocol: {protocol} has no forecast: a simulated run (--seed) shows what it learns")
    return import_module(f"{ROOMS[protocol]}.{module}")
