"""The newest model of a chain, checked before any record is read."""

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


# One object for all records: callers recognise a model by identity.
_NONE = np.empty(0)
_NONE.setflags(write=False)


@dataclass(frozen=True)
class PublishedModel:
    """A model at which a gradient or score is computed.

    ``version`` is the number of releases that the chain had learned. ``iterate`` is a float64 vector of shape
    (model_size,), empty if releases use no model. ``end`` is the end of the chain's partition when the model was read:
    later releases are stored at or after this offset.
    """

    version: int
    iterate: NDArray[np.float64]
    end: int


class Models:
    """Reads a log's models and trusts none of them."""

    def __init__(self, log: Log, task: Task, problem: InteractiveProblem) -> None:
        self._log = log
        self._task = task
        self._problem = problem
        self._read: dict[int, tuple[bytes, int, NDArray[np.float64]]] = {}

    def newest(self, chain: int) -> PublishedModel:
        """Return a chain's newest iterate on the log, or the task's initial one; see `cached_model` for errors."""
        return self._model(chain, self._log.model(self._source(chain)), self._log.end(chain), self._log.ends)

    def cached_model(self, chain: int) -> PublishedModel:
        """Return the last received iterate of a chain, even while the log cannot be reached.

        Raises UserError, before any record is used, if no honest learner publishes it (damaged, of another task or
        size, infinite, outside the radius, of an impossible version). Raises MurkError if the log cannot be read.
        """
        message, end = self._log.cached_model(chain)
        source = self._source(chain)
        if source != chain:
            message, _ = self._log.cached_model(source)
        return self._model(chain, message, end, self._heard_ends)

    def _source(self, chain: int) -> int:
        return FIRST_CHAIN if self._problem.shares_models else chain

    def _model(self, chain: int, message: bytes | None, end: int, ends: Callable[[], Sequence[int]]) -> PublishedModel:
        if message is None:
            return PublishedModel(0, self._problem.initial, end)
        source = self._source(chain)
        known = self._read.get(source)
        if known is None or known[0] != message:
            known = message, *self._checked(message, source)
            # The version of a shared model counts the releases of all chains, which never decrease.
            if self._problem.shares_models and known[1] > sum(ends()):
                # Cached ends may be older than the model.
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
            raise self._refused(chain, f"it has learned {version} releases, more than the log has")

    def _checked(self, message: bytes, chain: int) -> tuple[int, NDArray[np.float64]]:
        try:
            model = decode_iterate(message, task_hash=self._task.hash, dimension=self._problem.model_size, chain=chain)
        except RejectedError as rejected:
            raise self._refused(chain, str(rejected)) from None
        if not self._problem.is_published(model.version):
            raise self._refused(chain, f"no model is published at its version {model.version}")
        iterate = np.array(model.iterate)
        # A hostile iterate may overflow before it is refused.
        with np.errstate(over="ignore"):
            self._problem.check_iterate(iterate)
        # All releases at this model share the array.
        iterate.setflags(write=False)
        return model.version, iterate

    def _refused(self, chain: int, why: str) -> UserError:
        return UserError(
            f"the model of chain {chain} on {self._log.url} is not one that an honest learner publishes ({why}): "
            "nothing was released. Ask the operator of the log"
        )


class NoModels:
    """Replaces `Models` for releases that use no model."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def newest(self, chain: int) -> PublishedModel:
        """Return an empty model with the current end of the chain's partition."""
        return PublishedModel(0, _NONE, self._log.end(chain))

    def cached_model(self, chain: int) -> PublishedModel:
        """Return an empty model with the last known end of the chain's partition."""
        return PublishedModel(0, _NONE, self._log.cached_model(chain)[1])


def models_of(log: Log, task: Task, problem: PersonProblem) -> Models | NoModels:
    """Return the reader of a log's models."""
    return Models(log, task, cast("InteractiveProblem", problem)) if problem.interactive else NoModels(log)
