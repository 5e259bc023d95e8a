"""Decorators for compiled kernels, which are written in the part of Python that numba compiles.

A kernel is compiled, or taken from numba's cache, when it is first called, and numba is imported then: together that
takes longer than a small run. Until compiling pays, a `deferred` kernel does without.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from functools import cache, update_wrapper
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar, cast

from murk._memory import register
from murk._scratch import numbers_were_used

F = TypeVar("F", bound=Callable[..., Any])

WITHOUT_KERNELS = ("cli", "demo", "monitoring", "producers")
"""Folders of the package that hold no kernel and that no kernel imports: an edit there recompiles nothing."""

PATIENCE = 300_000
"""Numbers that a deferred kernel works on before it is compiled: a quarter of a second, where compiling takes one."""

KEPT = 15_000
"""The same of one that numba has in its cache, once numba itself is loaded: it takes a hundredth of a second then."""

# A call is worth so many numbers.
_CALL = 64
_CREATING = threading.RLock()


def source_stamp(package: Path) -> str:
    """Return a digest of the names and contents of all source files that a kernel may depend on.

    Times and sizes would not do: an archive or a copy keeps times, and a fix may keep the size.
    """
    digest, root = blake2b(digest_size=16), len(str(package))
    for path in sorted(file.path for file in _sources(package)):
        with open(path, "rb", buffering=0) as file:
            digest.update(blake2b(file.readall()).digest() + path[root:].encode() + b"\0")
    return digest.hexdigest()


def source_states(package: Path) -> dict[str, tuple[int, ...]]:
    """Return what the file system says of each source file: the last one changes with every write."""
    states: dict[str, tuple[int, ...]] = {}
    for file in _sources(package):
        status = file.stat()
        states[file.path] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return states


def _sources(package: Path) -> Iterator[os.DirEntry[str]]:
    folders, without = [str(package)], {str(package / name) for name in WITHOUT_KERNELS}
    # A third of the time that paths and patterns take: every process does it.
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders += [entry.path] * (entry.path not in without)
                elif entry.name.endswith(".py"):
                    yield entry


_PACKAGE = Path(__file__).parent
_LOADED = source_states(_PACKAGE)


@cache
def _stamp() -> str | None:
    """Digest of the sources that this process has loaded; None where they have changed on disk since.

    Reading them takes longer than asking for their states, so that is left until a kernel is made.
    """
    stamp = source_stamp(_PACKAGE)
    return stamp if source_states(_PACKAGE) == _LOADED else None


# Whether this is within a kernel that is not compiled: what that one calls is not, either. It is set in a context of
# the call's own, which ends with it whenever an interrupt arrives.
_INTERPRETING = ContextVar("interpreting", default=False)


class Kernel:
    """A function that is compiled when it is first called, or when one that calls it is.

    Parameters
    ----------
    function
        What is compiled.
    stand_in
        What works instead, as long as ``patience`` lasts; it must give the same bits.
    patience
        Numbers that may be worked on before the function is compiled.
    direct
        What it gives its place in its module to, once there is one: numba's ``"dispatcher"``, as a call through this
        object takes as long as 5 numbers; or the ``"entry"`` that a dispatcher ends in, which takes a third as long to
        call, for a kernel of numbers alone: it converts what it is given to the types of the first call.
    options
        For numba.
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
        # A call that by itself is worth compiling for is compiled for.
        if self._patience > 0 and self.left(sum([getattr(each, "size", 1) for each in args])) > 0:
            return self.early(*args)
        found = self.compiled(*args)
        if self._direct == "entry":
            # Interpreted, it has none.
            entries = [each.entry_point for each in getattr(self.compiled, "overloads", {}).values()]
            if len(entries) == 1:
                self._give_way(entries[0])
        return found

    def left(self, numbers: int) -> float:
        """What is left of patience when so many numbers more are worked on."""
        self._patience -= _CALL + numbers
        if not self._looked and "numba" in sys.modules:
            self._looked = True
            if self._is_kept():
                self._patience -= PATIENCE - KEPT
        return self._patience

    def _is_kept(self) -> bool:
        """Whether numba has it in its cache, and need not compile it."""
        try:
            return bool(self.compiled._cache._cache_file._load_index())
        except (AttributeError, OSError, EOFError, pickle.UnpicklingError):
            # Numba of another kind, a folder that cannot be read, a damaged file: then it is compiled when that pays.
            return False

    def early(self, *args: Any) -> Any:
        """What works instead, as it works while patience lasts."""
        return copy_context().run(self._interpret, *args)

    def _interpret(self, *args: Any) -> Any:
        _INTERPRETING.set(True)
        numbers_were_used()
        return self._stand_in(*args)

    @property
    def compiled(self) -> Any:
        """Numba's dispatcher, which compiles for each kind of arguments, once."""
        return self._dispatcher or self._create()

    @property
    def _numba_type_(self) -> Any:
        # What other kernels call, as numba sees it.
        import numba

        return numba.typeof(self.compiled)

    def __getattr__(self, name: str) -> Any:
        # Numba asks its dispatchers how they are inlined. A copy or pickle that is under way has no attributes yet.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.compiled, name)

    def __reduce__(self) -> str:
        return self._function.__qualname__

    def _create(self) -> Any:
        import numba

        with _CREATING:
            register()
            if self._dispatcher is None:
                stamp = _stamp() if self._options["cache"] else None
                # What changed on disk meanwhile must not keep a kernel of the sources before.
                cached = self._options["cache"] and stamp is not None
                compiled = numba.njit(error_model="numpy", **{**self._options, "cache": cached})(self._function)
                if cached:
                    # Numba takes a cached kernel as current while its own file is unchanged. Kernels hold compiled
                    # copies of those they call in other files: a fixed sampler must not live on in a cached learner.
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
        """Have who calls this of its module call another function at once."""
        if self._function.__globals__.get(self.__name__) is self:
            self._function.__globals__[self.__name__] = other


