"""Arrays at memory addresses and operating-system randomness, for kernels.

Passing an address to a kernel is faster than passing an array; the caller keeps the array alive. The functions here
serve interpreted kernels (``NUMBA_DISABLE_JIT``); `register` defines the compiled versions.
"""

import ctypes
import os
import sys
from functools import cache
from typing import Any

import numpy as np


def integers_at(address: int, size: int) -> Any:
    """Return ``size`` int64 numbers at an address."""
    return np.ctypeslib.as_array((ctypes.c_int64 * int(size)).from_address(int(address)))


def words_at(address: int, size: int) -> Any:
    """Return ``size`` uint64 numbers at an address."""
    return np.ctypeslib.as_array((ctypes.c_uint64 * int(size)).from_address(int(address)))


def numbers_at(address: int, size: int) -> Any:
    """Return ``size`` float64 numbers at an address."""
    return np.ctypeslib.as_array((ctypes.c_double * int(size)).from_address(int(address)))


def rows_at(address: int, rows: int, columns: int) -> Any:
    """Return a matrix of float64 numbers at an address."""
    return numbers_at(address, rows * columns).reshape((rows, columns))


def random_words(address: int, size: int) -> bool:
    """Write ``size`` random words from the operating system to an address; return whether that succeeded.

    Compiled kernels call Linux's getrandom, which has no state that a fork or a copy could repeat.
    """
    words_at(address, size)[:] = np.frombuffer(os.urandom(8 * int(size)), dtype=np.uint64)
    return True


def is_compiled() -> bool:
    """Return whether the caller is compiled."""
    return False


def borrowed(array: Any) -> Any:
    """Return a view without reference counting in compiled code, where counting is atomic and slow.

    Only for an array that is an argument of the kernel, because the caller keeps it alive. A non-contiguous array is
    returned unchanged.
    """
    return array


@cache
def register() -> None:
    """Register the compiled versions of these functions with numba.

    An overload maps the types of arguments to an implementation with the same parameters and annotations.
    """
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

    def view_of(dtype: Any) -> Any:
        pointer = pointer_to(dtype)
        return lambda address, size: lambda address, size: carray(pointer(address), size)

    overload(integers_at)(view_of(types.int64))
    overload(words_at)(view_of(types.uint64))
    overload(numbers_at)(view_of(types.float64))

    to_float = pointer_to(types.float64)
    overload(rows_at)(
        lambda address, rows, columns: lambda address, rows, columns: carray(to_float(address), (rows, columns))
    )
    overload(is_compiled)(lambda: lambda: True)

    @overload(borrowed)  # type: ignore[untyped-decorator, unused-ignore]
    def _borrowed(array: Any) -> Any:
        pointer = pointer_to(array.dtype)

        def uncounted(array: Any) -> Any:
            return carray(pointer(np.int64(array.ctypes.data)), array.shape)

        def itself(array: Any) -> Any:
            return array

        return uncounted if array.layout == "C" else itself

    # The address is passed as an integer.
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
