"""The newest model of a chain, checked before any record is looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.stream.log.base import FIRST_CHAIN
from murk.stream.messages.codec import RejectedError, decode_iterate

if TYPE_CHECKING:
    from murk.learners.problem import InteractiveProblem, PersonProblem
    from murk.stream.log.base import Log
    from murk.stream.task.task import Task


# What is known by its model is known by this one, too.
_NONE = np.empty(0)
_NONE.setflags(write=False)


@dataclass(frozen=True)
class PublishedModel:
    """A model to take a gradient or a score at.

    Parameters
    ----------
    version
        How many releases the chain had learned when this was its model.
    iterate
        float64, shape (model_size,), as the problem lays it out; empty where releases are of no model.
    end
        Where the chain's partition ended when the model was read: what is appended later stands at or after
        this offset.
    """

    version: int
    iterate: NDArray[np.float64]
    end: int


class Models:
    """Reads a log's models, and believes nothing.

    Parameters
    ----------
    log
        The log.
    task
        Its task.
    problem
        The task's problem.
    """

    def __init__(self, log: Log, task: Task, problem: InteractiveProblem) -> None:
        self._log = log
        self._task = task
        self._problem = problem
        self._read: dict[int, tuple[bytes, int, NDArray[np.float64]]] = {}

    def newest(self, chain: int) -> PublishedModel:
        """Return a chain's newest iterate as it is stored in the log now, or the task's initial one before there is
        one.

        Raises
        ------
        UserError, MurkError
            As `cached_model`.
        """
        return self._model(chain, self._log.model(self._source(chain)), self._log.end(chain), self._log.ends)

    def cached_model(self, chain: int) -> PublishedModel:
        """Return a chain's newest iterate as it was last heard of, also while the log cannot be reached.

        Raises
        ------
        UserError
            When it is not one that an honest learner publishes (damaged, of another task, of the wrong size,
            infinite, outside the radius, of a version that cannot be); nothing was computed from any record.
        MurkError
            When the log cannot be read.
        """
        message, end = self._log.cached_model(chain)
        source = self._source(chain)
        if source != chain:
            message, _ = self._log.cached_model(source)
        return self._model(chain, message, end, self._heard_ends)

    def _source(self, chain: int) -> int:
        """The chain whose model people of a chain answer at."""
        return FIRST_CHAIN if self._problem.shares_models else chain

    def _model(self, chain: int, message: bytes | None, end: int, ends: Callable[[], Sequence[int]]) -> PublishedModel:
        if message is None:
            return PublishedModel(0, self._problem.initial, end)
        source = self._source(chain)
        known = self._read.get(source)
        if known is None or known[0] != message:
            known = message, *self._checked(message, source)
            # The version of a model that chains share counts the releases of all, of which there only come to be more.
            if self._problem.shares_models and known[1] > sum(ends()):
                # What was heard of other partitions may be a moment older than the model.
                self._check_version(chain, known[1], sum(self._log.ends()))
            self._read[source] = known
        _, version, iterate = known
        if not self._problem.shares_models:
            self._check_version(chain, version, end)
        return PublishedModel(version, iterate, end)

    def _heard_ends(self) -> list[int]:
        return [self._log.cached_model(chain)[1] for chain in range(self._log.partitions)]

    def _check_version(self, chain: int, version: int, releases: int) -> None:
        if version > releases:
            raise self._refused(chain, f"it is of version {version}, and so many releases are not on the log")

    def _checked(self, message: bytes, chain: int) -> tuple[int, NDArray[np.float64]]:
        try:
            model = decode_iterate(message, task_hash=self._task.hash, dimension=self._problem.model_size, chain=chain)
        except RejectedError as rejected:
            raise self._refused(chain, str(rejected)) from None
        if not self._problem.is_published(model.version):
            raise self._refused(chain, f"its version {model.version} is none at which models are published")
        iterate = np.array(model.iterate)
        # What a hostile iterate overflows on the way to being refused is nobody's concern.
        with np.errstate(over="ignore"):
            self._problem.check_iterate(iterate)
        # Everybody who releases at it shares it.
        iterate.setflags(write=False)
        return model.version, iterate

    def _refused(self, chain: int, why: str) -> UserError:
        return UserError(
            f"the model of chain {chain} on {self._log.url} is none that honest learners publish ({why}): "
            "nothing was released. Ask the operator of the log"
        )


class NoModels:
    """Stands for a log's models where releases are of none.

    Parameters
    ----------
    log
        The log.
    """

    def __init__(self, log: Log) -> None:
        self._log = log

    def newest(self, chain: int) -> PublishedModel:
        """Return an empty model, with where the chain's partition ends now."""
        return PublishedModel(0, _NONE, self._log.end(chain))

    def cached_model(self, chain: int) -> PublishedModel:
        """Return an empty model, with where the chain's partition was last heard to end."""
        return PublishedModel(0, _NONE, self._log.cached_model(chain)[1])


def models_of(log: Log, task: Task, problem: PersonProblem) -> Models | NoModels:
    """What a task's devices need of its log's models."""
    return Models(log, task, cast("InteractiveProblem", problem)) if problem.interactive else NoModels(log)
