"""States as plain data: arrays as base64 of little-endian float64, and counts."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk.errors import MurkError


def pack(array: NDArray[np.float64]) -> str:
    """Return base64 of an array's little-endian float64 bytes: plain data, exact."""
    return base64.b64encode(np.ascontiguousarray(array, dtype="<f8").tobytes()).decode("ascii")


def unpack(text: str, size: int) -> NDArray[np.float64]:
    """Return the array that :func:`pack` wrote, of ``size`` finite numbers; raise MurkError for anything else."""
    try:
        array = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8")
    except (ValueError, TypeError) as error:
        raise MurkError("the state holds an array that is not base64 of float64 numbers") from error
    if array.size != size or not np.all(np.isfinite(array)):
        raise MurkError(f"the state holds an array of {array.size} numbers where {size} finite ones belong")
    return array.astype(np.float64)


def count_of(value: object, name: str) -> int:
    """Return a count of a state, or raise MurkError if it is not a whole number from 0 within the kernels' 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise MurkError(f"the state's {name} is not a whole number from 0 to 2^62")
    return value


@contextmanager
def reading() -> Iterator[None]:
    """Context in which a state is read; raises MurkError for a key that is missing or of another type."""
    try:
        yield
    except MurkError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise MurkError(f"the state is malformed: {type(error).__name__} at {error}") from error


def check_header(state: Mapping[str, Any], digest: str, key: str, size: int) -> None:
    """Raise MurkError unless a state has schema 1, this size under this key, and settings of this digest."""
    if state["schema"] != 1 or state[key] != size:
        raise MurkError(
            f"a state of schema {state['schema']!r} and {key} {state[key]!r} does not fit a learner of schema 1 "
            f"and {key} {size}"
        )
    if state["settings"] != digest:
        raise MurkError("the state is of a learner with other settings: load it into one with the same settings")
