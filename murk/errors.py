"""The errors that Murk raises on purpose.

A message names the value or the place (file, row, column, key) and the remedy. It never holds a value
of a raw record: say the row and the column instead. Each has a stable code, which docs/errors.md lists.
"""

from typing import ClassVar

from murk.error_codes import code_of


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
        super().__init__(*words)
        self._code = code

    @property
    def code(self) -> str:
        """What it is about, as a stable code."""
        return self._code or self.kind or code_of(self.__traceback__)


class UserError(MurkError, ValueError):
    """A mistake that the caller can fix; the command line exits with 2, without a traceback."""


class DataWarning(UserWarning):
    """Records that look like a mistake; warned of in simulations, once for a learner, without any value."""
