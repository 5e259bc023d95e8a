"""The records of a file or table for producers: checked and coded, block by block."""

from __future__ import annotations

import datetime
import math
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from murk.errors import MurkError, UserError
from murk.populations.grouping import Grouping, Slice
from murk.populations.order import rows_in_order
from murk.populations.records.files import slices
from murk.populations.records.records import Records, open_records
from murk.populations.records.tables import KEYS_LOOKED_AT, SLICE, is_blank, suspects
from murk.producers.blocks import Block
from murk.producers.ledger.names import are_plain, is_unicode, name_of
from murk.producers.ledger.spending import DAY
from murk.task.coding import Cell, as_boolean
from murk.task.errors import shown
from murk.task.features import BinaryTarget, CategoryFeature, ClassTarget, DateFeature, NumberFeature, RealTarget
from murk.task.privacy import DEFAULT_LEVEL
from murk.task.windows import utc_day, window_of

if TYPE_CHECKING:
    from murk.privacy.noise import NoiseSource
    from murk.task.coding import EncodedBlock
    from murk.task.task import Task

_ERROR_CODE = "MURK-DATA-001"

NOBODY = ""  # the organisation of rows that name none
BY_LOT = "lot"
SELECT_CHUNK = 65_536
# Largest size of the coded records in memory while a file is worked through in another order than its own, in bytes; or
# ROW_BYTES for each row of the file, if that is more, so that the file is read a bounded number of times.
WINDOW_BYTES: Final = 2**27
ROW_BYTES: Final = 8
FEWEST_ROWS: Final = 2**15  # least number of rows in memory, twice the largest block
BLOCK_ROWS: Final = 2**14  # largest number of rows in a block of people, unless it is one person's
_NAME_BYTES: Final = 80  # estimated size of a name or level in memory
MOST_SHOWN: Final = 10  # largest number of values in a message


class Window:
    """Coded records of consecutive positions up to ``stop``, which are gathered by row and given out in order.

    ``rows``, (m,), are the records' rows in the file; each record has ``size`` coded features. ``positions`` are those
    of the releases. ``starts`` has the index of each release's first record, and then m; by default each record is a
    release. ``levels`` are the releases' levels (by default their records'), and ``windows`` the numbers of their
    windows, if any.
    """

    def __init__(
        self,
        rows: NDArray[np.int64],
        positions: NDArray[np.int64],
        stop: int,
        size: int,
        starts: NDArray[np.int64] | None = None,
        levels: Sequence[str] | None = None,
        windows: NDArray[np.int64] | None = None,
    ) -> None:
        self.stop, self._windows = stop, windows
        self.rows, self._positions, self._grouped, self._levels = rows, positions, starts is not None, levels
        self._starts = np.arange(len(rows) + 1) if starts is None else starts
        self._x, self._y = np.zeros((len(rows), size)), np.zeros(len(rows))
        self._cells = np.zeros((len(rows), 0), dtype=np.uint8)
        self._names: dict[str, NDArray[np.object_]] = {}

    @classmethod
    def empty(cls, start: int) -> Window:
        """Return a window without records that ends at a position."""
        return cls(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), start, 0)

    def left(self, start: int) -> int:
        """Return the number of releases from a position on."""
        return len(self._positions) - int(np.searchsorted(self._positions, start))

    def put(self, places: NDArray[np.int64], block: Block) -> None:
        """Store the records of a block at their places."""
        if not self._cells.shape[1]:
            self._cells = np.zeros((len(self.rows), block.cells.shape[1]), dtype=np.uint8)
        self._x[places], self._y[places], self._cells[places] = block.x, block.y, block.cells
        for name in _NAMED:
            values = getattr(block, name)
            if values is not None:
                # Levels are few: equal ones share one text object.
                texts = [sys.intern(value) for value in values] if name == "levels" else list(values)
                self._names.setdefault(name, np.empty(len(self.rows), dtype=np.object_))[places] = texts

    def block(self, source: str, start: int, count: int) -> Block | None:
        """Return copies of at most ``count`` releases from a position on; None if no release is left.

        The records of one person are one release; a block of people has at most `BLOCK_ROWS`, or one person's.
        """
        first = int(np.searchsorted(self._positions, start))
        stop = min(first + count, len(self._positions))
        if self._grouped:
            most = int(np.searchsorted(self._starts, self._starts[first] + BLOCK_ROWS, side="right")) - 1
            stop = min(stop, max(first + 1, most))
        part = slice(first, stop)
        positions = self._positions[part]
        if not len(positions):
            return None
        begins = self._starts[part]
        records = slice(int(begins[0]), int(self._starts[part.stop]))
        cells = self._cells[records].copy()
        people, levels, owners = (
            self._names[name][begins].tolist() if name in self._names else None for name in _NAMED
        )
        counts = np.diff(self._starts[part.start : part.stop + 1]) if self._grouped else None
        if (
            counts is not None
            and (self._names["people"][records] != np.repeat(self._names["people"][begins], counts)).any()
        ):
            raise MurkError("two people's names have the same hash: give the rows of the file in another order")
        return Block(
            source,
            self.rows[begins],
            self._x[records].copy(),
            self._y[records].copy(),
            people,
            levels if self._levels is None else self._levels[part],
            cells,
            int(np.count_nonzero(cells == Cell.CLAMPED)),
            int(np.count_nonzero(cells >= Cell.MISSING)),
            positions.copy(),
            int(positions[-1]) + 1,
            owners=owners,
            counts=counts,
            windows=None if self._windows is None else self._windows[part].copy(),
        )

    def wipe(self) -> None:
        """Overwrite the records' values."""
        self._x.fill(0.0)
        self._y.fill(0.0)
        self._cells.fill(0)
        self._names.clear()


