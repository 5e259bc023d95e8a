"""Locks that make threads take turns with a learner, window or producer.

Compiled kernels release the GIL and work on buffers that hold a record, which no other thread may use until the record
has been learned from and wiped.
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from time import monotonic
from typing import Concatenate, ParamSpec, Protocol, TypeVar
from weakref import ref

from murk.errors import MurkError

_ERROR_CODE = "MURK-CLI-002"

_PATIENCE = 5.0  # seconds that a fork waits for threads that hold a lock

# Weak references without callbacks: Python swallows an interrupt that arrives in one.
_known_turns: list[ref[ForkSafeLock]] = []
# For each forking thread: the locks it acquired, and those it could not acquire.
_held: dict[int, list[ForkSafeLock]] = {}
_missed: dict[int, list[ForkSafeLock]] = {}


class ForkSafeLock(_thread.RLock):  # type: ignore[misc,unused-ignore]
    """A reentrant lock; copying or unpickling it creates a new, free lock.

    ``busy``: whether the thread that holds it is within a guarded call. A second call from that thread, by a signal
    handler or by the code of a value such as ``__float__``, is refused with `held_by_itself`.
    """

    __slots__ = ("busy",)

    def __init__(self) -> None:
        self.busy = False
        if len(_known_turns) % 1024 == 0:
            _known_turns[:] = [known for known in _known_turns if known() is not None]
        _known_turns.append(ref(self))

    def __reduce__(self) -> tuple[type[ForkSafeLock], tuple[()]]:
        return type(self), ()


def held_by_itself() -> MurkError:
    """Return the error for a call within another call, from the same thread."""
    return MurkError(
        "this learner, window or producer is already in use by this thread: a signal handler, or the code of "
        "a value that is being read, must not use the object that it interrupts. (Or this process was forked while "
        "another thread used it: make a learner again from its last state)"
    )


class _Guarded(Protocol):
    _turns: ForkSafeLock


Self = TypeVar("Self", bound=_Guarded)
Given = ParamSpec("Given")
Found = TypeVar("Found")


def locked(method: Callable[Concatenate[Self, Given], Found]) -> Callable[Concatenate[Self, Given], Found]:
    """Serialise calls of a method by the ``_turns`` lock of its object."""

    @wraps(method)
    def alone(self: Self, /, *given: Given.args, **named: Given.kwargs) -> Found:
        turns = self._turns
        # Nothing is called between taking the lock and the ``try``, so an interrupt leaves neither lock nor flag set.
        with turns:
            if turns.busy:
                raise held_by_itself()
            try:
                turns.busy = True
                return method(self, *given, **named)
            finally:
                turns.busy = False

    return alone


# In a forked child, a lock held by another thread would never be released, and the object that it guards may be half
# written. If a thread does not finish in time, the child refuses to use that object.
def _before_fork() -> None:
    held, missed = _held.setdefault(get_ident(), []), _missed.setdefault(get_ident(), [])
    deadline = monotonic() + _PATIENCE
    for known in _known_turns:
        turns = known()
        if turns is not None:
            acquired = turns.acquire(timeout=max(0.0, deadline - monotonic()))
            (held if acquired else missed).append(turns)


def _after_fork() -> None:
    for turns in _held.pop(get_ident(), []):
        turns.release()
    _missed.pop(get_ident(), None)


def _after_fork_in_child() -> None:
    for turns in _missed.get(get_ident(), []):
        turns._at_fork_reinit()  # type: ignore[attr-defined]
        turns.busy = True
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
