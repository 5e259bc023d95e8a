"""What devices and learners must agree on to speak of the same release, derived from a task.

River-free: a device imports this and nothing heavier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from murk.errors import MurkError, UserError
from murk.learners.estimates.estimate import Estimate
from murk.privacy.mechanisms import Costed, Randomizer
from murk.stream.task.privacy import DEFAULT_LEVEL
from murk.stream.task.registry import part
from murk.stream.task.task import Task
from murk.stream.worker.learner import StreamLearner

if TYPE_CHECKING:
    from murk.privacy.noise import NoiseSource


class HostileModelError(UserError):
    """A model from the log that no honest learner publishes; nothing was computed from any record."""

    kind = "MURK-LEARN-002"


class Engine(StreamLearner, Protocol):
    """A learner of one chain's releases, and what there is to see of it."""

    def figures(self) -> Mapping[str, float]:
        """What is known of its progress, under names of `murk.monitoring.figures.ChainFigures`."""


class Problem(Protocol):
    """A task's releases: of which vector of a record they are, how it is randomized, what is learned from them."""

    @property
    def kind(self) -> str:
        """Kind of its releases, as `murk.stream.messages.releases.KINDS` has it."""

    @property
    def interactive(self) -> bool:
        """Whether a release is of the newest iterate, which devices then need."""

    @property
    def mechanisms(self) -> Mapping[str, Costed]:
        """Level name to mechanism."""

    @property
    def dimension(self) -> int:
        """Integers in a release; where there are several questions, in the first one's."""

    def check_state(self) -> None:
        """Refuse a task whose releases or states no log would take, before anything is set up.

        Raises
        ------
        UserError
            Saying how large they would be.
        """

    def engine(self) -> Engine:
        """A learner for this task's releases, standing at version 0."""

    def estimate(self, engines: Sequence[Any]) -> Estimate:
        """What the learners of all chains have learned together."""


class Releasing(Protocol):
    """What a device needs to know: of which vector a release is, and how that is randomized."""

    @property
    def interactive(self) -> bool:
        """Whether a release is of the newest model, which devices then need."""

    @property
    def dimension(self) -> int:
        """Integers in a release."""

    @property
    def mechanisms(self) -> Mapping[str, Randomizer]:
        """Level name to mechanism."""

    def vectors(
        self, X: NDArray[np.float64], y: NDArray[np.float64], theta: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """The vectors of coded records that a mechanism randomizes, ``(m, dimension)``.

        Parameters
        ----------
        X
            Coded features with the constant last, ``(m, p)``.
        y
            Coded targets, ``(m,)``; a NaN (missing) one gives a vector, too: nobody is left out.
        theta
            The iterate, where the protocol is interactive.
        """


class PersonProblem(Problem, Releasing, Protocol):
    """A problem to which each person releases a vector of their own record, randomized on their device."""

    @property
    def mechanisms(self) -> Mapping[str, Randomizer]:
        """Level name to mechanism."""


class InteractiveProblem(PersonProblem, Protocol):
    """A problem whose releases are of the newest iterate: of a model that learners publish and devices read."""

    @property
    def model_size(self) -> int:
        """Numbers in a model."""

    @property
    def initial(self) -> NDArray[np.float64]:
        """The model of version 0."""

    @property
    def shares_models(self) -> bool:
        """Whether people of all chains answer at the first chain's models; else each chain has its own."""

    def is_published(self, version: int) -> bool:
        """Whether models of this version are published."""

    def next_published(self, version: int) -> int:
        """The first version after this one of which a model is published."""

    def block(self, releases: int) -> int:
        """Most releases to make at the newest models before they are looked at again, after so many."""

    def check_iterate(self, theta: NDArray[np.float64]) -> None:
        """Refuse a model that no honest learner publishes, before any record is read.

        Raises
        ------
        HostileModelError
            If it is one.
        """


class AskingProblem(InteractiveProblem, Protocol):
    """A problem that asks each person one of several questions, drawn without looking at the record."""

    @property
    def questions(self) -> tuple[str, ...]:
        """All questions."""

    def ask(self, noise: NoiseSource, indices: NDArray[np.int64], model: NDArray[np.float64]) -> Sequence[str]:
        """The question of each record, from the noise's own words (`Purpose.QUESTION`) and the model's shares."""

    def mechanism(self, level: str, question: str) -> Randomizer:
        """What randomizes the answers to a question at a level."""

    def vectors(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.float64],
        theta: NDArray[np.float64] | None = None,
        question: str | None = None,
    ) -> NDArray[np.float64]:
        """Answers to a question, by default the first: as `PersonProblem.vectors`, as long as its mechanism has it."""


@dataclass(frozen=True)
class SingleQuestionProblem:
    """One question of a problem: what the devices need to know that are asked this one.

    Parameters
    ----------
    problem
        Asks several.
    name
        The one.
    """

    problem: AskingProblem
    name: str

    @property
    def kind(self) -> str:
        """As the problem's."""
        return self.problem.kind

    @property
    def interactive(self) -> bool:
        """As the problem's."""
        return self.problem.interactive

    @cached_property
    def mechanisms(self) -> Mapping[str, Randomizer]:
        """Level name to what randomizes its answers."""
        return {level: self.problem.mechanism(level, self.name) for level in self.problem.mechanisms}

    @property
    def dimension(self) -> int:
        """Integers in an answer."""
        return self.mechanisms[DEFAULT_LEVEL].dimension

    def vectors(
        self, X: NDArray[np.float64], y: NDArray[np.float64], theta: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Answers of coded records."""
        return self.problem.vectors(X, y, theta, self.name)


def interactive_of(problem: Problem) -> InteractiveProblem | None:
    """The problem as one whose releases are of a model; None where they are of none."""
    return cast("InteractiveProblem", problem) if problem.interactive else None


@contextmanager
def plausible() -> Iterator[None]:
    """Within it, states are made use of that may hold any numbers at all.

    Raises
    ------
    MurkError
        Where arithmetic comes to nothing with them.
    """
    try:
        with np.errstate(all="ignore"):
            yield
    except MurkError:
        raise
    except (ArithmeticError, ValueError) as error:
        raise MurkError(
            f"the states hold numbers that no learner comes to ({type(error).__name__}): restore the log from a copy"
        ) from error


def problem_for(task: Task) -> Problem:
    """The problem of a resolved task.

    Raises
    ------
    UserError
        If a level's guarantee and the task's protocol or mechanism do not fit.
    """
    problem: Problem = part(task.protocol, "problem").problem_for(task)
    return problem


def person_problem_for(task: Task) -> PersonProblem:
    """The problem of a resolved task to which people release by themselves.

    Raises
    ------
    UserError
        As `problem_for`; and where organisations release, not people.
    """
    if task.of_organisations:
        raise UserError(
            f"to the task {task.name!r} organisations release sketches (protocol: sketch), not people their records: "
            "use SketchProducer"
        )
    problem: PersonProblem = problem_for(task)  # type: ignore[assignment]
    return problem
