"""Releases of two neighbours, made as a device makes them, and the statistic of each that tells them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from murk.audit.bounds import Yardstick
from murk.audit.neighbours import worst_neighbours
from murk.audit.release_distributions import Silence, exact, losses, places, yardsticks
from murk.audit.windows import SketchDistribution, Windows, worst_grams, worst_steps, worst_windows
from murk.learners.problem import Releasing
from murk.learners.sketches.problem import GramProblem, NewtonProblem, SketchProblem
from murk.privacy.noise import NoiseSource
from murk.privacy.sketches import GaussMixMechanism, GramMechanism, NewtonMechanism
from murk.producers.randomization import payloads_of
from murk.stream.task.task import Task

Floats = NDArray[np.float64]

_NUMBERS = 1 << 18
"""Numbers of one block of releases."""
_SKETCH_WORK = 3e8
"""Normals that an audit of one sketch task draws at most."""
_SKETCHES = 200
"""A sketch is made for every so many draws that are asked for: it takes a thousand times as long as a vector."""

_GRAMS, _BLOCK = 20, 256
_STEPS = 100
"""A Newton step for so many draws: its model is solved for each."""


class Trial(Protocol):
    """Something to be audited: two inputs, how they are released, what is claimed."""

    @property
    def yardsticks(self) -> tuple[Yardstick, ...]:
        """What is claimed."""

    @property
    def neighbours(self) -> Mapping[str, Any]:
        """The two inputs, as plain data."""

    def draws(self, wanted: int) -> int:
        """How many releases of each input are made where so many are wanted."""

    def exact(self, yardstick: Yardstick) -> float | None:
        """What the distribution of the two releases has by that yardstick, where it is known."""

    def statistics(self, which: int, count: int, noise: NoiseSource) -> Iterator[Floats]:
        """Statistics of ``count`` releases of input 0 or 1, block by block: larger where input 0 is the likelier."""


@dataclass(frozen=True)
class VectorTrial:
    """Releases of vectors: one mechanism, and two inputs for it.

    Parameters
    ----------
    mechanism
        Whose claims and whose distribution.
    inputs
        The two vectors, or categories.
    release
        Makes releases of input 0 or 1 as a device does, for record indices.
    neighbours
        The two inputs, as plain data.
    """

    mechanism: Any
    inputs: NDArray[Any]
    release: Callable[[int, NoiseSource, NDArray[np.int64]], NDArray[Any]]
    neighbours: Mapping[str, Any]

    @property
    def yardsticks(self) -> tuple[Yardstick, ...]:
        """The mechanism's claims."""
        return yardsticks(self.mechanism)

    def draws(self, wanted: int) -> int:
        """All that are wanted."""
        return wanted

    def exact(self, yardstick: Yardstick) -> float | None:
        """From the places of the two inputs on the lattice."""
        one, other = places(self.mechanism, self.inputs)
        return exact(self.mechanism, one, other, yardstick)

    def statistics(self, which: int, count: int, noise: NoiseSource) -> Iterator[Floats]:
        """Logarithms of likelihood ratios."""
        one, other = places(self.mechanism, self.inputs)
        block = max(1, _NUMBERS // max(1, np.size(one)))
        # No two releases, and no two inputs, share a record's simulated draws.
        for start in range(which * count, (which + 1) * count, block):
            indices = np.arange(start, min(start + block, (which + 1) * count), dtype=np.int64)
            yield losses(self.mechanism, self.release(which, noise, indices), one, other)


@dataclass(frozen=True)
class SketchTrial:
    """Sketches of two neighbouring windows."""

    mechanism: GaussMixMechanism
    windows: Windows

    @property
    def yardsticks(self) -> tuple[Yardstick, ...]:
        """The stated (epsilon, delta)."""
        return yardsticks(self.mechanism)

    @property
    def neighbours(self) -> Mapping[str, Any]:
        """The two windows."""
        return {"windows": self.windows.description}

    def draws(self, wanted: int) -> int:
        """One sketch for every two hundred vectors that are asked for, fewer where sketches are large."""
        size = self.mechanism.rows * (len(self.windows.first) + self.mechanism.columns)
        return max(2, min(wanted // _SKETCHES, int(_SKETCH_WORK / size)))

    def exact(self, yardstick: Yardstick) -> float | None:
        """By quadrature, for a row that is zeroed out."""
        return self.windows.epsilon

    def statistics(self, which: int, count: int, noise: NoiseSource) -> Iterator[Floats]:
        """Logarithms of likelihood ratios of spread and sketch together."""
        from murk.privacy.sketches import SketchAccumulator

        distributions = [
            SketchDistribution.of(self.mechanism, rows) for rows in (self.windows.first, self.windows.second)
        ]
        rows = (self.windows.first, self.windows.second)[which]
        found = []
        for index in range(which * count, (which + 1) * count):
            accumulator = SketchAccumulator(self.mechanism, noise, index)
            accumulator.add_block(rows)
            sketch = accumulator.release()
            found.append(distributions[0].log_density(sketch) - distributions[1].log_density(sketch))
            if len(found) == 256:
                yield np.array(found)
                found = []
        if found:
            yield np.array(found)


@dataclass(frozen=True)
class GramTrial:
    """Gram matrices of two neighbouring windows."""

    mechanism: GramMechanism
    windows: Windows

    @property
    def yardsticks(self) -> tuple[Yardstick, ...]:
        """The mechanism's claims."""
        return yardsticks(self.mechanism)

    @property
    def neighbours(self) -> Mapping[str, Any]:
        """The two windows."""
        return {"windows": self.windows.description}

    def draws(self, wanted: int) -> int:
        """One for every twenty vectors that are asked for: each is an accumulator of its own."""
        return max(2, wanted // _GRAMS)

    def exact(self, yardstick: Yardstick) -> float | None:
        """From where the two windows' sums stand on the lattice."""
        one, other = self._places()
        return exact(self.mechanism, one, other, yardstick)

    def statistics(self, which: int, count: int, noise: NoiseSource) -> Iterator[Floats]:
        """Logarithms of likelihood ratios."""
        one, other = self._places()
        rows = (self.windows.first, self.windows.second)[which]
        for start in range(which * count, (which + 1) * count, _BLOCK):
            stop = min(start + _BLOCK, (which + 1) * count)
            payloads = np.array([self._released(rows, noise, index) for index in range(start, stop)])
            yield losses(self.mechanism, payloads, one, other)

    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        silence: Any = Silence()
        return self._released(self.windows.first, silence, 0), self._released(self.windows.second, silence, 0)

    def _released(self, rows: Floats, noise: NoiseSource, index: int) -> NDArray[np.int64]:
        from murk.privacy.sketches import GramAccumulator

        accumulator = GramAccumulator(self.mechanism, noise, index)
        accumulator.add_block(rows)
        return accumulator.release().integers


@dataclass(frozen=True)
class NewtonTrial:
    """Newton steps of two neighbouring windows, whose record is in the step."""

    problem: NewtonProblem
    level: str
    windows: Windows

    @property
    def mechanism(self) -> NewtonMechanism:
        """The level's."""
        return self.problem.mechanisms[self.level]

    @property
    def yardsticks(self) -> tuple[Yardstick, ...]:
        """The mechanism's claims."""
        return yardsticks(self.mechanism)

    @property
    def neighbours(self) -> Mapping[str, Any]:
        """The two windows."""
        return {"windows": f"{self.windows.description}, the last, which is in the step"}

    def draws(self, wanted: int) -> int:
        """One for every hundred vectors that are asked for."""
        return max(2, wanted // _STEPS)

    def exact(self, yardstick: Yardstick) -> float | None:
        """None: it is an average over the models that noise makes."""
        return None

    def statistics(self, which: int, count: int, noise: NoiseSource) -> Iterator[Floats]:
        """Logarithms of likelihood ratios, at the model that each release was made at; the first parts have one law."""
        rows = (self.windows.first, self.windows.second)[which]
        size = self.mechanism.start.dimension
        found = []
        for index in range(which * count, (which + 1) * count):
            accumulator = self.problem.accumulator(self.level, noise, index)
            accumulator.add_block(rows)
            made = accumulator.release()
            one, other = (self._place(each[-1:], made.model) for each in (self.windows.first, self.windows.second))
            found.append(losses(self.mechanism, made.integers[None, size:], one, other)[0])
            if len(found) == _BLOCK:
                yield np.array(found)
                found = []
        if found:
            yield np.array(found)

    def _place(self, row: Floats, model: Floats) -> NDArray[np.int64]:
        """Where the step's matrix is centred of a window with this row in it alone, as it is made."""
        from murk.privacy.sketches import NewtonAccumulator

        silence: Any = Silence()
        mechanism = replace(self.mechanism, first=1)
        accumulator = NewtonAccumulator(mechanism, lambda _: model, silence, 0)
        accumulator.add_block(np.vstack([np.zeros_like(row), row]))
        return accumulator.release().integers[mechanism.start.dimension :]


def mechanism_trial(mechanism: Any, first: Any, second: Any) -> VectorTrial:
    """A mechanism by itself, for two vectors or categories."""
    inputs = np.array([first, second])

    def release(which: int, noise: NoiseSource, indices: NDArray[np.int64]) -> NDArray[Any]:
        values = np.repeat(inputs[which : which + 1], len(indices), axis=0)
        found: NDArray[Any] = mechanism.randomize(values, noise, indices)
        return found

    return VectorTrial(mechanism, inputs, release, {"first": inputs[0].tolist(), "second": inputs[1].tolist()})


def task_trial(task: Task, problem: Any, level: str, rng: np.random.Generator) -> Trial:
    """A level of a task, or of one question of it: its worst neighbours, through a device's code."""
    mechanism = problem.mechanisms[level]
    if isinstance(problem, SketchProblem):
        return SketchTrial(mechanism, worst_windows(task, problem, mechanism))
    if isinstance(problem, NewtonProblem):
        return NewtonTrial(problem, level, worst_steps(task, problem, mechanism))
    if isinstance(problem, GramProblem):
        return GramTrial(mechanism, worst_grams(task, problem, mechanism))
    return _record_trial(task, problem, level, rng)


def _record_trial(task: Task, problem: Releasing, level: str, rng: np.random.Generator) -> VectorTrial:
    mechanism = problem.mechanisms[level]
    pair = worst_neighbours(task, problem, mechanism, rng)
    coded = [task.coding.encode_record(record) for record in (pair.first, pair.second)]
    x, y = np.array([one.x for one in coded]), np.array([one.y for one in coded])

    def release(which: int, noise: NoiseSource, indices: NDArray[np.int64]) -> NDArray[Any]:
        count = len(indices)
        return payloads_of(
            problem, np.repeat(x[which : which + 1], count, axis=0), np.repeat(y[which : which + 1], count),
            [0] * count, {0: pair.theta}, [level] * count, noise, indices,
        )  # fmt: skip

    described: dict[str, Any] = {"first": pair.first, "second": pair.second}
    if pair.theta is not None:
        described["iterate"] = pair.theta.tolist()
    return VectorTrial(mechanism, problem.vectors(x, y, pair.theta), release, described)
