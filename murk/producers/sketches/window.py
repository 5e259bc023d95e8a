"""One window of an organisation's records."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from murk.producers.delivery import WindowReceipt
from murk.producers.ledger.names import Key

if TYPE_CHECKING:
    from murk.privacy.sketches.window import WindowAccumulator
    from murk.producers.ledger.transaction import Refusal
    from murk.stream.task.task import Task

KNOWN = "this window was released before"


@dataclass
class Window:
    """An open window. Without an accumulator it is refused: its records are counted and not read.

    ``key`` identifies it in the ledger, ``index`` its simulated draws. ``since`` is the end of its chain's partition
    when it was opened. ``outcome`` is "added" (opened), "refused" or "known", with the ``reason``. ``next_row`` is the
    row after its last, ``message`` its sketch once made. ``accumulator`` and ``owners`` (records of each person, if the
    task bounds them) are in memory only.
    """

    key: Key
    index: int
    chain: int
    since: int
    outcome: str = "added"
    reason: str = ""
    accumulator: WindowAccumulator[Any] | None = field(default=None, repr=False)
    records: int = 0
    next_row: int = 0
    message: bytes | None = field(default=None, repr=False)
    owners: Counter[str] = field(default_factory=Counter, repr=False)

    def receipt(self) -> WindowReceipt:
        """Return a receipt for the window's current state."""
        return WindowReceipt(self.outcome, "none", self.records, self.reason)


def index_of(organisation: str, key: Key, source: str | None) -> int:
    """Return a number in [0, 2^62) that identifies an organisation's window."""
    name = f"{source or ''}\0{organisation}\0{key}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 2


def why_refused(task: Task, level: str, refusals: Collection[Refusal]) -> str:
    """Return why a window was refused, with a remedy if a cap has no room.

    ``refusals`` is empty if it was refused in an earlier process.
    """
    reason = "the window was refused when it began"
    for refusal in refusals:
        if refusal.scope not in ("task", "level"):
            return refusal.reason
        reason = refusal.reason
    return f"{reason}; {remedy(task, level)}"


def remedy(task: Task, level: str) -> str:
    """Return what to do if another window would exceed an organisation's cap for a task."""
    guarantee = task.privacy.levels[level]
    # Ten windows compose to sqrt(10) mu in GDP, and to ten times the budget otherwise.
    share = math.sqrt(10) * (1 + 1e-6) if guarantee.kind == "gdp" else 10
    amounts = ", ".join(f"{name}: {share * value:.7g}" for name, value in guarantee.to_dict()[guarantee.kind].items())
    return (
        "the costs of windows add up: allow an organisation ten windows, for example, with privacy.per_person: "
        f"{{{guarantee.kind}: {{{amounts}}}}}, or use larger windows (sketch.window)"
    )
