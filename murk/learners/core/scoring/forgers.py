"""What forged answers could have done: how many a question can honestly have, and how far one moves an estimate.

Which question somebody answers is drawn by their device, by the shares that the epoch's model publishes: a few are
asked for a matrix, most for their score. So of N answers of one level at one model, a matrix of share s has more than
``N s + sqrt(2 t N s (1 - s)) + t / 3`` with probability at most e^-t (Bernstein), t = 32: as seldom as an honest
payload is refused. Where a matrix has more, its mean is taken as it is, and counts as that many answers and no more;
intervals are widened by what the answers beyond the expected number could have done. A matrix that nobody is asked for
counts for nothing. What is kept is sums, and which answers are beyond the share nobody can tell: so nothing is refused,
states stay as they are, and honest ones are solved as before, to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from murk.learners.estimates.forgers import SLACK, Influence, longest, noise_of_number
from murk.privacy.mechanisms.payload_limits import NATS

if TYPE_CHECKING:
    from murk.learners.core.scoring.mechanism import ScoreMechanisms
    from murk.learners.core.scoring.model import Model, Question
    from murk.learners.core.scoring.sums import Epoch, Tally

QUESTIONS_THAT_MOVE: tuple[Question, ...] = ("score", "curvature")
"""Scatters choose coordinates, and rows that curvatures correct: what they do to an estimate is less than scores do."""


def share_of(model: Model, question: Question) -> float:
    """Share of the people whom a model asks for a matrix; all may answer with a score, which most are asked for."""
    return 1.0 if question == "score" else model.scatter if question == "scatter" else model.curvature


def most_answers(releases: int, share: float, nats: float = NATS) -> float:
    """The most answers that a question of a share has among so many, but for a probability of e^-nats.

    Examples
    --------
    >>> round(most_answers(100_000, 0.05)), most_answers(100_000, 0.0)
    (5562, 0.0)
    """
    if share <= 0.0:
        return 0.0
    varies = releases * share * max(1.0 - share, 0.0)
    return releases * share + math.sqrt(2.0 * nats * varies) + nats / 3.0


def counted_answers(epoch: Epoch, level: str, question: Question, tally: Tally) -> float:
    """As how many answers those of a level to a question count: all, or as many as the question's share allows."""
    releases = sum(each.count for (own, _), each in epoch.tallies.items() if own == level)
    return min(float(tally.count), most_answers(releases, share_of(epoch.model, question)))


@dataclass(frozen=True)
class Excess:
    """More answers to a question than its share allows.

    Parameters
    ----------
    question
        The question.
    answers, expected
        How many there are, of all epochs and levels that have too many, and how many were to be expected.
    """

    question: Question
    answers: int
    expected: float

    @property
    def words(self) -> str:
        """What is said of it."""
        return (
            f"{self.answers:,} answers are to the question {self.question!r}, of which {self.expected:,.0f} were to be "
            "expected by its public share: some of them are forged"
        )


def excesses(epochs: Iterable[Epoch]) -> tuple[Excess, ...]:
    """The questions with more answers than their shares allow."""
    found: dict[Question, tuple[int, float]] = {}
    for epoch in epochs:
        releases: dict[str, int] = {}
        for (level, _), tally in epoch.tallies.items():
            releases[level] = releases.get(level, 0) + tally.count
        for (level, question), tally in epoch.tallies.items():
            share = share_of(epoch.model, question)
            if tally.count > most_answers(releases[level], share):
                answers, expected = found.get(question, (0, 0.0))
                found[question] = answers + tally.count, expected + releases[level] * share
    return tuple(Excess(question, *both) for question, both in sorted(found.items()))


def influence_of(question: Question, epochs: Sequence[Epoch], mechanisms: Mapping[str, ScoreMechanisms]) -> float:
    """How far one forged answer to a question moves a coefficient, in standard errors; 0 where nobody answered it."""
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
    """What forged answers could have done, and the signs that there are some.

    Parameters
    ----------
    influence
        Of one, whichever question it answers.
    excesses
        Questions with more answers than their shares allow.
    widened
        By how many standard errors intervals are wider for these.
    """

    influence: Influence
    excesses: tuple[Excess, ...] = ()
    widened: float = 0.0

    @classmethod
    def of(cls, epochs: Sequence[Epoch], mechanisms: Mapping[str, ScoreMechanisms]) -> Forgery:
        """What is known of some epochs' answers."""
        each = [influence_of(question, epochs, mechanisms) for question in QUESTIONS_THAT_MOVE]
        found = excesses(epochs)
        widened = sum(
            SLACK * (one.answers - one.expected) * influence_of(one.question, epochs, mechanisms) for one in found
        )
        return cls(Influence(max(each)), found, widened)
