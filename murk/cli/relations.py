"""Relations between a file's columns that a task should know of: constant sums, and columns that give the target away.

They are sought in a sample of rows that is spread evenly over the file. What they say depends on the records, like the
bounds that ``murk init`` takes from a file.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk.populations.records.files import slices
from murk.populations.records.records import Records
from murk.populations.records.tables import SLICE
from murk.task.coding import as_number, is_absent, is_nan

ROWS: Final = 20_000  # number of rows of the sample
_FEWEST: Final = 20  # number of rows below which nothing is concluded
_EXACT: Final = 1e-9  # share of a column's variance that others may leave unexplained
_NEARLY: Final = 0.01  # share of the wrong guesses of the most frequent label that a revealing column still makes
_ROWS_OF_ONE: Final = 5.0  # fewest rows for each value of a column whose values are compared with the target's

Vector = NDArray[np.float64]
Cells = Mapping[str, Sequence[Any]]


def sampled(records: Records, names: Sequence[str]) -> dict[str, list[Any]]:
    """Return raw values of columns at `ROWS` to twice as many rows, evenly spread over the file, or at all rows."""
    every, seen, cells = 1, 0, {name: list[Any]() for name in names}
    table = records.table(names)
    for numbers, chunk in slices(table, SLICE):
        columns = table.columns(chunk, numbers, names)
        first, seen = -seen % every, seen + len(columns[names[0]])
        for name in names:
            cells[name] += list(columns[name])[first::every]
        if len(cells[names[0]]) > 2 * ROWS:
            every *= 2
            cells = {name: values[::2] for name, values in cells.items()}
    return cells


def cautions(cells: Cells, target: str) -> Iterator[str]:
    """Yield a sentence for each column that others determine, and for each that gives the target away.

    >>> parts = {"a": [i % 7 for i in range(40)], "b": [i % 3 for i in range(40)], "paid": [i % 2 for i in range(40)]}
    >>> parts["c"] = [10 - a - b for a, b in zip(parts["a"], parts["b"])]
    >>> list(cautions(parts, "paid"))
    ['a + b + c is the same in every row: leave one of them out']
    """
    numbers = {name: column for name, values in cells.items() if (column := _numbers(values)) is not None}
    numbers = {name: column for name, column in numbers.items() if np.ptp(column[np.isfinite(column)]) > 0.0}
    yield from _dependent({name: column for name, column in numbers.items() if name != target})
    for name in cells:
        share = 0.0 if name == target else _revealed(cells[name], numbers.get(name), cells[target], numbers.get(target))
        if share > 0.0:
            yield (
                f"{name} gives {target} away ({100.0 * share:.3g}% of it): leave it out if it is known only together "
                f"with {target}"
            )


def _numbers(values: Sequence[Any]) -> Vector | None:
    """Return a column of numbers, NaN where they are missing; None if it has other values, or too few."""
    column = np.full(len(values), math.nan)
    for row, value in enumerate(values):
        if _is_missing(value):
            continue
        number, wrong = as_number(value)
        if wrong:
            return None
        column[row] = number
    return column if np.isfinite(column).sum() >= _FEWEST else None


def _is_missing(value: Any) -> bool:
    return is_absent(value) or is_nan(value) or (isinstance(value, str) and not value.strip())


def _dependent(numbers: Mapping[str, Vector]) -> Iterator[str]:
    """Yield a sentence for each column that is a weighted sum of earlier columns."""
    free: list[str] = []
    if not numbers:
        return
    matrix = np.column_stack(list(numbers.values()))
    matrix = matrix[np.isfinite(matrix).all(axis=1)]
    if len(matrix) < max(_FEWEST, 2 * matrix.shape[1]):
        return
    columns = dict(zip(numbers, (matrix - matrix.mean(axis=0)).T, strict=True))
    for name, column in columns.items():
        spread = float(column @ column)
        if not (spread > 0.0 and math.isfinite(spread)):
            continue
        X = np.column_stack([columns[other] for other in free]) if free else np.zeros((len(column), 0))
        scale = np.sqrt((X**2).sum(axis=0))
        weights = np.linalg.lstsq(X / scale, column, rcond=None)[0] / scale
        rest = column - X @ weights
        if float(rest @ rest) > _EXACT * spread:
            free.append(name)
            continue
        used = [(other, float(w)) for other, w, size in zip(free, weights, scale, strict=True)
                if abs(w) * size > 1e-6 * math.sqrt(spread)]  # fmt: skip
        if all(abs(abs(weight) - 1.0) < 1e-6 for _, weight in used):
            signs = "".join(f" {'-' if weight > 0.0 else '+'} {other}" for other, weight in used)
            parts = [*(other for other, weight in used if weight < 0.0), name]
            words = " + ".join(parts) if len(parts) == len(used) + 1 else f"{name}{signs}"
            yield f"{words} is the same in every row: leave one of them out"
        else:
            others = ", ".join(other for other, _ in used)
            yield f"{name} follows from {others} (a weighted sum): leave one of them out"


def _revealed(cells: Sequence[Any], numbers: Vector | None, target: Sequence[Any], real: Vector | None) -> float:
    """Return the share of the target that one column determines, if nearly all; else 0.

    For labels it is the share of rows that the column's values predict (a number by its values, or by one threshold),
    and for a real target the share of the variance.
    """
    rows = [row for row, pair in enumerate(zip(cells, target, strict=True)) if not any(map(_is_missing, pair))]
    if len(rows) < _FEWEST:
        return 0.0
    by_value: dict[str, list[int]] = {}
    for row in rows:
        by_value.setdefault(str(cells[row]).strip(), []).append(row)
    compared = len(rows) >= _ROWS_OF_ONE * len(by_value)
    labels = [str(target[row]).strip() for row in rows]
    counts = Counter(labels)
    if real is not None and len(counts) > 2:
        return _variance_explained(numbers, real, rows, by_value if compared else {})
    base = 1.0 - max(counts.values()) / len(rows)
    right = 0.0
    if compared:
        label_of = dict(zip(rows, labels, strict=True))
        right = sum(max(Counter(label_of[row] for row in group).values()) for group in by_value.values()) / len(rows)
    if numbers is not None and len(counts) == 2:
        positive = np.array([label == labels[0] for label in labels], dtype=np.float64)
        right = max(right, _by_threshold(numbers[rows], positive))
    return right if base > 0.0 and 1.0 - right <= _NEARLY * base else 0.0


def _by_threshold(column: Vector, positive: Vector) -> float:
    """Return the largest share of labels that one threshold of a column predicts."""
    order = np.argsort(column, kind="stable")
    ends = np.flatnonzero(np.diff(column[order]) > 0.0)
    below = np.cumsum(positive[order])[ends]
    count, total = len(column), positive.sum()
    right = below + (count - ends - 1) - (total - below)
    return float(max(np.max(right, initial=0.0), np.max(count - right, initial=0.0)) / count)


def _variance_explained(
    numbers: Vector | None, real: Vector, rows: Sequence[int], by_value: Mapping[str, Sequence[int]]
) -> float:
    y = real[rows] - real[rows].mean()
    total = float(y @ y)
    if not total > 0.0:
        return 0.0
    shares = [0.0]
    if numbers is not None:
        x = numbers[rows] - numbers[rows].mean()
        shares.append(float(x @ y) ** 2 / (float(x @ x) * total) if x.any() else 0.0)
    if by_value:
        shares.append(
            sum(len(group) * (real[group].mean() - real[rows].mean()) ** 2 for group in by_value.values()) / total
        )
    return max(shares) if 1.0 - max(shares) <= _NEARLY else 0.0
