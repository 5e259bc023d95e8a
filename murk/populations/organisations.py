"""The organisations of a file: each releases sketches of its own rows in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.populations.file_source import NOBODY
from murk.populations.file_work import FilePopulation, Step
from murk.producers.organisation import ORGANISATION, OrganisationProducer, remedy, window_device_for
from murk.producers.producer import WindowReceipt

if TYPE_CHECKING:
    from murk.producers.blocks import Block
    from murk.protocols.summaries.device import WindowDevice
    from murk.task.task import Task

_ERROR_CODE = "MURK-DATA-001"

EARLIER = "an earlier process refused them, and they stay so. For the task's own cap"
MOST = 1000  # largest number of organisations of a file: each has an open window in memory
BLOCK = 4096

Groups = Mapping[str, NDArray[np.int64]]


class OrganisationPopulation(FilePopulation):
    """The organisations of a file: the whole file, or the rows with one value of the column ``summaries.organisation``.

    Rows are taken in a random order, and a window is identified by its positions in that order. Each organisation has
    its own account, windows and keys. The last window is released if it has at least as many records as a sketch has
    rows; a smaller one is left out: it would spend as much as a full one and say almost nothing. A window that is lost
    with its process begins again at its first record; nothing was debited, and ``lost`` counts it.

    ``organisations`` maps organisations to their numbers of rows. ``beyond`` are the rows that exceed their person's
    ``summaries.rows_per_person``; they are drawn at random, and mixed as zeros. ``refusal`` is why this process refused
    a window; empty if it refused none. A new log also needs an organisation with enough rows, and at most 1000
    organisations.
    """

    device: WindowDevice

    def _totals(self) -> tuple[int, int]:
        return self._sums.released, self._sums.refused

    @property
    def notice(self) -> str:
        """Message about windows lost earlier; empty without any."""
        if not self.lost:
            return ""
        which = "a window was" if self.lost == 1 else f"{self.lost:,} windows were"
        return f"{which} lost when an earlier process ended: nothing was debited or sent, and the rows are read again"

    def steps(self) -> Iterator[Step]:
        """Release the rest of the file, a block per step; see `FilePopulation.steps`."""
        self._shared.flush()
        self._release_overdue()
        yield self._step()
        for block in self._blocks(self.crowd.block or BLOCK):
            groups = self._open_rows(block)
            start = 0
            while start < len(block):
                start = self._add_rows(block, groups, start)
                # After a failure, producers skip the rows that they have taken.
                self.next_position = int(block.positions[start - 1]) + 1
            yield self._step()
        self._end_windows()
        self._shared.flush()
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
            "refusal": (self.refusal or self._earlier()) if sums.refused else None,
            "windows": sums.released,
            "windows_lost": sums.lost,
            "windows_left_out": sums.left_out,
            "records_released": sums.records,
            "records_left_out": sums.records_left_out,
            "sketch_rows": self.device.rows,
        }

    def _earlier(self) -> str:
        """Explain refusals of an earlier process, whose reason is not stored."""
        most = max(self._windows.sums(name).released for name in (ORGANISATION, *self.organisations))
        return f"{EARLIER}, {remedy(self.task, self.crowd.level, most)}"

    def words(self) -> str:
        """Return the progress: windows released and refused, and records in open windows."""
        waiting = sum(producer.records or 0 for producer in self._producers.values())
        return f"{self.releases:,} windows released, {self.refused:,} refused, {waiting:,} records in open ones"

    def _find_problem(self, task: Task) -> WindowDevice:
        return window_device_for(task)

    def _survey(self) -> None:
        self.organisations: Counter[str] = Counter()
        self._rows: dict[tuple[str, str], list[int]] = {}
        super()._survey()
        self.beyond = self._draw_beyond()
        column = self.source.organisation_column
        if column is not None and not self.source.strict:
            self.findings += (
                (
                    f"each value of the column {column!r} is an organisation, and the number of released windows shows "
                    "how many records have that value: use this column only if these counts may be public"
                ),
            )
        if len(self.organisations) > MOST:
            raise UserError(
                f"{self.source.records} has {len(self.organisations):,} organisations in the column "
                f"{self.source.organisation_column!r}, each with an open window in memory: at most {MOST:,} can be "
                "worked through at once. Name another column with summaries.organisation, or split the file"
            )

    def _look(self, block: Block) -> None:
        names = [ORGANISATION] * len(block) if block.people is None else block.people
        self.organisations.update(name for name in names if name != NOBODY)
        if block.owners is not None:
            for organisation, owner, row in zip(names, block.owners, block.rows.tolist(), strict=True):
                self._rows.setdefault((organisation, owner), []).append(row)

    def _draw_beyond(self) -> frozenset[int]:
        """Draw the rows beyond each person's share, from the task's name and the row numbers only."""
        task, beyond = self.source.task, []
        assert task.of_organisations
        for rows in self._rows.values():
            if len(rows) > task.block.most_rows:
                drawn = sorted(rows, key=lambda row: blake2b(f"{task.name}\0{row}".encode(), digest_size=16).digest())
                beyond += drawn[task.block.most_rows :]
        self._rows.clear()
        return frozenset(beyond)

    def _check_beginning(self, set_aside: int) -> None:
        super()._check_beginning(set_aside)
        fewest, window = self.device.fewest, self.device.settings.window
        whole = self.source.organisation_column is None
        largest = max(self.organisations.values(), default=0) - (set_aside if whole else 0)
        if largest < min(fewest, window or fewest):
            whose = "" if whole else " of its largest organisation"
            largest_words = f"{self.source.records} has {largest:,} records{whose} to release"
            if self.device.rows is None:
                raise UserError(f"{largest_words}, and {fewest:,} are required: give more records, or fewer features")
            raise UserError(
                f"{largest_words}, and a sketch has {fewest:,} rows: more rows than records gain nothing. Set "
                f"summaries.rows to {largest:,} or fewer"
            )

    def _take_up(self) -> None:
        self._producers: dict[str, OrganisationProducer] = {}
        # This producer books the costs, and sends releases, for all organisations.
        self._shared = self._producer(ORGANISATION)
        run = self.ledger.begin_run(self.task.hash, self.source.digest, people=self.source.people)
        self.excluded = frozenset(run.excluded)
        self._windows = self.ledger.windows(self.task.hash, self.source.digest)
        # The producer has already counted the lost windows of the account ORGANISATION.
        self.lost = self._shared.lost + self._windows.give_up()
        self.refusal = ""
        self._sums = self._windows.sums()
        self._ended_rows = self._windows.done([ORGANISATION, *self.organisations])
        # Positions of ended windows are skipped; those of a single organisation are not read at all.
        self.next_position = self._ended_rows.get(ORGANISATION, 0) if self.source.organisation_column is None else 0

    def _producer(self, name: str) -> OrganisationProducer:
        if name not in self._producers:
            self._producers[name] = OrganisationProducer(
                self.task,
                self.log,
                self.ledger,
                organisation=name,
                level=self.crowd.level,
                noise=self.crowd.noise,
                policy=self.crowd.policy,
                device=self.device,
                source=self.source.digest,
            )
        return self._producers[name]

    def _open_rows(self, block: Block) -> Groups:
        names = [ORGANISATION] * len(block) if block.people is None else block.people
        indices: dict[str, list[int]] = {}
        for index, name in enumerate(names):
            if name != NOBODY:
                indices.setdefault(name, []).append(index)
        groups = {}
        for name, of_name in indices.items():
            mine = np.array(of_name, dtype=np.int64)
            first = max(self._ended_rows.get(name, 0), self._producer(name).next_row)
            groups[name] = mine[block.positions[mine] >= first]
        return groups

    def _add_rows(self, block: Block, groups: Groups, start: int) -> int:
        """Add records up to the first window that ends; return the next index. The file alone decides the order."""
        stop = len(block)
        groups_left = {name: indices[np.searchsorted(indices, start) :] for name, indices in groups.items()}
        for name, indices in groups_left.items():
            room = self._producer(name).room
            if len(indices) >= room:
                stop = min(stop, int(indices[room - 1]) + 1)
        groups_left = {name: indices[: np.searchsorted(indices, stop)] for name, indices in groups_left.items()}
        groups_left = {name: indices for name, indices in groups_left.items() if len(indices)}
        # If this fails halfway, producers skip rows that they have added when the block comes again.
        for name, indices in groups_left.items():
            places, owners = block.positions[indices].tolist(), None
            if block.owners is not None:
                owned = zip(block.rows[indices].tolist(), indices.tolist(), strict=True)
                owners = [None if row in self.beyond else block.owners[index] for row, index in owned]
            added = self._producer(name).add_block(block.x[indices], block.y[indices], rows=places, people=owners)
            self._collect(added)
        return stop

    def _release_overdue(self) -> None:
        """Release windows that were full when the ledger could not be written, before any row is read."""
        for _, producer in sorted(self._producers.items()):
            if producer.overdue:
                # Release one by one: if a later release fails, the figures include the earlier ones.
                self._collect([producer.release()])

    def _end_windows(self) -> None:
        """End the last windows, sorted by name so that the order does not depend on where the work was resumed."""
        for _, producer in sorted(self._producers.items()):
            if producer.records is not None:
                enough = producer.records >= self.device.fewest
                self._collect([producer.release() if enough else producer.leave_out()])

    def _collect(self, receipts: list[WindowReceipt]) -> None:
        for receipt in receipts:
            if receipt.outcome == "refused":
                self.refusal = receipt.reason
        if any(receipt.outcome != "added" for receipt in receipts):
            self._sums = self._windows.sums()
