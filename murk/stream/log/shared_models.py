"""Models that all partitions share, as receivers read them from the log.

The first partition's commit writes a model to its state and to the log atomically. So each version is made only once,
and every message was made at a model that was on the log before it: a receiver that looks once after it has read
messages knows the models of all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from murk.errors import MurkError, UserError
from murk.stream.log.interface import FIRST_PARTITION
from murk.stream.wire.codec import RejectedError, decode_model
from murk.stream.wire.state import StateMessage, decode_state

if TYPE_CHECKING:
    from murk.stream.log.interface import Checkpoint, Log
    from murk.task.task import Task

_ERROR_CODE = "MURK-LOG-001"

_log = logging.getLogger(__package__)


class SharingRules(Protocol):
    """Rules of admission of a task whose partitions share models."""

    @property
    def model_size(self) -> int:
        """Number of numbers in a model."""

    @property
    def next_model_at(self) -> int:
        """Number of releases, of all partitions, at which the next model is due."""

    def hear(self, state: Mapping[str, Any]) -> None:
        """Add the models of the first partition's committed learner state; raise `MurkError` if it is damaged."""

    def hear_newest(self, version: int, flat: Sequence[float]) -> None:
        """Add the newest published model; raise `UserError` if it is forged."""


class SharedModels:
    """Read new models from the log into rules of admission when a release names an unknown one."""

    def __init__(self, log: Log, task: Task, rules: SharingRules) -> None:
        self._log, self._task, self._rules = log, task, rules
        self._looked = False
        self._state: bytes | None = None

    def arrived(self) -> None:
        """Allow another look, since messages arrived."""
        self._looked = False

    def renew(self) -> bool:
        """Read new models from the log, at most once after each `arrived`; raise `MurkError` if that fails."""
        if self._looked:
            return False
        self._looked = True
        # The message before the state, so that the state is not older than the message.
        message, checkpoint = self._log.model(FIRST_PARTITION), self._log.checkpoint(FIRST_PARTITION)
        try:
            self._hear(checkpoint)
        except MurkError as error:
            _log.warning("%s: the first partition's models cannot be read: %s", self._log.url, error)
        accept_newest(self._log, self._task, self._rules, message, self._rules.hear_newest)
        return True

    def _hear(self, checkpoint: Checkpoint) -> None:
        if checkpoint.state is None or checkpoint.state == self._state:
            return
        state = committed_state(self._log, self._task, FIRST_PARTITION, checkpoint)
        check_count(self._log, state, state.learner.get("n_releases"))
        self._rules.hear(state.learner)
        self._state = checkpoint.state


def accept_newest(
    log: Log,
    task: Task,
    rules: SharingRules,
    message: bytes | None,
    accept: Callable[[int, Sequence[float]], None],
) -> None:
    """Pass a valid newest model to ``accept``, unless it claims more releases than the log has."""
    if message is None:
        return
    try:
        model = decode_model(message, task_hash=task.hash, dimension=rules.model_size, partition=FIRST_PARTITION)
    except RejectedError as error:
        _warn(log, error)
        return
    # A known version needs no request to the log, part of which may be unreachable.
    released = model.version if model.version < rules.next_model_at else sum(log.ends())
    try:
        if model.version > released:
            raise UserError(f"the model has learned {model.version} releases, but the log has only {released}")
        accept(model.version, model.parameters)
    except UserError as error:
        _warn(log, error)


def _warn(log: Log, error: Exception) -> None:
    # The first partition's worker publishes its model again.
    _log.warning("%s: the newest model is not one that a learner has published: %s", log.url, error)


def committed_state(log: Log, task: Task, partition: int, checkpoint: Checkpoint) -> StateMessage:
    """Decode a partition's committed state; raise `MurkError` if it is damaged or was not committed there."""
    assert checkpoint.state is not None
    message = decode_state(checkpoint.state, f"partition {partition} of {log.url}")
    stored = message.task, message.identity, message.partition, message.offset
    if stored != (task.hash, log.identity, partition, checkpoint.offset) or message.counters.read > message.offset:
        raise _not_committed(log, partition)
    return message


def check_count(log: Log, message: StateMessage, count: object) -> None:
    """Raise `MurkError` if a state's learner has not learned as many releases as were counted."""
    if message.counters.learned != count:
        raise _not_committed(log, message.partition)


def _not_committed(log: Log, partition: int) -> MurkError:
    return MurkError(
        f"the state of partition {partition} of {log.url} was not committed there by its learner: restore it from a "
        "copy",
        code="MURK-STATE-001",
    )
