"""The population that a plan assumes: rows of covariates, and their effects on the target.

The rows are the task's public covariates or, without these, two designs within the task's public bounds:

*typical*: numbers with a standard deviation of two fifths of half their range, equally frequent categories, unrelated
features.

*hard*: numbers with a standard deviation of .15 of half their range, one in twenty people in each category but the
first, half of features' variance in common, and a real target at the ends of its range. Real people can be harder.

Statements of the task replace these: a feature's `typical` range (nine tenths of a normal distribution, clamped to the
bounds), and the target's `rate` or `typical` range. A stated `missing_share` of a feature or the target is missing at
random, coded as devices code it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk._internal.links import class_probabilities, logistic
from murk.errors import UserError
from murk.inference.estimate import Estimate
from murk.inference.units import Unit
from murk.privacy.mechanisms.base import direction_spread
from murk.task.features import (
    INDICATOR,
    BinaryTarget,
    CategoryFeature,
    ClassTarget,
    DateFeature,
    RealTarget,
    stated_location,
)
from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"

ROWS: Final = 500  # number of rows in a design

MOST_ROWS: Final = 2_000  # largest number of public rows in a plan; more are thinned out

# Default effect of one standard deviation of a feature on log odds and on a coded real target, and the largest standard
# deviation of all effects together.
_LOG_ODDS, _MOST_LOG_ODDS = 0.3, 1.0
_SHIFT, _MOST_SHIFT = 0.1, 0.3
_WITHIN = 0.99
_RESIDUAL = 0.4
_WEEKDAYS, _MONTHS = 7, 12
_MISSING_SHARE: Final = 0.05  # default share of missing values, for a feature with an indicator of them


@dataclass(frozen=True)
class Effects:
    """Assumed effects on the target."""

    # Effect of one standard deviation of each feature: an odds ratio, or a change of a real target; None: moderate.
    each: float | None = None
    named: Mapping[str, float] = field(default_factory=dict)  # effects per unit of named features, as in reports
    # Share of positive targets, or of a real target's range below its mean; None for the task's rate or else a half.
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.rate is not None and not 0.0 < self.rate < 1.0:
            raise UserError(f"rate={self.rate!r}: give a share between 0 and 1")


@dataclass(frozen=True)
class Rate:
    """The assumed share of positive targets, or position of a real target's mean in its range."""

    value: float | tuple[float, ...]  # for several classes, the share of each
    source: str  # "stated" by the caller, "task", or "assumed" by default

    @property
    def assumed(self) -> bool:
        """Whether the rate is only the default."""
        return self.source == "assumed"


def rate_of(task: Task, effects: Effects) -> Rate:
    """Return the rate that forecasts of a task assume; raise UserError for a single rate of several classes."""
    target = task.target
    if isinstance(target, ClassTarget):
        if effects.rate is not None:
            raise UserError("several classes have no single rate: state their shares in the task, as target.rate")
        even = (1.0 / len(target.classes),) * len(target.classes)
        return Rate(even, "assumed") if target.shares is None else Rate(target.shares, "task")
    if effects.rate is not None:
        return Rate(effects.rate, "stated")
    rate = None
    if isinstance(target, BinaryTarget):
        rate = target.rate
    elif target.typical is not None:
        rate = (sum(target.typical) / 2.0 - target.low) / (target.high - target.low)
    return Rate(0.5, "assumed") if rate is None else Rate(rate, "task")


@dataclass(frozen=True)
class Records:
    """Coded features (m, p) and targets (m,), NaN if missing, and the share of people with each of these records."""

    X: Floats
    y: Floats
    shares: Floats

    def drawn(self, people: int, rng: np.random.Generator) -> Floats:
        """Draw how many of ``people`` have each record, (m,)."""
        return rng.multinomial(people, self.shares).astype(np.float64)


