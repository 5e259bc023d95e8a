"""Randomization on the device: from a coded record to a payload with the noise of its level."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from murk._scratch import empty, keep
from murk.privacy.noise import SecureNoise, SimulatedNoise

if TYPE_CHECKING:
    from murk.learners.core.scoring.record import OneAnswer
    from murk.learners.problem import AskingProblem, PersonProblem, Releasing
    from murk.privacy.noise import NoiseSource

FEW = 64
"""Number of records randomized in Python before a compiled kernel is loaded, which takes about 10 ms."""
MOST_HELD = 16
"""Largest number of kernels in memory, one for each chain and level."""

Key = TypeVar("Key", int, str)


def answers_of(
    problem: PersonProblem, x: NDArray[np.float64], y: NDArray[np.float64], chains: Sequence[int],
    iterates: Mapping[int, NDArray[np.float64] | None], levels: Sequence[str], noise: NoiseSource,
    indices: NDArray[np.int64],
) -> tuple[list[list[int]], list[str] | None]:  # fmt: skip
    """Randomize coded records into payloads, each the answer to one of the problem's questions.

    Return payloads, and the question of each (None if the problem has only one). Questions are drawn from noise and
    model alone, before any record is read. For the parameters see `payloads_of`.
    """
    if not hasattr(problem, "ask"):
        return payloads_of(problem, x, y, chains, iterates, levels, noise, indices).tolist(), None
    from murk.learners.problem import SingleQuestionProblem

    asking = cast("AskingProblem", problem)
    asked = np.empty(len(x), dtype=object)
    for own, chain in _groups(chains):
        model = iterates[chain]
        assert model is not None
        asked[own] = asking.ask(noise, indices[own], model)
    payloads: list[list[int]] = [[]] * len(x)
    for name in asking.questions:
        own = np.flatnonzero(asked == name)
        if not len(own):
            continue
        single, rows = SingleQuestionProblem(asking, name), own.tolist()
        answers = payloads_of(
            single, keep(x[own]), keep(y[own]), [chains[row] for row in rows], iterates,
            [levels[row] for row in rows], noise, indices[own],
        )  # fmt: skip
        for row, answer in zip(rows, answers.tolist(), strict=True):
            payloads[row] = answer
    return payloads, asked.tolist()


def answer_of(
    problem: PersonProblem, x: NDArray[np.float64], y: NDArray[np.float64], model: NDArray[np.float64] | None,
    level: str, noise: NoiseSource, index: NDArray[np.int64],
) -> tuple[list[int], str | None]:  # fmt: skip
    """Randomize one record; return its payload and question."""
    if not hasattr(problem, "ask"):
        (payload,) = problem.mechanisms[level].randomize(problem.vectors(x, y, model), noise, index).tolist()
        return payload, None
    asking = cast("AskingProblem", problem)
    assert model is not None
    (question,) = asking.ask(noise, index, model)
    vectors = asking.vectors(x, y, model, question)
    (payload,) = asking.mechanism(level, question).randomize(vectors, noise, index).tolist()
    return payload, question


class Answering:
    """Randomizes one record at a time, by a compiled kernel if the problem has one; it draws the same from a seed."""

    def __init__(self, problem: PersonProblem, noise: NoiseSource) -> None:
        self._problem, self._noise = problem, noise
        self._seed = noise.seed if isinstance(noise, SimulatedNoise) else None
        direct = type(noise) in (SecureNoise, SimulatedNoise)
        self._in_place = getattr(problem, "in_place", None) if direct else None
        self._few = FEW
        self._held: dict[tuple[int, str], tuple[NDArray[np.float64], OneAnswer]] = {}

    def prepare(self, chain: int, model: NDArray[np.float64], level: str) -> None:
        """Load or compile the kernel for a chain's model, which may take seconds, before any account is locked."""
        if self._in_place is None or self._kernel(chain, model, level) is not None:
            return
        if self._few:
            self._few -= 1
            return
        made: OneAnswer | None = self._in_place(level, model, self._seed)
        if made is not None:
            # The first call compiles; it randomizes no record.
            made.give(np.array(made.x), math.nan, 0)
            if len(self._held) >= MOST_HELD:
                del self._held[next(iter(self._held))]
            self._held[chain, level] = model, made

    def answer(
        self, x: NDArray[np.float64], y: float, chain: int, model: NDArray[np.float64], level: str,
        index: NDArray[np.int64],
    ) -> tuple[list[int], str | None]:  # fmt: skip
        """Return the payload and question of a coded record (p,) at its chain's model."""
        kernel = self._kernel(chain, model, level)
        answer = None if kernel is None else kernel.give(x, y, int(index[0]))
        if answer is not None:
            return answer
        return answer_of(self._problem, x[None, :], np.array([y]), model, level, self._noise, index)

    def _kernel(self, chain: int, model: NDArray[np.float64], level: str) -> OneAnswer | None:
        held = self._held.get((chain, level))
        return held[1] if held is not None and held[0] is model else None


def payloads_of(
    problem: Releasing, x: NDArray[np.float64], y: NDArray[np.float64], chains: Sequence[int],
    iterates: Mapping[int, NDArray[np.float64] | None], levels: Sequence[str], noise: NoiseSource,
    indices: NDArray[np.int64],
) -> NDArray[np.int64]:  # fmt: skip
    """Randomize coded records into the payloads of a problem with one question, int64 of shape (m, d).

    ``x`` are coded features, the constant last, shape (m, p), ``y`` targets, ``chains`` and ``levels`` those of each
    record. A record's gradient is computed at its chain's iterate (None if releases use none). ``indices`` select the
    draws of a simulation.
    """
    payloads = np.empty((len(x), problem.dimension), dtype=np.int64)
    vectors: NDArray[np.float64] | None = None
    for own, chain in _groups(chains):
        found = problem.vectors(_rows(x, own), _rows(y, own), iterates[chain])
        if vectors is None:
            vectors = found if len(found) == len(x) else empty((len(x), found.shape[1]))
        if found is not vectors:
            vectors[own] = found
    assert vectors is not None
    for own, level in _groups(levels):
        payloads[own] = problem.mechanisms[level].randomize(_rows(vectors, own), noise, indices[own])
    return payloads


def _rows(values: NDArray[np.float64], own: slice | NDArray[np.int64]) -> NDArray[np.float64]:
    """Return rows of records: a view, or a copy that is wiped."""
    return values[own] if isinstance(own, slice) else keep(values[own])


def _groups(keys: Sequence[Key]) -> Iterator[tuple[slice | NDArray[np.int64], Key]]:
    """Yield the indices of each key; one slice, without a copy, if there is only one key."""
    distinct = set(keys)
    if len(distinct) == 1:
        yield slice(None), distinct.pop()
        return
    for key in distinct:
        yield np.array([row for row, other in enumerate(keys) if other == key], dtype=np.int64), key
