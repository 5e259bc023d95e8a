"""The errors that Murk raises on purpose.

A message names the value or the place (file, row, column, key) and the remedy. It never holds a value
of a raw record: say the row and the column instead. Each has a stable code, which docs/errors.md lists.
"""

import traceback
from pathlib import Path
from typing import ClassVar
from unicodedata import category

from murk.error_codes import code_of

# Controls but for tab and line feed, and formats (among them those that turn letters round), lone surrogates, private
# and unassigned characters, and the two separators that end a line.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str) -> str:
    r"""Return a text in which every character that is not seen is written by its number, as in JSON.

    Line feeds and tabs stay.

    Examples
    --------
    >>> printable("caf\udce9\x1b[2J.csv")
    'caf\\udce9\\u001b[2J.csv'
    """
    if text.isprintable():
        return text
    return "".join(_shown(one) if one not in "\n\t" and category(one) in _UNSEEN else one for one in text)


def _shown(character: str) -> str:
    # Beyond the first plane, two halves: what was JSON stays JSON.
    halves = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{halves[place : place + 2].hex()}" for place in range(0, len(halves), 2))


class MurkError(Exception):
    """Something that Murk noticed and can explain; the command line exits with 1.

    Parameters
    ----------
    words
        The message.
    code
        One of the codes that docs/errors.md lists; by default the general one of the part of Murk that raises it.

    Examples
    --------
    >>> from murk.stream import open_log
    >>> try:
    ...     open_log("sqlite:///nowhere.db", create=False)
    ... except MurkError as error:
    ...     error.code
    'MURK-LOG-004'
    """

    kind: ClassVar[str | None] = None

    def __init__(self, *words: object, code: str | None = None) -> None:
        # Names in it are others' words, and may hold orders to a terminal.
        super().__init__(*[printable(word) if isinstance(word, str) else word for word in words])
        self._code = code

    @property
    def code(self) -> str:
        """What it is about, as a stable code."""
        return self._code or self.kind or code_of(self.__traceback__)


class UserError(MurkError, ValueError):
    """A mistake that the caller can fix; the command line exits with 2, without a traceback."""


def unexpected(error: BaseException) -> str:
    """What is said of an exception that nobody foresaw: its text is left out, since it may quote a raw record.

    Examples
    --------
    >>> try:
    ...     int("a raw record")
    ... except ValueError as error:
    ...     unexpected(error).partition(" at ")[0]
    'unexpected ValueError'
    """
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    return f"unexpected {type(error).__name__} at {where}; this is a fault in Murk, please report it"


class DataWarning(UserWarning):
    """Records that look like a mistake; warned of in simulations, once for a learner, without any value."""
