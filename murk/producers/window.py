"""One window of an organisation's records, from its first record to its end."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from murk.producers.claims import Key
from murk.producers.reports import WindowReceipt

if TYPE_CHECKING:
    from murk.privacy.gaussmix import SketchAccumulator
    from murk.producers.spending import Refusal
    from murk.stream.task import Task

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
    """

    key: Key
    index: int
    chain: int
    since: int
    outcome: str = "added"
    reason: str = ""
    accumulator: SketchAccumulator | None = field(default=None, repr=False)
    records: int = 0
    next_row: int = 0
    message: bytes | None = field(default=None, repr=False)

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
    epsilon, delta = (10 * getattr(guarantee, name, 0.0) for name in ("epsilon", "delta"))
    return (
        "windows add up, so let the task allow an organisation ten, say, with privacy.per_person: "
        f"{{approx: {{epsilon: {epsilon:g}, delta: {delta:g}}}}}, or take larger ones (sketch.window)"
    )
