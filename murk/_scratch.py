"""Arrays that are wiped when a call ends: what is computed of a record, and the noise that hides it.

Within ``with wiping():`` whatever `empty`, `copied` and `keep` give is overwritten with zeros at the end, however that
comes: by a return, an error or Ctrl-C. Elsewhere they give arrays like any other, so that a function that computes of
records can also serve a forecast. What is released is allocated by numpy itself, and lives on.

Interpreted kernels, and the coding of one record, compute with Python's own numbers. They cannot be wiped; the memory
of freed ones is overwritten by as many new ones as usually reach it, see `overwrite_numbers`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

Given = ParamSpec("Given")
Found = TypeVar("Found")
Held = TypeVar("Held", bound=NDArray[Any])

_FREED = 2048
"""Numbers of each size that are made to overwrite freed ones: all that CPython keeps apart, and those beyond."""

_LOCAL = threading.local()
_FLOATS, _INTEGERS = np.zeros(_FREED), np.full(_FREED, 2**40)


class _Scope:
    """A scope: as it stands once it has ended."""

    __slots__ = ("_arrays", "_scopes")

    _arrays: list[NDArray[Any]]
    _scopes: list[list[NDArray[Any]]]

    def __enter__(self) -> None:
        self._arrays, self._scopes = [], _scopes()
        self._scopes.append(self._arrays)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        arrays: list[NDArray[Any]] | None = getattr(self, "_arrays", None)
        scopes: list[list[NDArray[Any]]] = getattr(self, "_scopes", [])
        if arrays is None:
            return
        _wipe(arrays)
        for place, scope in enumerate(scopes):
            if scope is arrays:
                del scopes[place:]
                break
        if not scopes and getattr(_LOCAL, "numbers", False):
            _LOCAL.numbers = False
            overwrite_numbers()
        del self._arrays
        # Nothing is left for `__del__`. Were it called all the same, Python would swallow a Ctrl-C that comes there.
        self.__class__ = _Scope


class wiping(_Scope):  # noqa: N801 - used as `contextlib`'s own managers are
    """A scope at whose end all arrays that were allocated in it are wiped.

    Examples
    --------
    >>> with wiping():
    ...     noise = empty(2, np.int64)
    ...     noise[:] = 7
    >>> noise.tolist()
    [0, 0]
    """

    __slots__ = ()

    def __del__(self) -> None:
        # An interrupt may come as `__exit__` begins.
        self._end()


class lasting(wiping):  # noqa: N801
    """A scope within others whose arrays are not wiped: what is made in it outlives the call."""

    __slots__ = ()

    def __enter__(self) -> None:
        self._arrays, self._scopes = _Unwiped(), _scopes()
        self._scopes.append(self._arrays)


class _Unwiped(list[NDArray[Any]]):
    """Arrays that nobody has to wipe, and that are therefore not held."""

    def append(self, array: NDArray[Any], /) -> None:
        """Leave it to its owner."""


def wiped(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """Have a function work within a scope of its own."""

    @wraps(function)
    def within(*given: Given.args, **named: Given.kwargs) -> Found:
        with wiping():
            return function(*given, **named)

    return within


def empty(shape: int | tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
    """Return an array that is wiped at the end of the scope, with nothing in it yet."""
    return keep(np.empty(shape, dtype))


def keep(array: Held) -> Held:
    """Have an array that was just made, and is nobody else's, wiped at the end of the scope; return it."""
    scopes = getattr(_LOCAL, "scopes", None)
    if scopes:
        scopes[-1].append(array)
    return array


def copied(values: Any, dtype: Any = np.float64) -> NDArray[Any]:
    """Return values as an array in one piece: itself where it is one, else a copy that is wiped."""
    if isinstance(values, np.ndarray):
        if type(values) is np.ndarray and values.dtype == dtype and values.flags.c_contiguous:
            return values
        found = empty(values.shape, dtype)
        np.copyto(found, values, casting="unsafe")
        return found
    return keep(np.array(values, dtype=dtype, order="C"))


def numbers_were_used() -> None:
    """Have the memory of freed numbers overwritten at the end of the outermost scope."""
    if getattr(_LOCAL, "scopes", None):
        _LOCAL.numbers = True


def overwrite_numbers() -> None:
    """Overwrite the memory of numbers that Python has freed, by making and freeing others of the same sizes."""
    made = [_FLOATS.tolist(), _INTEGERS.tolist()]
    del made


def overwrite_large_numbers() -> None:
    """Do the same of integers beyond 60 bits."""
    made = [[(1 << bits) + place for place in range(_FREED // 4)] for bits in (61, 91, 121, 151)]
    del made


def _scopes() -> list[list[NDArray[Any]]]:
    scopes: list[list[NDArray[Any]]] | None = getattr(_LOCAL, "scopes", None)
    if scopes is None:
        _LOCAL.scopes = scopes = []
    return scopes


def _wipe(arrays: list[NDArray[Any]]) -> None:
    try:
        while arrays:
            array = arrays[-1]
            if array.flags.writeable:
                array.fill(0)
            elif array.size:
                # Random words, which came as bytes that nobody else has.
                ctypes.memset(array.ctypes.data, 0, array.nbytes)
            arrays.pop()
    finally:
        # An interrupt came in between: the rest is wiped all the same.
        if arrays:
            _wipe(arrays)
