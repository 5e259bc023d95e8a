"""One decorator for compiled kernels, which are written in the part of Python that numba compiles."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

WITHOUT_KERNELS = ("cli", "demo", "monitoring", "producers", "reproduce")
"""Folders of the package that hold no kernel and that no kernel imports: an edit there recompiles nothing."""


def source_stamp(package: Path) -> tuple[int, int]:
    """A stamp that changes whenever a source file that a kernel may depend on does: newest change, total size."""
    paths = (path for path in package.rglob("*.py") if path.relative_to(package).parts[0] not in WITHOUT_KERNELS)
    files = [path.stat() for path in paths]
    return max(file.st_mtime_ns for file in files), sum(file.st_size for file in files)


_STAMP = source_stamp(Path(__file__).parent)


def inlined(function: F) -> F:
    """Like :func:`jit`, for a function that is to be compiled into its callers.

    Handing ten arrays to a compiled function costs as much as a step of the update.
    """
    kernel: F = numba.njit(inline="always", error_model="numpy")(function)
    return kernel


def jit(function: F) -> F:
    """Compile ``function`` with numba.

    No fast-math: results must repeat bit for bit on one build and kind of CPU.
    """
    return _compiled(function, nogil=True)


def brief(function: F) -> F:
    """Like :func:`jit`, for a kernel of a microsecond, which is not worth giving the interpreter's lock away for."""
    return _compiled(function, nogil=False)


def _compiled(function: F, nogil: bool) -> F:
    compiled: Any = numba.njit(cache=True, nogil=nogil, error_model="numpy")(function)
    # Numba takes a cached kernel as current while its own file is unchanged. Kernels hold compiled copies of
    # those they call in other files: a fixed sampler must not live on in a cached learner.
    try:
        compiled._cache._cache_file._source_stamp = _STAMP
    except AttributeError:
        compiled = numba.njit(nogil=nogil, error_model="numpy")(function)
    kernel: F = compiled
    return kernel