_NAMED: Final = ("people", "levels", "owners")

_GRID: Final = "{from: 0.25, to: 4}"


def check_columns(task: Task, level: str | None, organisation: str | None) -> None:
    """Raise a UserError if a column of levels or organisations is a feature or the target."""
    values = task.coding.all_columns
    if level in values:
        use = "a feature" if level in task.coding.columns else "the target" if level == values[-1] else "a metric"
        raise UserError(
            f"levels cannot come from the column {level!r}, {use} of the task {task.name!r}: everybody can read the "
            "level of a release, so it must not say anything about the record. Name a column of levels that people "
            "chose without looking at their records, or one level for all"
        )
    if organisation in values and not task.simulated:
        raise UserError(
            f"summaries.organisation: the column {organisation!r} is a feature or the target of the task "
            f"{task.name!r}: the number of windows would show how many records have each of its values. Name a column "
            "of organisations, or leave it out"
        )


def declared(task: Task, column: str) -> str:
    """State what a task declares, and thereby makes public, about a column of categories or labels."""
    values: tuple[str, ...] = ()
    for target in (task.target, *task.metrics):
        if isinstance(target, BinaryTarget) and column == target.name:
            values = tuple(label for label in (target.negative, target.positive) if label is not None)
        elif isinstance(target, ClassTarget) and column == target.name:
            values = target.classes
    for feature in task.features:
        if isinstance(feature, CategoryFeature) and column == feature.name:
            values = feature.categories
    more = f" and {len(values) - MOST_SHOWN} more" if len(values) > MOST_SHOWN else ""
    return f"declared: {', '.join(map(shown, values[:MOST_SHOWN]))}{more}"


