"""Kernels write to the memory that they borrow, whatever its shape, and count no reference to it."""

import sys

import numpy as np
import pytest

from murk._internal.jit import borrowed, jit


@jit
def twice(array):  # type: ignore[no-untyped-def]
    array = borrowed(array)
    for i in range(array.shape[0]):
        row = array[i]
        for j in range(row.shape[0]):
            row[j] *= 2


@pytest.mark.parametrize("work", [twice, twice._function], ids=["compiled", "interpreted"])
@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.float64])
@pytest.mark.parametrize("columns", [slice(None), slice(0, 2)], ids=["in one piece", "not in one piece"])
def test_borrowed_memory_is_the_callers_own(work, kind, columns) -> None:  # type: ignore[no-untyped-def]
    whole = np.arange(12).reshape(4, 3).astype(kind)
    wanted = whole.copy()
    wanted[:, columns] *= kind(2)
    before = sys.getrefcount(whole)
    work(whole[:, columns])
    np.testing.assert_array_equal(whole, wanted)
    assert sys.getrefcount(whole) == before
