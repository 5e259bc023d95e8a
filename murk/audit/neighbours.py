"""Search for a task's worst neighbours: two records within its public bounds, and the model at which they release.

The search starts from the best of a pool of records, for gradients at many iterates within the radius, for scores at
many models. Then it improves one value at a time: first it tries the ends of the range and a missing value, then
smaller and smaller steps.
"""

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats
from murk.audit.release_distributions import ReleaseDistribution, distribution_of
from murk.protocols.device import HostileModelError, Releasing, SingleQueryDevice
from murk.protocols.scores.model import ABOVE, Model
from murk.task.features import BinaryTarget, CategoryFeature, ClassTarget, DateFeature
from murk.task.task import Task

Record = dict[str, Any]

POOL, ITERATES, MODELS, STARTS, SWEEPS = 96, 96, 24, 3, 12
FAR = 10.0  # length of the longest iterate to try if a task does not bound iterates
_OTHER = "(any other value)"


@dataclass(frozen=True)
class Pair:
    """Two records, as raw values by column (None if missing), whose releases are furthest apart in the noise's norm."""

    first: Record
    second: Record
    theta: Floats | None = field(default=None, repr=False)  # iterate or model of a round, if releases depend on one
    distance: float = 0.0


@dataclass(frozen=True)
class Box:
    """Possible values of a task's records by column, the target last."""

    names: tuple[str, ...]
    choices: tuple[tuple[Any, ...], ...]  # ends of the range, or categories; also None, for a missing value
    widths: tuple[float, ...]  # width of a number's range; 0 for categories

    @classmethod
    def of(cls, task: Task) -> Self:
        """Return the box of a task."""
        choices: list[tuple[Any, ...]] = []
        widths: list[float] = []
        for column in (*task.features, *task.metrics, task.target):
            width = 0.0
            if isinstance(column, CategoryFeature):
                options: tuple[Any, ...] = column.categories
            elif isinstance(column, DateFeature):
                options = _days(column)
            elif isinstance(column, BinaryTarget):
                options = (column.positive, _OTHER if column.negative is None else column.negative)
            elif isinstance(column, ClassTarget):
                options = column.classes
            else:
                options, width = (column.low, column.high), column.high - column.low
            choices.append((*options, None))
            widths.append(width)
        return cls(task.coding.all_columns, tuple(choices), tuple(widths))

    def coded(self, task: Task, rows: list[list[Any]]) -> tuple[Floats, Floats]:
        """Return the coded features and targets of rows."""
        block = task.coding.encode(dict(zip(self.names, zip(*rows, strict=True), strict=True)))
        return block.x, block.y

    def random(self, rng: np.random.Generator, count: int) -> list[list[Any]]:
        """Draw corners of the box uniformly; one value in eight is missing."""
        rows = []
        for _ in range(count):
            missing = rng.random(len(self.choices)) < 0.125
            picked = zip(missing, self.choices, strict=True)
            rows.append([None if absent else options[rng.integers(len(options) - 1)] for absent, options in picked])
        return rows

    def changes(self, row: list[Any], column: int, step: float) -> list[list[Any]]:
        """Return rows that differ in one column: by each choice, or by a step of the number to either side."""
        values = list(self.choices[column])
        if self.widths[column]:
            low, high, _ = self.choices[column]
            start = (low + high) / 2 if row[column] is None else row[column]
            values += [min(max(start + sign * step * self.widths[column], low), high) for sign in (-1, 1)]
        return [[*row[:column], value, *row[column + 1 :]] for value in values if value != row[column]]


def _days(feature: DateFeature) -> tuple[datetime.date, ...]:
    """Return days that include the range's ends and, as far as the feature uses them, all weekdays and months."""
    week = [datetime.date(2024, 1, day) for day in range(1, 8)] if "weekday" in feature.parts else []
    year = [datetime.date(2024, month, 1) for month in range(1, 13)] if "month" in feature.parts else []
    return tuple(day for day in (feature.low, feature.high, *week, *year) if day is not None)


def worst_neighbours(task: Task, device: Releasing, mechanism: Any, rng: np.random.Generator) -> Pair:
    """Search for the pair of records whose releases are furthest apart."""
    box, distribution = Box.of(task), distribution_of(mechanism)

    def centres(rows: list[list[Any]], theta: Floats | None) -> NDArray[Any]:
        return distribution.centres(device.vectors(*box.coded(task, rows), theta))

    pool = box.random(rng, POOL)
    starts: list[tuple[float, int, Floats | None, list[Any], list[Any]]] = []
    for theta in _iterates(device, rng, lambda theta: _best_of(distribution, centres(pool, theta))[0]):
        points = centres(pool, theta)
        apart, one, other = _best_of(distribution, points)
        starts.append((apart, len(starts), theta, pool[one], pool[other]))
    best: tuple[float, Floats | None, list[Any], list[Any]] = (-1.0, None, pool[0], pool[0])
    for _, _, theta, one_row, other_row in sorted(starts, reverse=True, key=lambda start: start[:2])[:STARTS]:
        candidate = _ascend(box, distribution, centres, device, theta, one_row, other_row, rng)
        if candidate[0] > best[0]:
            best = candidate
    apart, theta, *rows = best
    first, second = (dict(zip(box.names, row, strict=True)) for row in rows)
    return Pair(first, second, theta, apart)