def inlined(function: F) -> F:
    """Like :func:`jit`, for a function that is to be compiled into its callers.

    Handing ten arrays to a compiled function costs as much as a step of the update.
    """
    return _kernel(function, cache=False, inline="always")


def jit(function: F) -> F:
    """Compile ``function`` with numba.

    No fast-math: results must repeat bit for bit on one build and kind of CPU.
    """
    return _kernel(function, cache=True, nogil=True)


def brief(function: F) -> F:
    """Like :func:`jit`, for a kernel of a microsecond, which is not worth giving the interpreter's lock away for."""
    return _kernel(function, direct="entry", cache=True, nogil=False)


def patient(function: F) -> F:
    """Like :func:`brief`, for a kernel that is called once `due` says that compiling it pays; till then others work."""
    return _kernel(function, patience=PATIENCE, direct="entry", cache=True, nogil=False)


def awaited(function: F) -> F:
    """Like :func:`patient`, for a kernel of many records, during which other threads run."""
    return _kernel(function, patience=PATIENCE, direct="dispatcher", cache=True, nogil=True)


def due(kernel: Any, numbers: int) -> bool:
    """Whether compiling a `patient` or `awaited` kernel pays by now; if not, others work on so many numbers instead."""
    if getattr(kernel, "_patience", 0) <= 0:
        return True
    kernel.left(numbers)
    return False


def within(function: F) -> F:
    """Like :func:`jit`, for a few operations on integers: compiled within other kernels, and else left as it is."""
    return _kernel(function, patience=float("inf"), cache=True, nogil=True)


def deferred(function: F) -> F:
    """Like :func:`jit`, but interpreted as Python until it had enough to do that compiling pays.

    For a kernel of additions, multiplications, divisions, square roots and the C library's exp, in a fixed order: the
    interpreter does the same ones, rounded the same way.
    """
    return _kernel(function, _interpreted(function), PATIENCE, cache=True, nogil=True)


def deferred_to(stand_in: Callable[..., Any]) -> Callable[[F], F]:
    """Like :func:`deferred`, with ``stand_in`` to work in the meantime: the same in numpy, where Python is too slow."""
    return lambda function: _kernel(function, stand_in, PATIENCE, cache=True, nogil=True)


def _interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    def interpreted(*args: Any) -> Any:
        import numpy as np

        # As in compiled code, what overflows is infinite, and nothing is said.
        with np.errstate(all="ignore"):
            return function(*args)

    return interpreted


def _kernel(
    function: F, stand_in: Callable[..., Any] | None = None, patience: float = 0, direct: str = "", **options: Any
) -> F:
    return cast(F, Kernel(function, stand_in or function, patience, direct, **options))
