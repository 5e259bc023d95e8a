"""Decorators for kernels compiled by numba, and arrays at memory addresses and randomness for them.

A kernel is compiled, or loaded from numba's cache, on its first call. Compiling takes longer than a small run, so a
`deferred` kernel is interpreted until compiling pays.

Passing an address to a kernel is faster than passing an array; the caller keeps the array alive. Functions such as
`words_at` serve interpreted kernels (``NUMBA_DISABLE_JIT``); `register` defines the compiled versions.
"""

import ctypes
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from functools import cache, update_wrapper
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from murk._internal.locks import ForkSafeLock
from murk._internal.wiping import numbers_were_used
from murk.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])

WITHOUT_KERNELS = ("cli", "demo", "monitoring", "populations", "producers", "results", "task")
"""Folders that hold no kernel and that no kernel imports: an edit there recompiles nothing."""
COMPILE_AFTER = 300_000
"""Numbers that a deferred kernel processes before it is compiled."""
LOAD_AFTER = 15_000
"""Numbers that a deferred kernel processes before it is loaded from numba's cache, if numba is imported already."""
_CALL = 64  # fixed cost of a call, as a number of processed numbers
_CREATING = ForkSafeLock()


def source_stamp(package: Path) -> str:
    """Return a digest of the content of all sources that a kernel may depend on; times and sizes do not suffice."""
    digest, root = blake2b(digest_size=16), len(str(package))
    for path in sorted(file.path for file in _sources(package)):
        with open(path, "rb", buffering=0) as file:
            digest.update(blake2b(file.readall()).digest() + path[root:].encode() + b"\0")
    return digest.hexdigest()


def source_states(package: Path) -> dict[str, tuple[int, ...]]:
    """Return inode, size and times of each source file; the change time differs after every write."""
    states: dict[str, tuple[int, ...]] = {}
    for file in _sources(package):
        status = file.stat()
        states[file.path] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return states


def _sources(package: Path) -> Iterator[os.DirEntry[str]]:
    folders, without = [str(package)], {str(package / name) for name in WITHOUT_KERNELS}
    # os.scandir, because every process does this and pathlib is slower.
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders += [entry.path] * (entry.path not in without)
                elif entry.name.endswith(".py"):
                    yield entry


_PACKAGE = Path(__file__).parents[1]
_LOADED = source_states(_PACKAGE)


@cache
def _stamp() -> str | None:
    """Return the digest of the loaded sources; None if they have changed on disk since."""
    stamp = source_stamp(_PACKAGE)
    return stamp if source_states(_PACKAGE) == _LOADED else None


@cache
def _can_compile() -> bool:
    """Return whether numba is installed; a device that releases works without it."""
    return find_spec("numba") is not None


# Whether an interpreted kernel is running: kernels that it calls are interpreted, too. Each call sets this in a context
# of its own, so that an interrupt cannot leave it set.
_INTERPRETING = ContextVar("interpreting", default=False)


