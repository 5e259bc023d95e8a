"""Read single raw values: missing values, booleans and numbers.

A value is read the same from any container. White space around text is ignored.
"""

import datetime
import math
import re
from typing import Any, Final

import numpy as np

MISSING_VALUE: Final = math.nan
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,4000}(\.0*)?", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}
_EXACT: Final = 2.0**53  # below it, floats represent every integer


def is_absent(value: Any) -> bool:
    """Return whether a raw value is None, or pandas' NA or NaT."""
    # Compared by name, so that devices need not import pandas.
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def is_nan(value: Any) -> bool:
    """Return whether a raw value is a float NaN."""
    return isinstance(value, float | np.floating) and bool(value != value)


def as_boolean(value: Any) -> bool | None:
    """Return a boolean, or a text that spells true or false in any case, as a bool; otherwise None.

    >>> as_boolean(True), as_boolean("FALSE"), as_boolean(1), as_boolean("yes")
    (True, False, None, None)
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    return _BOOLEANS.get(value.strip().lower()) if isinstance(value, str) else None


def are_plain_numbers(joined: str) -> bool:
    """Return whether ``float`` reads the numbers in these joined texts as `read_number` does.

    False means uncertain: non-ASCII digits, underscores, and words for infinity and NaN are then read one by one.
    """
    return joined.isascii() and "_" not in joined and "n" not in joined and "N" not in joined


def read_number(value: Any) -> float | None:
    r"""Return a raw value as a float, perhaps infinite; NaN if it is missing, None if it is not a number.

    Numbers in text are decimal, like 12, -1.5 or 1e3. Booleans are 0 or 1, also as text. Times, durations, bytes and
    containers are not numbers.

    >>> [read_number(value) for value in (24, " 24.5", "1e3", True, "2_4", "\uff12\uff14", "inf", b"24", [24])]
    [24.0, 24.5, 1000.0, 1.0, None, None, None, None, None]
    >>> [read_number(value) for value in (None, "", "nan")]
    [nan, nan, nan]
    """
    kind = type(value)
    if kind is float:
        number: float = value
        return number
    if kind is str or isinstance(value, str):
        return _read_text(value)
    if is_absent(value):
        return MISSING_VALUE
    if isinstance(value, np.timedelta64 | np.datetime64 | datetime.date | datetime.timedelta):
        return None
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item") and not isinstance(value, np.generic):
        return read_number(value.item())
    # `float` would also read bytes, and some containers of one number.
    if hasattr(value, "__len__") or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, ArithmeticError):
        return None


def _read_text(text: str) -> float | None:
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    word = text.lower()
    if not word or word == "nan":
        return MISSING_VALUE
    boolean = _BOOLEANS.get(word)
    return None if boolean is None else float(boolean)


def exact_number(value: Any) -> int | float | None:
    """Return a finite number for comparisons, or None.

    Numbers are compared as floats, except for integers that floats cannot represent, which are compared exactly.

    >>> exact_number("24.0") == exact_number(24) == exact_number(" 24 ")
    True
    >>> exact_number("9007199254740993") == exact_number(2.0**53)
    False
    """
    number = read_number(value)
    if number is None or not math.isfinite(number):
        return None
    if abs(number) < _EXACT:
        return number
    if isinstance(value, str):
        text = value.strip()
        return int(text.partition(".")[0]) if _INTEGER.fullmatch(text) else number
    if isinstance(value, float | np.floating):
        return number
    try:
        whole = int(value)
    except (TypeError, ValueError, ArithmeticError):
        return number
    return whole if whole == value else number
