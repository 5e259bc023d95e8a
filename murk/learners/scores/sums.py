"""What a learner keeps of an epoch: exact sums of the integers released, by level and question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk.errors import MurkError
from murk.learners.scores.layout import matrix_size, symmetric
from murk.learners.scores.mechanism import Menu
from murk.learners.scores.model import QUESTIONS, Model, Question, model_size
from murk.learners.state import count_of, pack, unpack

Array = NDArray[np.float64]
Key = tuple[str, Question]


@dataclass
class Tally:
    """Releases of one level that answer one question.

    Parameters
    ----------
    count
        How many.
    total
        Sums of their integers: Python's own, which neither round nor overflow.
    """

    count: int
    total: list[int]

    def add(self, payloads: NDArray[np.int64]) -> None:
        """Add payloads (m, d), not so many that their sum overflows."""
        self.count += len(payloads)
        sums = payloads.sum(axis=0).tolist()
        self.total = [old + new for old, new in zip(self.total, sums, strict=True)]


@dataclass
class Epoch:
    """One epoch of a chain: its model, and the sums of what was released at it.

    Parameters
    ----------
    start
        Version at which it began.
    model
        What its people read.
    tallies
        By level and question.
    """

    start: int
    model: Model
    tallies: dict[Key, Tally] = field(default_factory=dict)

    def add(self, level: str, question: Question, payloads: NDArray[np.int64]) -> None:
        """Add payloads of one level and question."""
        known = self.tallies.setdefault((level, question), Tally(0, [0] * payloads.shape[1]))
        known.add(payloads)

    def to_state(self) -> dict[str, Any]:
        """As plain data."""
        tallies = [
            {"level": level, "question": question, "count": tally.count, "total": list(tally.total)}
            for (level, question), tally in sorted(self.tallies.items())
        ]
        return {"start": self.start, "model": pack(self.model.flat), "tallies": tallies}

    @classmethod
    def of_state(cls, state: Mapping[str, Any], features: int, levels: Iterable[str]) -> Epoch:
        """Read what `to_state` wrote.

        Raises
        ------
        MurkError
            If it is not that.
        """
        try:
            start, packed, tallies = state["start"], state["model"], state["tallies"]
            epoch = cls(count_of(start, "epoch"), Model.of(unpack(packed, model_size(features)), features))
            for one in tallies:
                level, question, total = one["level"], one["question"], one["total"]
                size = features if question == "score" else matrix_size(features)
                if level not in levels or question not in QUESTIONS or len(total) != size:
                    raise MurkError("the state holds sums of another task")
                if not all(type(value) is int and abs(value) < 2**127 for value in total):
                    raise MurkError("the state holds sums that are no whole numbers")
                epoch.tallies[level, question] = Tally(count_of(one["count"], "count"), list(total))
        except (KeyError, TypeError) as error:
            raise MurkError(f"the state holds no epochs ({type(error).__name__})") from error
        return epoch


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
    """

    mean: Array
    noise: float
    share: float


@dataclass(frozen=True)
class Summary:
    """What an epoch's sums say: its model, and the mean answers."""

    model: Model
    score: Answer | None
    scatter: Answer | None
    curvature: Answer | None


def summaries(epochs: Sequence[Epoch], menus: Mapping[str, Menu], features: int) -> list[Summary]:
    """Mean answers of some epochs; of levels by inverse variance."""
    found = []
    for epoch in epochs:
        answers = {question: _answer(epoch, question, menus, features) for question in QUESTIONS}
        if any(answer is not None for answer in answers.values()):
            found.append(Summary(epoch.model, answers["score"], answers["scatter"], answers["curvature"]))
    return found


def _answer(epoch: Epoch, question: Question, menus: Mapping[str, Menu], features: int) -> Answer | None:
    total, weight, noise, squares = 0.0, 0.0, 0.0, 0.0
    size = features if question == "score" else matrix_size(features)
    for level, menu in menus.items():
        tally = epoch.tallies.get((level, question))
        if tally is None or tally.count == 0:
            continue
        mechanism: Any = menu.score if question == "score" else menu.matrix
        precision = 1.0 / (mechanism.variance + 1.0 / size)
        total = total + precision * mechanism.unit * np.array([float(value) for value in tally.total])
        weight += precision * tally.count
        noise += precision**2 * tally.count * mechanism.variance
        squares += precision**2 * tally.count
    if weight == 0.0:
        return None
    mean: Array = np.asarray(total) / weight
    if question == "score":
        return Answer(mean, noise / weight**2, squares / weight**2)
    # A matrix is released in units of R/2.
    unit = epoch.model.reach / 2.0
    return Answer(unit * symmetric(mean, features), unit**2 * noise / weight**2, unit**2 * squares / weight**2)
