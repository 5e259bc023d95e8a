"""What kernels see of memory by its address: arrays there, and random words of the operating system.

A kernel that takes an address takes a third of the time to call of one that takes the arrays. Whoever gives an address
keeps the array that it is of. What stands here is for kernels that are interpreted (``NUMBA_DISABLE_JIT``); compiled
ones have `register`'s.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import Any

import numpy as np


def integers_at(address: int, size: int) -> Any:
    """``size`` int64 numbers at an address."""
    return np.ctypeslib.as_array((ctypes.c_int64 * int(size)).from_address(int(address)))


def words_at(address: int, size: int) -> Any:
    """``size`` uint64 numbers at an address."""
    return np.ctypeslib.as_array((ctypes.c_uint64 * int(size)).from_address(int(address)))


def numbers_at(address: int, size: int) -> Any:
    """``size`` float64 numbers at an address."""
    return np.ctypeslib.as_array((ctypes.c_double * int(size)).from_address(int(address)))


def rows_at(address: int, rows: int, columns: int) -> Any:
    """A matrix of float64 numbers at an address: of what an array already is, `reshape` takes ten times as long."""
    return numbers_at(address, rows * columns).reshape((rows, columns))


def random_words(address: int, size: int) -> bool:
    """Write ``size`` fresh words of the operating system's randomness to an address; False where it gives none.

    By the C library's getrandom, which Linux has: it needs no state here, so no fork and no copy can repeat words.
    """
    words_at(address, size)[:] = np.frombuffer(os.urandom(8 * int(size)), dtype=np.uint64)
    return True


def is_compiled() -> bool:
    """Whether what asks is compiled, and not interpreted."""
    return False


def borrowed(array: Any) -> Any:
    """The same numbers in the same place, as an array whose references are not counted.

    Compiled code counts references to arrays atomically, again and again within a loop that hands them on: of a
    microsecond's work that took half. Whoever calls a kernel keeps what it borrows: so only what a kernel was given is
    borrowed, never what it made. Where the numbers do not lie in one piece, it is the array itself.
    """
    return array


@cache
def register() -> None:
    """Tell numba of these functions."""
    from numba import carray, types
    from numba.extending import intrinsic, overload

    @cache
    def pointer_to(dtype: Any) -> Any:
        @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
        def pointer(typing: Any, address: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

            return types.CPointer(dtype)(types.int64), generate

        return pointer

    def place(dtype: Any) -> Any:
        pointer = pointer_to(dtype)

        # Both with the same annotations: numba compares them.
        def view(address: Any, size: Any) -> Any:
            def found(address: Any, size: Any) -> Any:
                return carray(pointer(address), size)

            return found

        return view

    overload(integers_at)(place(types.int64))
    overload(words_at)(place(types.uint64))
    overload(numbers_at)(place(types.float64))

    @overload(rows_at)  # type: ignore[untyped-decorator, unused-ignore]
    def _rows_at(address: Any, rows: Any, columns: Any) -> Any:
        pointer = pointer_to(types.float64)

        def found(address: Any, rows: Any, columns: Any) -> Any:
            return carray(pointer(address), (rows, columns))

        return found

    overload(is_compiled)(lambda: lambda: True)

    @overload(borrowed)  # type: ignore[untyped-decorator, unused-ignore]
    def _borrowed(array: Any) -> Any:
        pointer = pointer_to(array.dtype)

        def lent(array: Any) -> Any:
            return carray(pointer(np.int64(array.ctypes.data)), array.shape)

        def itself(array: Any) -> Any:
            return array

        return lent if array.layout == "C" else itself

    # An address is handed over as the integer that it is.
    getrandom = types.ExternalFunction("getrandom", types.int64(types.int64, types.int64, types.uint32))

    def fill(address: Any, size: Any) -> Any:
        done = 0
        while done < 8 * size:
            got = getrandom(address + done, 8 * size - done, 0)
            if got <= 0:
                return False
            done += got
        return True

    def none(address: Any, size: Any) -> Any:
        return False

    there = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "getrandom")

    @overload(random_words)  # type: ignore[untyped-decorator, unused-ignore]
    def _random_words(address: Any, size: Any) -> Any:
        return fill if there else none
