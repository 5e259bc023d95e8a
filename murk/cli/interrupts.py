"""How Ctrl-C and signals stop a command."""

import os
import signal as signals
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging import INFO
from signal import SIG_DFL, SIG_IGN, SIGINT, SIGTERM, Signals, getsignal, signal
from types import FrameType
from typing import Final

from murk.cli.logs import say

_SIGHUP: Final[Signals | None] = getattr(signals, "SIGHUP", None)


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


def _nothing() -> str:
    return "nothing to read again"


@contextmanager
def between_steps(reload: Callable[[], str] = _nothing) -> Iterator[Callable[[], bool]]:
    """Defer Ctrl-C and SIGTERM to the end of a step; yield a function that returns whether one was received.

    An exception within the Kafka client would leave it in an inconsistent state. A second signal is not deferred.
    SIGHUP, which tells services to read their files again, calls ``reload`` at the end of a step; to a command in a
    terminal it says that the terminal was closed, and stops it like SIGTERM.
    """
    received: list[int] = []
    hung_up: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            raise _Stopped

    def hang_up(number: int, frame: FrameType | None) -> None:
        if in_terminal:
            stop(number, frame)
        else:
            hung_up.append(number)

    def asked() -> bool:
        if hung_up:
            hung_up.clear()
            say(f"SIGHUP: {reload()}", INFO)
        return bool(received)

    in_terminal = _in_terminal()
    with _handled(stop, hang_up):
        yield asked


def _in_terminal() -> bool:
    try:
        return os.isatty(0)
    except OSError:
        return False


@contextmanager
def _handled(
    stop: Callable[[int, FrameType | None], None], hang_up: Callable[[int, FrameType | None], None] | None = None
) -> Iterator[None]:
    handlers: dict[Signals, Callable[[int, FrameType | None], None]] = {SIGINT: stop, SIGTERM: stop}
    # Windows has no SIGHUP; under nohup it stays ignored.
    if _SIGHUP is not None and getsignal(_SIGHUP) not in (SIG_IGN, None):
        handlers[_SIGHUP] = hang_up or stop
    before = {number: signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal(number, SIG_DFL if handler is None else handler)
