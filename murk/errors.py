"""Exceptions that Murk raises on purpose, each with a stable code listed in docs/errors.md.

A message names the value or the place (file, row, column, key) and the remedy. It never quotes a raw record: name the
row and the column instead.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import ClassVar, Final
from unicodedata import category

FAULT: Final = "MURK-FAULT-001"
"""Code of an exception that Murk did not raise on purpose."""

# Controls, formats (including bidirectional ones), lone surrogates, private and unassigned characters, and line and
# paragraph separators.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str) -> str:
    r"""Return text with invisible characters escaped as in JSON; line feeds and tabs stay.

    >>> printable("caf\udce9\x1b[2J.csv")
    'caf\\udce9\\u001b[2J.csv'
    """
    if text.isprintable():
        return text
    return "".join(_shown(each) if each not in "\n\t" and category(each) in _UNSEEN else each for each in text)


def _shown(character: str) -> str:
    # Surrogate pairs, so that JSON stays JSON.
    halves = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{halves[index : index + 2].hex()}" for index in range(0, len(halves), 2))


class MurkError(Exception):
    """Base class for errors that Murk raises on purpose; the command line exits with 1.

    ``words`` are the message, ``code`` one listed in docs/errors.md; by default ``_ERROR_CODE`` of the module that
    makes the error.

    >>> from murk.stream import open_log
    >>> try:
    ...     open_log("sqlite:///nowhere.db", create=False)
    ... except MurkError as error:
    ...     error.code
    'MURK-LOG-004'
    """

    kind: ClassVar[str | None] = None

    def __init__(self, *words: object, code: str | None = None) -> None:
        # Names in a message may contain terminal escape sequences.
        super().__init__(*[printable(word) if isinstance(word, str) else word for word in words])
        self._code = code or self.kind or _stated(self)

    @property
    def code(self) -> str:
        """The stable error code."""
        return self._code


def _stated(error: MurkError) -> str:
    """Return the ``_ERROR_CODE`` of the module in which an error is being made."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_locals.get("self") is error:
        frame = frame.f_back
    return FAULT if frame is None else str(frame.f_globals.get("_ERROR_CODE", FAULT))


class UserError(MurkError, ValueError):
    """A mistake that the caller can fix; the command line exits with 2, without a traceback."""


def reason_of(error: BaseException, otherwise: str) -> str:
    """Return the system's reason for an error, or ``otherwise`` if it has none."""
    return (error.strerror if isinstance(error, OSError) else None) or otherwise


def unexpected(error: BaseException) -> str:
    """Describe an unexpected exception without its text, which may quote a raw record."""
    index = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(index.filename).name}:{index.lineno}"
    return f"unexpected {type(error).__name__} at {where}; this is a fault in Murk, please report it"


class DataWarning(UserWarning):
    """Warning of records that look like a mistake; issued in simulations, once per learner. It quotes no value."""
