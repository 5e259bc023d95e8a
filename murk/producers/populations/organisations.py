"""The organisations of a file: each releases sketches of its own rows in one pass."""

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
    """The organisations of a file: the whole file, or the rows with one value of the column ``sketch.organisation``.

    Rows are taken in order; each organisation has its own account, windows and keys. A window ends after
    ``sketch.window`` records. The last one is released if it has at least as many records as a sketch has rows; a
    smaller one is left out: it would spend as much as a full one and say almost nothing. A window that is lost with its
    process begins again at its first row; nothing was debited.

    See `FilePopulation` for parameters and errors. A new log also needs an organisation with enough rows, and at most
    1000 organisations.

    Attributes
    ----------
    organisations
        Number of rows of each organisation.
    beyond
        Rows beyond their person's ``sketch.rows_per_person``: drawn at random, and mixed as zeros.
    lost
        Windows that were open when an earlier process died.
    refusal
        Why this process refused a window, with the remedy; empty if it refused none.
    """

    problem: WindowProblem

    @property
    def releases(self) -> int:
        """Windows released so far, including those of earlier processes."""
        return self._sums.released

    @property
    def refused(self) -> int:
        """Windows refused so far for lack of budget."""
        return self._sums.refused

    @property
    def notice(self) -> str:
        """Message about windows lost earlier; empty without any."""
        if not self.lost:
            return ""
        which = "a window was" if self.lost == 1 else f"{self.lost:,} windows were"
        return (
            f"{which} lost when an earlier process ended in the middle of it: nothing was debited or sent, and the "
            "rows are read again from its first one on"
        )

    def steps(self) -> Iterator[Step]:
        """Release the rest of the file, a block per step; see `FilePopulation.steps`."""
        self._all.flush()
        self._catch_up()
        yield self._step()
        for block in self.source.blocks(self.next_row, self._block or BLOCK, excluded=self.excluded):
            groups = self._groups(block)
            start = 0
            while start < len(block):
                start = self._work(block, groups, start)
                # After a failure, producers skip the rows that they have taken.
                self.next_row = int(block.rows[start - 1]) + 1
            yield self._step()
        self._finish()
        self._all.flush()
        yield self._step()

    def figures(self) -> dict[str, Any]:
        """Return the numbers of organisations, windows and records, by outcome."""
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
        """Return the progress: windows released and refused, and records in open windows."""
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
        """Return a record's owner; None if it is beyond their share."""
        assert block.owners is not None
        return None if int(block.rows[place]) in self.beyond else block.owners[place]

    def _draw_beyond(self) -> frozenset[int]:
        """Draw the rows beyond each person's share, from the task's name and the row numbers only.

        A continued run therefore draws the same rows, and the draw does not depend on any row's values.
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
        # Books the costs and sends for all organisations.
        self._all = self._producer(ORGANISATION)
        run = self.ledger.begin_run(self.task.hash, self.source.digest, people=self.source.people)
        self.excluded = frozenset(run.excluded)
        self._windows = self.ledger.windows(self.task.hash, self.source.digest)
        # Those of the account ORGANISATION were given up by its producer.
        self.lost = self._all.lost + self._windows.give_up()
        self.refusal = ""
        self._sums = self._windows.sums()
        self._done = self._windows.done([ORGANISATION, *self.organisations])
        # Rows of ended windows are skipped; a single organisation's are not read at all.
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
        """Return each organisation's records in a block that no window has yet, as indices."""
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
        """Add records up to the first window that ends, and return the next index.

        The order of releases thus follows from the file alone, however it is cut into blocks.
        """
        stop = len(block)
        own = {name: places[np.searchsorted(places, start) :] for name, places in groups.items()}
        for name, places in own.items():
            room = self._producer(name).room
            if len(places) >= room:
                stop = min(stop, int(places[room - 1]) + 1)
        own = {name: places[: np.searchsorted(places, stop)] for name, places in own.items()}
        own = {name: places for name, places in own.items() if len(places)}
        # If this fails halfway, producers skip rows that they have added when the block comes again.
        for name, places in own.items():
            rows = block.rows[places].tolist()
            owners = None if block.owners is None else [self._owner(block, place) for place in places.tolist()]
            self._note(self._producer(name).add_block(block.x[places], block.y[places], rows=rows, people=owners))
        return stop

    def _catch_up(self) -> None:
        """Release windows that were full when the ledger could not be written, before any row is read."""
        for _, producer in sorted(self._producers.items()):
            if producer.overdue:
                self._note([producer.release()])

    def _finish(self) -> None:
        """End the last windows, sorted by name so that the order does not depend on where the work was resumed."""
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
