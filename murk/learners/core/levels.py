"""Numbers of privacy levels, for kernels. River-free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

M = TypeVar("M")


def levels_of(mechanisms: Sequence[M]) -> tuple[list[M], NDArray[np.int64]]:
    """The different mechanisms among some, as they first come, and the number of each one's own among these.

    Examples
    --------
    >>> strict, open_ = object(), object()
    >>> distinct, levels = levels_of([open_, strict, open_])
    >>> distinct == [open_, strict], levels.tolist()
    (True, [0, 1, 0])
    """
    # By identity: to compare mechanisms of a million rows by value would take longer than to learn from them.
    distinct = {id(mechanism): mechanism for mechanism in mechanisms}
    places = {key: place for place, key in enumerate(distinct)}
    levels = np.array([places[id(mechanism)] for mechanism in mechanisms], dtype=np.int64)
    return list(distinct.values()), levels