@dataclass(frozen=True)
class Population:
    """A population that a plan assumes."""

    name: str  # "typical", "hard" or "public"
    points: Floats  # coded rows (m, p), the constant last
    shares: Floats  # share of people at each row, (m,)
    theta: Floats  # coefficients of log odds, (p,) or (K, p) of K classes, or of a coded real target's line
    kind: str  # kind of the target: "binary", "real" or "classes"
    residual: float = _RESIDUAL  # standard deviation of a real target around its line, in coded units, if bounds allow
    missing: float = 0.0  # share of missing targets

    @property
    def records(self) -> Records:
        """Every row with each of its possible targets and, if some targets are missing, without a target."""
        known, missing = self._known, self.missing
        if not missing:
            return known
        y = np.concatenate([known.y, np.full(len(self.points), math.nan)])
        shares = np.concatenate([(1.0 - missing) * known.shares, missing * self.shares])
        return Records(np.concatenate([known.X, self.points]), y, _even(shares))

    @property
    def _known(self) -> Records:
        X, shares = self.points, self.shares
        if self.kind == "classes":
            odds = class_probabilities(X @ self.theta.T, np.eye(len(self.theta)))
            labels = np.arange(len(self.theta), dtype=np.float64)
        elif self.kind == "binary":
            positive = logistic(X @ self.theta)
            odds, labels = np.column_stack([positive, 1.0 - positive]), np.array([1.0, 0.0])
        else:
            line = np.clip(X @ self.theta, -0.999, 0.999)
            spread = np.minimum(self.residual, np.sqrt(1.0 - line**2))
            # Two target values with this mean and variance, as equally likely as the bounds allow.
            tilt = np.clip(1.0, spread / (1.0 - line), (1.0 + line) / np.maximum(spread, 1e-12))
            above = shares * tilt**2 / (1.0 + tilt**2)
            weights = _even(np.concatenate([above, shares - above]))
            y = np.concatenate([line + spread / tilt, line - spread * tilt])
            return Records(np.concatenate([X, X]), np.clip(y, -1.0, 1.0), weights)
        y = np.repeat(labels, len(X))
        return Records(np.tile(X, (len(labels), 1)), y, _even((odds * shares[:, None]).T.ravel()))

    @classmethod
    def of(
        cls, name: str, points: Floats, shares: Floats, task: Task, effects: Effects, residual: float = _RESIDUAL
    ) -> Population:
        """Return the population with these rows and the stated effects; raise UserError like `coefficients`."""
        rows, weights = _thinned(points, shares)
        theta = coefficients(task, rows, weights, effects)
        return cls(name, rows, weights, theta, task.target.kind, residual, task.target.missing_share or 0.0)


def designs(task: Task, effects: Effects) -> tuple[Population, ...]:
    """Return the populations of a task: its public covariates, or a typical and a hard design."""
    if task.covariates is not None:
        points, counts = task.covariates
        return (Population.of("public", points, counts / counts.sum(), task, effects),)
    even, target = np.full(ROWS, 1.0 / ROWS), task.target
    stated = stated_location(target)[1] if isinstance(target, RealTarget) and target.typical is not None else None
    return tuple(
        Population.of(
            name, _drawn(task, spread, rare, common), even, task, effects, residual if stated is None else stated
        )
        for name, spread, rare, common, residual in (
            ("typical", 0.4, None, 0.0, _RESIDUAL),
            ("hard", 0.15, 0.05, 0.5, 1.0),
        )
    )


def _drawn(task: Task, spread: float, rare: float | None, common: float) -> Floats:
    """Draw rows of correlated features by a Gaussian copula, with each feature's own marginal distribution."""
    coding, rng = task.coding, np.random.Generator(np.random.Philox(key=0x706C616E))
    shared = rng.normal(size=ROWS)
    rows, column = np.ones((ROWS, coding.size)), 0
    without = coding.encode_record({}, target=False).x
    # Even quantiles, so that a feature of few rows has exactly the stated spread.
    levels = (np.arange(ROWS) + 0.5) / ROWS
    normal = np.array([NormalDist().inv_cdf(level) for level in levels])

    def ranks() -> Integers:
        latent = math.sqrt(common) * shared + math.sqrt(1.0 - common) * rng.normal(size=ROWS)
        return np.argsort(np.argsort(latent))

    for feature in task.features:
        first, sizes, middle, deviation = column, [0], 0.0, spread
        if isinstance(feature, CategoryFeature):
            sizes = [len(feature.categories)]
        else:
            if isinstance(feature, DateFeature):
                sizes = [{"weekday": _WEEKDAYS, "month": _MONTHS}.get(part, 0) for part in feature.parts]
            if feature.typical is not None:
                middle, deviation = stated_location(feature)
        for size in sizes:
            rank = ranks()
            if not size:
                rows[:, column] = np.clip(middle + deviation * normal[rank], -1.0, 1.0)
                column += 1
                continue
            share = 1.0 / size if rare is None else min(rare, 1.0 / size)
            # The first category is the remainder.
            category = np.floor(levels[rank] / share).astype(np.int64)
            for each in range(size - 1):
                rows[:, column] = np.where(category == each, 1.0, -1.0)
                column += 1
        if feature.missing == INDICATOR:
            rows[:, column] = -1.0
            column += 1
        absent = feature.missing_share or (_MISSING_SHARE if feature.missing == INDICATOR else 0.0)
        if absent:
            rows[levels[ranks()] < absent, first:column] = without[first:column]
    return rows


