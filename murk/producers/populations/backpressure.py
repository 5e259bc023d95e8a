"""Backpressure: waiting for learners, so that a population releases at fresh models."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from murk.errors import MurkError
from murk.stream.log.base import FIRST_CHAIN, Log, UnreachableError
from murk.stream.messages.releases import IterateMessage
from murk.stream.messages.state import decode_state

if TYPE_CHECKING:
    from murk.learners.problem import InteractiveProblem

_SHORTEST, _LONGEST = 0.005, 0.05
"""Shortest and longest pause between two polls, in seconds."""


def wait_for_models(
    log: Log,
    problem: InteractiveProblem,
    patience: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    idle: Callable[[], None] = lambda: None,
) -> None:
    """Wait until every model that follows from the log's current releases is published.

    With gradients, this keeps at most one block in flight; with scores, it waits only for the models at the ends of
    epochs. ``idle`` is called once if waiting is necessary.

    Raises MurkError if no learner has read anything for ``patience`` seconds.
    """
    ends = log.ends()
    before: object = None
    moved, pause = clock(), _SHORTEST
    while True:
        try:
            progress = _progress(log, problem, ends)
        except UnreachableError:
            # Wait for an unreachable log as long as for a learner.
            progress = [(False, -1)]
        if all(done for done, _ in progress):
            return
        now = clock()
        if progress != before:
            before, moved = progress, now
        elif now - moved > patience:
            raise MurkError(
                f"no learner has read {log.url} for {patience:g} s: start `murk learn --log {log.url}` "
                "and the same command again; it continues where it stopped",
                code="MURK-LOG-009",
            )
        if pause == _SHORTEST:
            idle()
        time.sleep(pause)
        pause = min(_LONGEST, 1.2 * pause)


def _progress(log: Log, problem: InteractiveProblem, ends: Sequence[int]) -> list[tuple[bool, int]]:
    """Return `_models_progress` for each chain, or once for chains that share models."""
    if problem.shares_models:
        return [_models_progress(log, problem, FIRST_CHAIN, dict(enumerate(ends)))]
    return [_models_progress(log, problem, chain, {chain: end}) for chain, end in enumerate(ends)]


def _models_progress(log: Log, problem: InteractiveProblem, chain: int, ends: Mapping[int, int]) -> tuple[bool, int]:
    """Return whether a chain's model is the newest possible at these ends, and how many messages were read."""
    message = log.model(chain)
    try:
        published = 0 if message is None else IterateMessage.model_validate_json(message).version
    except ValidationError:
        # The producer refuses such a model.
        return True, 0
    due = problem.next_published(published)
    if sum(ends.values()) < due:
        return True, published
    checkpoints = {each: log.checkpoint(each) for each in ends}
    read = sum(checkpoint.offset for checkpoint in checkpoints.values())
    if any(checkpoint.offset < ends[each] for each, checkpoint in checkpoints.items()):
        return False, read
    learned = sum(
        decode_state(checkpoint.state, f"chain {each} of {log.url}").counters.learned
        for each, checkpoint in checkpoints.items()
        if checkpoint.state is not None
    )
    # State and model are written together, but a cluster may show one of them first.
    return learned < due, read
