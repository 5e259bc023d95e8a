"""Relations between a file's columns that a task should know of: columns that others or the target determine.

They are sought in a sample of rows that is spread evenly over the file. What they say depends on the records, like the
bounds that ``murk init`` takes from a file.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk._internal.numbers import listed
from murk.populations.records.files import slices
from murk.populations.records.records import Records
from murk.populations.records.tables import SLICE
from murk.task.coding import as_number, is_absent, is_nan

ROWS: Final = 20_000  # number of rows of the sample
_FEWEST: Final = 20  # number of rows below which nothing is concluded
_EXACT: Final = 1e-9  # share of a column's variance that others may leave unexplained
_NEARLY: Final = 0.01  # largest ratio of a revealing column's wrong guesses to those of the most frequent label
_ROWS_OF_ONE: Final = 5.0  # fewest rows for each value of a column whose values are compared with another's
# Number of evenly spaced rows of a first check, which rejects most pairs of columns, and the check's `_NEARLY`.
_FIRST, _PROMISING = 1_000, 0.1
_MOST_PAIRS: Final = 10_000  # limit of the pairs of columns that are compared

Vector = NDArray[np.float64]
Codes = NDArray[np.int64]
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


@dataclass(frozen=True)
class _Column:
    """Sampled values: ``codes`` are indices of distinct values, -1 if missing; ``numbers`` are values, if numeric."""

    codes: Codes
    labels: tuple[str, ...]
    numbers: Vector | None

    @classmethod
    def of(cls, values: Sequence[Any]) -> "_Column":
        texts = [None if _is_missing(value) else str(value).strip() for value in values]
        labels = tuple(dict.fromkeys(text for text in texts if text is not None))
        index = {label: code for code, label in enumerate(labels)}
        codes = np.array([-1 if text is None else index[text] for text in texts], dtype=np.int64)
        return cls(codes, labels, _numbers(values, codes))

    def every(self, step: int) -> "_Column":
        """Return every ``step``-th row."""
        return _Column(self.codes[::step], self.labels, None if self.numbers is None else self.numbers[::step])

    def as_numbers(self) -> Vector | None:
        """Return numbers, or 0 and 1 for two texts; NaN where missing. None for equal numbers and for other texts."""
        if self.numbers is None:
            two = len(self.labels) == 2
            return np.where(self.codes < 0, math.nan, self.codes.astype(np.float64)) if two else None
        return self.numbers if np.ptp(self.numbers[np.isfinite(self.numbers)]) > 0.0 else None


def cautions(cells: Cells, target: str) -> Iterator[str]:
    """Yield a sentence for each column that others determine, and for each that gives the target away.

    >>> parts = {"a": [i % 7 for i in range(40)], "b": [i % 3 for i in range(40)], "paid": [i % 2 for i in range(40)]}
    >>> parts["c"] = [10 - a - b for a, b in zip(parts["a"], parts["b"])]
    >>> list(cautions(parts, "paid"))
    ['a + b + c is the same in every row: leave one of them out']
    """
    columns = {name: _Column.of(values) for name, values in cells.items()}
    features = {name: column for name, column in columns.items() if name != target}
    determined = _determined(features)
    for name, other, share in determined:
        part = "" if share > 1.0 - _EXACT else f" ({100.0 * share:.3g}% of it)"
        yield f"{name} determines {other}{part}: leave one of them out"
    left = {name: each for name, each in features.items() if name not in {other for _, other, _ in determined}}
    numbers = {name: values for name, each in left.items() if (values := each.as_numbers()) is not None}
    yield from _dependent(numbers, {name for name, each in left.items() if each.numbers is None})
    for name, column in features.items():
        share = _revealed(column, columns[target])
        if share > 0.0:
            yield (
                f"{name} gives {target} away ({100.0 * share:.3g}% of it): leave it out if it is known only together "
                f"with {target}"
            )


def _determined(features: Mapping[str, _Column]) -> list[tuple[str, str, float]]:
    """Return pairs of columns, the first of which determines the second, with the share of rows that is determined."""
    determined: dict[frozenset[str], tuple[str, str, float]] = {}
    step = max((len(each.codes) for each in features.values()), default=1) // _FIRST or 1
    pairs = ((name, other) for name, other in permutations(features, 2) if features[name].numbers is None)
    for name, other in islice(pairs, _MOST_PAIRS):
        column, second = features[name], features[other]
        if frozenset((name, other)) in determined or not _revealed(column.every(step), second.every(step), _PROMISING):
            continue
        share = _revealed(column, second)
        if share > 0.0:
            determined[frozenset((name, other))] = name, other, share
    return list(determined.values())


def _numbers(values: Sequence[Any], codes: Codes) -> Vector | None:
    """Return a column of numbers, NaN where they are missing; None if it has other values, or too few numbers."""
    column = np.full(len(values), math.nan)
    for row in np.flatnonzero(codes >= 0).tolist():
        number, wrong = as_number(values[row])
        if wrong:
            return None
        column[row] = number
    return column if np.isfinite(column).sum() >= _FEWEST else None


def _is_missing(value: Any) -> bool:
    return is_absent(value) or is_nan(value) or (isinstance(value, str) and not value.strip())


def _dependent(numbers: Mapping[str, Vector], texts: set[str]) -> Iterator[str]:
    """Yield a sentence for each column that is a weighted sum of earlier ones; ``texts`` names columns of two texts."""
    if not numbers:
        return
    matrix = np.column_stack(list(numbers.values()))
    matrix = matrix[np.isfinite(matrix).all(axis=1)]
    if len(matrix) < max(_FEWEST, 2 * matrix.shape[1]):
        return
    columns = dict(zip(numbers, (matrix - matrix.mean(axis=0)).T, strict=True))
    free: list[str] = []
    basis = np.zeros((len(columns), len(matrix)))  # orthonormal rows, which span the free columns
    for name, column in columns.items():
        spread = float(column @ column)
        if not (spread > 0.0 and math.isfinite(spread)):
            continue
        spanned, rest = basis[: len(free)], column
        for _ in range(2):  # once more against rounding errors
            rest = rest - (spanned @ rest) @ spanned
        if float(rest @ rest) > _EXACT * spread:
            basis[len(free)] = rest / math.sqrt(float(rest @ rest))
            free.append(name)
            continue
        X = np.column_stack([columns[other] for other in free])
        scale = np.sqrt((X**2).sum(axis=0))
        weights = np.linalg.lstsq(X / scale, column, rcond=None)[0] / scale
        used = [(other, float(w)) for other, w, size in zip(free, weights, scale, strict=True)
                if abs(w) * size > 1e-6 * math.sqrt(spread)]  # fmt: skip
        others = listed([other for other, _ in used])
        if texts & {name, *(other for other, _ in used)}:
            yield f"{name} follows from {others}: leave one of them out"
        elif all(abs(abs(weight) - 1.0) < 1e-6 for _, weight in used):
            signs = "".join(f" {'-' if weight > 0.0 else '+'} {other}" for other, weight in used)
            parts = [*(other for other, weight in used if weight < 0.0), name]
            words = " + ".join(parts) if len(parts) == len(used) + 1 else f"{name}{signs}"
            yield f"{words} is the same in every row: leave one of them out"
        else:
            yield f"{name} follows from {others} (a weighted sum): leave one of them out"


def _revealed(column: _Column, target: _Column, nearly: float = _NEARLY) -> float:
    """Return the share of the target that one column determines, if nearly all; else 0.

    For labels it is the share of rows that the column's values predict (a number by its values, or by one threshold),
    and for a real target the share of the variance. ``nearly`` is the largest share of errors or variance that may
    remain.
    """
    rows = np.flatnonzero((column.codes >= 0) & (target.codes >= 0))
    if len(rows) < _FEWEST:
        return 0.0
    codes, labels = column.codes[rows], target.codes[rows]
    counts = np.bincount(labels)
    compared = len(rows) >= _ROWS_OF_ONE * len(np.unique(codes))
    numbers = None if column.numbers is None else column.numbers[rows]
    if target.numbers is not None and np.count_nonzero(counts) > 2:
        share = _variance_explained(numbers, target.numbers[rows], codes if compared else None)
        return share if 1.0 - share <= nearly else 0.0
    right = 0.0
    if compared:
        pairs, of_pairs = np.unique(codes * len(counts) + labels, return_counts=True)
        most = np.zeros(int(codes.max()) + 1, dtype=np.int64)
        np.maximum.at(most, pairs // len(counts), of_pairs)
        right = float(most.sum()) / len(rows)
    if numbers is not None and np.count_nonzero(counts) == 2:
        right = max(right, _by_threshold(numbers, (labels == labels[0]).astype(np.float64)))
    base = 1.0 - float(counts.max()) / len(rows)
    return right if base > 0.0 and 1.0 - right <= nearly * base else 0.0


def _by_threshold(column: Vector, positive: Vector) -> float:
    """Return the largest share of labels that one threshold of a column predicts."""
    order = np.argsort(column, kind="stable")
    ends = np.flatnonzero(np.diff(column[order]) > 0.0)
    below = np.cumsum(positive[order])[ends]
    count, total = len(column), positive.sum()
    right = below + (count - ends - 1) - (total - below)
    return float(max(np.max(right, initial=0.0), np.max(count - right, initial=0.0)) / count)


def _variance_explained(numbers: Vector | None, real: Vector, codes: Codes | None) -> float:
    """Return the larger share of a target's variance that a line through numbers, or the means by value, explain."""
    y = real - real.mean()
    total = float(y @ y)
    if not total > 0.0:
        return 0.0
    shares = [0.0]
    if numbers is not None:
        x = numbers - numbers.mean()
        shares.append(float(x @ y) ** 2 / (float(x @ x) * total) if x.any() else 0.0)
    if codes is not None:
        counts, sums = np.bincount(codes), np.bincount(codes, weights=y)
        shares.append(float(np.sum(sums**2 / np.maximum(counts, 1))) / total)
    return min(max(shares), 1.0)
