"""The errors that Murk raises on purpose.

A message names the value or the place (file, row, column, key) and the remedy. It never holds a value
of a raw record: say the row and the column instead.
"""


class MurkError(Exception):
    """Something that Murk noticed and can explain; the command line exits with 1."""


class UserError(MurkError, ValueError):
    """A mistake that the caller can fix; the command line exits with 2, without a traceback."""


class DataWarning(UserWarning):
    """Records that look like a mistake; warned of in simulations, once for a learner, without any value."""
