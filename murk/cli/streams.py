"""Standard streams that hold up: closed ones lead nowhere, and no text takes a terminal over."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from murk.errors import printable


class PrintableStream:
    """A text stream to which every character that is not seen is written by its number.

    Names of files and topics, and what stands on a log, are others' words: an escape sequence in one may move the
    cursor, change a title or hide what follows. All that commands print comes through here.

    Parameters
    ----------
    terminal
        Where it is written to; what draws on a terminal by escape sequences of its own writes there itself.

    Examples
    --------
    >>> import io
    >>> stream = PrintableStream(io.StringIO())
    >>> stream.write("a\\x1b[2J.csv\\n")
    10
    >>> stream.terminal.getvalue()
    'a\\\\u001b[2J.csv\\n'
    """

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        """Write a text."""
        self.terminal.write(printable(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.terminal)


def terminal(stream: Any) -> Any:
    """Return the stream itself, for what draws on a terminal; who writes there writes nothing of others' words."""
    return stream.terminal if isinstance(stream, PrintableStream) else stream


@contextmanager
def printable_output() -> Iterator[None]:
    """Print nothing that is not seen, on standard output and error, until the block ends."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        cast(TextIO, one if isinstance(one, PrintableStream) else PrintableStream(one)) for one in before
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def open_closed_streams() -> None:
    """Let standard streams that were closed (``>&-``) lead nowhere.

    Otherwise the next file that is opened, a ledger or a log, is under their number, and whatever a library prints
    is written into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            found = os.open(os.devnull, os.O_RDWR)
            if found != number:
                os.dup2(found, number, inheritable=True)
                os.close(found)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
