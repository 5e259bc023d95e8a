"""A learner's name in its group, which it has again when it is restarted.

Sharing the chains among all learners: a consumer group whose rebalances say who learns what.
"""

from __future__ import annotations

import errno
import logging
import re
import socket
import threading
from hashlib import sha256
from time import monotonic
from typing import Any

from kafka.errors import FencedInstanceIdError

from murk.errors import UserError
from murk.stream.log.base import Membership, UnreachableError
from murk.stream.log.kafka.connection.clients import Clients
from murk.stream.log.kafka.connection.errors import translate_errors
from murk.stream.log.kafka.topics import Names

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


LOOK = 0.2
"""Seconds between two looks at the group; what is learned meanwhile does not wait for them."""

PAUSE = 0.5
"""Seconds between two attempts to reach a broker."""

HANDING_OVER = 2.0
"""Seconds that a chain's next owner waits for this process to end its step; then it is fenced."""

PATIENCE_MS = 300_000
"""A learner that has not asked for its chains for so long is taken to have stopped, and leaves the group (as by
`max.poll.interval.ms`)."""

_LOOK_AGAIN = 0.001
_CLOSING = 3.0

_log = logging.getLogger(__name__)


class KafkaMembership(Membership):
    """One learner's place in the consumer group of a log.

    The group only says which chains are assigned to whom; in a cooperative rebalance partitions move one by one, while
    the others are learned on. Reading, and what has been read, is each chain's own business: its state holds its
    offset, and a group's offsets can be reset by anybody with the tools for it.

    A member has a name, and under it comes back to the chains that it had, without the others hearing of it, if it
    has been away for less than the session's time-out. The group's life goes on in a thread of its own: whatever
    the others do, what is learned here does not wait for it.

    Parameters
    ----------
    clients, names
        Whose group.
    name
        This learner's name; by default this machine's, and a number where several run on it.

    Raises
    ------
    UserError
        When it is no name that a broker takes.
    """

    shared = True

    def __init__(self, clients: Clients, names: Names, name: str | None = None) -> None:
        self._url = clients.url
        self._clients = clients
        self._names = names
        self._slot = Slot(names.group) if name is None else None
        self.name = self._slot.name if self._slot is not None else check_name(name or "")
        self._assigned: frozenset[int] = frozenset()
        self._error: Exception | None = None
        self._asked = threading.Event()
        self._stop = threading.Event()
        self._for_good = True
        # Begun when it is first asked for: a broker that is away at that moment is waited for like at any other.
        self._thread: threading.Thread | None = None

    def chains(self) -> frozenset[int]:
        """Chains that fall to this process, as it heard last; who does not ask for long falls out of the group."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="murk-group", daemon=True)
            self._thread.start()
        # In this order: what is reported below is what counts as reported.
        self._asked.set()
        error = self._error
        # A learner that has chains goes on; if they have gone to others meanwhile, these fence it.
        if error is not None and not (isinstance(error, UnreachableError) and self._assigned):
            raise error
        return self._assigned

    def close(self, *, for_good: bool = True) -> None:
        """Leave the group, so that others take over at once; or be away, to come back under the same name."""
        self._for_good = for_good
        self._stop.set()
        self._asked.set()
        if self._thread is not None:
            self._thread.join(_CLOSING)
        if self._slot is not None:
            self._slot.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._take_part()
            except FencedInstanceIdError:
                _log.error(
                    "another learner of %s has joined under the name %s: give each a --name of its own. This one "
                    "goes on without a name, and its chains go to others when it is started again",
                    self._url, self.name,
                )  # fmt: skip
                self.name, self._assigned = None, frozenset()
            except UnreachableError as error:
                self._error = error
                self._stop.wait(PAUSE)
            except Exception as error:  # noqa: BLE001 - raised where chains are asked for
                self._error = error
                return

    def _take_part(self) -> None:
        member: Any = self._clients.member(self._names.group, self.name, PATIENCE_MS)
        superseded = False
        try:
            member.subscribe([self._names.releases])
            asked = monotonic()
            while not self._stop.is_set():
                if self._asked.is_set():
                    asked = monotonic()
                    self._asked.clear()
                if monotonic() - asked < PATIENCE_MS / 1000:
                    with translate_errors(self._url, "sharing the chains", apart=(FencedInstanceIdError,)):
                        self._take(frozenset(member.assigned()))
                self._stop.wait(LOOK if member.settled else _LOOK_AGAIN)
        except FencedInstanceIdError:
            superseded = True
            raise
        finally:
            # Without a name there is nothing to come back to; with one that is another's, nothing to leave. A member
            # that meets an error keeps its place, and is back before the others hear of it.
            ended = self._stop.is_set() and self._for_good
            member.leave(for_good=not superseded and (ended or self.name is None))

    def _take(self, assigned: frozenset[int]) -> None:
        lost = self._assigned - assigned
        if assigned != self._assigned:
            _log.info("chains %s of %s fall to this process", sorted(assigned), self._url)
        self._assigned, self._error = assigned, None
        if lost:
            # They go to others when the group is next looked at: a step that is under way may end before.
            self._asked.clear()
            self._asked.wait(HANDING_OVER)
