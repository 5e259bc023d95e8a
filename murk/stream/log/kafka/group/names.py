"""A learner's name in its group, which it has again when it is restarted."""

from __future__ import annotations

import errno
import re
import socket
from hashlib import sha256

from murk.errors import UserError

_MOST = 249
_SLOTS = 1000
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Slot:
    """The first number, from 0 on, that no other process of this machine has for a group: as long as this one lives.

    A process that is killed and started again finds its number free. The system takes it back however the process
    ends, since it is nothing but the name of a socket that nobody talks to; there is no file to be left behind.

    Parameters
    ----------
    group
        What the numbers are for.

    Attributes
    ----------
    number
        The number; None where the system has no such names of sockets (it is not Linux), or all are taken.
    """

    def __init__(self, group: str) -> None:
        self.number: int | None = None
        self._held: socket.socket | None = None
        key = sha256(group.encode()).hexdigest()[:16]
        for number in range(_SLOTS):
            try:
                self._held = _bound(f"\0murk-learner-{key}-{number}")
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                return
            self.number = number
            return

    @property
    def name(self) -> str | None:
        """This machine's name and the number, as a broker takes it for the name of a member; None without a number."""
        if self.number is None:
            return None
        end = f"-{self.number}"
        return re.sub("[^A-Za-z0-9._-]", "-", socket.gethostname())[: _MOST - len(end)] + end

    def close(self) -> None:
        """Release the number."""
        if self._held is not None:
            self._held.close()


def check_name(name: str) -> str:
    """Check that a broker accepts a learner's name, and return it.

    Raises
    ------
    UserError
        When a broker would refuse it.
    """
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise UserError(f"a learner's name has letters, digits, '.', '_' and '-', at most {_MOST}, and not {name!r}")
    return name


def _bound(name: str) -> socket.socket:
    family = getattr(socket, "AF_UNIX", None)
    if family is None:
        raise OSError(errno.EAFNOSUPPORT, "no such sockets")
    made = socket.socket(family, socket.SOCK_DGRAM)
    try:
        made.bind(name)
    except BaseException:
        made.close()
        raise
    return made
