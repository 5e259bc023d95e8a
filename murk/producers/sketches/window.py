"""One window of an organisation's records, from its first record to its end."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from murk.producers.ledger.requests import Key
from murk.producers.receipts import WindowReceipt

if TYPE_CHECKING:
    from murk.privacy.sketches.window import WindowAccumulator
    from murk.producers.ledger.transaction import Refusal
    from murk.stream.task.task import Task

KNOWN = "this window was released before"


@dataclass
class Window:
    """A window that goes on. Without an accumulator it passes by: its records are counted and not looked at.

    Parameters
    ----------
    key
        What the ledger knows it by.
    index
        What tells its simulated draws apart from all others'.
    chain, since
        The chain that its sketch goes to, and where that one's partition ended when the window began.
    outcome
        What became of its beginning: "added" (it was opened), "refused" or "known".
    reason
        Why it was not opened; empty where it was.
    accumulator
        What is mixed of its records, in memory alone.
    records
        Their number so far.
    next_row
        The row after its last one, where they come from a file.
    message
        The sketch's bytes, once it was made.
    owners
        Records of each person, where the task bounds them; in memory alone.
    """

    key: Key
    index: int
    chain: int
    since: int
    outcome: str = "added"
    reason: str = ""
    accumulator: WindowAccumulator | None = field(default=None, repr=False)
    records: int = 0
    next_row: int = 0
    message: bytes | None = field(default=None, repr=False)
    owners: Counter[str] = field(default_factory=Counter, repr=False)

    def told(self) -> WindowReceipt:
        """What there is to tell of it as it stands."""
        return WindowReceipt(self.outcome, "none", self.records, self.reason)


def index_of(organisation: str, key: Key, source: str | None) -> int:
    """A number for an organisation's window that is another one for every window, in [0, 2^62)."""
    name = f"{source or ''}\0{organisation}\0{key}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 2


def why_refused(task: Task, level: str, refusals: Collection[Refusal]) -> str:
    """Why a window was refused, with what helps where it is a cap that has no room for it.

    Without refusals it was refused in an earlier process.
    """
    reason = "the window was refused when it began"
    for refusal in refusals:
        if refusal.scope not in ("task", "level"):
            return refusal.reason
        reason = refusal.reason
    return f"{reason}; {remedy(task, level)}"


def remedy(task: Task, level: str) -> str:
    """What helps where an organisation's cap for a task has no room for another window."""
    guarantee = task.privacy.levels[level]
    # Ten windows of mu add up to sqrt 10 times the mu; of everything else to ten times as much.
    share = math.sqrt(10) * (1 + 1e-6) if guarantee.kind == "gdp" else 10
    amounts = ", ".join(f"{name}: {share * value:.7g}" for name, value in guarantee.to_dict()[guarantee.kind].items())
    return (
        "windows add up, so let the task allow an organisation ten, say, with privacy.per_person: "
        f"{{{guarantee.kind}: {{{amounts}}}}}, or take larger ones (sketch.window)"
    )
