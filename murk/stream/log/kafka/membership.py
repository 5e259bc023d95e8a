"""A learner's membership in the consumer group of a log, under a name that survives a restart."""

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
from murk.stream.log.interface import Membership, UnreachableError
from murk.stream.log.kafka.connection.clients import Clients
from murk.stream.log.kafka.connection.errors import translate_errors
from murk.stream.log.kafka.topics import Names

_ERROR_CODE = "MURK-KAFKA-001"

LOOK = 0.2  # seconds between two polls of the group
PAUSE = 0.5  # seconds between two attempts to reach a broker
JOINING = 5.0  # seconds that the first request for partitions waits for the group to assign some
HANDING_OVER = 2.0  # seconds that a partition's next owner waits for this process to end its step, before it is fenced
# Milliseconds after which a learner that has not called `partitions` leaves the group (as with
# ``max.poll.interval.ms``).
PATIENCE_MS = 300_000
_LOOK_AGAIN = 0.001
_CLOSING = 3.0
_LONGEST_NAME = 249
_SLOTS = 1000
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")

_log = logging.getLogger(__name__)


class Slot:
    """The smallest number, from 0, that no other process of this machine holds for a group.

    It names an abstract Unix socket, which the system removes when the process ends. ``number`` is None where there are
    no such sockets (not Linux) or all numbers are taken.
    """

    def __init__(self, group: str) -> None:
        self.number: int | None = None
        self._socket: socket.socket | None = None
        key = sha256(group.encode()).hexdigest()[:16]
        for number in range(_SLOTS):
            try:
                self._socket = _bind(f"\0murk-learner-{key}-{number}")
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                return
            self.number = number
            return

    @property
    def name(self) -> str | None:
        """This machine's name and the number, as a valid group instance id; None without a number."""
        if self.number is None:
            return None
        end = f"-{self.number}"
        return re.sub("[^A-Za-z0-9._-]", "-", socket.gethostname())[: _LONGEST_NAME - len(end)] + end

    def close(self) -> None:
        """Release the number."""
        if self._socket is not None:
            self._socket.close()


def check_name(name: str) -> str:
    """Return a learner's name, or raise `UserError` if it is not a valid group instance id."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise UserError(f"the learner's name {name!r} is invalid: use at most 249 letters, digits, '.', '_' and '-'")
    return name


def _bind(name: str) -> socket.socket:
    family = getattr(socket, "AF_UNIX", None)
    if family is None:
        raise OSError(errno.EAFNOSUPPORT, "no such sockets")
    bound = socket.socket(family, socket.SOCK_DGRAM)
    try:
        bound.bind(name)
    except BaseException:
        bound.close()
        raise
    return bound


class KafkaMembership(Membership):
    """One learner's membership in the consumer group of a log.

    The group only assigns partitions: committed offsets are in the partitions' states, since anybody with Kafka's tools
    can reset a group's offsets. A member that was away for less than the session time-out keeps its partitions. A
    thread polls the group, so that learning does not wait for it. ``name`` is by default the machine's name and the
    number of a `Slot`. Raises `UserError` if it is invalid.
    """

    shared = True

    def __init__(self, clients: Clients, names: Names, name: str | None = None) -> None:
        self._url, self._clients, self._names = clients.url, clients, names
        self._slot = Slot(names.group) if name is None else None
        self.name = self._slot.name if self._slot is not None else check_name(name or "")
        self._assigned: frozenset[int] = frozenset()
        self._error: Exception | None = None
        self._asked, self._answered, self._stop = threading.Event(), threading.Event(), threading.Event()
        self._for_good = True
        # Started on first use, so that an unreachable broker is handled in the same way then as later.
        self._thread: threading.Thread | None = None

    def partitions(self) -> frozenset[int]:
        """Return the partitions last assigned to this process; a process that stops asking leaves the group."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="murk-group", daemon=True)
            self._thread.start()
            # Wait, since a learner that ends when nothing arrives for some time would otherwise end before it begins.
            self._answered.wait(JOINING)
        # Set before reading the error: a change after this line counts as not yet reported.
        self._asked.set()
        error = self._error
        # Without a broker, a learner that has partitions goes on: if they get new owners, it is fenced.
        if error is not None and not (isinstance(error, UnreachableError) and self._assigned):
            raise error
        return self._assigned

    def close(self, *, for_good: bool = True) -> None:
        """Leave the group, so that others take over now; or only disconnect, to come back under the same name."""
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
                words = (
                    "another learner of %s has joined under the name %s: give each its own --name. This one continues "
                    "without a name, and its partitions go to others when it is restarted"
                )
                _log.error(words, self._url, self.name)
                self.name, self._assigned = None, frozenset()
            except UnreachableError as error:
                self._error = error
                self._answered.set()
                self._stop.wait(PAUSE)
            except Exception as error:  # noqa: BLE001 - raised by `partitions`
                self._error = error
                self._answered.set()
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
                    with translate_errors(self._url, "sharing the partitions", apart=(FencedInstanceIdError,)):
                        self._apply(frozenset(member.assigned()))
                    if member.settled:
                        self._answered.set()
                self._stop.wait(LOOK if member.settled else _LOOK_AGAIN)
        except FencedInstanceIdError:
            superseded = True
            raise
        finally:
            # A member without a name cannot come back; a superseded one has nothing to leave. After an error, a static
            # member keeps its place and rejoins before the others notice.
            ended = self._stop.is_set() and self._for_good
            member.leave(for_good=not superseded and (ended or self.name is None))

    def _apply(self, assigned: frozenset[int]) -> None:
        lost = self._assigned - assigned
        if assigned != self._assigned:
            _log.info("partitions %s of %s are assigned to this process", sorted(assigned), self._url)
        self._assigned, self._error = assigned, None
        if lost:
            # The next poll releases the partitions: let a step that is under way end first.
            self._asked.clear()
            self._asked.wait(HANDING_OVER)
