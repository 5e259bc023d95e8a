"""Reference coefficients, as known in a simulation, and half-widths at which coefficients count as known."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from murk._internal.printable import unseen_character
from murk.errors import UserError
from murk.task.coding import of_interest
from murk.task.yaml import read_texts

_ERROR_CODE = "MURK-MONITOR-001"

MOST_BYTES = 4_000_000
LONGEST_NAME = 300


def read_reference(path: str | Path) -> dict[str, float]:
    """Read names and finite numbers in coded units from JSON, YAML or a run's ``--json``; else raise `UserError`."""
    content = _content(Path(path))
    if isinstance(content, Mapping) and isinstance(content.get("coefficients"), Mapping):
        content = content["coefficients"]
    if not isinstance(content, Mapping) or not content:
        remedy = "write a mapping {name: value, ...}, or give the --json output of another run"
        raise UserError(f"{path} is not a file of true coefficients: {remedy}")
    coefficients = {str(name): _number(value) for name, value in content.items()}
    for name, value in coefficients.items():
        if not math.isfinite(value):
            raise UserError(f"{path}: {_shown(name)}: not a finite number; write the coefficient in coded units")
    return coefficients


def check_reference(reference: Mapping[str, float], names: Sequence[str]) -> None:
    """Raise `UserError` unless a reference names exactly the coefficients of a task."""
    unknown = [name for name in reference if name not in names]
    missing = [name for name in names if name not in reference]
    if unknown or missing:
        problems = [f"{_list(unknown)} unknown"] if unknown else []
        problems += [f"{_list(missing)} missing"] if missing else []
        raise UserError(
            f"the reference does not fit the task: {', '.join(problems)}. Its coefficients are {_list(names, 20)}"
        )


def half_widths_asked(asked: Sequence[tuple[str | None, float]], names: Sequence[str]) -> dict[str, float]:
    """Return the half-width at which each coefficient counts as known, from pairs of a name and a half-width.

    A half-width without a name is for all coefficients of features or, without any, for the constants. Raises
    `UserError` for an unknown name, or a half-width that is not positive.

    >>> half_widths_asked([("age", 0.05), (None, 0.1)], ["age", "sex=m", "intercept"])
    {'age': 0.05, 'sex=m': 0.1}
    """
    widths: dict[str, float] = {}
    # The half-width for one coefficient replaces that for all.
    for name, half in sorted(asked, key=lambda pair: pair[0] is not None):
        if name is not None and name not in names:
            raise UserError(f"{_shown(name)}: no coefficient of the task; there are {_list(names, 20)}")
        check_half_width(half)
        widths |= dict.fromkeys(of_interest(names) if name is None else [name], half)
    return widths


def check_half_width(half: float) -> None:
    """Raise `UserError` unless a half-width is finite and above 0."""
    if not 0.0 < half < math.inf:
        raise UserError(f"{half!r}: an interval has no such half-width; give a finite one above 0, in coded units")


def _content(path: Path) -> Any:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give the path of a reference file") from None
    if len(data) > MOST_BYTES:
        raise UserError(f"{path}: {len(data)} bytes; a reference file has at most {MOST_BYTES}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text; save it as UTF-8") from None
    if unseen := unseen_character(text):
        raise UserError(f"{path}, line {unseen[0]}: {unseen[1]}")
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    # Scalars as text, since a coefficient may be named "no" or "on".
    return read_texts(text, str(path))


def _number(value: Any) -> float:
    """Return a value as a number, or NaN."""
    if isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _shown(name: Any) -> str:
    text = str(name)
    return text if text.isprintable() and len(text) <= LONGEST_NAME else repr(text[:LONGEST_NAME])


def _list(names: Sequence[str], most: int = 5) -> str:
    quoted = ", ".join(repr(name) for name in names[:most])
    return quoted + (f" and {len(names) - most} more" if len(names) > most else "")
