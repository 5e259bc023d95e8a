"""Robust standard streams: closed ones are reopened, and escape sequences are made visible."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from murk.errors import printable


class PrintableStream:
    """A text stream that escapes invisible characters.

    File names, topics and log content are untrusted: an escape sequence could move the cursor or hide text. Code that
    draws on the terminal itself writes to ``terminal``.
    """

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        """Write text."""
        self.terminal.write(printable(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write several lines."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.terminal)


def terminal(stream: Any) -> Any:
    """Return the underlying stream, for drawing on a terminal; never write untrusted text to it."""
    return stream.terminal if isinstance(stream, PrintableStream) else stream


@contextmanager
def printable_output() -> Iterator[None]:
    """Escape invisible characters on standard output and error within the block."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        cast(TextIO, stream if isinstance(stream, PrintableStream) else PrintableStream(stream)) for stream in before
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def open_closed_streams() -> None:
    """Redirect closed streams (``>&-``) to the null device; else the next file, such as a ledger, gets their number."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number, inheritable=True)
                os.close(null)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
