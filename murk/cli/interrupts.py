"""How Ctrl-C and SIGTERM stop a command."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGINT, SIGTERM, signal
from types import FrameType


class _Stopped(KeyboardInterrupt):
    """Exception for a signal: ``python -m`` ignores the exit status after a plain `KeyboardInterrupt` in ``exec``."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM stop a command as a `KeyboardInterrupt`, whatever a library makes of that exception."""
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise _Stopped

    with _handled(stop):
        try:
            yield
        except Exception:
            if received:
                raise _Stopped from None
            raise


@contextmanager
def between_steps() -> Iterator[Callable[[], bool]]:
    """Defer Ctrl-C and SIGTERM to the end of a step; yield a function that returns whether one was received.

    An exception within the Kafka client would leave it in an inconsistent state. A second signal is not deferred.
    """
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            raise _Stopped

    with _handled(stop):
        yield lambda: bool(received)


@contextmanager
def _handled(stop: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal(number, stop) for number in (SIGINT, SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal(number, handler)
