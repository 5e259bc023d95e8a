r"""Released cells: a record is one of finitely many combinations of values, released by randomized response.

A cell c is a combination of categories, of numbers rounded to a grid, and of the target; one further cell is for
records without a target. The mechanism keeps a cell with probability p and replaces it by each given other one with
probability q. For any function g of a record

.. math:: E\left[\frac{g(\tilde c) - q \sum_k g(k)}{p - q}\right] = g(c)

so every loss and its derivatives have exact unbiased estimates from the shares of the released cells.

A number is rounded at random to one of its two neighbours on the grid, so that the mean of the rounded number is the
number itself. This replaces a loss by its linear interpolation between neighbours at distance h. The interpolation
exceeds the loss by at most ``h^2 / 8`` times the loss's largest second derivative; on the grid itself both are equal.

Source: Kairouz, Bonawitz, Ramage, "Discrete distribution estimation under local privacy", 2016, for the mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats, Integers
from murk._internal.wiping import empty, track, wiped
from murk.errors import UserError
from murk.privacy import Guarantee, RandomizedResponse
from murk.privacy.mechanisms.base import Wrapped
from murk.privacy.mechanisms.lattice import PayloadBound
from murk.privacy.noise import NoiseSource, Purpose
from murk.task.coding import PARTS
from murk.task.features import INDICATOR, CategoryFeature, ClassTarget, DateFeature
from murk.task.models import OWN, Columns
from murk.task.protocols.examples import MOST_CELLS
from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"

_NAMED = 3
_UNIT = 2.0**-53
_ELEVEN = np.uint64(11)


def _other(labelled: bool) -> str:
    return "protocol: scores" if labelled else "another release"


@dataclass(frozen=True)
class Column:
    """The k values of one column: ``points`` are their codes (k, w), for the w coded features from ``start`` on."""

    start: int
    points: tuple[tuple[float, ...], ...]
    is_number: bool = True  # whether a code between two points is rounded to one of them
    indicated: bool = False  # whether the last point means a missing value, and the last code is its indicator
    rounded: bool = field(default=False, repr=False)  # whether values may lie between two points

    @classmethod
    def of_number(cls, start: int, grid: int, *, indicated: bool = False, rounded: bool = False) -> Column:
        """Return the column of a number on an even grid over [-1, 1]; of two categories with ``grid`` 2."""
        codes: list[tuple[float, ...]] = [(2.0 * i / (grid - 1) - 1.0,) for i in range(grid)]
        return cls._with_missing(start, codes, True, indicated, rounded)

    @classmethod
    def of_categories(cls, start: int, size: int, *, indicated: bool = False) -> Column:
        """Return the column of three or more categories."""
        codes = [tuple(1.0 if i == j else -1.0 for j in range(1, size)) for i in range(size)]
        return cls._with_missing(start, codes, False, indicated, False)

    @classmethod
    def _with_missing(
        cls, start: int, codes: list[tuple[float, ...]], number: bool, indicated: bool, rounded: bool
    ) -> Column:
        if indicated:
            codes = [*((*code, -1.0) for code in codes), (*(0.0 for _ in codes[0]), 1.0)]
        return cls(start, tuple(codes), number, indicated, rounded)

    @property
    def width(self) -> int:
        """Number w of coded features."""
        return len(self.points[0])

    def shares(self, X: Floats) -> Floats:
        """Return probabilities (m, k) of rounding coded records (m, p) to the points, whose mean is the coded value.

        A missing category, which is 0 in all codes, is rounded to each category with equal probability.
        """
        known, codes = len(self.points) - self.indicated, self.width - self.indicated
        out = empty((len(X), len(self.points)))
        out.fill(0.0)
        inner = out[:, :known]
        own = track(np.nan_to_num(X[:, self.start : self.start + codes]))
        np.clip(own, -1.0, 1.0, out=own)
        gone = track((own == 0.0).all(axis=1))
        own += 1.0
        if self.is_number:
            own *= (known - 1) / 2.0
            np.subtract(own, np.arange(known), out=inner)
            np.abs(inner, out=inner)
            np.subtract(1.0, inner, out=inner)
            np.maximum(inner, 0.0, out=inner)
        else:
            np.divide(own, 2.0, out=out[:, 1:known])
            total = track(out[:, 1:known].sum(axis=1, keepdims=True))
            np.maximum(np.subtract(1.0, total, out=out[:, :1]), 0.0, out=out[:, :1])
            inner /= np.maximum(total, 1.0, out=total)
            inner[gone] = 1.0 / known
        if self.indicated:
            out[track(X[:, self.start + codes] > 0.0)] = np.eye(len(self.points))[-1]
        return out


@dataclass(frozen=True)
class Cells:
    """All cells of a task, or of a learner with named features.

    >>> cells = Cells((Column.of_number(0, 2), Column.of_number(1, 3)), 3)
    >>> cells.classes, cells.X[4].tolist(), float(cells.y[4])
    (13, [-1.0, 1.0, 1.0], -1.0)
    """

    columns: tuple[Column, ...]
    features: int  # number p of coded features, the constant included
    target: int = 2  # number of values of the target, from -1 to 1
    labelled: bool = field(default=False, repr=False)  # whether the target's values are classes, coded by position

    def __post_init__(self) -> None:
        if self.classes > MOST_CELLS:
            sizes = " x ".join(str(len(column.points)) for column in self.columns)
            raise UserError(
                f"release='cells': {sizes} values of the columns and {self.target} of the target make {self.classes:,} "
                f"combinations, and at most {MOST_CELLS:,} can be learned: give fewer features or categories, a "
                f"smaller grid, or {_other(self.labelled)} (docs/iwp-sgd.md)"
            )

    @classmethod
    def of_numbers(cls, names: int, grid: int | None, *, real: bool, labels: int = 0) -> Cells:
        """Return the cells of ``names`` features that are numbers, by default with the two values -1 and 1."""
        columns = tuple(Column.of_number(i, grid or 2, rounded=True) for i in range(names))
        return cls(columns, names + 1, labels or ((grid or 2) if real else 2), bool(labels))

    @classmethod
    def of_task(cls, task: Task, grid: int | None) -> Cells:
        """Return the cells of a task; raise UserError for a number without a grid."""
        columns: list[Column] = []
        start = 0

        def add(size: int | None, indicated: bool) -> None:
            nonlocal start
            if size is None and grid is None:
                raise task.error_at(
                    f"{feature.name!r} is a number, and cells have finitely many values: say examples: "
                    "{release: cells, grid: 5} to round it to 5 values (best is a grid of all values that occur), or "
                    + _other(isinstance(task.target, ClassTarget)),
                    "features",
                    task.features.index(feature),
                )
            if size is not None and size > 2:
                columns.append(Column.of_categories(start, size, indicated=indicated))
            else:
                number = size or grid or 2
                columns.append(Column.of_number(start, number, indicated=indicated, rounded=size is None))
            start += columns[-1].width

        for feature in task.features:
            indicated = feature.missing == INDICATOR
            if isinstance(feature, CategoryFeature):
                add(len(feature.categories), indicated)
            elif isinstance(feature, DateFeature):
                # A missing date has one indicator for all of its parts; here the last part's column has it.
                for part in feature.parts:
                    add(len(PARTS[part]) or None, indicated and part == feature.parts[-1])
            else:
                add(None, indicated)
        labels = len(task.target.classes) if isinstance(task.target, ClassTarget) else 0
        values = labels or ((grid or 2) if task.target.kind == "real" else 2)
        return cls(tuple(columns), task.coding.size, values, bool(labels))

    @property
    def classes(self) -> int:
        """Number of cells, the one without a target last."""
        return math.prod(len(column.points) for column in self.columns) * self.target + 1

    @cached_property
    def X(self) -> Floats:  # noqa: N802 - as in all learners
        """Coded features of each cell, (classes, p), the constant last; zeros in the cell without a target."""
        X = np.zeros((self.classes, self.features))
        X[:-1, -1] = 1.0
        repeat = self.target
        for column in reversed(self.columns):
            codes = np.repeat(np.array(column.points), repeat, axis=0)
            repeat *= len(column.points)
            X[:-1, column.start : column.start + column.width] = np.tile(codes, ((self.classes - 1) // repeat, 1))
        return X

    @cached_property
    def y(self) -> Floats:
        """Target of each cell in [-1, 1], or its class's position, (classes,); NaN in the cell without a target."""
        values = np.arange(self.target) if self.labelled else np.linspace(-1.0, 1.0, self.target)
        return np.append(np.tile(values, (self.classes - 1) // self.target), math.nan)

    def shares(self, vectors: Floats) -> Floats:
        """Return the probability of each cell, (m, classes), for vectors (x, y)."""
        chances = np.ones((len(vectors), 1))
        for shares in self._each(vectors):
            chances = (chances[:, :, None] * shares[:, None, :]).reshape(len(vectors), -1)
        known = ~np.isnan(vectors[:, -1])
        return np.column_stack([chances * known[:, None], ~known])

    def _each(self, vectors: Floats) -> list[Floats]:
        factors = [column.shares(vectors) for column in self.columns]
        if self.labelled:
            return [*factors, track(vectors[:, -1:] == np.arange(self.target))]
        return [*factors, Column.of_number(vectors.shape[1] - 1, self.target).shares(vectors)]

    @wiped
    def drawn(self, vectors: Floats, words: npt.NDArray[np.uint64]) -> Integers:
        """Return the cell of each vector (m, p + 1), rounded by random words, (m, columns + 1)."""
        numbers = track(track(words >> _ELEVEN) * _UNIT)
        cells = np.zeros(len(vectors), dtype=np.int64)
        for at, shares in enumerate(self._each(vectors)):
            above = track(np.cumsum(shares[:, :-1], axis=1))
            cells *= shares.shape[1]
            cells += track(track(numbers[:, at : at + 1] >= above).sum(axis=1))
        cells[track(np.isnan(vectors[:, -1]))] = self.classes - 1
        return cells

    def mechanism(self, guarantee: Guarantee) -> CellMechanism:
        """Return the least noisy mechanism of these cells."""
        return CellMechanism.calibrate(guarantee, self)


@dataclass(frozen=True)
class CellMechanism(Wrapped):
    """Randomized response of a record's cell."""

    noise: RandomizedResponse  # type: ignore[assignment]
    cells: Cells
    code: ClassVar[str] = "cells"
    dimension: ClassVar[int] = 1
    unit: ClassVar[float] = 1.0
    payload_bound: ClassVar[PayloadBound] = PayloadBound(())

    @classmethod
    def calibrate(cls, guarantee: Guarantee, cells: Cells) -> CellMechanism:
        """Return the mechanism with the least noise that has ``guarantee``."""
        return cls(RandomizedResponse.calibrate(guarantee, classes=cells.classes), cells)

    @property
    def magnitude(self) -> int:
        """Largest cell number."""
        return self.cells.classes - 1

    @property
    def gain(self) -> float:
        """Factor 1 / (p - q) of unbiased estimates."""
        own, others = self.noise.weights
        return own - others

    @property
    def other(self) -> float:
        """Probability q of a given other cell."""
        return -self.noise.weights[1] / self.gain

    @property
    def variance(self) -> float:
        """Largest relative increase, by noise, of the mean square of a centred function of a record."""
        return self.gain**2 - 1.0

    @wiped
    def randomize(self, vectors: npt.ArrayLike, noise: NoiseSource, records: npt.ArrayLike) -> Integers:
        """Return randomized cell numbers (m, 1) of m vectors (x, y) of coded features and target, (m, p + 1)."""
        rows, indices = np.asarray(vectors, dtype=np.float64), np.asarray(records, dtype=np.int64)
        if rows.ndim != 2 or rows.shape[1] != self.cells.features + 1 or indices.shape != (len(rows),):
            raise UserError(
                f"cells need vectors of shape (m, {self.cells.features + 1}) and as many record indices, got "
                f"{rows.shape} and {indices.shape}"
            )
        words = track(noise.words(indices, len(self.cells.columns) + 1, Purpose.NOISE))
        return self.noise.randomize(track(self.cells.drawn(rows, words)), noise, indices)[:, None]

    def decode(self, payload: npt.ArrayLike) -> Floats:
        """Return unbiased estimates (m, classes) of the cells' indicators from payloads (m, 1)."""
        return self.noise.unbiased(np.asarray(payload)[:, 0])

    def to_dict(self) -> dict[str, Any]:
        """Return the public parameters, including derived ones, as plain data."""
        return {**self.noise.to_dict(), "dimension": 1}


@dataclass(frozen=True)
class CellTable:
    """A model's columns X (classes, p) and target y (classes,) in each cell; y is NaN without a target."""

    X: Floats
    y: Floats
    rounded: tuple[tuple[int, int], ...] = ()  # positions of coded features that devices round, and numbers of values

    @classmethod
    def of(cls, cells: Cells, columns: Columns | None = None, *, real: bool = False) -> CellTable:
        """Return the table of the task's own columns, or of a model's; ``real`` says that the task's target is real."""
        grids = {column.start: len(column.points) - column.indicated for column in cells.columns if column.rounded}
        if columns is None:
            return cls(cells.X, cells.y, tuple(grids.items()))
        # Behind the features come the classes' indicators, the last class first: see `Columns.places`.
        labels = np.arange(cells.target)[::-1] if cells.labelled else np.zeros(0)
        both = np.column_stack([cells.X, np.where(cells.y[:, None] == labels, 1.0, -1.0), cells.y])
        X, y = both[:, list(columns.places)], columns.sign * both[:, columns.aim]
        if real:
            grids[OWN % both.shape[1]] = cells.target
        gridded = ((at, grids.get(index % both.shape[1], 0)) for at, index in enumerate(columns.places))
        rounded = tuple((at, grid) for at, grid in gridded if grid)
        return cls(np.nan_to_num(X), np.where(np.isnan(cells.y), math.nan, y), rounded)


def rounded_names(names: Sequence[str], rounded: Sequence[tuple[int, int]]) -> str:
    """Return words for the first features that devices round, with each one's number of values."""
    listed_names = ", ".join(f"{names[at]} to {grid} values" for at, grid in rounded[:_NAMED])
    return f"{listed_names} and {len(rounded) - _NAMED} more features" if len(rounded) > _NAMED else listed_names


def note_of(names: Sequence[str], rounded: Sequence[tuple[int, int]]) -> str:
    """Say which features devices round to a grid, since their coefficients are those of the rounded values."""
    if not rounded:
        return ""
    return (
        f"; devices round {rounded_names(names, rounded)}: if people's values lie between these, coefficients and "
        "intervals are those of the rounded values, often much nearer 0"
    )


def cell_vectors(X: Floats, y: Floats, features: int, target: str) -> Floats:
    """Return vectors (x, y) of coded records, the constant last or left out; two labels become -1 and 1."""
    vectors = empty((len(X), features + 1))
    vectors[:, : features - 1], vectors[:, features - 1], vectors[:, features] = X[:, : features - 1], 1.0, y
    if target == "binary":
        vectors[:, features] *= 2.0
        vectors[:, features] -= 1.0
    return vectors
