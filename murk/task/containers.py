"""Convert a column of any container to Python objects or an array.

A column is a list or another sequence, a numpy array, a pandas or Polars series or an Arrow array; or a frame, table or
two-dimensional array with one column.
"""

import sys
import zoneinfo
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError

_ERROR_CODE = "MURK-DATA-001"

_NUMBERS: Final = "biuf"
# Arrow's types of columns, by the predicates of `pyarrow.types`.
_ARROW_SUITABLE: Final = "boolean integer floating decimal string large_string string_view date timestamp null"
_ARROW_UNSUITABLE: Final = {
    "struct": "a struct",
    "map": "a map",
    "union": "a union",
    "nested": "a list",
    "time": "a time of day",
    "duration": "a duration",
    "interval": "an interval",
}
# Types of columns that hold no numbers, text, booleans or dates: of numpy by kind, of Polars by name.
_NUMPY_UNSUITABLE: Final = {"S": "bytes", "V": "a struct", "c": "complex numbers", "m": "a duration"}
_POLARS_UNSUITABLE: Final = {
    "Binary": "bytes",
    "Duration": "a duration",
    "Time": "a time of day",
    "List": "a list",
    "Array": "a list",
    "Struct": "a struct",
}


def column_array(column: Any, what: str = "the column") -> NDArray[Any]:
    """Return a column as an array ``(n,)`` of numbers or booleans, otherwise of Python objects, None where missing.

    ``what`` names the column in messages. Nothing is copied unnecessarily. Raises `UserError` if it has more than one
    column, giving its shape, or its type holds no numbers, text, booleans or dates.

    >>> column_array(np.zeros((3, 1))).shape, column_array([1, "a", None]).tolist()
    ((3,), [1, 'a', None])
    """
    if isinstance(column, str | bytes | Mapping) or not (isinstance(column, Iterable) or library_of(column)):
        raise UserError(f"{what} is of the type {type(column).__name__}: give a list, an array or a series of values")
    column = _one_column(column, what)
    _check_type(column, what)
    if isinstance(column, np.ma.MaskedArray):
        array = np.ma.filled(column, np.nan) if column.dtype.kind == "f" else _objects(column.tolist())
    elif isinstance(column, np.ndarray) and column.dtype.kind in f"{_NUMBERS}O":
        array = column
    else:
        numbers = _numbers_of(column)
        array = _objects(python_values(column, what)) if numbers is None else numbers
    return _within_rows(array, what)


def python_values(column: Any, what: str = "the column") -> list[Any]:
    """Return the values of a column as Python objects, None where missing.

    Dates that Python cannot represent (before year 1 or after 9999) become `numpy.datetime64`. Raises `UserError` if
    the column's times have an unknown time zone.
    """
    library = library_of(column)
    if library == "pyarrow":
        return _arrow_values(column, what)
    if library == "polars":
        return _polars_values(column, what)
    if library == "pandas":
        return list(column.astype(object).where(column.notna(), None).tolist())
    if isinstance(column, np.ndarray):
        # `tolist` would turn numpy's times into integers.
        return list(column) if column.dtype.kind in "mM" else list(column.tolist())
    return list(column)


def library_of(value: object) -> str:
    """Return "pandas", "polars" or "pyarrow" for a value of that library, else ""."""
    for kind in type(value).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ("pandas", "polars", "pyarrow"):
            return root
    return ""


def check_zone(name: str | None, what: str) -> None:
    """Raise `UserError` if this machine does not know a time zone, which is a property of a column, not of a value."""
    if name is None or (len(name) == 6 and name[0] in "+-" and name[3] == ":"):
        return
    try:
        zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UserError(
            f"{what}: this machine does not know the time zone {name!r} of its times. Install the time zone database "
            '(the package "tzdata"), or convert the column to UTC'
        ) from None


def check_arrow_type(kind: Any, what: str) -> None:
    """Raise `UserError` for an Arrow type whose values are not numbers, text, booleans or dates."""
    import pyarrow

    types = pyarrow.types
    plain = kind.value_type if types.is_dictionary(kind) else kind
    if not any(getattr(types, f"is_{name}")(plain) for name in _ARROW_SUITABLE.split()):
        # Without the type's parts: field names of a struct may be a person's values.
        named = (words for name, words in _ARROW_UNSUITABLE.items() if getattr(types, f"is_{name}")(plain))
        raise _unsuitable(what, next(named, "bytes" if "binary" in str(plain) else "another one"))


def _check_type(column: Any, what: str) -> None:
    """Raise `UserError` if all values of a column's type would count as missing; its message reveals no value."""
    library = library_of(column)
    kind: Any = getattr(column, "dtype", None)
    if library == "pyarrow":
        check_arrow_type(column.type, what)
    elif library == "polars":
        words = _POLARS_UNSUITABLE.get(type(kind).__name__)
        if words:
            raise _unsuitable(what, words)
    elif hasattr(kind, "pyarrow_dtype"):
        check_arrow_type(kind.pyarrow_dtype, what)
    elif isinstance(kind, np.dtype) and kind.kind in _NUMPY_UNSUITABLE:
        raise _unsuitable(what, _NUMPY_UNSUITABLE[kind.kind])


