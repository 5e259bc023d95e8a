"""Turns: threads use one learner, window or producer one after another, and none comes in half-way.

Compiled kernels run without the interpreter's lock, and a record passes through several steps of Python before one:
what it is put into must be nobody else's until it has been learned from and wiped.
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

_PATIENCE = 5.0
"""Seconds for which a fork waits for threads that are learning."""

# Without callbacks: Python swallows an interrupt that arrives in one.
_known_turns: list[ref[Turns]] = []
# Of each thread that forks: the locks that it holds meanwhile, and those that it could not have.
_held: dict[int, list[Turns]] = {}
_missed: dict[int, list[Turns]] = {}


class Turns(_thread.RLock):  # type: ignore[misc,unused-ignore]
    """A lock whose copies, also those out of a pickle, are new locks that nobody holds.

    Attributes
    ----------
    busy
        Whether its holder is in the middle of something. A thread may take such a lock twice (a signal's handler, or a
        value's own code, runs within whatever it interrupts); what is busy is then refused, see `occupied`.
    """

    __slots__ = ("busy",)

    def __init__(self) -> None:
        self.busy = False
        if len(_known_turns) % 1024 == 0:
            _known_turns[:] = [known for known in _known_turns if known() is not None]
        _known_turns.append(ref(self))

    def __reduce__(self) -> tuple[type[Turns], tuple[()]]:
        return type(self), ()


def occupied() -> MurkError:
    """The refusal of a call that came in the middle of another one, from the same thread."""
    return MurkError(
        "this is in the middle of something in this very thread: a signal's handler, or the code of a value that is "
        "being read, must not use the learner or window that it interrupts. (Or this process was forked while another "
        "thread was learning: make the learner again from its last state)"
    )


class _Guarded(Protocol):
    _turns: Turns


Self = TypeVar("Self", bound=_Guarded)
Given = ParamSpec("Given")
Found = TypeVar("Found")


def in_turn(method: Callable[Concatenate[Self, Given], Found]) -> Callable[Concatenate[Self, Given], Found]:
    """Let threads take turns with a method, by the ``_turns`` of its object."""

    @wraps(method)
    def alone(self: Self, /, *given: Given.args, **named: Given.kwargs) -> Found:
        turns = self._turns
        # No call stands between taking the lock and the ``try``: an interrupt leaves neither held.
        with turns:
            if turns.busy:
                raise occupied()
            try:
                turns.busy = True
                return method(self, *given, **named)
            finally:
                turns.busy = False

    return alone


# A child process has one thread. A lock that another one held when it began would never be free, and what it guards
# would be half written: where a thread does not end its turn in time, what it works on is refused in the child.


def _before_fork() -> None:
    held, missed = _held.setdefault(get_ident(), []), _missed.setdefault(get_ident(), [])
    deadline = monotonic() + _PATIENCE
    for known in list(_known_turns):
        turns = known()
        if turns is not None:
            found = turns.acquire(timeout=max(0.0, deadline - monotonic()))
            (held if found else missed).append(turns)


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
