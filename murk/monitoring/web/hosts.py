"""Under which names a web server answers: a page of another site must not read it through a name of its own.

A site can let its name lead to an address of its reader's machine or network (DNS rebinding): the reader's browser then
takes what is served there for the site's. The request still tells the name in its header ``Host``.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from murk.errors import UserError

ANY = "*"
"""Allows every name."""

CLUSTER = (".svc", ".cluster.local")
"""Ends of the names of services that Kubernetes gives; nobody else can."""

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?")
# A name has 253 characters at the most.
_LONGEST = 300
_HOST = re.compile(r"(\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^:\[\]]*))(:[0-9]*)?")


class Hosts:
    """The names that a server answers under.

    Addresses and ``localhost`` always are: no site can have these for a name. A server that listens on an address of
    this machine alone has no others. One that listens on the network has also the machine's own name, names
    without a dot, as those of services in a composition, and those that Kubernetes gives to services.

    Parameters
    ----------
    listening
        The address that the server listens on.
    allowed
        Further names; ``*.example.org`` is every name below that one.

    Raises
    ------
    UserError
        For what is no name.

    Examples
    --------
    >>> own = Hosts("127.0.0.1", ["monitor.example.org"])
    >>> [
    ...     own.allows(host)
    ...     for host in ("localhost:9464", "127.0.0.1", "monitor.example.org:80", "monitor", "evil.example")
    ... ]
    [True, True, True, False, False]
    >>> Hosts("0.0.0.0").allows("murk-monitor.murk.svc:9464"), Hosts("0.0.0.0").allows("evil.example")
    (True, False)
    """

    def __init__(self, listening: str, allowed: Sequence[str] = ()) -> None:
        for name in allowed:
            if name != ANY and not _NAME.fullmatch(name.removeprefix("*.")):
                raise UserError(
                    f"{name!r} is no name of a host: write it without scheme and port, as in monitor.example.org"
                )
        self._any = ANY in allowed
        self._names = {_plain(name) for name in allowed if not name.startswith("*")}
        self._ends = tuple(_plain(name[1:]) for name in allowed if name.startswith("*."))
        self._outside = not is_own(listening)
        if self._outside:
            self._names.add(_plain(socket.gethostname()))
            self._ends += CLUSTER
        elif not _is_address(listening):
            self._names.add(_plain(listening))

    def allows(self, host: str) -> bool:
        """Return whether a request with this header is answered."""
        match = _HOST.fullmatch(host.strip())
        if match is None or len(host) > _LONGEST:
            return False
        if match["six"] is not None:
            return _is_address(match["six"])
        name = _plain(match["name"])
        if not _NAME.fullmatch(name):
            return False
        return (
            self._any
            or _is_address(name)
            or name in self._names
            or name == "localhost"
            or name.endswith((".localhost", *self._ends))
            or (self._outside and "." not in name)
        )

    def allow_all(self, hosts: Iterable[str]) -> bool:
        """Return whether all headers of a request are allowed; one without any is: no browser sends such."""
        return all(map(self.allows, hosts))


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def is_own(listening: str) -> bool:
    """Return whether only this machine reaches an address that is listened on."""
    return ip_address(listening).is_loopback if _is_address(listening) else _plain(listening) == "localhost"