def coefficients(task: Task, points: Floats, shares: Floats, effects: Effects) -> Floats:
    """Return the coded coefficients of the stated effects; raise UserError for effects that the target cannot have."""
    coding, target, rate = task.coding, task.target, rate_of(task, effects).value
    names, slopes = coding.names[:-1], np.zeros(coding.size)
    mean = shares @ points
    spreads = np.sqrt(np.maximum(shares @ points**2 - mean**2, 0.0))[:-1]
    real = isinstance(target, RealTarget)
    half = (target.high - target.low) / 2.0 if isinstance(target, RealTarget) else 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        per_deviation = np.where(spreads > 1e-9, 1.0 / spreads, 0.0)
    if effects.each is None:
        slopes[:-1] = per_deviation * (_SHIFT if real else _LOG_ODDS)
    else:
        slopes[:-1] = per_deviation * (effects.each / half if real else _log(effects.each))
    stated = np.zeros(coding.size)
    for name, value in effects.named.items():
        if name not in names or target.kind == "classes":
            names_listed = "none for a target of classes" if target.kind == "classes" else ", ".join(names)
            raise UserError(f"no effect of {name!r} can be stated. Names that can be given: {names_listed}")
        index = names.index(name)
        stated[index] = (value if real else _log(value)) / coding.unit_factors[index]
        slopes[index] = 0.0
    if effects.each is None:
        room = None
        if isinstance(rate, float) and real:
            room = 1.0 - abs(2.0 * rate - 1.0) - float(np.max(np.abs((points - mean) @ stated)))
        slopes *= _share((points - mean) @ slopes, shares, room)
    slopes += stated
    if isinstance(rate, float) and real:
        slopes[-1] = (2.0 * rate - 1.0) - float(mean[:-1] @ slopes[:-1])
        line = points @ slopes
        if float(np.max(np.abs(line))) > 1.0:
            raise UserError(
                "effects take a real target beyond its public bounds: state smaller effects, or wider bounds"
            )
        return slopes
    if isinstance(rate, float):
        slopes[-1] = _constant(points, shares, slopes, rate)
        return slopes
    signs = np.linspace(-1.0, 1.0, len(rate))
    slopes[-1] = -float(mean[:-1] @ slopes[:-1])
    theta = np.outer(signs, slopes)
    return theta if rate_of(task, effects).assumed else _with_shares(points, shares, theta, np.array(rate))


def _share(line: Floats, shares: Floats, room: float | None) -> float:
    """Return the factor that keeps assumed effects moderate in total, and a real target within its bounds."""
    spread = max(math.sqrt(float(shares @ line**2)), 1e-9)
    if room is None:
        return min(1.0, _MOST_LOG_ODDS / spread)
    return min(1.0, _MOST_SHIFT / spread, _WITHIN * max(room, 0.0) / max(float(np.max(np.abs(line))), 1e-9))


def _log(ratio: float) -> float:
    if not 0.0 < ratio < math.inf:
        raise UserError(f"an effect on this target is an odds ratio: give a positive number such as 1.5, not {ratio:g}")
    return math.log(ratio)


def _constant(points: Floats, shares: Floats, slopes: Floats, rate: float) -> float:
    """Return the intercept at which a share ``rate`` of targets is positive."""
    logit = points[:, :-1] @ slopes[:-1]
    low, high = -50.0 - float(np.max(logit)), 50.0 - float(np.min(logit))
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (middle, high) if float(shares @ logistic(logit + middle)) < rate else (low, middle)
    return (low + high) / 2.0


def _with_shares(points: Floats, shares: Floats, theta: Floats, wanted: Floats) -> Floats:
    """Return the log odds (K, p) with constants that give each class its wanted share."""
    fitted = theta.copy()
    for _ in range(200):
        odds = shares @ class_probabilities(points @ fitted.T, np.eye(len(fitted)))
        fitted[:, -1] += np.log(wanted / odds)
        if np.max(np.abs(odds - wanted)) < 1e-9:
            break
    return fitted


