"""What counts as a number, in records of every kind. River-free."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk._scratch import keep, numbers_were_used
from murk.stream.task.data.containers import column_array
from murk.stream.task.data.values import read_number


def number(value: Any) -> float:
    """A feature's value; what is missing or no finite number counts as 0, for everybody alike."""
    found = read_number(value)
    return found if found is not None and math.isfinite(found) else 0.0


def target(value: Any) -> float:
    """A target's value; NaN, which is learned from as no gradient, where it is missing or no number."""
    found = read_number(value)
    return math.nan if found is None else found


def numbers(values: Any, one: Callable[[Any], float] = number) -> NDArray[np.float64]:
    """A column of numbers. The text of a failed conversion would quote a record, so none leaves here."""
    array = column_array(values)
    if array.dtype.kind in "biuf":
        return keep(array.astype(np.float64))
    numbers_were_used()
    return keep(np.array([one(value) for value in array.tolist()], dtype=np.float64))


def targets(y: Any) -> NDArray[np.float64]:
    """A column of targets, ``(n,)``; NaN where one is missing or no number.

    Raises
    ------
    UserError
        If it has more than one column, saying its shape.
    """
    return numbers(column_array(y, "y"), target)