def _best_of(distribution: ReleaseDistribution, points: NDArray[Any]) -> tuple[float, int, int]:
    apart = distribution.distances(points[:, None], points[None])
    first, other = np.unravel_index(int(np.argmax(apart)), apart.shape)
    return float(apart[first, other]), int(first), int(other)


def _ascend(
    box: Box,
    distribution: ReleaseDistribution,
    centres: Callable[[list[list[Any]], Floats | None], NDArray[Any]],
    device: Releasing,
    theta: Floats | None,
    first: list[Any],
    second: list[Any],
    rng: np.random.Generator,
) -> tuple[float, Floats | None, list[Any], list[Any]]:
    """Change one value or the iterate at a time as long as that increases the distance."""
    step, best = 0.25, -1.0
    for _ in range(SWEEPS):
        before = best
        for _ in range(2):
            fixed = centres([second], theta)[0]
            for column in range(len(box.names)):
                options = [first, *box.changes(first, column, step)]
                apart = distribution.distances(centres(options, theta), fixed)
                first, best = options[int(np.argmax(apart))], float(apart.max())
            first, second = second, first
        if theta is not None:
            for moved in _around(device, theta, step, rng):
                pair = centres([first, second], moved)
                apart_there = float(distribution.distances(pair[:1], pair[1])[0])
                if apart_there > best:
                    best, theta = apart_there, moved
        if best <= before * (1 + 1e-12):
            step /= 4
            if step < 1e-3:
                break
    return best, theta, first, second


def _iterates(device: Releasing, rng: np.random.Generator, value: Callable[[Floats], float]) -> Iterator[Floats | None]:
    """Yield initial iterates: the first one, the best one found, the ends of each axis, and random ones."""
    if not device.interactive:
        yield None
        return
    if isinstance(device, SingleQueryDevice):
        yield from _models(device, rng)
        return
    settings: Any = device.settings  # type: ignore[attr-defined]
    d = device.dimension
    iterates = [np.asarray(device.initial)]  # type: ignore[attr-defined]
    slopes = d - settings.scaled
    scales = (settings.scale_floor, settings.scale_start, settings.scale_ceiling)
    directions = [*np.eye(slopes), *-np.eye(slopes), *rng.normal(size=(ITERATES, slopes))]
    for direction in directions:
        theta = np.empty(d)
        theta[:slopes] = min(settings.radius, FAR) * direction / np.linalg.norm(direction)
        if settings.scaled:
            theta[-1] = scales[rng.integers(3)] / settings.multiplier
        iterates.append(theta)
    best = max((theta for theta in iterates if _allowed(device, theta)), key=value)
    for step in (0.5, 0.25, 0.1, 0.05):
        best = max([best, *_around(device, best, step, rng)], key=value)
    yield best
    yield from iterates


def _models(device: SingleQueryDevice, rng: np.random.Generator) -> Iterator[Floats]:
    """Yield initial models that a device accepts: the first with the query, and others of several scales."""
    initial = _first_asking(device)
    yield initial
    for scale in (1.0, 2.0, 10.0):
        for _ in range(MODELS):
            model = _moved(device, initial, 1.0, scale, rng)
            if _allowed(device, model):
                yield model


def _first_asking(device: SingleQueryDevice) -> Floats:
    """Return the first model at which devices answer the query: after the survey, unless it is a survey's query."""
    asked: Any = device.device
    if asked.settings.survey is None or device.name.startswith(ABOVE):
        return np.asarray(asked.initial)
    model: Model = replace(asked.settings, survey=None).first_model(asked.mechanisms)
    return model.flat


def _moved(device: SingleQueryDevice, flat: Floats, step: float, scale: float, rng: np.random.Generator) -> Floats:
    settings: Any = device.device.settings  # type: ignore[attr-defined]
    p = settings.features
    model = Model.of(flat, p, sets=settings.wanted is not None)
    origin = model.origin + step * rng.normal(size=len(model.origin))
    transform = scale * (model.transform + 0.5 * step * rng.normal(size=(p, p)))
    sets = model.sets
    if sets is not None:
        predicted = sets.origin + step * rng.normal(size=len(sets.origin))
        sets = replace(sets, origin=predicted, threshold=sets.threshold * float(rng.random()))
    return replace(model, origin=origin, transform=transform, sets=sets).flat


def _around(device: Releasing, theta: Floats, step: float, rng: np.random.Generator) -> list[Floats]:
    """Return models, or iterates projected to the task's radius, near a given one."""
    if isinstance(device, SingleQueryDevice):
        near = (_moved(device, theta, step, 1.0, rng) for _ in range(MODELS))
        return [model for model in near if _allowed(device, model)]
    settings: Any = device.settings  # type: ignore[attr-defined]
    slopes = device.dimension - settings.scaled
    moved = []
    for _ in range(24):
        other = theta.copy()
        other[:slopes] += step * min(settings.radius, FAR) * rng.normal(size=slopes) / np.sqrt(slopes)
        norm = np.linalg.norm(other[:slopes])
        if norm > settings.radius:
            other[:slopes] *= settings.radius / norm
        if settings.scaled and rng.random() < 0.5:
            low, high = settings.scale_floor / settings.multiplier, settings.scale_ceiling / settings.multiplier
            other[-1] = min(max(other[-1] * np.exp(step * rng.normal()), low), high)
        if _allowed(device, other):
            moved.append(other)
    return moved


def _allowed(device: Releasing, theta: Floats) -> bool:
    asked: Any = device.device if isinstance(device, SingleQueryDevice) else device
    try:
        asked.check_model(theta)
    except HostileModelError:
        return False
    return True
