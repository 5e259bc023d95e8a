"""Indices of privacy levels, for kernels. River-free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

M = TypeVar("M")


def levels_of(mechanisms: Sequence[M]) -> tuple[list[M], NDArray[np.int64]]:
    """Return the distinct mechanisms in order of appearance, and the index of each one among these."""
    # By identity, as comparing the mechanisms of a million rows by value is slow.
    distinct = {id(mechanism): mechanism for mechanism in mechanisms}
    indices = {key: index for index, key in enumerate(distinct)}
    levels = np.array([indices[id(mechanism)] for mechanism in mechanisms], dtype=np.int64)
    return list(distinct.values()), levels
