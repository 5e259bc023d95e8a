"""One decorator for compiled kernels, so that Murk also runs where numba has no build.

Kernels are written in the part of Python that numba compiles. Where numba is missing they run as plain
Python: slowly, with the same results.
"""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

try:
    import numba
except ImportError:
    HAVE_NUMBA = False
else:
    HAVE_NUMBA = True


def jit(function: F) -> F:
    """Compile ``function`` with numba where there is numba; leave it as it is elsewhere.

    No fast-math: results must repeat bit for bit on one build and kind of CPU.
    """
    if not HAVE_NUMBA:
        return function
    compiled: F = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled
