"""How Ctrl-C and SIGTERM stop a command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGINT, SIGTERM, signal
from types import FrameType


class _Stopped(KeyboardInterrupt):
    """Not a `KeyboardInterrupt` itself: where that comes through `exec` of text, as compilers use it, a ``python -m``
    ends as if SIGINT had killed it, whatever has caught it and whatever status was given.
    """


@contextmanager
def stoppable() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM (what ends a container) stop a command as a `KeyboardInterrupt`.

    A library may make another error of the exception that a signal raises in its midst (pydantic, while it calls a
    function of ours, a `PydanticSerializationError`). Any error after a signal is therefore the signal's.
    """
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise _Stopped

    with _handled(stop):
        try:
            yield
        except Exception:
            if came:
                raise _Stopped from None
            raise


@contextmanager
def between_steps() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C and SIGTERM wait for the end of a step; what is given says whether one has come.

    The Kafka client takes an exception that is raised in its midst for the answer to a request, and goes on, or is left
    in pieces. A second signal does not wait.
    """
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            raise _Stopped

    with _handled(stop):
        yield lambda: bool(came)


@contextmanager
def _handled(stop: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal(number, stop) for number in (SIGINT, SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal(number, handler)
