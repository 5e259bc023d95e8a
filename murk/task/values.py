"""Conversion of records' features and targets to numbers, and of data frames to River's form. Does not import River."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.wiping import numbers_were_used, track
from murk.errors import UserError
from murk.task.coding import read_number
from murk.task.containers import column_array

_ERROR_CODE = "MURK-LEARN-001"


def number(value: Any) -> float:
    """Return a feature's value; 0 if it is missing or not a finite number."""
    value = read_number(value)
    return value if value is not None and math.isfinite(value) else 0.0


def target(value: Any) -> float:
    """Return a target's value; NaN, which gives no gradient, if it is missing or not a number."""
    value = read_number(value)
    return math.nan if value is None else value


def numbers(values: Any, convert: Callable[[Any], float] = number, what: str = "the column") -> Floats:
    """Convert a column to numbers without errors, since their messages would quote a record."""
    array = column_array(values, what)
    if array.dtype.kind in "biuf":
        return track(array.astype(np.float64))
    numbers_were_used()
    return track(np.array([convert(value) for value in array.tolist()], dtype=np.float64))


def targets(y: Any) -> Floats:
    """Return a column of targets, ``(n,)``, NaN if missing or not a number; raise UserError for several columns."""
    return numbers(column_array(y, "y"), target)


def frame_of(X: Any) -> Any:
    """Return a frame of any library that River accepts in River's form; raise UserError for anything else."""
    # Devices convert values, too, and start without River.
    from river.utils import dataframe

    try:
        return dataframe.into_frame(X)
    except (TypeError, ValueError):
        # The library's message may quote values.
        raise UserError(
            f"X is of the type {type(X).__name__}: give a data frame (pandas, Polars, Arrow) with columns of different "
            "names, or an array (n, k)"
        ) from None
