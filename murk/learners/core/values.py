"""What counts as a number, in records of every kind. River-free."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from murk._scratch import keep, numbers_were_used
from murk.errors import UserError
from murk.stream.task.data.containers import column_array
from murk.stream.task.data.values import read_number

T = TypeVar("T")


def number(value: Any) -> float:
    """A feature's value; what is missing or no finite number counts as 0, for everybody alike."""
    found = read_number(value)
    return found if found is not None and math.isfinite(found) else 0.0


def stated_bounds(name: str, given: T | None, simulated: T, *, seed: int | None, records: bool = True) -> T:
    """Return a target's public bounds: as given, or in a simulation the usual ones.

    Parameters
    ----------
    name
        The argument.
    given
        What was given for it.
    simulated
        What it is by default, where noise is simulated or no raw record is read.
    seed
        The learner's seed; None where noise is real.
    records
        Whether the learner reads raw records.

    Raises
    ------
    UserError
        Where noise is real and nothing was given: bounds are a public decision, and a target beyond them is projected.
    """
    if given is not None:
        return given
    if seed is None and records:
        raise UserError(
            f"{name}= is required where noise is real: targets beyond their public bounds are projected to them, and "
            f"noise is drawn for the whole range. State what is publicly known, as in {name}={simulated!r}"
        )
    return simulated


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
