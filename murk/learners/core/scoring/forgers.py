"""The influence of forged answers: how far one moves an estimate, and which numbers of answers reveal them.

Devices draw their question by the shares that the epoch's model publishes. Of N answers of one level at one model, a
matrix of share s has more than ``N s + sqrt(2 t N s (1 - s)) + t / 3`` with probability at most e^-t (Bernstein), with
t = 32 as for refusing an honest payload. Beyond that number its mean is kept but weighted as that many answers, and
intervals are widened by the possible effect of the excess over the expected number. A matrix that nobody is asked for
counts for nothing. Single forged answers cannot be identified in sums: nothing is refused, and honest answers are
solved as before, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from murk.learners.core.scoring.sums import Epoch, most_answers, share_of
from murk.learners.estimates.forgers import SLACK, Influence, longest, noise_of_number

if TYPE_CHECKING:
    from murk.learners.core.scoring.mechanism import ScoreMechanisms
    from murk.learners.core.scoring.model import Question

QUESTIONS_THAT_MOVE: tuple[Question, ...] = ("score", "curvature")
"""Scatters only choose coordinates and rows, which curvatures correct: they move an estimate less than scores do."""


@dataclass(frozen=True)
class Excess:
    """More answers to a question than its share allows."""

    question: Question  # the question
    # answers, expected: actual and expected answers, over all epochs and levels with too many
    answers: int
    expected: float

    @property
    def words(self) -> str:
        """A sentence that describes the excess."""
        return (
            f"{self.answers:,} answers are to the question {self.question!r}, but about {self.expected:,.0f} are "
            "expected by its public share: some of them are forged"
        )


def excesses(epochs: Iterable[Epoch]) -> tuple[Excess, ...]:
    """Return the questions with more answers than their shares allow."""
    totals: dict[Question, tuple[int, float]] = {}
    for epoch in epochs:
        releases: dict[str, int] = {}
        for (level, _), tally in epoch.tallies.items():
            releases[level] = releases.get(level, 0) + tally.count
        for (level, question), tally in epoch.tallies.items():
            share = share_of(epoch.model, question)
            if tally.count > most_answers(releases[level], share):
                answers, expected = totals.get(question, (0, 0.0))
                totals[question] = answers + tally.count, expected + releases[level] * share
    return tuple(Excess(question, *both) for question, both in sorted(totals.items()))


def influence_of(question: Question, epochs: Sequence[Epoch], mechanisms: Mapping[str, ScoreMechanisms]) -> float:
    """Return how many standard errors one forged answer moves a coefficient; 0 where nobody answered the question."""
    farthest, noise = 0.0, 0.0
    for level, pair in mechanisms.items():
        mechanism = pair.mechanism(question)
        spread = noise_of_number(mechanism)
        weight = 1.0 / (spread**2 + 1.0 / mechanism.dimension)
        count = sum(epoch.tallies[level, question].count for epoch in epochs if (level, question) in epoch.tallies)
        farthest = max(farthest, weight * longest(mechanism))
        noise += count * (weight * spread) ** 2
    return farthest / math.sqrt(noise) if noise > 0.0 else 0.0


@dataclass(frozen=True)
class Forgery:
    """The possible influence of forged answers, and the signs of them."""

    influence: Influence  # influence of one forged answer, whichever question it answers
    excesses: tuple[Excess, ...] = ()  # questions with more answers than their shares allow
    widened: float = 0.0  # standard errors by which intervals are widened for these

    @classmethod
    def of(cls, epochs: Sequence[Epoch], mechanisms: Mapping[str, ScoreMechanisms]) -> Forgery:
        """Return the influence and the signs of forged answers in epochs."""
        influences = [influence_of(question, epochs, mechanisms) for question in QUESTIONS_THAT_MOVE]
        exceeded = excesses(epochs)
        widened = sum(
            SLACK * (excess.answers - excess.expected) * influence_of(excess.question, epochs, mechanisms)
            for excess in exceeded
        )
        return cls(Influence(max(influences)), exceeded, widened)
