"""Lazy imports of a package's public names (PEP 562), so that a device starts fast."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, homes: Mapping[str, str], loaded: tuple[str, ...] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for the package whose ``__name__`` is ``package``.

    ``homes`` maps names to relative modules (``".classifier"``); ``loaded`` are the public names already defined.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name], package), name)

    def names() -> list[str]:
        return sorted({*homes, *loaded})

    return find, names
