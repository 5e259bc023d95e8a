"""What counts as a number, in records of every kind. River-free."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk._scratch import keep, numbers_were_used


def number(value: Any) -> float:
    """A feature's value; what is missing or no finite number counts as 0, for everybody alike."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return found if math.isfinite(found) else 0.0


def target(value: Any) -> float:
    """A target's value; NaN, which is learned from as no gradient, where it is missing or no number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def numbers(values: Any, one: Callable[[Any], float] = number) -> NDArray[np.float64]:
    """A column of numbers. The text of a failed conversion would quote a record, so none leaves here."""
    try:
        array = np.asarray(values)
    except ValueError:
        # A list among the values: numpy knows no such column.
        array = np.empty(0, dtype=object)
    if array.dtype.kind in "biuf":
        return keep(array.astype(np.float64))
    # Not numpy's: it makes text of everything beside a text.
    numbers_were_used()
    return keep(np.array([one(value) for value in values], dtype=np.float64))
