"""Arrays that are wiped when a call ends, for values computed from a record and for its noise.

Arrays from `empty`, `copied` and `track` within ``with wiping():`` are overwritten with zeros when the block ends, also
by an error or Ctrl-C. Outside of such a block they are ordinary arrays. Python's own numbers, which interpreted kernels
use, cannot be wiped: `overwrite_numbers` overwrites their freed memory.
"""

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

_FREED = 2048  # largest number of floats, and of integers, created to overwrite the memory that CPython has freed
_FREE_LIST = 128
"""Numbers to create beyond a known number in use: more than the 100 freed floats that CPython keeps for reuse."""


class _Local(threading.local):
    """The scopes of a thread, and how many of its numbers to overwrite when the outermost ends."""

    scopes: list[list[NDArray[Any]]] | None = None
    numbers: int = 0


_LOCAL = _Local()
_FLOATS, _INTEGERS = np.zeros(_FREED), np.full(_FREED, 2**40)


class _Scope:
    """A scope that has ended; see `_end`."""

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
        for index, scope in enumerate(scopes):
            if scope is arrays:
                del scopes[index:]
                break
        if not scopes and (count := _LOCAL.numbers):
            _LOCAL.numbers = 0
            overwrite_numbers(count)
        del self._arrays
        # Change to a class without `__del__`, because Python would swallow a Ctrl-C there.
        self.__class__ = _Scope


class wiping(_Scope):  # noqa: N801 - used as `contextlib`'s own managers are
    """A scope that wipes all arrays allocated in it when it ends.

    >>> with wiping():
    ...     noise = empty(2, np.int64)
    ...     noise[:] = 7
    >>> noise.tolist()
    [0, 0]
    """

    __slots__ = ()

    def __del__(self) -> None:
        # An interrupt may arrive before `__exit__` begins.
        self._end()


class lasting(wiping):  # noqa: N801
    """A nested scope whose arrays are not wiped and outlive the call."""

    __slots__ = ()

    def __enter__(self) -> None:
        self._arrays, self._scopes = _Unwiped(), _scopes()
        self._scopes.append(self._arrays)


class _Unwiped(list[NDArray[Any]]):
    """A list that keeps no arrays, because nothing needs to be wiped."""

    def append(self, array: NDArray[Any], /) -> None:
        """Do nothing."""


def wiped(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """Run a function within a `wiping` scope."""

    @wraps(function)
    def within(*given: Given.args, **named: Given.kwargs) -> Found:
        with wiping():
            return function(*given, **named)

    return within


def empty(shape: int | tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
    """Return an uninitialised array that is wiped at the end of the scope."""
    return track(np.empty(shape, dtype))


def track(array: Held) -> Held:
    """Register a new array for wiping at the end of the scope, and return it."""
    scopes = _LOCAL.scopes
    if scopes:
        scopes[-1].append(array)
    return array


def copied(values: Any, dtype: Any = np.float64) -> NDArray[Any]:
    """Return values as a contiguous array: the array itself if it is one, else a copy that is wiped."""
    if isinstance(values, np.ndarray):
        if type(values) is np.ndarray and values.dtype == dtype and values.flags.c_contiguous:
            return values
        copy = empty(values.shape, dtype)
        np.copyto(copy, values, casting="unsafe")
        return copy
    return track(np.array(values, dtype=dtype, order="C"))


def numbers_were_used(held: int = _FREED) -> None:
    """Run `overwrite_numbers` when the outermost scope ends; at most ``held`` numbers existed at once, if known."""
    if _LOCAL.scopes:
        count = min(_FREED, 2 * held + _FREE_LIST)
        _LOCAL.numbers = max(count, _LOCAL.numbers)


def overwrite_numbers(count: int = _FREED) -> None:
    """Overwrite the memory of numbers that Python has freed, by creating and freeing others of the same sizes."""
    made = [_FLOATS[:count].tolist(), _INTEGERS[:count].tolist()]
    del made


def overwrite_large_numbers() -> None:
    """Do the same as `overwrite_numbers` for integers beyond 60 bits."""
    made = [[(1 << bits) + index for index in range(_FREED // 4)] for bits in (61, 91, 121, 151)]
    del made


def _scopes() -> list[list[NDArray[Any]]]:
    if _LOCAL.scopes is None:
        _LOCAL.scopes = []
    return _LOCAL.scopes


def _wipe(arrays: list[NDArray[Any]]) -> None:
    try:
        while arrays:
            array = arrays[-1]
            if array.flags.writeable:
                array.fill(0)
            elif array.size:
                # Random words in a read-only buffer of bytes, to which there is no other reference.
                ctypes.memset(array.__array_interface__["data"][0], 0, array.nbytes)
            arrays.pop()
    finally:
        # After an interrupt, wipe the rest.
        if arrays:
            _wipe(arrays)
