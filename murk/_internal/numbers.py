"""Numbers of a report, for people and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

NOT_LEARNED: Final = "not learned"
TOO_WIDE: Final = "too wide"


def number(value: float, digits: int = 3) -> str:
    """Return a number for people: with fixed digits, or significant ones if it is too small or large; a dash if NaN."""
    if not math.isfinite(value):
        return "-"
    fixed = f"{value:.{digits}f}" if abs(value) < 1000.0 else f"{value:,.0f}"
    return fixed if len(fixed) < 12 and (value == 0.0 or abs(value) >= 0.1**digits) else f"{value:.2g}"


def span(low: float, high: float) -> str:
    """Return an interval for people."""
    if not (math.isfinite(low) or math.isfinite(high)):
        return "no interval"
    return f"{number(low)} .. {number(high)}"


def many(count: int, noun: str, several: str = "") -> str:
    """Return a count with its noun, in the plural (by default with an s) unless the count is 1."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def listed(names: Sequence[str], last: str = "and") -> str:
    """Return names as a list in a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"], "or")
    ('a', 'a and b', 'a, b or c')
    """
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def fewest_percent(share: float) -> str:
    """Return a lower bound on a share in percent, rounded down: whole percents, or one digit below one percent.

    >>> fewest_percent(0.299), fewest_percent(0.0048)
    ('29%', '0.4%')
    """
    percent = 100.0 * share
    step = 10.0 ** min(math.floor(math.log10(percent)), 0) if percent > 0.0 else 1.0
    return f"{math.floor(percent / step + 1e-9) * step:g}%"


def rounded(value: float) -> int:
    """Return a number rounded to two significant digits."""
    return int(float(f"{value:.2g}"))


def as_json(report: Mapping[str, Any]) -> str:
    """Return a report as JSON; numbers that are not finite become null."""
    return json.dumps(finite(report), indent=2, allow_nan=False)


def finite(value: Any) -> Any:
    """Return plain data with None for every number that is not finite."""
    return rebuilt(
        value, dict, list, lambda each: None if isinstance(each, float) and not math.isfinite(each) else each
    )


def rebuilt(
    value: Any,
    mapping: Callable[[dict[str, Any]], Any],
    sequence: Callable[[list[Any]], Any],
    leaf: Callable[[Any], Any] = lambda each: each,
) -> Any:
    """Return plain data in which ``mapping`` rebuilds mappings, ``sequence`` lists and tuples, ``leaf`` the rest."""
    if isinstance(value, Mapping):
        return mapping({key: rebuilt(item, mapping, sequence, leaf) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return sequence([rebuilt(item, mapping, sequence, leaf) for item in value])
    return leaf(value)