class FileSource:
    """The people, or the organisations' records, of a file or of a table in memory.

    Opening reads a file once, for its digest and so that a truncated one is refused before anything is released; blocks
    are then read and checked one by one, in bounded memory. Values outside their public bounds are clamped.

    With real noise no value stops the reading, since observers of a log see whether releases arrive. Missing and
    invalid values (text instead of a number, NaN, an undeclared category or label) become 0, whatever the task's
    ``missing`` rule. If a row cannot be read (wrong number of cells, not a JSON object), names nobody, or has an
    unknown level or a budget below the grid, a row without any value is released in its place, at the task's first
    level (``fallback_level``) and from an account of its own. With a column of organisations such a row belongs to none
    and is left out. In a simulation, and if ``strict``, each of these mistakes stops the reading; so do missing values
    under ``missing: error``.

    ``absent`` are columns that none of the first records has, if each record has keys of its own. Raises UserError if
    the file cannot be read, has no rows, or lacks a column, or if levels or organisations would be read from a feature
    or the target. Messages name file, row and column, and never a value.

    >>> from murk import Task
    >>> task = Task.parse('''
    ... name: weeks
    ... features: [{name: age, low: 20, high: 40}]
    ... target: {name: worked, kind: binary, positive: "yes"}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> people = [{"age": 25, "worked": "yes"}, {"age": "forty", "worked": "no"}]
    >>> [block.x[:, 0].tolist() for block in FileSource(people, task).blocks()]
    [[-0.5, 0.0]]

    Parameters
    ----------
    records
        The file's path or a table in memory; see `open_records`.
    task
        The task that declares the columns.
    person_column, organisation_column
        The column that names people (None if each row is a person), or each record's organisation, if these release.
    level
        The level of every person (one of the task's), or "lot" for one drawn uniformly.
    level_column, budgets
        The column that names each person's level, instead of ``level``, and whether the column has budgets instead,
        which are rounded down to the task's grid of levels.
    time_column
        The column of rows' dates or times, for `grouping`, if the task's budget renews.
    strict
        Whether invalid values are refused; by default only if the task is simulated.
    """

    def __init__(
        self,
        records: object,
        task: Task,
        *,
        person_column: str | None = None,
        level: str = "default",
        level_column: str | None = None,
        budgets: bool = False,
        organisation_column: str | None = None,
        strict: bool | None = None,
        time_column: str | None = None,
    ) -> None:
        self.records: Records = open_records(records)
        self.task = task
        self.strict = task.simulated if strict is None else strict
        self.person_column, self.organisation_column = person_column, organisation_column
        self._name_column = person_column or organisation_column
        self.level, self.level_column, self._budgets = level, level_column, budgets
        levels = task.privacy.levels
        if level_column is None and level != BY_LOT and level not in levels:
            raise UserError(f"the task {task.name!r} has no level {level!r}: choose one of {task.privacy.choices}")
        if budgets and task.privacy.grid is None:
            raise UserError(f"the task {task.name!r} has no grid of budgets: write privacy: {{levels: {_GRID}}}")
        if BY_LOT in levels and level == BY_LOT and level_column is None:
            raise UserError(f"the task {task.name!r} has a level named {BY_LOT!r}, which means at random: rename it")
        check_columns(task, level_column, organisation_column)
        self._owner_column = task.block.person if task.of_organisations else None
        self.time_column = time_column
        named = self._name_column, level_column, self._owner_column, time_column
        self._named = [name for name in named if name is not None]
        self._survey = self.records.survey()
        self.allow(list(levels))
        wanted = [*task.coding.all_columns, *self._named]
        self._table = self.records.table(wanted, strict=self.strict)
        self.absent: tuple[str, ...] = getattr(self._table, "absent", ())
        for name in self._named:
            if name in self.absent:
                raise UserError(f"{self.records} has no key {name!r} in {KEYS_LOOKED_AT} records: check its spelling")
        if next(self._table.rows(0), None) is None:
            raise UserError(f"{self.records} has no rows: give a source with at least one record")

    @property
    def digest(self) -> str:
        """SHA-256 of the file's bytes, or of a table's names and values, in hexadecimal."""
        return self._survey.digest

    @property
    def path(self) -> Path | None:
        """The file; None for records in memory."""
        return self.records.path

    @property
    def people(self) -> str:
        """How people or organisations are named, such as "row", "column NAME" or "one organisation"."""
        if self.task.of_organisations:
            return "one organisation" if self._name_column is None else f"organisations of column {self._name_column}"
        return "row" if self.person_column is None else f"column {self.person_column}"

    @cached_property
    def size(self) -> int:
        """Number of rows. The file is read to count them, unless `blocks` has reached its end."""
        count = sum(1 for _ in self._table.rows(0))
        self._check_unchanged()
        return count

    def blocks(
        self, start: int = 0, size: int | Callable[[], int] = 4096, *, excluded: Collection[int] = ()
    ) -> Iterator[Block]:
        """Yield blocks of at most ``size`` records from the row ``start`` on, without ``excluded`` rows.

        Raises UserError for an invalid record, or if the file changed since it was opened; earlier blocks are valid.
        """
        left_out = frozenset(excluded)
        numbered: Iterator[tuple[int, Any]] = enumerate(self._table.rows(start), start)
        if left_out:
            numbered = ((row, record) for row, record in numbered if row not in left_out)
        rows = start
        while True:
            pairs = list(islice(numbered, max(1, size() if callable(size) else size)))
            self._check_unchanged()
            if not pairs:
                if not start and not left_out:
                    self.size = rows
                return
            rows = pairs[-1][0] + 1
            yield self._block(*zip(*pairs, strict=True))

    def blocks_in_order(
        self, key: bytes | None, start: int = 0, size: int | Callable[[], int] = 4096, *, excluded: Collection[int] = ()
    ) -> Iterator[Block]:
        """Yield blocks like `blocks`, from position ``start`` of the order under ``key`` (None: the file's order).

        The file is read from its beginning, and the coded records of the next positions are kept in memory, up to
        ``WINDOW_BYTES`` or ``ROW_BYTES`` for each row; then the file is read again. This does not affect how the file
        is cut into blocks. Nothing is written to disk, and the memory is wiped at the end.
        """
        if key is None:
            yield from self.blocks(start, size, excluded=excluded)
            return
        left_out = np.array(sorted(excluded), dtype=np.int64)

        def plan(start: int, count: int) -> Window:
            stop = min(self.size, start + max(count, self._room()) + len(left_out))
            rows, positions = rows_in_order(key, self.size, start, stop), np.arange(start, stop, dtype=np.int64)
            if len(left_out):
                kept = ~np.isin(rows, left_out)
                rows, positions = rows[kept], positions[kept]
            return Window(rows, positions, stop, self.task.coding.width)

        yield from self._in_order(lambda start: self.size, plan, start, size)

    def grouping(self, key: bytes, *, by_row: bool = False) -> Grouping:
        """Return the file's people, each with their rows, in the order under a key, or by their first rows."""
        return Grouping(self._identified, self.size, key, by_row=by_row, disagree=self._disagree)

    def people_in_order(
        self, people: Grouping, start: int = 0, size: int | Callable[[], int] = 4096
    ) -> Iterator[Block]:
        """Yield blocks of people with all their records, from the position ``start`` on, like `blocks_in_order`."""

        def plan(start: int, count: int) -> Window:  # noqa: ARG001
            part = people.part(start)
            assert part is not None
            first = start - part.first
            room = part.starts[first] + self._room()
            last = max(first + 1, int(np.searchsorted(part.starts, room, side="right")) - 1)
            if part.windows is not None and self.task.privacy.repeats_answers:
                # Whether a person repeats an answer depends on their previous window's answer: end before the next
                # window.
                last = min(last, int(np.searchsorted(part.windows, part.windows[first], side="right")))
            starts, levels = part.starts[first : last + 1], None
            if part.levels is not None:
                names = self._level_names
                levels = [self.fallback_level if at < 0 else names[at] for at in part.levels[first:last].tolist()]
            positions = np.arange(start, part.first + last, dtype=np.int64)
            rows = part.rows[starts[0] : starts[-1]]
            windows = None if part.windows is None else part.windows[first:last]
            more = starts - starts[0], levels, windows
            return Window(rows, positions, part.first + last, self.task.coding.width, *more)

        def reach(start: int) -> int:
            part = people.part(start)
            return start if part is None else part.stop

        yield from self._in_order(reach, plan, start, size)

    def _in_order(
        self,
        reach: Callable[[int], int],
        plan: Callable[[int, int], Window],
        start: int,
        size: int | Callable[[], int],
    ) -> Iterator[Block]:
        """Yield blocks of the windows that ``plan`` makes, each from a position up to that position's ``reach``."""
        window = Window.empty(start)
        try:
            while True:
                count = max(1, size() if callable(size) else size)
                if window.left(start) < count and window.stop < reach(start):
                    window.wipe()
                    window = plan(start, count)
                    self._fill(window)
                block = window.block(self.digest, start, count)
                if block is None:
                    return
                start = block.next_position
                yield block
        finally:
            window.wipe()

    def _room(self) -> int:
        """Return how many coded records fit into the memory of a window (``WINDOW_BYTES``, ``ROW_BYTES``)."""
        names = sum(each is not None for each in (self._name_column, self.level_column, self._owner_column))
        columns = len(self.task.coding.all_columns)
        record = 8 * (self.task.coding.width + 1) + columns + 6 * 8 + names * _NAME_BYTES
        return max(FEWEST_ROWS, max(WINDOW_BYTES, ROW_BYTES * self.size) // record)

    def _fill(self, window: Window) -> None:
        """Read the file and store the coded records of a window."""
        by_row, count = np.argsort(window.rows), 0
        ascending = window.rows[by_row]
        for numbers, records in slices(self._table, SLICE):
            self._check_unchanged()
            count = numbers.stop
            first, last = np.searchsorted(ascending, (numbers.start, numbers.stop))
            wanted = ascending[first:last].tolist()
            if wanted:
                chosen = [records[row - numbers.start] for row in wanted]
                window.put(by_row[first:last], self._block(wanted, chosen))
        self._check_unchanged()
        if count != self.size:
            raise self._changed()

    def _identified(self) -> Iterator[Slice]:
        """Yield slices of the file: the people of rows, and the rows' levels and windows if columns name them."""
        index = {name: at for at, name in enumerate(self._level_names)}
        for rows, records in slices(self._table, SLICE):
            self._check_unchanged()
            columns = self._table.columns(records, rows, self._named)
            people, _, levels, unreadable = self._identities(columns, rows)
            windows = None
            if self.time_column is not None:
                windows = self._windows(columns[self.time_column], rows, unreadable)
            assert people is not None
            codes = None
            if self.level_column is not None and levels is not None:
                codes = np.array([index[level] for level in levels], dtype=np.int64)
                codes[sorted(unreadable)] = -1
            yield Slice(rows.start, people, codes, windows)
        self._check_unchanged()

    def _windows(self, column: Sequence[Any], rows: Sequence[int], unreadable: Collection[int]) -> NDArray[np.int64]:
        """Return the numbers of rows' windows; an unreadable row without a date belongs to today's window."""
        window, today = self.task.privacy.window, int(time.time()) // DAY
        texts: dict[str, int] = {}
        numbers = []
        for index, value in enumerate(column):
            day = texts.get(value) if type(value) is str else None
            if day is None:
                day = utc_day(value)
                if day is None and index in unreadable:
                    day = today
                elif day is None or day > today + 1 or (day < 0 and self.task.track is not None):
                    mistake = "is in the future" if day is not None and day > 0 else "is before 1970"
                    mistake = "is not a date or time, as in 2024-05-31" if day is None else mistake
                    raise UserError(
                        f"{self._location(rows[index], self.time_column or '')}: the value {mistake}. Correct it, or "
                        "leave the row out"
                    )
                elif type(value) is str:
                    texts[value] = day
            numbers.append(window_of(window, day))
        return np.array(numbers, dtype=np.int64)

    @property
    def _level_names(self) -> list[str]:
        return list(self.task.privacy.levels)

    def _disagree(self, first: int, second: int) -> UserError:
        return UserError(
            f"{self._location(second, self.level_column or '')}: another level than in row {first + 1}, of the same "
            "person. All rows of a person are one answer, at one level: give them the same one"
        )

    def select(self, count: int, noise: NoiseSource, *, excluded: Collection[object] = ()) -> list[int]:
        """Draw a public sample of rows uniformly without replacement, outside ``excluded``, in ascending order."""
        from murk.privacy.noise import Purpose

        if self.person_column is not None:
            raise UserError(
                "a public sample can be set aside only where every row is a person of its own: with a column "
                f"of people ({self.person_column!r}) a person's other rows would still be released"
            )
        excluded_rows = sorted(row for row in excluded if isinstance(row, int) and 0 <= row < self.size)
        left_out = np.array(excluded_rows, dtype=np.int64)
        if not 0 <= count <= self.size - len(left_out):
            raise UserError(f"{count} rows cannot be set aside: {self.records} has {self.size - len(left_out)}")
        rows, keys = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
        for first in range(0, self.size, SELECT_CHUNK):
            fresh = np.arange(first, min(first + SELECT_CHUNK, self.size), dtype=np.int64)
            fresh = fresh[~np.isin(fresh, left_out)]
            rows = np.concatenate([rows, fresh])
            keys = np.concatenate([keys, noise.words(fresh, 1, Purpose.SELECTION)[:, 0]])
            # The rows with the smallest keys are a uniform sample, independent of the chunks.
            smallest = np.argsort(keys, kind="stable")[:count]
            rows, keys = rows[smallest], keys[smallest]
        return sorted(rows.tolist())

    def covariates(self, rows: Collection[int]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the distinct coded features of some rows, (u, p), and their counts, without reading the target."""
        wanted = frozenset(rows)
        chosen = [(row, record) for row, record in enumerate(self._table.rows(0)) if row in wanted]
        self._check_unchanged()
        if len(chosen) != len(wanted):
            raise UserError(f"{self.records} has {self.size} rows: rows beyond them cannot be a public sample")
        numbers, records = zip(*chosen, strict=True)
        columns = self._table.columns(records, numbers, self.task.coding.columns)
        coded = self._encode(columns, numbers, target=False)
        points, counts = np.unique(coded.x, axis=0, return_counts=True)
        return points, counts.astype(np.int64)

    def labels(self) -> Counter[str]:
        """Return how many rows have each raw value of the target, for the holder of a simulation's file only."""
        counts: Counter[str] = Counter()
        for rows, records in slices(self._table, SELECT_CHUNK):
            [column] = self._table.columns(records, rows, [self.task.target.name]).values()
            counts.update(str(value).strip() for value in column if not is_blank(value))
        self._check_unchanged()
        return counts

    def __repr__(self) -> str:
        return f"FileSource({str(self.records)!r})"

    def _block(self, rows: Sequence[int], records: Sequence[Any]) -> Block:
        coding = self.task.coding
        columns = self._table.columns(records, rows, [*coding.all_columns, *self._named])
        people, owners, levels, unreadable = self._identities(columns, rows)
        if unreadable:
            # Their owner or level is unknown, so none of their values may be released.
            columns = {
                name: [None if index in unreadable else value for index, value in enumerate(column)]
                for name, column in columns.items()
            }
        coded = self._encode(columns, rows, target=True)
        numbers, counts = np.array(rows, dtype=np.int64), (int(coded.clamped.sum()), int(coded.missing.sum()))
        named = people, levels, coded.cells
        indices = numbers, rows[-1] + 1
        return Block(self.digest, numbers, coded.x, coded.y, *named, *counts, *indices, len(unreadable), owners)

    def _identities(
        self, columns: Mapping[str, Sequence[Any]], rows: Sequence[int]
    ) -> tuple[Sequence[str] | None, Sequence[str] | None, list[str] | None, set[int]]:
        """Return rows' people or organisations, owners and levels, and the indices of rows that release no value."""
        unreadable: set[int] = set()
        people, owners = (
            None if name is None else self._names(columns[name], name, rows, unreadable)
            for name in (self._name_column, self._owner_column)
        )
        levels = None if self.level == BY_LOT else [self.level] * len(rows)
        if self.level_column is not None:
            levels, poor = self._levels(columns[self.level_column], rows)
            if self._budgets and people is not None:
                # A person with a budget below the grid's lowest pays for no release, not even one without their values.
                people = [
                    self._nobody(rows[index]) if index in poor - unreadable else name
                    for index, name in enumerate(people)
                ]
            unreadable |= poor
        return people, owners, levels, unreadable

    def _encode(self, columns: Mapping[str, Sequence[Any]], rows: Sequence[int], *, target: bool) -> EncodedBlock:
        coding = self.task.coding
        if not self.strict:
            return coding.encode(columns, target=target)
        for name in coding.all_columns if target else coding.columns:
            self._check_text(columns[name], rows, name)
        coded = coding.encode(columns, target=target)
        for index, column in zip(*np.nonzero(coded.cells >= Cell.MISSING), strict=True):
            name, cell = coded.columns[column], Cell(int(coded.cells[index, column]))
            value = columns[name][index]
            if not is_blank(value):
                # The codec codes NaN as a missing value, but NaN in a file is a mistake.
                odd = Cell.NOT_A_DATE if name in self._dates else Cell.NOT_A_NUMBER
                self._refuse(rows[index], name, odd if cell == Cell.MISSING else cell, value)
            if self.task.missing == "error":
                self._refuse(rows[index], name, cell, value)
        return coded

    def _refuse(self, row: int, column: str, cell: Cell, value: Any) -> None:
        boolean, date = as_boolean(value) is not None, isinstance(value, datetime.date | np.datetime64)
        if cell == Cell.NOT_A_NUMBER and (boolean or date):
            kind, written = ("boolean", "categories") if boolean else ("date", "kind: date")
            raise UserError(f"{self._location(row, column)}: a {kind}, not a number. Declare the column with {written}")
        remedy = {
            Cell.MISSING: "Fill it in, leave the row out, or let the task say missing: midpoint",
            Cell.UNDECLARED: f"Correct it, or declare it in the task ({declared(self.task, column)}); an empty "
            "cell is a missing value",
        }.get(cell, "Correct it; an empty cell is a missing value")
        raise UserError(f"{self._location(row, column)}: the value {cell.describe()}. {remedy}")

    def _location(self, row: int, column: str) -> str:
        return f"{self.records}, row {row + 1}, column {column!r}"

    def _check_text(self, column: Sequence[Any], rows: Sequence[int], name: str) -> None:
        for index, value in suspects(column):
            if name in self._numbers and as_boolean(value) is not None:
                self._refuse(rows[index], name, Cell.NOT_A_NUMBER, value)
            if isinstance(value, str) and not is_unicode(value):
                raise UserError(f"{self._location(rows[index], name)}: not UTF-8 text. Save the file as UTF-8")

    @cached_property
    def _numbers(self) -> frozenset[str]:
        task = self.task
        names = {feature.name for feature in task.features if isinstance(feature, NumberFeature)}
        return frozenset(names | {each.name for each in (task.target, *task.metrics) if isinstance(each, RealTarget)})

    @cached_property
    def _dates(self) -> frozenset[str]:
        return frozenset(feature.name for feature in self.task.features if isinstance(feature, DateFeature))

    def _names(self, column: Sequence[Any], name: str, rows: Sequence[int], unreadable: set[int]) -> Sequence[str]:
        """Return the names of people's accounts, adding the indices of rows that name nobody to ``unreadable``."""
        if set(map(type, column)) == {str} and are_plain(column):
            return column
        names = []
        for index, (row, value) in enumerate(zip(rows, column, strict=True)):
            try:
                names.append(name_of(value))
            except UserError as error:
                if self.strict:
                    raise UserError(f"{self._location(row, name)}: {error}") from None
                unreadable.add(index)
                # A record without any value needs nobody's budget, and is released like all others.
                names.append(NOBODY if name == self.organisation_column else self._nobody(row))
        return names

    def _nobody(self, row: int) -> str:
        """Return the account of a row whose person is unknown or does not take part."""
        return f"row {row + 1} of {self.digest[:16]}"

    def _levels(self, column: Sequence[Any], rows: Sequence[int]) -> tuple[list[str], set[int]]:
        """Return the rows' levels, and the indices of rows without a valid level."""
        levels = [self._level(value) for value in column]
        unknown = {index for index, level in enumerate(levels) if level is None}
        if unknown and self.strict:
            privacy = self.task.privacy
            wanted, remedy = f"a level of the task {self.task.name!r}", f"Its levels are {privacy.choices}"
            if privacy.grid is not None and self._budgets:
                wanted = f"a budget of at least {privacy.parameter} = {privacy.grid.low:g}, the grid's lowest"
                remedy = "Leave out people who spend less"
            raise UserError(f"{self._location(rows[min(unknown)], self.level_column or '')}: not {wanted}. {remedy}")
        return [self.fallback_level if level is None else level for level in levels], unknown

    def allow(self, levels: Sequence[str]) -> None:
        """Restrict the levels to allowed ones, in the task's order; budgets are then rounded down to allowed levels.

        An unreadable row is released at the lowest budget or the first level, which other people have, too.
        """
        grid = [level for level in levels if level != DEFAULT_LEVEL] if self._budgets else []
        if self._budgets and not grid:
            raise UserError(
                f"this device's policy allows no level of the grid of {self.task.name!r}: raise the policy's caps, or "
                "give a --level"
            )
        self._points = [int(level) for level in grid]
        self.fallback_level = (grid or levels)[0]

    def _level(self, value: Any) -> str | None:
        """Return the level that a cell names, or the largest one within the budget that it holds; None if none fits."""
        if not self._budgets:
            return value if isinstance(value, str) and value in self.task.privacy.levels else None
        try:
            budget = math.nan if isinstance(value, bool) else float(value)
            index = bisect_right(self._points, int(self.task.privacy.level_of(budget))) if math.isfinite(budget) else 0
            return str(self._points[index - 1]) if index else None
        except (TypeError, ValueError, OverflowError, UserError):
            return None

    def _check_unchanged(self) -> None:
        if self.records.changed(self._survey):
            raise self._changed()

    def _changed(self) -> UserError:
        return UserError(f"{self.records} changed while it was read: start again, and leave it unchanged")
