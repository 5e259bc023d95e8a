"""Code records as features and a target; the same layout for codec, devices and learners.

A number's public bounds are mapped to [-1, 1]. Two categories become -1 and +1 under the feature's name; of more, each
except the first becomes a -1/+1 feature named like ``origin=JFK``. A date becomes a number of days, a weekday or a
month. The constant 1 comes last. Missing and undeclared values become 0 in coded units, or the feature's public
``missing``, so that nobody is left out because of a value.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from murk._scratch import keep, numbers_were_used
from murk.errors import UserError
from murk.stream.task.data.columns import CategoryColumn, Cell, NumberColumn
from murk.stream.task.data.containers import column_array
from murk.stream.task.data.dates import PARTS, DateColumn, coded_parts
from murk.stream.task.data.features import (
    INDICATOR,
    UNIT_DAYS,
    BinaryTarget,
    CategoryFeature,
    ClassTarget,
    DateFeature,
    Feature,
    Target,
)

INTERCEPT: Final = "intercept"


def is_constant(name: str) -> bool:
    """Return whether a name is that of a constant's coefficient, also for one of several classes.

    >>> [name for name in ("age", "intercept", "b:intercept", "origin=intercept") if is_constant(name)]
    ['intercept', 'b:intercept']
    """
    return name.rpartition(":")[2] == INTERCEPT


def class_clash(classes: Sequence[str], names: Collection[str]) -> tuple[str, str, str] | None:
    """Return two classes and a feature for which two coefficients CLASS:FEATURE have the same name, or None.

    >>> class_clash(["a", "a:b"], ["c", "b:c"])
    ('a:b', 'a', 'c')
    """
    known = set(classes)
    if len(known) < len(classes):
        twice = next(label for place, label in enumerate(classes) if label in classes[:place])
        return twice, twice, next(iter(names))
    for label in classes:
        for place in (place for place, character in enumerate(label) if character == ":"):
            if label[:place] in known:
                for name in names:
                    if f"{label[place + 1 :]}:{name}" in names:
                        return label, label[:place], name
    return None


class EncodedRecord(NamedTuple):
    """One coded record."""

    x: NDArray[np.float64]  # (p,): coded features, the constant last
    y: float  # NaN if missing or undeclared
    clamped: int  # number of values outside their bounds
    missing: int  # number of missing or invalid values


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """Coded records; see `EncodedRecord`."""

    x: NDArray[np.float64]  # (m, p)
    y: NDArray[np.float64]  # (m,)
    clamped: NDArray[np.int64]  # (m,)
    missing: NDArray[np.int64]  # (m,)
    cells: NDArray[np.uint8]  # (m, columns): `Cell` of each raw value
    columns: tuple[str, ...]  # features, then the target


class Coding:
    """Layout of a task's coded features and target.

    Attributes
    ----------
    names
        Names of the ``size`` (p) coded features, ``"intercept"`` last.
    columns, target
        Names of the raw features and of the target.
    low, high
        float64, shape (p,): box of the coded features; 1 and 1 for the constant.
    smallest_square, largest_square
        Bounds of ||x||^2 over the box, missing values (0) included.
    indicators
        Positions of the coded features that indicate a missing value.
    unit_factors
        float64, shape (p,): factors from coefficients in coded units to those per unit of the feature: 2 unit / (high -
        low) for a number or a date, 2 for a category, 1 for the constant; for a real target also half its range.
    unit_labels
        Meaning of a coefficient per unit, in words.
    """

    def __init__(self, features: Sequence[Feature], target: Target) -> None:
        self._features = tuple(features)
        self._target = target
        self.columns: tuple[str, ...] = tuple(feature.name for feature in features)
        self.target: str = target.name
        self._all_columns = (*self.columns, self.target)
        self._inputs: list[NumberColumn | CategoryColumn | DateColumn] = []
        names: list[str] = []
        for index, feature in enumerate(self._features):
            start = len(names)
            names.extend(self.names_of(index))
            if isinstance(feature, CategoryFeature):
                self._inputs.append(CategoryColumn(feature.categories, start))
            elif isinstance(feature, DateFeature):
                self._inputs.append(DateColumn(feature.low, feature.high, feature.parts, start))
            else:
                self._inputs.append(NumberColumn(feature.low, feature.high, start))
        self.indicators: tuple[int, ...] = tuple(
            names.index(indicator_of(feature)) for feature in self._features if feature.missing == INDICATOR
        )
        self._fills = [self._fill(index) for index in range(len(self._features))]
        # Columns that are not numbers get bounds that contain no value, so that they are coded by `encode_one`.
        self._record_columns = [
            (name, column, column.low, column.high, column.range, column.start, fill)
            if isinstance(column, NumberColumn)
            else (name, column, math.inf, -math.inf, 1.0, 0, fill)
            for name, column, fill in zip(self.columns, self._inputs, self._fills, strict=True)
        ]
        self._complete = [0.0] * len(names) + [1.0]
        for place in self.indicators:
            self._complete[place] = -1.0
        self._output = _target_column(target)
        self.names: tuple[str, ...] = (*names, INTERCEPT)
        self.size: int = len(self.names)
        self.low = np.full(self.size, -1.0)
        self.low[-1] = 1.0
        self.high = np.ones(self.size)
        self.smallest_square: float = 1.0
        self.largest_square: float = float(self.size)
        self.unit_factors, self.unit_labels = self._units()
        for array in (self.low, self.high, self.unit_factors):
            array.setflags(write=False)

    def names_of(self, index: int) -> tuple[str, ...]:
        """Return the coded names of one raw feature."""
        feature = self._features[index]
        names: tuple[str, ...] = (feature.name,)
        if isinstance(feature, CategoryFeature) and len(feature.categories) > 2:
            names = tuple(f"{feature.name}={category}" for category in feature.categories[1:])
        elif isinstance(feature, DateFeature):
            names = tuple(feature.name + ending for ending in coded_parts(feature.parts))
        return (*names, indicator_of(feature)) if feature.missing == INDICATOR else names

    def _fill(self, index: int) -> tuple[tuple[int, float], ...]:
        """Return positions and coded values of a missing value of a feature; empty for the middle."""
        feature, column = self._features[index], self._inputs[index]
        if feature.missing is None:
            return ()
        if feature.missing == INDICATOR:
            return ((column.start + len(self.names_of(index)) - 1, 1.0),)
        coded = [0.0] * sum(len(self.names_of(place)) for place in range(index + 1))
        column.encode_one(feature.missing, coded)
        return tuple((place, coded[place]) for place in range(column.start, len(coded)))

    def encode(self, columns: Mapping[str, Sequence[Any]], *, target: bool = True) -> EncodedBlock:
        """Code records given as columns: lists, arrays or pandas columns of text, numbers, booleans or None.

        Without ``target``, every y is NaN. Raises `UserError` if a column is missing or the columns differ in length;
        never because of a value.

        >>> from murk.stream.task.data.features import NumberFeature, RealTarget
        >>> age = NumberFeature(name="age", low=20, high=40)
        >>> coding = Coding([age], RealTarget(name="weeks", kind="real", low=0, high=52))
        >>> block = coding.encode({"age": ["25", "", 50], "weeks": [52, 26, 0]})
        >>> block.x[:, 0].tolist(), block.y.tolist(), block.clamped.tolist(), block.missing.tolist()
        ([-0.5, 0.0, 1.0], [1.0, 0.0, -1.0], [0, 0, 1], [0, 1, 0])
        """
        wanted = self._all_columns if target else self.columns
        absent = [name for name in wanted if name not in columns]
        if absent:
            raise UserError(f"column {absent[0]!r} is missing; there are: {', '.join(map(str, columns))}")
        lengths = {len(columns[name]) for name in wanted}
        if len(lengths) > 1:
            raise UserError(
                f"columns of different lengths ({', '.join(map(str, sorted(lengths)))}); give one value a row"
            )
        columns = {name: _values(columns[name], name) for name in wanted}
        m = lengths.pop()
        x = np.empty((m, self.size))
        x[:, -1] = 1.0
        cells = np.zeros((m, len(self._all_columns)), dtype=np.uint8)
        for index, (name, column) in enumerate(zip(self.columns, self._inputs, strict=True)):
            column.encode(columns[name], x, cells[:, index])
        x[:, list(self.indicators)] = -1.0
        for index, fill in enumerate(self._fills):
            if fill:
                gaps = cells[:, index] >= Cell.MISSING
                for place, value in fill:
                    x[gaps, place] = value
        y = self._output.targets(columns[self.target], cells[:, -1]) if target else np.full(m, np.nan)
        return EncodedBlock(
            x=x,
            y=y,
            clamped=(cells == Cell.CLAMPED).sum(axis=1),
            missing=(cells >= Cell.MISSING).sum(axis=1),
            cells=cells,
            columns=self._all_columns,
        )

    def encode_record(self, record: Mapping[str, Any], *, target: bool = True) -> EncodedRecord:
        """Code one record, whatever it holds; absent keys count as missing. Without ``target``, y is NaN."""
        x = self._complete.copy()
        clamped = missing = 0
        get = record.get
        for name, column, low, high, width, place, fill in self._record_columns:
            value = get(name)
            if type(value) is float and low <= value <= high:
                # As in `NumberColumn`, without a call: most values are numbers within their bounds.
                x[place] = (value - low) / width * 2.0 - 1.0
                continue
            cell = column.encode_one(value, x)
            if cell:
                if cell == Cell.CLAMPED:
                    clamped += 1
                else:
                    missing += 1
                    for at, coded in fill:
                        x[at] = coded
        y = float("nan")
        if target:
            y, cell = self._output.target(get(self.target))
            clamped += cell == Cell.CLAMPED
            missing += cell >= Cell.MISSING
        # The coded values are Python numbers, since filling a list is faster than filling an array.
        numbers_were_used(len(x))
        return EncodedRecord(keep(np.array(x)), y, clamped, missing)

    def per_unit(self, coefficients: Mapping[str, float]) -> dict[str, float]:
        """Return coefficients in coded units, by coded name, per unit of their features."""
        factors = dict(zip(self.names, self.unit_factors.tolist(), strict=True))
        return {name: value * factors[name] for name, value in coefficients.items()}

    def _units(self) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        factors: list[float] = []
        labels: list[str] = []
        for feature in self._features:
            indicated = [(2.0, f"{feature.name}: missing against known")] * (feature.missing == INDICATOR)
            for factor, label in (*_units_of(feature), *indicated):
                factors.append(factor)
                labels.append(label)
        factors.append(1.0)
        labels.append("at the middle of every feature")
        return np.array(factors) * self._output.half_range, tuple(labels)


def _values(column: Any, name: str) -> Any:
    return column if isinstance(column, list | tuple) else column_array(column, f"column {name!r}")


def indicator_of(feature: Feature) -> str:
    """Return the name of the coded feature that indicates a missing value."""
    return f"{feature.name}=missing"


def _units_of(feature: Feature) -> list[tuple[float, str]]:
    """Return the unit factor and label of each coded feature."""
    if isinstance(feature, CategoryFeature):
        return _against_first(feature.name, feature.categories)
    if isinstance(feature, DateFeature):
        units: list[tuple[float, str]] = []
        for part in feature.parts:
            if feature.low is None or feature.high is None or part != "number":
                units += _against_first(feature.name, PARTS[part])
            else:
                days = (feature.high - feature.low).days
                units.append((2.0 * UNIT_DAYS[feature.unit] / days, f"{feature.name}: one {feature.unit} later"))
        return units
    unit, written = (1.0, "one unit") if feature.unit is None else (feature.unit, f"{feature.unit:,.12g}")
    return [(2.0 * unit / (feature.high - feature.low), f"{feature.name}: {written} more")]


def _against_first(name: str, categories: Sequence[str]) -> list[tuple[float, str]]:
    first, *others = categories
    return [(2.0, f"{name}: {category} against {first}") for category in others]


def _target_column(target: Target) -> NumberColumn | CategoryColumn:
    if isinstance(target, BinaryTarget):
        # Without a declared negative, every other value counts as negative.
        return CategoryColumn((target.negative, target.positive), 0, other=0 if target.negative is None else None)
    if isinstance(target, ClassTarget):
        return CategoryColumn(target.classes, 0)
    return NumberColumn(target.low, target.high, 0)
