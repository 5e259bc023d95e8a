"""Waiting for learners: a crowd's gradients and scores are taken at fresh models."""

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
"""Seconds between two looks: about a fifth of the time that was waited already."""


def wait_for_models(
    log: Log,
    problem: InteractiveProblem,
    patience: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    idle: Callable[[], None] = lambda: None,
) -> None:
    """Wait until every model is published that comes of what is on the log now.

    A block of gradients is 1% of the count, and another one in flight would make it stale; of scores, a model is due
    at the end of an epoch only, and nothing else is waited for. ``idle`` is called once where there is time.

    Raises
    ------
    MurkError
        When no learner has read anything for ``patience`` seconds.
    """
    ends = log.ends()
    before: object = None
    moved, pause = clock(), _SHORTEST
    while True:
        try:
            standing = _progress(log, problem, ends)
        except UnreachableError:
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
                "and the same command again; it carries on where it stood",
                code="MURK-LOG-009",
            )
        if pause == _SHORTEST:
            idle()
        time.sleep(pause)
        pause = min(_LONGEST, 1.2 * pause)


def _progress(log: Log, problem: InteractiveProblem, ends: Sequence[int]) -> list[tuple[bool, int]]:
    """Of each chain, or of all that share models: what `_models_progress` says."""
    if problem.shares_models:
        return [_models_progress(log, problem, FIRST_CHAIN, dict(enumerate(ends)))]
    return [_models_progress(log, problem, chain, {chain: end}) for chain, end in enumerate(ends)]


def _models_progress(log: Log, problem: InteractiveProblem, chain: int, ends: Mapping[int, int]) -> tuple[bool, int]:
    """Whether no newer model of a chain can come than the one that is out, of what stands before the ends of all chains
    that it is made of; and how far it is.
    """
    message = log.model(chain)
    try:
        published = 0 if message is None else IterateMessage.model_validate_json(message).version
    except ValidationError:
        # Not an honest learner's; the producer checks it before use and says so.
        return True, 0
    due = problem.next_published(published)
    if sum(ends.values()) < due:
        return True, published
    places = {each: log.checkpoint(each) for each in ends}
    read = sum(place.offset for place in places.values())
    if any(place.offset < ends[each] for each, place in places.items()):
        return False, read
    learned = sum(
        decode_state(place.state, f"chain {each} of {log.url}").counters.learned
        for each, place in places.items()
        if place.state is not None
    )
    # State and model are written together, but on a cluster a reader may see one a moment before the other.
    return learned < due, read
