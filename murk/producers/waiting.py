"""Waiting for learners: a crowd's gradients are taken at fresh models."""

from __future__ import annotations

import time
from collections.abc import Callable

from pydantic import ValidationError

from murk.errors import MurkError
from murk.stream.checkpoint import decode_state
from murk.stream.log import Log, Unreachable
from murk.stream.releases import IterateMessage
from murk.stream.staleness import newest_published
from murk.stream.task import Task

_LOOK = 0.005


def wait_for_models(log: Log, task: Task, patience: float, *, clock: Callable[[], float] = time.monotonic) -> None:
    """Wait until all that is on the log now is learned, and the models that came of it are published.

    A block is 1% of the count, and another one in flight would make it stale.

    Raises
    ------
    MurkError
        When no learner has read anything for ``patience`` seconds.
    """
    chains = range(log.partitions)
    ends = [log.end(chain) for chain in chains]
    before: object = None
    moved = clock()
    while True:
        try:
            standing = [_standing(log, task, chain, end) for chain, end in zip(chains, ends, strict=True)]
        except Unreachable:
            # The log itself is away; whether it comes back is waited for as long as for a learner.
            standing = [(False, -1)]
        if all(done for done, _ in standing):
            return
        now = clock()
        if standing != before:
            before, moved = standing, now
        elif now - moved > patience:
            raise MurkError(
                f"no learner has read {log.url} for {patience:g} s: start `murk learn --log {log.url}` "
                "and the same command again; it carries on where it stood"
            )
        time.sleep(_LOOK)


def _standing(log: Log, task: Task, chain: int, end: int) -> tuple[bool, int]:
    """Whether a chain has learned all before ``end`` and its model is out; and how far it has read."""
    state, offset = log.checkpoint(chain)
    if offset < end:
        return False, offset
    if state is None:
        return True, offset
    version = decode_state(state, f"chain {chain} of {log.url}").counters.learned
    message = log.model(chain)
    if message is None:
        return False, offset
    try:
        published = IterateMessage.model_validate_json(message).version
    except ValidationError:
        # Not an honest learner's; whoever computes at it looks closer and says so.
        return True, offset
    # State and model are written together, but on a cluster a reader may see one a moment before the other.
    return published >= newest_published(version, task.max_staleness.floor), offset