def _thinned(points: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Return at most `MOST_ROWS` rows, sampled systematically with probabilities proportional to their shares."""
    if len(points) <= MOST_ROWS:
        return points, _even(shares)
    order = np.lexsort(points.T)
    ends = np.cumsum(shares[order])
    wanted = (np.arange(MOST_ROWS) + 0.5) / MOST_ROWS * ends[-1]
    kept = order[np.minimum(np.searchsorted(ends, wanted), len(order) - 1)]
    return points[kept], np.full(MOST_ROWS, 1.0 / MOST_ROWS)


def _even(shares: Floats) -> Floats:
    return np.asarray(shares / shares.sum())


def effect_of(text: str, units: Mapping[str, Unit], noun: str = "effect") -> tuple[str | None, float]:
    """Return the feature (or None) and the number in ``X`` or ``FEATURE=X``; raise UserError for any other text."""
    name, equals, value = text.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (equals and not name):
        raise UserError(f"{text!r} is no {noun}: write X, or FEATURE=X, such as 1.5 or {next(iter(units), 'age')}=1.5")
    return (name if equals else None), number


VARIANCE: Final = 0.25  # assumed variance of a coded feature
_EXPLAINED: Final = 0.2  # share of the target that a model is assumed to explain
_MISFIT: Final = 2.0  # error of a logistic model's effect fitted to moments, in percentage points times sqrt(d)


def one_by_one(estimate: Callable[..., Estimate]) -> Callable[..., Iterator[Callable[[], Estimate]]]:
    """Turn a forecast for one number of people into a forecast for several numbers, each drawn independently."""

    def several(device: Any, records: Records, counts: Sequence[int], *more: Any) -> Iterator[Callable[[], Estimate]]:
        return (partial(estimate, device, records, people, *more) for people in counts)

    return several


def moments_variance(cross: float, squares: float, people: float, spread: float = VARIANCE) -> float:
    """Return an effect's variance from the noise variances of ``x y`` and ``x x'``, for features of this variance."""
    return (cross + squares * _EXPLAINED / spread) / (people * spread)


def vectors_variance(features: int, noise: float, people: float) -> float:
    """Return an effect's variance from the noise variance of a released vector of length 1."""
    return features * (noise + 1.0 / features) / people


def misfit_variance(task: Task) -> float:
    """Return the assumed squared error of an effect where a logistic model is fitted to moments, else 0."""
    return (_MISFIT / 50.0) ** 2 / max(task.coding.size - 1, 1) if task.target.kind == "binary" else 0.0


def released_sum(mechanism: Any, V: Floats, counts: Floats, rng: np.random.Generator) -> Floats:
    """Draw the sum of people's decoded releases (normal for directions), if ``counts[i]`` have row i of V (m, d)."""
    people = float(counts.sum())
    across, along = direction_spread(mechanism)
    total = counts @ V + rng.normal(size=V.shape[1]) * math.sqrt(people * across)
    if along is not None:
        length = np.sqrt(np.einsum("ij,ij->i", V, V))[:, None]
        unit = V / np.where(length > 0, length, 1.0)
        values, vectors = np.linalg.eigh((unit * (along * counts)[:, None]).T @ unit - (V * counts[:, None]).T @ V)
        total = total + vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.normal(size=len(values)))
    return np.asarray(total)


def split(people: int, shares: Mapping[str, float], empty: bool = False) -> dict[str, int]:
    """Split people by shares, without losing any; empty parts are left out unless ``empty``."""
    ends = np.rint(np.cumsum(list(shares.values())) / sum(shares.values()) * people).astype(np.int64)
    sizes = np.diff(np.concatenate([[0], ends])).tolist()
    return {name: int(size) for name, size in zip(shares, sizes, strict=True) if size or empty}


def within_bounds(z: Floats, feature_bound: float, target_bound: float) -> Floats:
    """Return rows (m, p + 1) as an organisation adds them: features and target each scaled down to their bound."""
    rows = z.copy()
    for part, bound in ((slice(None, -1), feature_bound), (slice(-1, None), target_bound)):
        length = np.sqrt(np.square(z[:, part]).sum(axis=1))
        rows[:, part] *= np.minimum(1.0, bound / np.maximum(length, 1e-300))[:, None]
    return rows
