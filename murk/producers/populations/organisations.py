"""The organisations of a file: each sketches its own rows, window by window, in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.producers.populations.file_source import NOBODY
from murk.producers.populations.file_work import FilePopulation, Step
from murk.producers.receipts import WindowReceipt
from murk.producers.sketches.producer import ORGANISATION, SketchProducer, sketch_problem_for
from murk.producers.sketches.window import remedy

if TYPE_CHECKING:
    from murk.learners.sketches.problem import WindowProblem
    from murk.producers.populations.file_source import Block
    from murk.stream.task.task import Task

MOST = 1000
"""Most organisations of a file: each has an open window in memory."""
BLOCK = 4096

Groups = Mapping[str, NDArray[np.int64]]


class OrganisationPopulation(FilePopulation):
    """The organisations of a file: all of it is one, or the rows with one value of the column ``sketch.organisation``.

    Rows are taken in their order; each organisation has an account, windows and keys of its own. A window ends after
    ``sketch.window`` of its organisation's records. The last one is released, too, if it has at least as many records
    as a sketch has rows; a smaller one is left out, and counted: it would spend as much as a whole one and say next to
    nothing.

    The file can be read again, so a window that a process died in begins again at its first row; nothing was debited
    for it before. That it happened is reported (``lost``).

    Parameters
    ----------
    task
        The task as its author wrote it; where the log carries it already, resolved, that one is used.
    crowd
        Who they are.
    log, ledger
        Where their releases go, and their accounts.
    block
        Most records of a block.
    policy
        What their devices allow, as the caller decides on their behalf.
    agree
        Called with what is about to become public with the task, before anything is written; it raises where that
        is not agreed to. What a log carries already is public, and is not asked about again.

    Attributes
    ----------
    organisations
        Rows of each organisation.
    beyond
        Rows of people who have more than ``sketch.rows_per_person``: drawn at random, and mixed as zeros.
    lost
        Windows that an earlier process had begun when it died, as found when this was made.
    refusal
        Why a window was refused by this process, and what helps; empty where none was.

    Raises
    ------
    UserError
        When the log carries another task, or the file, the seed, the naming of people or the ledger are not those
        that the log was begun with; or when another process is at work there;
        and when a new log is to begin with a file that no organisation has enough rows in, or with more than 1000
        organisations.
    """

    problem: WindowProblem

    @property
    def releases(self) -> int:
        """Windows released so far, those of earlier processes among them."""
        return self._sums.released

    @property
    def refused(self) -> int:
        """Windows refused so far for want of budget."""
        return self._sums.refused

    @property
    def notice(self) -> str:
        """What was found to have happened before, in words; empty where there is nothing to say."""
        if not self.lost:
            return ""
        which = "a window was" if self.lost == 1 else f"{self.lost:,} windows were"
        return (
            f"{which} lost when an earlier process ended in the middle of it: nothing was debited or sent, and the "
            "rows are read again from its first one on"
        )

    def steps(self) -> Iterator[Step]:
        """Release the rest of the file, a block a step; see `FilePopulation.steps`."""
        self._all.flush()
        self._catch_up()
        yield self._step()
        for block in self.source.blocks(self.next_row, self._block or BLOCK, excluded=self.excluded):
            groups = self._groups(block)
            start = 0
            while start < len(block):
                start = self._work(block, groups, start)
                # What fails before has booked its rows with their producers: read again, they are passed over.
                self.next_row = int(block.rows[start - 1]) + 1
            yield self._step()
        self._finish()
        self._all.flush()
        yield self._step()

    def figures(self) -> dict[str, Any]:
        """How many organisations, windows and records there are, and what became of them."""
        sums = self._sums
        return {
            "organisations": len(self.organisations),
            "records": self.source.size,
            "undeclared_labels": self._undeclared,
            "set_aside": len(self.excluded),
            "records_beyond_cap": len(self.beyond),
            "refusals": sums.refused,
            "refusal": (self.refusal or remedy(self.task, self.crowd.level)) if sums.refused else None,
            "windows": sums.released,
            "windows_lost": sums.lost,
            "windows_left_out": sums.left_out,
            "records_released": sums.records,
            "records_left_out": sums.records_left_out,
            "sketch_rows": self.problem.rows,
        }

    def words(self) -> str:
        """How far it is: windows that were released, and records of those that go on."""
        waiting = sum(producer.records or 0 for producer in self._producers.values())
        return f"{self.releases:,} windows released, {self.refused:,} refused, {waiting:,} records in open ones"

    def _find_problem(self, task: Task) -> WindowProblem:
        return sketch_problem_for(task)

    def _survey(self) -> None:
        self.organisations: Counter[str] = Counter()
        self._rows: dict[tuple[str, str], list[int]] = {}
        super()._survey()
        self.beyond = self._draw_beyond()
        column = self.source.organisation_column
        if column is not None and not self.source.strict:
            self.findings += (
                f"the task has an organisation for each value of the column {column!r}: how many windows are released "
                "says how many records have each of them. Is it a column of organisations, which anybody may count?",
            )
        if len(self.organisations) > MOST:
            raise UserError(
                f"{self.source.records} has {len(self.organisations):,} organisations in the column "
                f"{self.source.organisation_column!r}, each with an open window in memory: at most {MOST:,} can be "
                "worked through at once. Name another column with sketch.organisation, or split the file"
            )

    def _look(self, block: Block) -> None:
        names = [ORGANISATION] * len(block) if block.people is None else block.people
        self.organisations.update(name for name in names if name != NOBODY)
        if block.owners is not None:
            for organisation, owner, row in zip(names, block.owners, block.rows.tolist(), strict=True):
                self._rows.setdefault((organisation, owner), []).append(row)

    def _owner(self, block: Block, place: int) -> str | None:
        """Return whose a record is; None where it is beyond its person's share."""
        assert block.owners is not None
        return None if int(block.rows[place]) in self.beyond else block.owners[place]

    def _draw_beyond(self) -> frozenset[int]:
        """Draw the rows beyond each person's share, by the task's name and the rows' numbers alone.

        A run that goes on draws the same ones, and which rows are drawn is no function of what any row holds.
        """
        task, beyond = self.source.task, []
        assert task.of_organisations
        for rows in self._rows.values():
            if len(rows) > task.block.most_rows:
                beyond += sorted(rows, key=partial(_lot, task.name))[task.block.most_rows :]
        self._rows.clear()
        return frozenset(beyond)

    def _check_beginning(self, set_aside: int) -> None:
        super()._check_beginning(set_aside)
        fewest, window = self.problem.fewest, self.problem.settings.window
        whole = self.source.organisation_column is None
        largest = max(self.organisations.values(), default=0) - (set_aside if whole else 0)
        if largest < min(fewest, window or fewest):
            whose = "" if whole else " of its largest organisation"
            found = f"{self.source.records} has {largest:,} records{whose} to release"
            if self.problem.rows is None:
                raise UserError(f"{found}, and each has {fewest:,} numbers: give more records, or fewer features")
            raise UserError(
                f"{found}, and a sketch has {fewest:,} rows: more rows than records are work without gain. Set "
                f"sketch.rows to {largest:,} or fewer"
            )

    def _take_up(self) -> None:
        self._producers: dict[str, SketchProducer] = {}
        # Books what windows cost, and sends for all of them.
        self._all = self._producer(ORGANISATION)
        run = self.ledger.begin_run(self.task.hash, self.source.digest, people=self.source.people)
        self.excluded = frozenset(run.excluded)
        self._windows = self.ledger.windows(self.task.hash, self.source.digest)
        # What it has found as its own, and those of all others.
        self.lost = self._all.lost + self._windows.give_up()
        self.refusal = ""
        self._sums = self._windows.sums()
        self._done = self._windows.done([ORGANISATION, *self.organisations])
        # Rows of windows that have ended are passed over; those of a single organisation are not even read.
        self.next_row = self._done.get(ORGANISATION, 0) if self.source.organisation_column is None else 0

    def _producer(self, name: str) -> SketchProducer:
        if name not in self._producers:
            self._producers[name] = SketchProducer(
                self.task,
                self.log,
                self.ledger,
                organisation=name,
                level=self.crowd.level,
                noise=self.crowd.noise,
                policy=self._policy,
                problem=self.problem,
                source=self.source.digest,
            )
        return self._producers[name]

    def _groups(self, block: Block) -> Groups:
        """Places in a block of each organisation's records that no window has yet."""
        names = [ORGANISATION] * len(block) if block.people is None else block.people
        places: dict[str, list[int]] = {}
        for place, name in enumerate(names):
            if name != NOBODY:
                places.setdefault(name, []).append(place)
        groups = {}
        for name, own in places.items():
            mine = np.array(own, dtype=np.int64)
            first = max(self._done.get(name, 0), self._producer(name).next_row)
            groups[name] = mine[block.rows[mine] >= first]
        return groups

    def _work(self, block: Block, groups: Groups, start: int) -> int:
        """Add records to their windows up to where the first of these ends, and say where that is.

        So the order of releases follows from the file alone, however it was cut into blocks.
        """
        stop = len(block)
        own = {name: places[np.searchsorted(places, start) :] for name, places in groups.items()}
        for name, places in own.items():
            room = self._producer(name).room
            if len(places) >= room:
                stop = min(stop, int(places[room - 1]) + 1)
        own = {name: places[: np.searchsorted(places, stop)] for name, places in own.items()}
        own = {name: places for name, places in own.items() if len(places)}
        # The log or the ledger may be away: producers that have added their rows skip them when the block comes
        # again.
        for name, places in own.items():
            rows = block.rows[places].tolist()
            owners = None if block.owners is None else [self._owner(block, place) for place in places.tolist()]
            self._note(self._producer(name).add_block(block.x[places], block.y[places], rows=rows, people=owners))
        return stop

    def _catch_up(self) -> None:
        """Release the windows that were full when the ledger could not be written, before any row is looked at."""
        for _, producer in sorted(self._producers.items()):
            if producer.overdue:
                self._note([producer.release()])

    def _finish(self) -> None:
        """Let the last windows end: by name, so that the order does not depend on where the work was taken up."""
        for _, producer in sorted(self._producers.items()):
            if producer.records is not None:
                enough = producer.records >= self.problem.fewest
                self._note([producer.release() if enough else producer.leave_out()])

    def _note(self, receipts: list[WindowReceipt]) -> None:
        for receipt in receipts:
            if receipt.outcome == "refused":
                self.refusal = receipt.reason
        if any(receipt.outcome != "added" for receipt in receipts):
            self._sums = self._windows.sums()

    def _step(self) -> Step:
        return Step(self.next_row, self.releases, self.refused)


def _lot(name: str, row: int) -> bytes:
    return blake2b(f"{name}\0{row}".encode(), digest_size=16).digest()
