"""Host names that a web server answers to, as a defence against DNS rebinding.

A hostile site can resolve its name to an address in its visitor's network and then read responses; the request's
``Host`` header reveals the name.
"""

import re
import socket
from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from murk.errors import UserError

ANY = "*"
"""Allow every name."""

CLUSTER = (".svc", ".cluster.local")
"""Suffixes of Kubernetes service names, which no public site can have."""

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?")
_LONGEST = 300  # a name has at most 253 characters
_HOST = re.compile(r"(\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^:\[\]]*))(:[0-9]*)?")


class Hosts:
    """The host names that a server answers to.

    Addresses and ``localhost`` are always allowed. A server that listens on the network also allows the machine's name,
    names without a dot (services in a composition) and Kubernetes service names. Raises UserError for an invalid name.

    Parameters
    ----------
    listening
        The address that the server listens on.
    allowed
        Further names; ``*.example.org`` allows every name below example.org.

    Examples
    --------
    >>> hosts = Hosts("127.0.0.1", ["monitor.example.org"])
    >>> [hosts.allows(host) for host in ("localhost:9464", "monitor.example.org:80", "monitor", "evil.example")]
    [True, True, False, False]
    >>> Hosts("0.0.0.0").allows("murk-monitor.murk.svc:9464"), Hosts("0.0.0.0").allows("evil.example")
    (True, False)
    """

    def __init__(self, listening: str, allowed: Sequence[str] = ()) -> None:
        for name in allowed:
            if name != ANY and not _NAME.fullmatch(name.removeprefix("*.")):
                remedy = "write it without scheme and port, as in monitor.example.org"
                raise UserError(f"{name!r} is not a host name: {remedy}")
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
        if self._any or name == "localhost" or name in self._names or _is_address(name):
            return True
        return name.endswith((".localhost", *self._ends)) or (self._outside and "." not in name)

    def allow_all(self, hosts: Iterable[str]) -> bool:
        """Return whether all ``Host`` headers of a request are allowed; a request without any is not from a browser."""
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
    """Return whether only this machine can reach a listening address."""
    return ip_address(listening).is_loopback if _is_address(listening) else _plain(listening) == "localhost"
