"""Turns a column of any container into Python's own values, or into an array of one of four kinds.

A column is a list or another sequence, a numpy array, a pandas or Polars series, or an Arrow array, in chunks or not;
or a frame, a table or an array of two dimensions that has one column.
"""

import sys
import zoneinfo
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError

_NUMBERS: Final = "biuf"


def column_array(column: Any, what: str = "the column") -> NDArray[Any]:
    """Return a column as an array ``(n,)`` of booleans, integers or floats, else of Python's own values.

    In the latter None stands for a missing value. Nothing is copied that need not be.

    Parameters
    ----------
    column
        The column.
    what
        What it is called in messages.

    Raises
    ------
    UserError
        If it has more than one column, saying its shape.

    Examples
    --------
    >>> column_array(np.zeros((3, 1))).shape, column_array([1, "a", None]).tolist()
    ((3,), [1, 'a', None])
    """
    if isinstance(column, str | bytes | Mapping) or not (isinstance(column, Iterable) or library_of(column)):
        raise UserError(f"{what} is of the type {type(column).__name__}: give a list, an array or a series of values")
    column = _one_column(column, what)
    if isinstance(column, np.ndarray):
        array = _whole(column)
    else:
        numbers = _numbers_of(column)
        array = _objects(python_values(column, what)) if numbers is None else numbers
    return _within_rows(array, what)


def python_values(column: Any, what: str = "the column") -> list[Any]:
    """Return the values of a column as Python's own, None where a frame, a table or an Arrow array has none.

    A day that Python's dates do not reach, before the year 1 or beyond 9999, becomes numpy's.

    Raises
    ------
    UserError
        If its times are of a zone that this machine does not know.
    """
    library = library_of(column)
    if library == "pyarrow":
        return _arrow_values(column, what)
    if library == "polars":
        return _polars_values(column, what)
    if library == "pandas":
        # NaN is what pandas puts where nothing is.
        return list(column.astype(object).where(column.notna(), None).tolist())
    if isinstance(column, np.ndarray):
        # Times of numpy become integers in a list of Python's.
        return list(column) if column.dtype.kind in "mM" else list(column.tolist())
    return list(column)


def library_of(value: object) -> str:
    """Return which of pandas, polars and pyarrow a value's type is of; empty for all else."""
    for kind in type(value).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ("pandas", "polars", "pyarrow"):
            return root
    return ""


def check_zone(name: str | None, what: str) -> None:
    """Refuse times of a zone that this machine does not know.

    Raises
    ------
    UserError
        Naming the zone, which is a property of a column and of no value.
    """
    if name is None or (len(name) == 6 and name[0] in "+-" and name[3] == ":"):
        return
    try:
        zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UserError(
            f"{what}: this machine does not know the time zone {name!r} of its times. Install the time zone database "
            '(the package "tzdata"), or convert the column to UTC'
        ) from None


def _one_column(column: Any, what: str) -> Any:
    """The column of a container that may have several."""
    one: Any
    if isinstance(column, np.ma.MaskedArray):
        shape = column.shape
        one = column if len(shape) == 1 else column[:, 0] if shape[1:] == (1,) else None
    elif isinstance(column, np.ndarray):
        shape = column.shape
        one = column if len(shape) == 1 else np.asarray(column)[:, 0] if shape[1:] == (1,) else None
    else:
        shape, library = getattr(column, "shape", ()), library_of(column)
        if not library or len(shape) != 2:
            # An index, or an array of pandas' own.
            return sys.modules["pandas"].Series(column) if library == "pandas" else column
        whole = {"pandas": lambda: column.iloc[:, 0], "polars": lambda: column.to_series(0)}
        one = whole.get(library, lambda: column.column(0))() if shape[1] == 1 else None
    if one is None:
        raise UserError(f"{what} has the shape {shape}: give one column, (n,) or (n, 1)")
    return one


def _whole(array: NDArray[Any]) -> NDArray[Any]:
    if isinstance(array, np.ma.MaskedArray):
        return np.ma.filled(array, np.nan) if array.dtype.kind == "f" else _objects(array.tolist())
    return array if array.dtype.kind in _NUMBERS or array.dtype.kind == "O" else _objects(python_values(array))


