r"""What people release of a target, and the mechanism of least variance for it. Devices import this module.

Beside known columns a task may have p private coded features u. Then people release the products ``v v'`` of
:math:`v = (a, u, a y) / c`, with :math:`a^2 = p` and :math:`c^2 = 3 p`, so that v is no longer than 1; without a target
v is 0. A larger a has less noise on the target alone, and more on its products with features.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.wiping import empty, track
from murk.errors import UserError
from murk.privacy.guarantees import ApproxDP, Guarantee, PureDP
from murk.privacy.mechanisms.costs import UNITS, budget_of, epsilon_units, is_pure
from murk.privacy.mechanisms.known import KnownMechanism
from murk.privacy.mechanisms.selection import SubsetSelection, WindowSelection
from murk.privacy.mechanisms.simplex import SimplexGaussian
from murk.privacy.mechanisms.thresholds import ThresholdMechanism
from murk.protocols.univariate.columns import NONE_KNOWN, KnownColumns
from murk.protocols.windows import Windows

if TYPE_CHECKING:
    from murk.privacy.mechanisms.drawn import DrawnMechanism

_ERROR_CODE = "MURK-LEARN-001"

BareMechanism = SubsetSelection | WindowSelection | SimplexGaussian
TargetMechanism: TypeAlias = "BareMechanism | ThresholdMechanism | KnownMechanism | DrawnMechanism"

GAUSSIAN, SELECTION = "gaussian", "selection"  # families of mechanisms
# From this mu on, windows have a smaller mean variance over the range of a number than Gaussian noise.
_WINDOWS_FROM: Final = 1.7
_BETTER: Final = 0.99


@dataclass(frozen=True)
class Settings:
    """The public settings of a target alone, or together with known columns and private features."""

    # Names of the reported numbers: shares of all classes or of the positive one, a mean, quantiles, or coefficients.
    names: tuple[str, ...]
    classes: int  # K; 0 for a real target
    missing: bool = True  # whether targets may be missing
    quantiles: tuple[float, ...] = ()  # asked of a real target instead of its mean
    known: KnownColumns = NONE_KNOWN
    windows: Windows | None = None  # windows for which sums are kept besides the total sums
    rows: int = 1  # largest number of a person's rows that count
    private: tuple[int, ...] = ()  # positions of the private coded features beside known columns
    metrics: tuple[Settings, ...] = ()  # of each metric: a release is of the target or of one metric, drawn at random

    @property
    def weight(self) -> float:
        """Length a of the constant and of the target beside private features."""
        return math.sqrt(len(self.private))

    @property
    def length(self) -> float:
        """Length c by which v is divided."""
        return math.sqrt(3.0 * len(self.private))

    @property
    def categories(self) -> int:
        """Number of classes, a missing target included; for a number, of the vertices of its simplex."""
        return (self.classes or 2) + self.missing

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the settings: states load, and partitions merge, only if fingerprints are equal."""
        fields = (
            self.names,
            self.classes,
            self.missing,
            *self.quantiles,
            *self.known.columns,
            *([self.windows] if self.windows else []),
            *([f"rows={self.rows}"] if self.rows > 1 else []),
            *([self.private, self.known.starts] if self.private else []),
            *(metric.digest for metric in self.metrics),
        )
        return hashlib.sha256(repr(fields).encode()).hexdigest()[:16]

    def vectors(self, X: Floats, y: Floats) -> Floats:
        """Return the mechanism's inputs for coded records: `positions`, or the vector v of private features and target.

        There is one of the target, and one of each metric.
        """
        private = self._private_values(X, y)
        if self.metrics:
            # Coded metrics come before the constant.
            codes = X[:, len(self.names) - 1 : -1].T
            others = [metric._private_values(X, code) for metric, code in zip(self.metrics, codes, strict=True)]  # noqa: SLF001 - another one of its class
            private = track(np.hstack([private, *map(track, others)]))
        if not self.known.columns:
            return private
        out = empty((len(y), 1 + private.shape[1]))
        out[:, 0] = track(self.known.numbers(X))
        out[:, 1:] = private
        return out

    def _private_values(self, X: Floats, y: Floats) -> Floats:
        return self._private_vectors(X, y) if self.private else self.positions(y)

    def _private_vectors(self, X: Floats, y: Floats) -> Floats:
        """Return v of coded records, (m, p + 2); labels are coded to -1 and +1."""
        out = empty((len(y), len(self.private) + 2))
        out[:, 0] = self.weight
        out[:, 1:-1] = track(np.take(X, self.private, axis=1))
        out[:, -1] = y
        gone = track(np.isnan(out[:, -1]))
        if self.classes:
            out[:, -1] *= 2.0
            out[:, -1] -= 1.0
        np.clip(out[:, 1:], -1.0, 1.0, out=out[:, 1:])
        out[:, -1] *= self.weight
        # If every person has a target, a missing one is the first class or the middle of the range.
        out[gone, -1] = -self.weight if self.classes and not self.missing else 0.0
        if self.missing:
            out[gone] = 0.0
        out /= self.length
        return out

    def positions(self, y: Floats) -> Floats:
        """Return the mechanism's input for coded targets (m,): numbers of classes, or positions in the range, (m, 1).

        A missing target is the last category; if none may be missing, the first class or the middle of the range.
        """
        out = empty((len(y), 1))
        out[:, 0] = y
        if not self.classes:
            np.clip(out, -1.0, 1.0, out=out)
            out += 1.0
            out /= 2.0
        rest = 0.0 if self.classes else 0.5
        out[np.isnan(out)] = self.categories - 1.0 if self.missing else rest
        return out

    def family(self, guarantees: Iterable[Guarantee]) -> str:
        """Return the family of all levels' mechanisms: the best one at the first level, if all levels can have it."""
        first, *others = guarantees
        if self.private:
            return GAUSSIAN  # which `mechanism` does not read
        family = self._best_family(first)
        if family == GAUSSIAN and not all(_allows_gaussian(each) for each in others):
            return SELECTION
        return family

    def mechanism(self, guarantee: Guarantee, family: str | None = None) -> TargetMechanism:
        """Return the mechanism of a family, by default the better one, that has ``guarantee`` with least variance."""
        family = family or self.family([guarantee])
        if self.metrics:
            # Devices of other tasks do not need it.
            from murk.privacy.mechanisms.drawn import DrawnMechanism

            parts = (replace(self, metrics=()), *self.metrics)
            width = len(self.private) + 2 if self.private else 1
            return DrawnMechanism(tuple(part.mechanism(guarantee, family) for part in parts), width)
        if self.private:
            # Devices of other tasks do not need it.
            from murk.privacy.mechanisms.outer_product import outer_mechanism

            return KnownMechanism(outer_mechanism(None, guarantee, len(self.private) + 2), self.known.cells)
        labelled = bool(self.classes or self.quantiles)
        bare = _mechanism(self.categories, labelled, self.missing, guarantee, family)
        if self.known.columns:
            return KnownMechanism(bare, self.known.cells)
        if not self.quantiles:
            return bare
        assert not isinstance(bare, WindowSelection)
        return ThresholdMechanism(bare)

    def _best_family(self, guarantee: Guarantee) -> str:
        # If the likelihood of two points is not used, two classes are treated like several.
        beside = self.quantiles or (self.classes and self.known.columns)
        classes = self.categories + 1 if beside else self.classes
        return _best_family(self.categories, classes, self.missing, guarantee)


