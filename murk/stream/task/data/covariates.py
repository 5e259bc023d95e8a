"""Public covariates of a task: distinct coded points and the number of people at each."""

import base64
import binascii
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainSerializer, PlainValidator

from murk.stream.task.errors import task_error

MOST_VALUES = 50_000_000


class Covariates(NamedTuple):
    """Distinct coded points, including the constant, and the number of people at each.

    ``points`` is float64, shape (u, p), within [-1, 1], with last column 1; ``counts`` is int64, shape (u,), at least
    1.
    """

    points: NDArray[np.float64]
    counts: NDArray[np.int64]


def covariates(points: Any, counts: Any) -> Covariates:
    """Validate public covariates and make them read-only; raise `PydanticCustomError` if they are invalid."""
    points = np.array(points, dtype=np.float64)
    counts = np.array(counts, dtype=np.int64)
    if points.ndim != 2 or counts.shape != points.shape[:1] or not points.size:
        raise task_error(f"points of shape {points.shape} and counts of shape {counts.shape}; give (u, p) and (u,)")
    if points.size > MOST_VALUES:
        raise task_error(f"{points.size} values; at most {MOST_VALUES}")
    if not bool(np.all(np.abs(points) <= 1)):
        raise task_error("a point is not within [-1, 1]; give points in coded units")
    if not bool(np.all(points[:, -1] == 1)):
        raise task_error("the last coordinate of a point is not the constant 1; give points in coded units")
    if int(counts.min()) < 1:
        raise task_error(f"a count of {int(counts.min())}; leave out points that do not occur")
    points += 0.0  # -0.0 and 0.0 are the same point
    points.setflags(write=False)
    counts.setflags(write=False)
    return Covariates(points, counts)


def _read(value: Any) -> Covariates:
    if isinstance(value, Covariates):
        return value
    if not isinstance(value, dict) or set(value) != {"size", "points", "counts"}:
        raise task_error("not public covariates; they hold size, points and counts")
    size = value["size"]
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise task_error("not a number of features", "size")
    points = _floats(value["points"], "points", np.dtype("<f8"))
    counts = _floats(value["counts"], "counts", np.dtype("<i8"))
    if points.size != size * counts.size:
        raise task_error(f"{points.size} values are not {counts.size} points of {size}", "points")
    return covariates(points.reshape(-1, size), counts)


def _floats(value: Any, key: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    try:
        data = base64.b64decode(value, validate=True)
        return np.frombuffer(data, dtype=dtype)
    except (binascii.Error, TypeError, ValueError):
        raise task_error("not base64 of little-endian 64-bit values", key) from None


def _write(value: Covariates) -> dict[str, Any]:
    return {
        "size": value.points.shape[1],
        "points": base64.b64encode(value.points.astype("<f8").tobytes()).decode("ascii"),
        "counts": base64.b64encode(value.counts.astype("<i8").tobytes()).decode("ascii"),
    }


PublicCovariates = Annotated[
    Covariates,
    PlainValidator(_read, json_schema_input_type=dict[str, Any]),
    PlainSerializer(_write, return_type=dict[str, Any]),
]
