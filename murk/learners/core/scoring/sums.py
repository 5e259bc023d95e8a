"""What epochs' sums say: the mean answers to each question, with the noise that is left in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.scoring.epochs import Epoch, Tally, is_directional, of_vectors, step_of
from murk.learners.core.scoring.forgers import counted_answers
from murk.learners.core.scoring.mechanism import ScoreMechanisms
from murk.learners.core.scoring.model import QUESTIONS, Model, Question
from murk.learners.core.symmetric import symmetric

__all__ = ["Answer", "Epoch", "Summary", "Tally", "direction_spread", "step_of", "summaries"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Answer:
    """The mean answer to one question in an epoch.

    Parameters
    ----------
    mean
        (p,), or (p, p) in units of the matrix itself.
    noise
        Variance that its mechanism's noise leaves on each number of the mean.
    share
        What one person's own spread is multiplied by: 1 over their number, where all have one level.
    whole
        The same for mechanisms that release a direction, whatever the length of what they are given.
    """

    mean: Array
    noise: float
    share: float
    whole: float

    def times(self, factor: float) -> Answer:
        """The answer to the question with so many times the matrix."""
        square = factor**2
        return Answer(factor * self.mean, square * self.noise, square * self.share, square * self.whole)


@dataclass(frozen=True)
class Summary:
    """What an epoch's sums say: its model, and the mean answers."""

    model: Model
    score: Answer | None
    scatter: Answer | None
    curvature: Answer | None


def summaries(epochs: Sequence[Epoch], mechanisms: Mapping[str, ScoreMechanisms], features: int) -> list[Summary]:
    """Mean answers of some epochs; of levels by inverse variance."""
    found = []
    for epoch in epochs:
        answers = {question: _answer(epoch, question, mechanisms, features) for question in QUESTIONS}
        if any(answer is not None for answer in answers.values()):
            found.append(Summary(epoch.model, answers["score"], answers["scatter"], answers["curvature"]))
    return found


def _answer(
    epoch: Epoch, question: Question, mechanisms: Mapping[str, ScoreMechanisms], features: int
) -> Answer | None:
    weight, noise, share, whole = 0.0, 0.0, 0.0, 0.0
    size = next(iter(mechanisms.values())).mechanism(question).dimension
    total = np.zeros(size)
    for level, pair in mechanisms.items():
        tally = epoch.tallies.get((level, question))
        if tally is None or tally.count == 0:
            continue
        mechanism = pair.mechanism(question)
        variance, along = direction_spread(mechanism)
        precision = 1.0 / (variance + 1.0 / size)
        count = counted_answers(epoch, level, question, tally)
        # One where nobody answers a question more often than it is asked, so that nothing changes by it.
        counts = count / tally.count
        total = total + counts * precision * step_of(mechanism) * np.array([float(value) for value in tally.total])
        weight += precision * count
        noise += precision**2 * count * variance
        if along is None:
            share += precision**2 * count
        else:
            whole += precision**2 * count * along
    if weight == 0.0:
        return None
    mean: Array = total / weight
    if question == "score":
        return Answer(mean, noise / weight**2, share / weight**2, whole / weight**2)
    # A matrix is released in units of M/2.
    unit = epoch.model.matrix_reach / 2.0
    scale = (unit / weight) ** 2
    return Answer(unit * symmetric(mean, features), scale * noise, scale * share, scale * whole)


def direction_spread(mechanism: Any) -> tuple[float, float | None]:
    """Variance of a number of a decoded release, and how much more it is along what was released.

    None for what adds noise: then it is what people differ by.
    """
    if not is_directional(mechanism):
        return mechanism.variance, None
    across, along = of_vectors(mechanism).second_moment
    return across, max(0.0, along - across)
