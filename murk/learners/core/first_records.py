"""Warnings about the first records of a simulation, without any of their values.

Whether a record is learned must not depend on its values. So text counts silently as 0, an undeclared label as missing,
and features in other units are shortened. With simulated noise nobody needs protection: the first records are checked.
With real noise a warning would depend on records; there `murk.producers.Encoder` counts such values on the device.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from murk.errors import DataWarning
from murk.stream.task.data.coding import read_number

FIRST = 100  # number of records checked

_CODE = "Code records by public bounds first, as in Encoder(task) | model"


class FirstRecords:
    """Checker of the first records of a simulation. Copies of it check nothing.

    ``unit`` and ``target`` are the largest absolute values expected of features and of a real target, None where any
    are expected; ``labels`` tells whether targets are labels.
    """

    def __init__(self, names: Sequence[Any], unit: float | None, target: float | None, labels: bool) -> None:
        self.left = FIRST
        self._names, self._unseen = tuple(names), set(names)  # _unseen: names in no record so far
        self._unit, self._target, self._labels = unit, target, labels
        # Smallest, largest, sum and sum of squares of each feature, the target's last.
        self._seen = [[math.inf, -math.inf, 0.0, 0.0] for _ in range(len(names) + 1)]
        self._texts = self._far = self._absent = self._beyond = 0
        self._began_at_zero = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _over, ()

    def look(self, rows: Iterable[tuple[Sequence[Any], float]], keys: Iterable[Any]) -> None:
        """Check raw rows, whose features are named by ``keys``, with coded targets; warn after `FIRST` of them."""
        self._unseen.difference_update(keys)
        for values, y in islice(rows, self.left):
            self._add(values, y)
        if self.left == 0:
            for finding in self._findings():
                # Frames: learn_one or learn_many, _learn, _survey_rows, look.
                warnings.warn(finding, DataWarning, stacklevel=5)

    def _add(self, values: Sequence[Any], y: float) -> None:
        numbers = [_read(value) for value in values]
        self._texts += any(number is None for number in numbers)
        known = [0.0 if number is None else number for number in numbers]
        self._far += self._unit is not None and any(abs(number) > 10.0 * self._unit for number in known)
        self._absent += not math.isfinite(y)
        self._beyond += self._target is not None and math.isfinite(y) and abs(y) > 2.0 * self._target
        if self.left == FIRST:
            self._began_at_zero = not any(known)
        self.left -= 1
        for seen, number in zip(self._seen, (*known, y), strict=True):
            if math.isfinite(number):
                seen[0], seen[1] = min(seen[0], number), max(seen[1], number)
                seen[2], seen[3] = seen[2] + number, seen[3] + number * number

    def _findings(self) -> list[str]:
        findings, first = [], f"of the first {FIRST} records"
        absent = [repr(name) for name in self._names if name in self._unseen]
        if absent:
            more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
            findings.append(
                f"none {first} has the features {', '.join(absent[:5])}{more}, which count as 0. Spell features=[...] "
                "as records do; if records leave zeros out, this is fine"
            )
        if 4 * self._texts >= FIRST:
            findings.append(f"many {first} have features that are text or no numbers, which count as 0. {_CODE}")
        if 10 * self._far >= FIRST:
            findings.append(
                f"many {first} have features more than ten times as large as this learner expects, which is "
                f"{self._unit:g}: little or nothing will be learned. {_CODE}"
            )
        if 4 * self._absent >= FIRST:
            what = "labels that are not among the declared classes" if self._labels else "targets that are no numbers"
            remedy = "Give classes=[...] as the labels are, text or number" if self._labels else "Give numbers"
            findings.append(
                f"many {first} have {what}: such a record counts as one without a target. "
                f"{remedy}; if they are missing, this is fine"
            )
        if 4 * self._beyond >= FIRST:
            findings.append(
                f"many {first} have targets far beyond their declared bounds, which count as the nearest bound: little "
                "will be learned. Give bounds (target_bounds=, target_bound=) that anybody may know and that hold them"
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


def _over() -> None:
    """Return None: a copy has no checker."""


def _read(value: Any) -> float | None:
    """Return a number: 0 if it is missing or not finite, None if it is text or the like."""
    number = read_number(value)
    return number if number is None or math.isfinite(number) else 0.0


def _scaled(seen: Sequence[float]) -> bool:
    """Return whether a feature looks scaled: standardized, or between 0 and 1 and at both ends."""
    least, most, total, squares = seen
    mean = total / FIRST
    spread = math.sqrt(max(squares / FIRST - mean * mean, 0.0))
    return (least, most) == (0.0, 1.0) or (abs(mean) < 0.5 and 0.6 < spread < 1.6)
