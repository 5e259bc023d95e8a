"""Tokens of SASL/OAUTHBEARER, printed by a command of the operator's (such as a cloud's own client)."""

from __future__ import annotations

import shlex
import subprocess
from time import monotonic

from kafka.net.sasl.oauth import AbstractTokenProvider

from murk._internal.locks import ForkSafeLock
from murk.errors import UserError, reason_of

_ERROR_CODE = "MURK-KAFKA-003"

_PATIENCE = 30.0  # seconds that the command may take
_FRESH = 60.0  # seconds for which a token is used again; clouds' tokens are valid for several minutes at least
_LONGEST = 100_000  # characters of a token


class CommandTokens(AbstractTokenProvider):  # type: ignore[misc]
    """Tokens printed by a command, which is run without a shell. The token is never logged.

    Raises UserError, with the command's status but not its output, if it prints no token.
    """

    def __init__(self, command: str) -> None:
        self._command = shlex.split(command)
        self._lock = ForkSafeLock()
        self._token, self._made = "", float("-inf")

    def token(self) -> str:
        """Return a token, a new one if the last is a minute old."""
        with self._lock:
            if monotonic() - self._made > _FRESH:
                self._token, self._made = self._printed(), monotonic()
            return self._token

    def _printed(self) -> str:
        name = self._command[0] if self._command else ""
        try:
            done = subprocess.run(
                self._command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=False
            )
        except subprocess.TimeoutExpired:
            reason = f"took longer than {_PATIENCE:g} s"
        except (OSError, ValueError, IndexError) as error:
            reason = f"cannot be run ({reason_of(error, type(error).__name__)})"
        else:
            token = done.stdout.decode("ascii", "replace").strip()
            if done.returncode == 0 and 0 < len(token) <= _LONGEST and token.isascii() and token.isprintable():
                return token
            reason = (
                f"ended with status {done.returncode}" if done.returncode else "printed no token (one line of ASCII)"
            )
        # Neither its arguments nor what it printed: both may be secrets.
        raise UserError(f"sasl.token.command: {name!r} {reason}: run it by hand as this user")
