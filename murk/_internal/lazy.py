"""Lazy imports of a package's public names (PEP 562), so that a device starts fast, and lazy values by level."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final, TypeVar

V = TypeVar("V")
W = TypeVar("W")
_EXPORT: Final = re.compile(r"^    from (\S+) import (\w+) as \2$", re.MULTILINE)


def lazy_exports(
    package: str, loaded: tuple[str, ...] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` for the package whose ``__name__`` is ``package``.

    The public names are those that its source imports for type checkers, ``from MODULE import NAME as NAME``, so that
    they stand once; ``loaded`` are the public names already defined.
    """
    loader: Any = sys.modules[package].__loader__
    homes = {name: module for module, name in _EXPORT.findall(loader.get_source(package))}
    exported = sorted({*homes, *loaded})

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return exported, find, exported.copy


class LazyLevels(Mapping[str, V]):
    """Values by privacy level, each made by ``make(level)`` on first use; ``ends`` are levels that bound all others.

    >>> squares = LazyLevels(("0", "1", "2"), ("0", "2"), lambda level: int(level) ** 2)
    >>> len(squares), squares["2"], bounding(squares)
    (3, 4, {'0': 0, '2': 4})
    """

    def __init__(self, names: tuple[str, ...], ends: tuple[str, ...], make: Callable[[str], V]) -> None:
        self.names, self.ends = dict.fromkeys(names), ends
        self._make, self._made = make, dict[str, V]()

    def __getitem__(self, level: str) -> V:
        made = self._made
        if level in made:
            return made[level]
        if level not in self.names:
            raise KeyError(level)
        # If two threads make a value, both get the first one.
        return made.setdefault(level, self._make(level))

    def __contains__(self, level: object) -> bool:
        return level in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def map_levels(function: Callable[[V], W], values: Mapping[str, V]) -> Mapping[str, W]:
    """Return the result of ``function`` for each level's value; for `LazyLevels`, it is computed on first use."""
    if isinstance(values, LazyLevels):
        return LazyLevels(tuple(values), values.ends, partial(_applied, function, values))
    return {level: function(value) for level, value in values.items()}


def _applied(function: Callable[[V], W], values: Mapping[str, V], level: str) -> W:
    return function(values[level])


def of_each_kind(values: Mapping[str, V], kind: Callable[[V], object]) -> dict[str, V]:
    """Return all values by level; from `LazyLevels`, only those at the ``ends`` and the first of each further kind."""
    chosen = bounding(values)
    if isinstance(values, LazyLevels):
        kinds = set(map(kind, chosen.values()))
        for level, value in values.items():
            if kind(value) not in kinds:
                kinds.add(kind(value))
                chosen[level] = value
    return chosen


def bounding(values: Mapping[str, V]) -> dict[str, V]:
    """Return all values by level; from `LazyLevels`, only those at the ``ends``, which bound all others."""
    return {level: values[level] for level in (values.ends if isinstance(values, LazyLevels) else values)}