def _unsuitable(what: str, words: str) -> UserError:
    return UserError(
        f"{what}: its type is {words}, and a record's values are numbers, text, booleans or dates: convert it"
    )


def _one_column(column: Any, what: str) -> Any:
    single: Any
    if isinstance(column, np.ndarray):
        shape = column.shape
        rows = column if isinstance(column, np.ma.MaskedArray) else np.asarray(column)
        single = column if len(shape) == 1 else rows[:, 0] if shape[1:] == (1,) else None
    else:
        shape, library = getattr(column, "shape", ()), library_of(column)
        if not library or len(shape) != 2:
            # An index, or an extension array of pandas.
            return sys.modules["pandas"].Series(column) if library == "pandas" else column
        first = {"pandas": lambda: column.iloc[:, 0], "polars": lambda: column.to_series(0)}
        single = first.get(library, lambda: column.column(0))() if shape[1] == 1 else None
    if single is None:
        raise UserError(f"{what} has the shape {shape}: give one column, (n,) or (n, 1)")
    return single


def _numbers_of(column: Any) -> NDArray[Any] | None:
    """Return a column as an array if it is certain to have only numbers or booleans, none missing; else None."""
    library = library_of(column)
    numbers: Any = None
    if library == "pyarrow":
        types = sys.modules["pyarrow"].types
        plain = types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type)
        if plain and (column.null_count == 0 or types.is_floating(column.type)):
            numbers = _arrow_to_numpy(column)
    elif library == "polars":
        name, complete = str(column.dtype), column.null_count() == 0
        if name in ("Float32", "Float64") or (
            complete and (name == "Boolean" or (name.lstrip("U").startswith("Int") and not name.endswith("128")))
        ):
            numbers = column.to_numpy()
    elif library == "pandas":
        dtype = column.dtype
        if isinstance(dtype, np.dtype):
            numbers = column.to_numpy() if dtype.kind in _NUMBERS else None
        elif getattr(dtype, "kind", "O") in _NUMBERS and not column.isna().any():
            numbers = column.to_numpy(dtype=getattr(dtype, "numpy_dtype", None))
    elif isinstance(column, list | tuple):
        kinds = set(map(type, column))
        if kinds in ({float}, {bool}):
            numbers = np.array(column)
        elif kinds == {int}:
            with suppress(OverflowError):
                numbers = np.array(column, dtype=np.int64)
    return numbers if isinstance(numbers, np.ndarray) and numbers.dtype.kind in _NUMBERS else None


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    objects = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        objects[index] = value
    return objects


def _within_rows(array: NDArray[Any], what: str) -> NDArray[Any]:
    """Return the values of rows like ``[[1], [2]]``; other arrays unchanged. (A tuple may be a label.)"""
    if array.dtype.kind != "O" or not len(array) or not isinstance(array[0], list | np.ndarray):
        return array
    sizes = {len(row) if isinstance(row, list) or (isinstance(row, np.ndarray) and row.ndim) else 0 for row in array}
    if sizes == {1}:
        return column_array([row[0] for row in array], what)
    if len(sizes) == 1 and sizes != {0}:
        raise UserError(f"{what} has the shape {(len(array), *sizes)}: give one column, (n,) or (n, 1)")
    return array


def _arrow_values(column: Any, what: str) -> list[Any]:
    import pyarrow

    types = pyarrow.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_timestamp(column.type):
        check_zone(column.type.tz, what)
        if column.type.unit == "ns":
            # Python's times have no nanoseconds, and a cast would round times before 1970 up, perhaps to the next day.
            column = _whole_microseconds(column)
    if column.null_count == 0 and (types.is_integer(column.type) or types.is_floating(column.type)):
        return list(_arrow_to_numpy(column).tolist())  # faster than `to_pylist`
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        if not (types.is_date(column.type) or types.is_timestamp(column.type)):
            raise
        return [_arrow_time(value) for value in column]


def _arrow_to_numpy(column: Any) -> Any:
    return column.to_numpy() if hasattr(column, "chunks") else column.to_numpy(zero_copy_only=False)


def _whole_microseconds(column: Any) -> Any:
    import pyarrow
    from pyarrow import compute

    count = column.cast(pyarrow.int64())
    count = compute.if_else(compute.less(count, 0), compute.subtract(count, 999), count)
    return compute.divide(count, 1000).cast(pyarrow.timestamp("us", column.type.tz))


def _arrow_time(value: Any) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        unit: Any = getattr(value.type, "unit", "D" if value.type.bit_width == 32 else "ms")
        return np.datetime64(value.value, unit)


def _polars_values(column: Any, what: str) -> list[Any]:
    check_zone(getattr(column.dtype, "time_zone", None), what)
    try:
        return list(column.to_list())
    except (OverflowError, ValueError):
        name = type(column.dtype).__name__
        if name not in ("Date", "Datetime"):
            raise
        unit = "D" if name == "Date" else column.dtype.time_unit
        numbers = enumerate(column.to_physical().to_list())
        return [_polars_time(column, index, number, unit) for index, number in numbers]


def _polars_time(column: Any, place: int, number: Any, unit: Any) -> Any:
    try:
        return column[place]
    except (OverflowError, ValueError):
        return np.datetime64(number, unit)
