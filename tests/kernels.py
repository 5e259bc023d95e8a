"""Kernels that are compiled when they are first called, however little there is to do."""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from murk._internal import jit as _jit


def impatient() -> dict[_jit.Kernel, float]:
    """From now on compile at the first call; what patience kernels had."""
    _jit.COMPILE_AFTER = 0
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("murk.")]
    found = {each for module in modules for each in vars(module).values() if isinstance(each, _jit.Kernel)}
    before = {kernel: kernel._patience for kernel in found if 0 < kernel._patience < math.inf}
    for kernel in before:
        kernel._patience = 0
    return before


@contextmanager
def compiled_at_once() -> Iterator[None]:
    """Meanwhile compile at the first call."""
    usual, before = _jit.COMPILE_AFTER, impatient()
    try:
        yield
    finally:
        _jit.COMPILE_AFTER = usual
        for kernel, patience in before.items():
            kernel._patience = patience