class Kernel:
    """A function that is compiled on its first call, or on the first call of a kernel that calls it.

    ``stand_in`` processes the first ``patience`` numbers and must return the same bits as the kernel. ``direct`` says
    what replaces this object in its module to make calls faster: numba's ``"dispatcher"``, or its compiled ``"entry"``
    point, which converts all arguments to the types of the first call; empty for neither. ``options`` are numba's.
    """

    __name__: str

    def __init__(
        self, function: Callable[..., Any], stand_in: Callable[..., Any], patience: float, direct: str, **options: Any
    ) -> None:
        update_wrapper(self, function)
        self._function, self._stand_in, self._patience, self._options = function, stand_in, patience, options
        self._direct = direct
        self._dispatcher: Any = None
        self._looked = not 0 < patience < float("inf")

    def __call__(self, *args: Any) -> Any:
        if _INTERPRETING.get():
            return self._function(*args)
        # A single large call is worth compiling for.
        if self._patience > 0 and self.left(sum([getattr(each, "size", 1) for each in args])) > 0:
            return self.early(*args)
        result = self.compiled(*args)
        if self._direct == "entry":
            # Without compilation (NUMBA_DISABLE_JIT) there are no overloads.
            entries = [each.entry_point for each in getattr(self.compiled, "overloads", {}).values()]
            if len(entries) == 1:
                self._give_way(entries[0])
        return result

    def left(self, numbers: int) -> float:
        """Count a call with this many numbers; return how many more numbers the stand-in may process."""
        self._patience -= _CALL + numbers
        if self._patience <= 0 and not _can_compile():
            self._patience = float("inf")
        if not self._looked and "numba" in sys.modules:
            self._looked = True
            if self._is_kept():
                self._patience -= COMPILE_AFTER - LOAD_AFTER
        return self._patience

    def _is_kept(self) -> bool:
        """Return whether numba has the kernel in its cache."""
        try:
            return bool(self.compiled._cache._cache_file._load_index())
        except (AttributeError, OSError, EOFError, pickle.UnpicklingError):
            # Another version of numba, or a cache that cannot be read.
            return False

    def early(self, *args: Any) -> Any:
        """Call the stand-in."""
        return copy_context().run(self._interpret, *args)

    def _interpret(self, *args: Any) -> Any:
        _INTERPRETING.set(True)
        numbers_were_used()
        return self._stand_in(*args)

    @property
    def compiled(self) -> Any:
        """Numba's dispatcher, which compiles once for each combination of argument types."""
        return self._dispatcher or self._create()

    @property
    def _numba_type_(self) -> Any:
        # Lets numba compile calls of this object in other kernels.
        import numba

        return numba.typeof(self.compiled)

    def __getattr__(self, name: str) -> Any:
        # Numba reads options from its dispatchers. An object that is being copied or unpickled has no attributes yet.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.compiled, name)

    def __reduce__(self) -> str:
        return self._function.__qualname__

    def _create(self) -> Any:
        if not _can_compile():
            raise UserError(
                "this needs numba, which a device can do without: install murk with its dependencies",
                code="MURK-CLI-003",
            )
        import numba

        with _CREATING:
            register()
            if self._dispatcher is None:
                stamp = _stamp() if self._options["cache"] else None
                # Sources that changed after they were loaded must not be cached under the new stamp.
                cached = self._options["cache"] and stamp is not None
                compiled = numba.njit(error_model="numpy", **{**self._options, "cache": cached})(self._function)
                if cached:
                    # Numba checks only the kernel's own file, but a kernel contains compiled copies of kernels that
                    # it calls in other files.
                    try:
                        compiled._cache._cache_file._source_stamp = stamp
                    except AttributeError:
                        options = {**self._options, "cache": False}
                        compiled = numba.njit(error_model="numpy", **options)(self._function)
                self._dispatcher = compiled
                if self._direct == "dispatcher":
                    self._give_way(compiled)
        return self._dispatcher

    def _give_way(self, other: Callable[..., Any]) -> None:
        """Replace this object in its module by a faster function."""
        if self._function.__globals__.get(self.__name__) is self:
            self._function.__globals__[self.__name__] = other


def inlined(function: F) -> F:
    """Compile ``function`` into its callers: passing many arrays costs as much as a small kernel."""
    return _kernel(function, cache=False, inline="always")


def jit(function: F) -> F:
    """Compile ``function`` with numba, without fast-math: results repeat bit for bit on one build and CPU type."""
    return _kernel(function, cache=True, nogil=True)


def jit_short(function: F) -> F:
    """Like :func:`jit`, for a kernel too short to release the GIL for."""
    return _kernel(function, direct="entry", cache=True, nogil=False)


def jit_when_worth(function: F) -> F:
    """Like :func:`jit_short`, for a kernel that callers use only once `worth_compiling` says that compiling it pays."""
    return _kernel(function, patience=COMPILE_AFTER, direct="entry", cache=True, nogil=False)


def jit_block_when_worth(function: F) -> F:
    """Like :func:`jit_when_worth`, for a kernel of many records, which releases the GIL."""
    return _kernel(function, patience=COMPILE_AFTER, direct="dispatcher", cache=True, nogil=True)


def worth_compiling(kernel: Any, numbers: int) -> bool:
    """Return whether compiling a `jit_when_worth` or `jit_block_when_worth` kernel pays; else reduce its patience."""
    if getattr(kernel, "_patience", 0) <= 0:
        return True
    kernel.left(numbers)
    return False


def jit_helper(function: F) -> F:
    """Like :func:`jit`, for a few integer operations: compiled within other kernels, interpreted elsewhere."""
    return _kernel(function, patience=float("inf"), cache=True, nogil=True)


def deferred(function: F) -> F:
    """Like :func:`jit`, but interpreted until compiling pays.

    Only for kernels of additions, multiplications, divisions, square roots and the C library's exp in a fixed order,
    which the interpreter rounds the same way.
    """
    return _kernel(function, _interpreted(function), COMPILE_AFTER, cache=True, nogil=True)


def deferred_to(stand_in: Callable[..., Any]) -> Callable[[F], F]:
    """Like :func:`deferred`, with a numpy function to call in the meantime."""
    return lambda function: _kernel(function, stand_in, COMPILE_AFTER, cache=True, nogil=True)


def _interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    def interpreted(*args: Any) -> Any:
        import numpy as np

        # Compiled code overflows to infinity without a warning.
        with np.errstate(all="ignore"):
            return function(*args)

    return interpreted


def _kernel(
    function: F, stand_in: Callable[..., Any] | None = None, patience: float = 0, direct: str = "", **options: Any
) -> F:
    return cast(F, Kernel(function, stand_in or function, patience, direct, **options))


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
