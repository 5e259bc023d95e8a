"""What a producer says about what it did. It stays on the device, and holds no value of a record."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from murk.producers.ledger.transaction import Refusal

SMALLEST_GROUP = 20
"""Figures that depend on values leave a device only as sums over at least so many people."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one record.

    Parameters
    ----------
    outcome
        "released", "refused" (a cap has no room, or the person has withdrawn), or "known" (this record was
        released before, and is not privatized again).
    delivery
        "sent", "queued" (it waits in the outbox), or "none".
    reason
        Why, in plain words; empty where there is nothing to explain.
    level, chain, version
        At which level it was released, on which chain, at which version of the model; None unless released.
    """

    outcome: str
    delivery: str
    reason: str = ""
    level: str | None = None
    chain: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class WindowReceipt:
    """What became of a window of an organisation's records, or of a record that was added to one.

    Parameters
    ----------
    outcome
        "added" (it goes on), "released", "refused" (a cap has no room, or the organisation has withdrawn: its records
        are not looked at), "known" (a window of this name was released before, and is not again), "left out",
        or "dropped" (the window has as many records of this person as the task takes).
    delivery
        "sent", "queued" (it waits in the outbox), or "none".
    records
        Records of the window so far.
    reason
        Why, in plain words, with the remedy; empty where there is nothing to explain.
    level, chain
        At which level it was released, and on which chain; None unless released.
    """

    outcome: str
    delivery: str
    records: int
    reason: str = ""
    level: str | None = None
    chain: int | None = None


@dataclass(frozen=True, slots=True)
class BlockReport:
    """What became of a block of records.

    Parameters
    ----------
    released, refused, known
        Numbers of records.
    next_row
        The row that the next block begins with.
    refusals
        Which records were refused and why.
    """

    released: int
    refused: int
    known: int
    next_row: int
    refusals: tuple[Refusal, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class FlushReport:
    """What became of the releases that waited in the outbox.

    Parameters
    ----------
    sent
        Appended to the log now.
    already
        Found on the log: an earlier process sent them and died before it heard so.
    expired
        Deleted, since they had expired.
    """

    sent: int
    already: int
    expired: int


class Counts:
    """Sums over the records that were coded since this was made.

    ``clamped`` and ``missing`` depend on values, and so belong to the device; `shared` gives what may be reported
    to others.

    Examples
    --------
    >>> counts = Counts()
    >>> for person in range(25):
    ...     counts.add(person, clamped=1, missing=0)
    >>> counts.shared()
    {'records': 20, 'clamped': 20, 'missing': 0}
    """

    def __init__(self) -> None:
        self.records = self.clamped = self.missing = 0
        self._group: set[object] = set()
        self._shared: dict[str, int] | None = None

    def add(self, person: object, clamped: int, missing: int) -> None:
        """Count one record."""
        self.add_many([person], clamped, missing)

    def add_many(self, people: Collection[object], clamped: int, missing: int) -> None:
        """Count the records of some people, one for each."""
        self.records += len(people)
        self.clamped += clamped
        self.missing += missing
        self._group.update(people)
        # Only whole groups of people: the difference of two sums is a sum over enough people, too.
        if len(self._group) >= SMALLEST_GROUP:
            self._group.clear()
            self._shared = {"records": self.records, "clamped": self.clamped, "missing": self.missing}

    def shared(self) -> dict[str, int] | None:
        """Return sums over whole groups of at least 20 people; None while there is no such group."""
        return None if self._shared is None else dict(self._shared)

    def __repr__(self) -> str:
        return f"Counts({self.shared()})"
