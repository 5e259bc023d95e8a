"""What a learner keeps of an epoch: exact sums of the integers released, by level and question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk.errors import MurkError
from murk.learners.core.scoring.mechanism import ScoreMechanisms
from murk.learners.core.scoring.model import QUESTIONS, Model, Question, model_size
from murk.learners.core.state import count_of, pack, unpack
from murk.learners.core.symmetric import matrix_size
from murk.privacy.mechanisms.base import Randomizer
from murk.privacy.mechanisms.wrapped import Wrapped

Key = tuple[str, Question]


@dataclass(frozen=True)
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

    def plus(self, payloads: NDArray[np.int64]) -> Tally:
        """With payloads (m, d) added, not so many that their sum overflows."""
        sums = (payloads[0] if len(payloads) == 1 else payloads.sum(axis=0)).tolist()
        return Tally(self.count + len(payloads), [old + new for old, new in zip(self.total, sums, strict=True)])


@dataclass(frozen=True)
class Epoch:
    """One epoch of a chain: its model, and the sums of what was released at it. Never written to, only replaced.

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
    tallies: Mapping[Key, Tally] = field(default_factory=dict)

    def plus(self, level: str, question: Question, pair: ScoreMechanisms, payloads: NDArray[np.int64]) -> Epoch:
        """With payloads (m, d) of one level and question added."""
        payloads = whole_numbers(pair.mechanism(question), payloads)
        known = self.tallies.get((level, question)) or Tally(0, [0] * payloads.shape[1])
        return Epoch(self.start, self.model, {**self.tallies, (level, question): known.plus(payloads)})

    def joined(self, level: str, question: Question, tally: Tally) -> Epoch:
        """With what was added up elsewhere."""
        known = self.tallies.get((level, question)) or Tally(0, [0] * len(tally.total))
        total = [old + new for old, new in zip(known.total, tally.total, strict=True)]
        return Epoch(
            self.start, self.model, {**self.tallies, (level, question): Tally(known.count + tally.count, total)}
        )

    def to_state(self) -> dict[str, Any]:
        """As plain data."""
        tallies = [
            {"level": level, "question": question, "count": tally.count, "total": list(tally.total)}
            for (level, question), tally in sorted(self.tallies.items())
        ]
        return {"start": self.start, "model": pack(self.model.flat), "tallies": tallies}

    @classmethod
    def of_state(cls, state: Mapping[str, Any], features: int, contrasts: int, levels: Iterable[str]) -> Epoch:
        """Read what `to_state` wrote.

        Raises
        ------
        MurkError
            If it is not that.
        """
        try:
            start, packed, tallies = state["start"], state["model"], state["tallies"]
            found: dict[Key, Tally] = {}
            for one in tallies:
                level, question, total = one["level"], one["question"], one["total"]
                size = contrasts * features if question == "score" else matrix_size(features)
                if level not in levels or question not in QUESTIONS or len(total) != size:
                    raise MurkError("the state holds sums of another task")
                if not all(type(value) is int and abs(value) < 2**127 for value in total):
                    raise MurkError("the state holds sums that are no whole numbers")
                found[level, question] = Tally(count_of(one["count"], "count"), list(total))
            return cls(
                count_of(start, "epoch"), Model.of(unpack(packed, model_size(features, contrasts)), features), found
            )
        except (KeyError, TypeError) as error:
            raise MurkError(f"the state holds no epochs ({type(error).__name__})") from error


def whole_numbers(mechanism: Randomizer, payloads: NDArray[np.int64]) -> NDArray[np.int64]:
    """What is added up of payloads (m, d): they themselves; of those that stand for directions, these, finely."""
    if not is_directional(mechanism):
        return payloads
    return np.asarray(np.rint(mechanism.decode(payloads) / step_of(mechanism)), dtype=np.int64)


def is_directional(mechanism: Any) -> bool:
    """Whether a payload stands for its direction alone."""
    return hasattr(of_vectors(mechanism), "second_moment")


def of_vectors(mechanism: Any) -> Any:
    """What randomizes the vector that a mechanism makes of what it is given."""
    return mechanism.noise if isinstance(mechanism, Wrapped) else mechanism


def step_of(mechanism: Any) -> float:
    """What a sum of whole numbers is multiplied by."""
    return float(mechanism.unit * 2.0**-30 if is_directional(mechanism) else mechanism.unit)