def _allows_gaussian(guarantee: Guarantee) -> bool:
    return not is_pure(guarantee)


@lru_cache(maxsize=1024)
def _best_family(categories: int, classes: int, missing: bool, guarantee: Guarantee) -> str:
    """Return the family of smaller variance; of several classes, that of all shares together if these are even."""
    if not isinstance(guarantee, Guarantee):
        raise UserError(f"not a guarantee: {guarantee!r}; use PureDP, ApproxDP, GaussianDP or ZeroConcentratedDP")
    if not _allows_gaussian(guarantee):
        return SELECTION
    if isinstance(guarantee, ApproxDP):
        return SELECTION if epsilon_units(guarantee) > 0 else GAUSSIAN
    if classes == 2:
        # For two points in Gaussian noise the likelihood is better than any choice among few outcomes.
        return GAUSSIAN
    if not classes:
        cap = budget_of(guarantee)
        square = cap.units * (1 if cap.currency == "gdp" else 2)
        return SELECTION if square >= round(_WINDOWS_FROM**2 * UNITS) else GAUSSIAN
    subset = _mechanism(categories, True, missing, guarantee, SELECTION).variance * categories
    noise = _mechanism(categories, True, missing, guarantee, GAUSSIAN).variance * (categories - 1)
    return SELECTION if subset < _BETTER * (noise + 1.0 - 1.0 / categories) else GAUSSIAN


@lru_cache(maxsize=1024)
def _mechanism(categories: int, labelled: bool, missing: bool, guarantee: Guarantee, family: str) -> BareMechanism:
    if family == GAUSSIAN:
        return SimplexGaussian.calibrate(guarantee, vertices=categories)
    if isinstance(guarantee, ApproxDP):
        guarantee = PureDP(guarantee.epsilon)
    if labelled:
        return SubsetSelection.calibrate(guarantee, categories=categories)
    return WindowSelection.calibrate(guarantee, missing=missing)
