"""What devices and learners must agree on to speak of the same release, derived from a task.

River-free: a device imports this and nothing heavier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from murk.errors import MurkError, UserError
from murk.learners.inference import Estimate
from murk.privacy.mechanisms import Costed, Randomizer
from murk.stream.learner import StreamLearner
from murk.stream.task import Task

_MODULES = {"gradients": "ldp_sgd", "examples": "iwp_sgd", "moments": "public_glm", "sketch": "gaussmix"}


class HostileModel(UserError):
    """A model from the log that no honest learner publishes; nothing was computed from any record."""


class Engine(StreamLearner, Protocol):
    """A learner of one chain's releases, and what there is to see of it."""

    def figures(self) -> Mapping[str, float]:
        """What is known of its progress, under names of `murk.monitoring.figures.ChainFigures`."""


class Problem(Protocol):
    """A task's releases: of which vector of a record they are, how it is randomized, what is learned from them."""

    @property
    def kind(self) -> str:
        """Kind of its releases, as `murk.stream.releases.KINDS` has it."""

    @property
    def interactive(self) -> bool:
        """Whether a release is of the newest iterate, which devices then need."""

    @property
    def mechanisms(self) -> Mapping[str, Costed]:
        """Level name to mechanism."""

    @property
    def dimension(self) -> int:
        """Integers in a release."""

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


class PersonProblem(Problem, Protocol):
    """A problem to which each person releases a vector of her own record, randomized on her device."""

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


class InteractiveProblem(PersonProblem, Protocol):
    """A problem whose releases are of the newest iterate."""

    @property
    def initial(self) -> NDArray[np.float64]:
        """The iterate of version 0."""

    def check_iterate(self, theta: NDArray[np.float64]) -> None:
        """Refuse an iterate that no honest learner publishes, before any record is read.

        Raises
        ------
        HostileModel
            If it is one.
        """


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
    problem: Problem = import_module(f"murk.learners.{_MODULES[task.protocol]}.problem").problem_for(task)
    return problem


def person_problem_for(task: Task) -> PersonProblem:
    """The problem of a resolved task to which people release by themselves.

    Raises
    ------
    UserError
        As `problem_for`; and where organisations release, not people.
    """
    if task.protocol == "sketch":
        raise UserError(
            f"to the task {task.name!r} organisations release sketches (protocol: sketch), not people their records: "
            "use SketchProducer"
        )
    problem: PersonProblem = problem_for(task)  # type: ignore[assignment]
    return problem