def _numbers_of(column: Any) -> NDArray[Any] | None:
    """An array of a column of a library's that knows it to be of numbers, all there; None of others."""
    library = library_of(column)
    found: Any = None
    if library == "pyarrow":
        types = sys.modules["pyarrow"].types
        plain = types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type)
        if plain and (column.null_count == 0 or types.is_floating(column.type)):
            found = column.to_numpy() if hasattr(column, "chunks") else column.to_numpy(zero_copy_only=False)
    elif library == "polars":
        name, whole = str(column.dtype), column.null_count() == 0
        if name in ("Float32", "Float64") or (
            whole and (name == "Boolean" or (name.lstrip("U").startswith("Int") and not name.endswith("128")))
        ):
            found = column.to_numpy()
    elif library == "pandas":
        dtype = column.dtype
        if isinstance(dtype, np.dtype):
            found = column.to_numpy() if dtype.kind in _NUMBERS else None
        elif getattr(dtype, "kind", "O") in _NUMBERS and not column.isna().any():
            found = column.to_numpy(dtype=getattr(dtype, "numpy_dtype", None))
    elif isinstance(column, list | tuple):
        kinds = set(map(type, column))
        if kinds == {float} or kinds == {bool}:
            found = np.array(column)
        elif kinds == {int}:
            try:
                found = np.array(column, dtype=np.int64)
            except OverflowError:
                found = None
    return found if isinstance(found, np.ndarray) and found.dtype.kind in _NUMBERS else None


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    found = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        found[place] = value
    return found


def _within_rows(array: NDArray[Any], what: str) -> NDArray[Any]:
    """The column of rows that hold one value each, as ``[[1], [2]]``; others as they are. (A tuple may be a label.)"""
    if array.dtype.kind != "O" or not len(array) or not isinstance(array[0], list | np.ndarray):
        return array
    sizes = {len(row) if isinstance(row, list) or (isinstance(row, np.ndarray) and row.ndim) else 0 for row in array}
    if sizes == {1}:
        return column_array([row[0] for row in array], what)
    if len(sizes) == 1 and sizes != {0}:
        raise UserError(f"{what} has the shape {(len(array), *sizes)}: give one column, (n,) or (n, 1)")
    return array


# Arrow and Polars


def _arrow_values(column: Any, what: str) -> list[Any]:
    import pyarrow

    types = pyarrow.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_timestamp(column.type):
        check_zone(column.type.tz, what)
        if column.type.unit == "ns":
            # Python's times have no nanoseconds; and a cast rounds those before 1970 up, perhaps to the next day.
            column = _whole_microseconds(column)
    if column.null_count == 0 and (types.is_integer(column.type) or types.is_floating(column.type)):
        numbers = column.to_numpy() if hasattr(column, "chunks") else column.to_numpy(zero_copy_only=False)
        return list(numbers.tolist())  # five times as fast
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        if not (types.is_date(column.type) or types.is_timestamp(column.type)):
            raise
        return [_arrow_time(value) for value in column]


def _whole_microseconds(column: Any) -> Any:
    import pyarrow
    import pyarrow.compute as compute

    count = column.cast(pyarrow.int64())
    count = compute.if_else(compute.less(count, 0), compute.subtract(count, 999), count)
    return compute.divide(count, 1000).cast(pyarrow.timestamp("us", column.type.tz))


def _arrow_time(value: Any) -> Any:
    """A date or a time; numpy's, by Greenwich, where Python's do not reach it."""
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        unit = getattr(value.type, "unit", "D" if value.type.bit_width == 32 else "ms")
        return _far_time(value.value, unit)


def _polars_values(column: Any, what: str) -> list[Any]:
    check_zone(getattr(column.dtype, "time_zone", None), what)
    try:
        return list(column.to_list())
    except (OverflowError, ValueError):
        name = type(column.dtype).__name__
        if name not in ("Date", "Datetime"):
            raise
        unit = "D" if name == "Date" else column.dtype.time_unit
        return [
            _polars_time(column, place, number, unit) for place, number in enumerate(column.to_physical().to_list())
        ]


def _polars_time(column: Any, place: int, number: int | None, unit: str) -> Any:
    try:
        return column[place]
    except (OverflowError, ValueError):
        return _far_time(number, unit)


def _far_time(number: Any, unit: Any) -> Any:
    return np.datetime64(number, unit)
