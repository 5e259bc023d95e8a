"""Warnings about records and targets of a simulation that a learner does not expect. None quotes a value."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk._internal.numbers import listed
from murk.errors import DataWarning
from murk.task.coding import Cell, read_number
from murk.task.values import number

FIRST = 100  # number of records checked

_CODE = "Code records by public bounds first, as in Encoder(task) | model"


class FirstRecords:
    """Checker of the first records of a simulation, which warns without quoting any of their values.

    Whether a record is learned must not depend on its values, so mistakes raise no error: text counts as 0, an
    undeclared label as missing, and long feature vectors are shortened. Where noise is real, `murk.learners.Encoder`
    counts such values on the device. ``unit`` and ``target`` are the largest absolute values expected of features and
    of a real target, None for any.
    """

    def __init__(self, names: Sequence[Any], unit: float | None, target: float | None, labels: bool) -> None:
        self.left = FIRST
        self._names, self._unseen = tuple(names), set(names)  # _unseen: names in no record so far
        self._unit, self._target, self._labels = unit, target, labels
        # Smallest, largest, sum and sum of squares of each feature, the target's last.
        self._seen = [[math.inf, -math.inf, 0.0, 0.0] for _ in range(len(names) + 1)]
        self._texts = self._far = self._absent = 0
        self._began_at_zero = False

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    def look(self, rows: Iterable[tuple[Sequence[Any], float]], keys: Iterable[Any]) -> None:
        """Check raw rows with features named ``keys``, and their coded targets; warn after `FIRST` rows."""
        self._unseen.difference_update(keys)
        for values, y in islice(rows, self.left):
            self._add(values, y)
        if self.left == 0:
            for finding in self._findings():
                _warn(finding)

    def _add(self, values: Sequence[Any], y: float) -> None:
        self._texts += any(read_number(value) is None for value in values)
        coded = [number(value) for value in values]
        self._far += self._unit is not None and any(abs(each) > 10.0 * self._unit for each in coded)
        self._absent += not math.isfinite(y)
        if self.left == FIRST:
            self._began_at_zero = not any(coded)
        self.left -= 1
        for seen, each in zip(self._seen, (*coded, y), strict=True):
            if math.isfinite(each):
                seen[0], seen[1] = min(seen[0], each), max(seen[1], each)
                seen[2], seen[3] = seen[2] + each, seen[3] + each * each

    def _findings(self) -> list[str]:
        findings, first = [], f"of the first {FIRST} records"
        absent = [repr(name) for name in self._names if name in self._unseen]
        if absent:
            listed_names = absent if len(absent) <= 5 else [*absent[:5], f"{len(absent) - 5} more"]
            noun, count = ("feature", "counts") if len(absent) == 1 else ("features", "count")
            findings.append(
                f"none {first} has the {noun} {listed(listed_names)}, which {count} as 0. Spell features=[...] as "
                "records do; if records leave zeros out, this is fine"
            )
        if 4 * self._texts >= FIRST:
            findings.append(f"many {first} have features that are text or not numbers, which count as 0. {_CODE}")
        if 10 * self._far >= FIRST:
            findings.append(
                f"many {first} have features more than ten times as large as this learner expects, which is "
                f"{self._unit:g}: little or nothing will be learned. {_CODE}"
            )
        if 4 * self._absent >= FIRST:
            labels = "labels that are not among the declared classes" if self._labels else "targets that are no numbers"
            remedy = "Give classes=[...] as the labels are, text or number" if self._labels else "Give numbers"
            findings.append(
                f"many {first} have {labels}: such a record counts as one without a target. "
                f"{remedy}; if they are missing, this is fine"
            )
        features = [seen for seen in self._seen[:-1] if seen[1] > seen[0]]
        narrow = [seen for seen in features if self._unit is not None and seen[1] - seen[0] < 0.2 * self._unit]
        if 2 * len(narrow) > len(features):
            findings.append(
                f"most features fill less than a tenth of the range that this learner expects, -{self._unit:g} to "
                f"{self._unit:g}: noise is added for the whole range. Bounds must be public, but can be tight. {_CODE}"
            )
        least, most = self._seen[-1][:2]
        if self._target is not None and 0.0 < most - least < 0.2 * self._target:
            findings.append(
                "targets fill less than a tenth of their declared range: noise is added for the whole "
                "range. Give the tightest bound that is publicly known"
            )
        if self._began_at_zero and features and 2 * sum(map(_scaled, features)) > len(features):
            findings.append(
                "features look as if a scaler in the pipeline had learned from the records, as private learning must "
                f"not: no noise protects a scaler's statistics. {_CODE}"
            )
        return findings


def _scaled(seen: Sequence[float]) -> bool:
    """Return whether a feature looks scaled: standardized, or between 0 and 1 and at both ends."""
    least, most, total, squares = seen
    mean = total / FIRST
    spread = math.sqrt(max(squares / FIRST - mean * mean, 0.0))
    return (least, most) == (0.0, 1.0) or (abs(mean) < 0.5 and 0.6 < spread < 1.6)


class BeyondBounds:
    """Counter of a simulation's targets beyond their bounds, which warns once, after 100, 1,000, 10,000, ... targets.

    It warns if the share of such targets exceeds ``share``; ``words`` describe the bounds and the remedy. Copies of a
    learner lack the counter, as it depends on raw records.
    """

    def __init__(self, low: float, high: float, words: str, *, share: float = 0.0) -> None:
        self._low, self._high, self._words, self._share = low, high, words, share
        self._seen = self._beyond = 0
        self._due = 100

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    def warned(self, y: Any) -> bool:
        """Count a target or a column of targets; return whether a warning was issued."""
        if isinstance(y, float):
            seen, beyond = 1, int(y < self._low or y > self._high)
        else:
            seen, beyond = len(y), int(np.count_nonzero((y < self._low) | (y > self._high)))
        self._seen, self._beyond = self._seen + seen, self._beyond + beyond
        if self._seen < self._due:
            return False
        while self._due <= self._seen:
            self._due *= 10
        if self._beyond <= self._share * self._seen:
            return False
        _warn(f"{self._beyond:,} of the first {self._seen:,} targets are beyond {self._words}")
        return True


class AlwaysClamped:
    """Finder of columns whose first `FIRST` values all lie beyond their public bounds; it quotes no value.

    Such a column, often one in other units, has the same code in every record. Copies of an encoder lack the finder, as
    it depends on raw records.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._left, self._clamped = FIRST, dict.fromkeys(names, 0)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ((),)

    @property
    def done(self) -> bool:
        """Whether the check is over: every column had a value within its bounds, or `FIRST` records were checked."""
        return not self._clamped or self._left <= 0

    def look(self, cells: NDArray[Any], columns: Sequence[str]) -> None:
        """Check codes of raw values (m, columns), as in `EncodedBlock`; warn after `FIRST` records."""
        cells = cells[: self._left]
        self._left -= len(cells)
        for index, name in enumerate(columns):
            if name not in self._clamped:
                continue
            if np.any(cells[:, index] == Cell.FINE):
                del self._clamped[name]
            else:
                self._clamped[name] += int(np.count_nonzero(cells[:, index] == Cell.CLAMPED))
        for name, count in self._clamped.items() if self._left <= 0 else ():
            if count:
                _warn(
                    f"all {count:,} values of {name!r} in the first {FIRST} records lie beyond its public bounds and "
                    "count as the nearest one, so nothing is learned about it. Check its unit, or widen the bounds"
                )


def _warn(finding: str) -> None:
    """Issue a warning with the position of the line that called the package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("murk."):
        frame, level = frame.f_back, level + 1
    warnings.warn(finding, DataWarning, stacklevel=level)
