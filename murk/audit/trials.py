"""Releases of two neighbours, made by a device's code, and the statistic that distinguishes them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats
from murk.audit.bounds import TestedGuarantee
from murk.audit.neighbours import worst_neighbours
from murk.audit.release_distributions import ReleaseDistribution, Silence, distribution_of, yardsticks
from murk.audit.windows import SketchDistribution, Windows, worst_grams, worst_steps, worst_windows
from murk.privacy.central import GaussMixMechanism, GramMechanism, NewtonAccumulator, NewtonMechanism
from murk.privacy.noise import NoiseSource
from murk.producers.producer import randomize_rows
from murk.protocols.device import Releasing
from murk.task.task import Task

_NUMBERS = 1 << 18  # numbers in a block of vector releases
_BLOCK = 256  # windows in a block
_SKETCH_WORK = 3e8  # largest number of normals that the audit of a task of summaries draws


class Trial(ABC):
    """Releases of two inputs by a mechanism, to be audited; ``neighbours`` describes the inputs as plain data."""

    mechanism: Any
    neighbours: Mapping[str, Any]

    @property
    def yardsticks(self) -> tuple[TestedGuarantee, ...]:
        """Claims of the mechanism."""
        return yardsticks(self.mechanism)

    def draws(self, wanted: int) -> int:
        """Return the number of releases of each input if ``wanted`` are requested."""
        return wanted

    @abstractmethod
    def exact(self, tested_guarantee: TestedGuarantee) -> float | None:
        """Return the exact privacy parameter of the two distributions, if it is known."""

    @abstractmethod
    def statistics(self, which: int, count: int, noise: NoiseSource) -> Iterator[Floats]:
        """Yield blocks of statistics of ``count`` releases of input 0 or 1; large values speak for input 0."""


@dataclass(frozen=True)
class VectorTrial(Trial):
    """Releases of two vectors or categories, ``inputs``, by one mechanism; ``release`` makes them as a device does."""

    mechanism: Any
    inputs: NDArray[Any]
    release: Callable[[int, NoiseSource, NDArray[np.int64]], NDArray[Any]]
    neighbours: Mapping[str, Any]

    def exact(self, tested_guarantee: TestedGuarantee) -> float | None:
        """Return the exact privacy parameter from the centres of the two inputs."""
        return self._distribution.exact(*self._centres, tested_guarantee)

    @cached_property
    def _distribution(self) -> ReleaseDistribution:
        return distribution_of(self.mechanism)

    @cached_property
    def _centres(self) -> tuple[NDArray[Any], NDArray[Any]]:
        first, other = self._distribution.centres(self.inputs)
        return first, other

    def statistics(self, which: int, count: int, noise: NoiseSource) -> Iterator[Floats]:
        """Yield logarithms of likelihood ratios."""
        block = max(1, _NUMBERS // max(1, np.size(self._centres[0])))
        # No two releases, and no two inputs, share a record's simulated draws.
        for start in range(which * count, (which + 1) * count, block):
            indices = np.arange(start, min(start + block, (which + 1) * count), dtype=np.int64)
            yield self._distribution.losses(self.release(which, noise, indices), *self._centres)


@dataclass(frozen=True)
class WindowTrial(Trial):
    """Releases of two neighbouring windows by an organisation's accumulator, at a level of a task's device."""

    mechanism: Any
    device: Any
    level: str
    windows: Windows
    vectors_per_window: ClassVar[int]  # number of requested draws per released window, as a window takes longer

    @property
    def neighbours(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The two windows in words."""
        return {"windows": self.windows.description}

    def draws(self, wanted: int) -> int:
        """Return the number of windows: one for every `vectors_per_window` requested releases, at least 2."""
        return max(2, wanted // self.vectors_per_window)

    def statistics(self, which: int, count: int, noise: NoiseSource) -> Iterator[Floats]:
        """Yield logarithms of likelihood ratios."""
        for start in range(which * count, (which + 1) * count, _BLOCK):
            indices = range(start, min(start + _BLOCK, (which + 1) * count))
            yield self._losses([self._released(self.windows.pair[which], noise, index) for index in indices])

    def _released(self, rows: Floats, noise: NoiseSource, index: int) -> Any:
        accumulator = self.device.accumulator(self.level, noise, index)
        accumulator.add_block(rows)
        return accumulator.release()

    @abstractmethod
    def _losses(self, releases: Sequence[Any]) -> Floats:
        """Return the logarithms of the likelihood ratios of releases."""


class SketchTrial(WindowTrial):
    """Sketches of two neighbouring windows."""

    vectors_per_window = 200

    def draws(self, wanted: int) -> int:
        """Return the number of sketches: one for every 200 requested releases, fewer if sketches are large."""
        size = self.mechanism.rows * (len(self.windows.first) + self.mechanism.columns)
        return max(2, min(wanted // self.vectors_per_window, int(_SKETCH_WORK / size)))

    def exact(self, tested_guarantee: TestedGuarantee) -> float | None:
        """Return the epsilon by quadrature, for a row that is zeroed out."""
        return self.windows.epsilon

    def _losses(self, releases: Sequence[Any]) -> Floats:
        first, second = (SketchDistribution.of(self.mechanism, rows) for rows in self.windows.pair)
        return np.array([first.log_density(sketch) - second.log_density(sketch) for sketch in releases])


class GramTrial(WindowTrial):
    """Gram matrices of two neighbouring windows."""

    vectors_per_window = 20

    def exact(self, tested_guarantee: TestedGuarantee) -> float | None:
        """Return the exact privacy parameter from the windows' sums on the lattice."""
        return distribution_of(self.mechanism).exact(*self._centres, tested_guarantee)

    def _losses(self, releases: Sequence[Any]) -> Floats:
        payloads = np.array([release.integers for release in releases])
        return distribution_of(self.mechanism).losses(payloads, *self._centres)

    @cached_property
    def _centres(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        silence: Any = Silence()
        first, second = (self._released(rows, silence, 0).integers for rows in self.windows.pair)
        return first, second


class NewtonTrial(WindowTrial):
    """Newton steps of two neighbouring windows that differ in a record of the step."""

    vectors_per_window = 100

    def exact(self, tested_guarantee: TestedGuarantee) -> float | None:
        """Return None: the distribution is an average over models that depend on noise."""
        return None

    def _losses(self, releases: Sequence[Any]) -> Floats:
        distribution, size = distribution_of(self.mechanism.step), self.mechanism.start.dimension
        losses = []
        for release in releases:
            # Given the model, only the step differs: the first parts have equal distributions.
            centres = (self._centre(rows[-1:], release.model) for rows in self.windows.pair)
            losses.append(distribution.losses(release.integers[None, size:], *centres)[0])
        return np.array(losses)

    def _centre(self, row: Floats, model: Floats) -> NDArray[np.int64]:
        """Return the centre of the step's matrix for a window whose step has only this row."""
        silence: Any = Silence()
        mechanism = replace(self.mechanism, first=1)
        accumulator = NewtonAccumulator(mechanism, lambda _: model, silence, 0)
        accumulator.add_block(np.vstack([np.zeros_like(row), row]))
        return accumulator.release().integers[mechanism.start.dimension :]


_WINDOW_TRIALS: Mapping[str, tuple[type[WindowTrial], Callable[[Task, Any, Any], Windows]]] = {
    GaussMixMechanism.kind: (SketchTrial, worst_windows),
    GramMechanism.kind: (GramTrial, worst_grams),
    NewtonMechanism.kind: (NewtonTrial, worst_steps),
}
"""The trial of each kind of mechanism, and the search for its worst windows."""


def mechanism_trial(mechanism: Any, first: Any, second: Any) -> VectorTrial:
    """Return the trial of a mechanism by itself, for two vectors or categories."""
    inputs = np.array([first, second])

    def release(which: int, noise: NoiseSource, indices: NDArray[np.int64]) -> NDArray[Any]:
        values = np.repeat(inputs[which : which + 1], len(indices), axis=0)
        payloads: NDArray[Any] = mechanism.randomize(values, noise, indices)
        return payloads

    return VectorTrial(mechanism, inputs, release, {"first": inputs[0].tolist(), "second": inputs[1].tolist()})


def task_trial(task: Task, device: Any, level: str) -> Trial:
    """Return the trial of a task's level or query: its worst neighbours, released by a device's code."""
    mechanism = device.mechanisms[level]
    if mechanism.kind not in _WINDOW_TRIALS:
        return _record_trial(task, device, level)
    trial, search = _WINDOW_TRIALS[mechanism.kind]
    return trial(mechanism, device, level, search(task, device, mechanism))


def _record_trial(task: Task, device: Releasing, level: str) -> VectorTrial:
    mechanism = device.mechanisms[level]
    pair = worst_neighbours(task, device, mechanism, np.random.default_rng(0))
    coded = [task.coding.encode_record(record) for record in (pair.first, pair.second)]
    x, y = np.array([record.x for record in coded]), np.array([record.y for record in coded])

    def release(which: int, noise: NoiseSource, indices: NDArray[np.int64]) -> NDArray[Any]:
        count = len(indices)
        features, targets = np.repeat(x[which : which + 1], count, axis=0), np.repeat(y[which : which + 1], count)
        models, levels = {0: pair.theta}, [level] * count
        return randomize_rows(device, features, targets, [0] * count, models, levels, noise, indices)

    described: dict[str, Any] = {"first": pair.first, "second": pair.second}
    if pair.theta is not None:
        described["iterate"] = pair.theta.tolist()
    return VectorTrial(mechanism, device.vectors(x, y, pair.theta), release, described)
