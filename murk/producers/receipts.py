"""What a producer says about what it did. It stays on the device, and holds no value of a record."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from murk.producers.ledger.aggregates import SMALLEST_GROUP
from murk.producers.ledger.transaction import Refusal

__all__ = ["SMALLEST_GROUP", "BlockReport", "Counts", "FlushReport", "Receipt", "WindowReceipt"]


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
        are not looked at), "known" (a window of this name was released before, and is not again) or "left out".
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
    """Sums over the records that were coded since this was made, for the device's own eyes.

    ``clamped`` and ``missing`` depend on values. Nothing reports them to others, not even over many people: another
    process may count the same records but one, and the difference of the two would be that person's.

    Examples
    --------
    >>> counts = Counts()
    >>> counts.add("ann", clamped=1, missing=0)
    >>> counts, counts.clamped
    (Counts(), 1)
    """

    def __init__(self) -> None:
        self.records = self.clamped = self.missing = 0

    def add(self, person: object, clamped: int, missing: int) -> None:
        """Count one record."""
        self.add_many([person], clamped, missing)

    def add_many(self, people: Collection[object], clamped: int, missing: int) -> None:
        """Count the records of some people, one for each."""
        self.records += len(people)
        self.clamped += clamped
        self.missing += missing

    def __repr__(self) -> str:
        # What is written to a log of a program says nothing of values.
        return "Counts()"
