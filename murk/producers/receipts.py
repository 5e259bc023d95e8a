"""Reports of what a producer did. They stay on the device and hold no value of a record."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from murk.producers.ledger.aggregates import SMALLEST_GROUP
from murk.producers.ledger.transaction import Refusal

__all__ = ["SMALLEST_GROUP", "BlockReport", "Counts", "FlushReport", "Receipt", "WindowReceipt"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """Result of releasing one record.

    ``outcome`` is "released", "refused" (a cap has no room, or the person has withdrawn) or "known" (the record was
    released before and is not randomized again). ``delivery`` is "sent", "queued" (in the outbox) or "none". ``reason``
    explains in plain words, and is empty if there is nothing to explain. ``level``, ``chain`` and ``version`` (of the
    model) are None unless released.
    """

    outcome: str
    delivery: str
    reason: str = ""
    level: str | None = None
    chain: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class WindowReceipt:
    """Result for a window of an organisation's records, or for a record added to one.

    ``outcome`` is "added" (the window is open), "released", "refused" (a cap has no room, or the organisation has
    withdrawn: its records are not read), "known" (a window of this name was released before) or "left out".
    ``delivery`` is "sent", "queued" (in the outbox) or "none". ``records`` counts the window's records so far.
    ``reason`` explains in plain words, with the remedy. ``level`` and ``chain`` are None unless released.
    """

    outcome: str
    delivery: str
    records: int
    reason: str = ""
    level: str | None = None
    chain: int | None = None


@dataclass(frozen=True, slots=True)
class BlockReport:
    """Result of releasing a block of records: their numbers by outcome, and the next block's first row."""

    released: int
    refused: int
    known: int
    next_row: int
    refusals: tuple[Refusal, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class FlushReport:
    """Result of sending the outbox: releases appended now, found on the log already, and deleted as expired."""

    sent: int
    already: int
    expired: int


class Counts:
    """Sums over the coded records, for the device only.

    ``clamped`` and ``missing`` depend on values, so they are never reported to others, not even over many people:
    another process may count the same records but one, and the difference would be that person's.
    """

    def __init__(self) -> None:
        self.records = self.clamped = self.missing = 0

    def add(self, person: object, clamped: int, missing: int) -> None:
        """Count one record."""
        self.add_many([person], clamped, missing)

    def add_many(self, people: Collection[object], clamped: int, missing: int) -> None:
        """Count one record of each person."""
        self.records += len(people)
        self.clamped += clamped
        self.missing += missing

    def __repr__(self) -> str:
        # A program's log must not reveal values.
        return "Counts()"
