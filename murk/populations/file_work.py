"""Base class for populations: begin or continue with a log, a ledger and a file, and release block by block.

Surveys report what is wrong with the file's values and labels. Observers of a log see whether releases arrive. So only
a simulation and an explicit check refuse a file with mistakes; with real noise, the file's holder is informed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from murk._internal.numbers import listed
from murk.errors import UserError
from murk.populations import ledger_places as places
from murk.populations.combinations import CombinationSurvey
from murk.populations.file_source import MOST_SHOWN, FileSource
from murk.populations.grouping import Tally
from murk.populations.order import ORDERS, Order, key_of_seed
from murk.populations.public_sample import OverlapError, check_apart, check_carried, public_covariates
from murk.populations.records.records import Records
from murk.privacy.noise import NoiseSource, SecureNoise, SimulatedNoise
from murk.producers.blocks import Block
from murk.producers.ledger.ledger import Ledger
from murk.producers.producer import Policy
from murk.protocols.device import device_for
from murk.results.diagnosis import MATTERS, coded_as, kept_share
from murk.stream.log.interface import Log
from murk.task.coding import Cell
from murk.task.errors import shown
from murk.task.features import INDICATOR, BinaryTarget, NumberFeature
from murk.task.task import Disclosure, Task, check_task_change

if TYPE_CHECKING:
    from murk.protocols.device import Device
    from murk.task.windows import Repeats

_ERROR_CODE = "MURK-DATA-001"


class ConstantSurvey:
    """Finds columns of a simulation's source that have one value in all rows, or none."""

    def __init__(self, source: FileSource) -> None:
        self._source, self._rows = source, 0
        coding = source.task.coding
        sizes = [len(coding.names_of(index)) for index in range(len(coding.columns))]
        sizes += [1] * len(coding.metrics)
        self._groups = [np.arange(end - size, end) for size, end in zip(sizes, np.cumsum(sizes), strict=True)]
        self._low = [np.full(size, np.inf) for size in (*sizes, 1)]
        self._high = [-low for low in self._low]
        # For each column, the number of its values, and the sum and the sum of squares of its first coded feature.
        self._sums = np.zeros((len(sizes) + 1, 3))

    def add(self, block: Block) -> None:
        """Add a block of a simulation."""
        if not self._source.task.simulated:
            return
        values = [*(block.x[:, group] for group in self._groups), block.y[:, None]]
        self._rows += len(block.y)
        for position, column in enumerate(values):
            there = column[block.cells[:, position] < Cell.MISSING]
            self._sums[position] += np.array([len(there), there[:, 0].sum(), (there[:, 0] ** 2).sum()])
            self._low[position] = np.minimum(self._low[position], there.min(axis=0, initial=np.inf))
            self._high[position] = np.maximum(self._high[position], there.max(axis=0, initial=-np.inf))

    def warnings(self) -> list[str]:
        """Return warnings about empty and constant columns, and about missing values."""
        task = self._source.task
        if not task.simulated:
            return []
        messages = []
        for position, name in enumerate(task.coding.all_columns):
            where = f"the column {name!r} of {self._source.records}"
            if not self._sums[position][0]:
                messages.append(f"{where} is empty in every row, so nothing is learned about it {_SEEN}")
            elif np.array_equal(self._low[position], self._high[position]):
                messages.append(
                    f"{where} has the same value in every row, or only values beyond the same bound, so nothing is "
                    f"learned about it {_SEEN}"
                )
        return messages + self._missing()

    def _missing(self) -> list[str]:
        task, messages = self._source.task, []
        coded = task.coding.encode_record({}, target=False).x
        for position, feature in enumerate(task.features):
            count, total, squares = self._sums[position].tolist()
            if not isinstance(feature, NumberFeature) or feature.missing == INDICATOR or not 0 < count < self._rows:
                continue
            share, mean = 1.0 - count / self._rows, total / count
            variance = squares / count - mean**2
            kept = kept_share(share, float(coded[self._groups[position][0]]) - mean, variance)
            # Constant columns have a warning of their own.
            if kept < MATTERS and self._low[position][0] < self._high[position][0]:
                typical = feature.low + (mean + 1.0) * (feature.high - feature.low) / 2.0
                messages.append(
                    f"{100.0 * share:.2g}% of the column {feature.name!r} are missing and count as "
                    f"{coded_as(feature)}: if as many are missing where there is a target, its coefficient is about "
                    f"{kept:.2f} of what it is among complete records. To avoid this, set missing: {typical:.2g} (the "
                    f"mean of the others) or missing: indicator {_SEEN}"
                )
        return messages


_SEEN = "(checked because this is a simulation; for real people nobody can check it)"


def constant_in_public(task: Task) -> list[str]:
    """Return warnings about coded features that are constant in a task's public covariates."""
    if task.covariates is None:
        return []
    points = task.covariates.points
    same = np.flatnonzero((points == points[:1]).all(axis=0)[:-1])
    return [
        f"{task.coding.names[index]!r} has the same value in all public rows, or only values beyond the same bound, so "
        "they do not show how it varies with other features"
        for index in same
    ]


def check_public(task: Task, device: Device) -> None:
    """Raise a UserError naming constant coded features if nothing can be learned with a task's public covariates."""
    try:
        device.engine()
    except UserError as error:
        raise UserError("; ".join([*constant_in_public(task), str(error)])) from None


class CodedSurvey:
    """Counts of values that are missing, out of bounds, or invalid, for the file's holder only."""

    def __init__(self, source: FileSource) -> None:
        self._source = source
        self._counts = np.zeros((len(Cell), len(source.task.coding.all_columns)), dtype=np.int64)
        self._unreadable = 0

    def add(self, block: Block) -> None:
        """Count the values of a block."""
        for cell in Cell:
            self._counts[cell] += (block.cells == cell).sum(axis=0)
        self._unreadable += block.unreadable

    def findings(self) -> list[str]:
        """Return sentences about missing targets that the task rules out and, with real noise, what was not coded."""
        source, sentences = self._source, self._missing()
        if source.strict:
            return sentences
        names = source.task.coding.all_columns
        sentences += [
            f"{source.records}: the column {name!r} is in none of the first records, and counts as missing in them"
            for name in source.absent
        ]
        parts = []
        for cell, words in _CELL_WORDS.items():
            counts = zip(names, self._counts[cell].tolist(), strict=True)
            columns = [f"{count:,} of {name!r}" for name, count in counts if count]
            if columns:
                parts.append(f"{words}: {', '.join(columns)}")
        if self._unreadable:
            rows = "rows that cannot be read, name nobody, or have no level of the task or a budget below its grid"
            parts.append(f"{rows}: {self._unreadable:,}")
        if parts:
            sentences.append(
                f"{source.records}: {'; '.join(parts)}. Values outside their bounds are clamped, all others are coded "
                "as missing, since with real noise nothing that a record holds may decide what is sent. (--check reads "
                "the file, names the first of them, and sends nothing)"
            )
        return sentences

    def _missing(self) -> list[str]:
        """Return a sentence about missing targets and metrics of which the task states that there are none."""
        source, gone = self._source, self._counts[Cell.MISSING :].sum(axis=0)
        places = {name: place for place, name in enumerate(source.task.coding.all_columns)}
        stated = [each.name for each in (source.task.target, *source.task.metrics) if each.missing_share == 0.0]
        counts = [f"{gone[places[name]]:,} of {name!r}" for name in stated if gone[places[name]]]
        if not counts:
            return []
        words = (
            f"{source.records}: {', '.join(counts)} are missing, but the task states that every person has one "
            "(missing_share: 0): they count as another value, and results are wrong. Fill them in, or remove "
            "missing_share from the task"
        )
        return [words]


_CELL_WORDS = {
    Cell.CLAMPED: "values outside their bounds",
    Cell.MISSING: "missing values",
    Cell.UNDECLARED: "values that are not declared",
    Cell.NOT_A_NUMBER: "values that are not finite numbers",
    Cell.NOT_A_DATE: "values that are not dates",
}


class LabelSurvey:
    """Detects a file that has only one label: a misspelt `positive` makes all labels the same."""

    def __init__(self, source: FileSource) -> None:
        self._source = source
        self._codes: set[float] = set()

    def add(self, block: Block) -> None:
        """Collect the labels of a block."""
        if self._source.task.target.kind != "real":
            self._codes.update(np.unique(block.y[~np.isnan(block.y)]).tolist())

    def check(self) -> None:
        """Raise a UserError, which names the label, for a file in which all labels are the same."""
        if mistake := self.mistake():
            raise UserError(mistake)

    def mistake(self) -> str:
        """Return what is wrong with the labels; empty if nothing is. Values are quoted for simulations only."""
        source, task = self._source, self._source.task
        target = task.target
        if target.kind == "real" or len(self._codes) > 1:
            return ""
        if isinstance(target, BinaryTarget):
            where = "all rows with a value" if self._codes == {1.0} else "no row"
            problem, key = f"has the positive value {shown(target.positive)} in {where}", "positive"
        else:
            problem, key = "has one class in all rows" if self._codes else "has a declared class in no row", "classes"
        there = ""
        if task.simulated:
            counts = source.labels().most_common(MOST_SHOWN)
            there = f" It has {', '.join(f'{shown(value)} in {count:,}' for value, count in counts)}." if counts else ""
        return (
            f"{source.records}: the column {target.name!r} {problem}, so nothing could be learned.{there} "
            f"Spell {key} as the file does, or name another target"
        )


def undeclared(source: FileSource) -> dict[str, int] | None:
    """Return how many rows have undeclared labels (of a binary target without ``negative``), and how many labels.

    None if labels are declared, and for real releases, since the result depends on values.
    """
    target = source.task.target
    if not source.task.simulated or not isinstance(target, BinaryTarget) or target.negative is not None:
        return None
    coding = source.task.coding
    others = [count for value, count in source.labels().items() if coding.encode_record({target.name: value}).y == 0.0]
    return {"rows": sum(others), "values": len(others)}


Agree = Callable[[Disclosure], None]


@dataclass(frozen=True)
class PopulationConfig:
    """Configuration of a population.

    ``source`` is a path, or the result of `open_records`; ``person`` the column that names people (None if each row is
    a person); ``level`` a level of the task, ``"lot"``, ``"column:NAME"`` or, on a grid of levels,
    ``"guarantee:NAME"``. Without a ``seed``, noise is real. ``block`` is the largest number of records in a block. The
    caller sets the devices' ``policy`` on their behalf. ``agree`` is called with what would become public with a new
    task, before anything is written; it raises to refuse consent. ``order`` is "random", or in a simulation "file":
    rows are released in the file's order. ``time`` is the column of rows' dates or times, which decide the window of
    each row if the task's budget renews; None if rows belong to the window in which they are released. With
    ``fast_start`` the first blocks of gradients are as large as the models' allowed age permits. Raises UserError
    for the file's order with real noise, since it would show whose release each one is.
    """

    source: str | Path | Records
    person: str | None = None
    level: str = "default"
    seed: int | None = None
    block: int | None = None
    policy: Policy = field(default_factory=Policy)
    agree: Agree | None = None
    order: Order = "random"
    time: str | None = None
    fast_start: bool = False

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise UserError(f"order {self.order!r}: choose one of {', '.join(map(repr, ORDERS))}")
        if self.order == "file" and self.seed is None:
            raise UserError(
                "the order of the file (--order file) is for simulations: with real noise it would show which row each "
                "release is of. Leave it out, or give a --seed"
            )

    @property
    def noise(self) -> NoiseSource:
        """Source of noise for the population's releases."""
        return SecureNoise() if self.seed is None else SimulatedNoise(self.seed)

    def open(self, task: Task, *, strict: bool | None = None) -> FileSource:
        """Open the file for a task (see `FileSource`); raise `UserError` for settings that do not fit its protocol."""
        opened = partial(FileSource, self.source, task, strict=strict)
        kind, colon, column = self.level.partition(":")
        self._check_time(task)
        if not task.of_organisations:
            opened = partial(opened, time_column=self.time)
            if colon and kind in ("column", "guarantee"):
                return opened(person_column=self.person, level_column=column, budgets=kind == "guarantee")
            return opened(person_column=self.person, level=self.level)
        if self.person is not None:
            raise UserError(
                f"--person {self.person}: in the task {task.name!r} (protocol: summaries) organisations release, not "
                "people. Leave it out; name a column of organisations with summaries.organisation"
            )
        if self.level not in task.privacy.levels:
            raise UserError(
                f"--level {self.level}: all organisations of a task release at one of its levels "
                f"(protocol: summaries). Choose one of {task.privacy.choices}"
            )
        return opened(level=self.level, organisation_column=task.block.organisation)

    def _check_time(self, task: Task) -> None:
        if self.time is None:
            return
        if not task.privacy.renews:
            raise UserError(f"--time {self.time}: the task {task.name!r} has no windows (privacy.window): leave it out")
        if self.person is None:
            raise UserError(f"--time {self.time}: name the people by a column, too (--person)")


@dataclass(frozen=True)
class Step:
    """Progress after a block: rows or people done, and numbers of releases and refusals so far.

    Rows done include those set aside.
    """

    rows: int
    releases: int
    refused: int


def open_accounts(log: Log, path: str | Path, *, simulated: bool | None = None) -> Ledger:
    """Open the ledger of the people who release to a log; make a new one only if nothing was released to the log.

    Raises UserError if the ledger is missing or not the one with which the log was started, or if the log's releases
    are simulated and these are real, or the reverse.
    """
    document = log.document()
    if simulated is not None and document is not None:
        places.check_kind(log, Task.from_document(document, f"the task on {log.url}"), simulated)
    identity = places.begun_with(log, path)
    begun = identity is not None or (places.in_file(log) is not None and document is not None and any(log.ends()))
    return Ledger(path, identity=identity, create=not begun)


def check_task(task: Task, policy: Policy) -> None:
    """Raise a UserError if a task cannot be learned, or devices refuse it. Call it before a log or ledger is made."""
    device = device_for(task)
    policy.admit(task, device.mechanisms)
    device.check_state()


class FilePopulation(ABC):
    """Base class for the people or organisations of a file, who release to a log block by block.

    Until `close`, it locks a log in a file, so that no other process releases there. The attribute ``task`` is the
    log's resolved task.

    ``next_position`` is the first position, in the order of release, that is not done. ``warnings`` are about other
    ledgers of these people, and about constant columns of simulations and public covariates; with real noise,
    ``findings`` are about the records. Both are for the file's holder, and do not affect what is released. Raises
    UserError if the log carries another task; if the file, seed, order, naming of people or ledger differs from the one
    with which the log was started; or if another process releases to the log.
    """

    device: Device
    next_position: int
    warnings: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    excluded: frozenset[int] = frozenset()

    def __init__(self, task: Task, crowd: PopulationConfig, log: Log, ledger: Ledger) -> None:
        self.log, self.ledger, self.crowd = log, ledger, crowd
        self.close = places.hold(log, self, ledger.path, task.name)
        try:
            self._open(task)
        except BaseException:
            # The error's traceback keeps this object, and with it the lock, alive.
            self.close()
            raise

    @property
    def releases(self) -> int:
        """Releases so far, including those of earlier processes."""
        return self._totals()[0]

    @property
    def refused(self) -> int:
        """Releases refused so far for lack of budget."""
        return self._totals()[1]

    @abstractmethod
    def _totals(self) -> tuple[int, int]:
        """Return the numbers of releases and refusals so far."""

    @property
    def size(self) -> int:
        """Number of positions in the order of release: of people, or of rows."""
        return self.source.size

    def _step(self) -> Step:
        return Step(self.next_position, *self._totals())

    @abstractmethod
    def steps(self) -> Iterator[Step]:
        """Release the rest of the file, a block per step, after the backlog; after a failure, iterate again."""

    def repeats(self, released: int = 0) -> Repeats | None:
        """Return how often one person may have answered, among ``released`` releases; None if only caps bound it."""
        return None

    @property
    def notice(self) -> str:
        """Message about earlier events; empty without any."""
        return ""

    @abstractmethod
    def words(self) -> str:
        """Return the progress in a few words."""

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """Return figures about the work so far, by their names in ``--json``."""

    @abstractmethod
    def _find_problem(self, task: Task) -> Device:
        """Return the device of a task of this protocol."""

    @abstractmethod
    def _take_up(self) -> None:
        """Make the producers and load the progress."""

    def _survey(self) -> None:
        self._labels, constants, coded = LabelSurvey(self.source), ConstantSurvey(self.source), CodedSurvey(self.source)
        combinations = CombinationSurvey(self.source.task)
        for block in self.source.blocks():
            self._labels.add(block)
            constants.add(block)
            coded.add(block)
            combinations.add(block)
            self._look(block)
        self._undeclared = undeclared(self.source)
        self.warnings += tuple(constants.warnings())
        self.findings += tuple(coded.findings())
        if mistake := combinations.mistake():
            if not self.source.task.simulated:
                raise UserError(f"{self.source.records}: {mistake}")
            self.warnings += (mistake,)

    def _check_labels(self) -> None:
        if mistake := self._labels.mistake():
            if self.source.strict:
                raise UserError(mistake)
            self.findings += (mistake,)

    def _caution(self, check: Callable[[], None]) -> str:
        """Run a check for people in a public sample; return its warning, or "". Raise the warning in a simulation."""
        try:
            check()
        except OverlapError as error:
            if self.source.strict:
                raise
            self.findings += (str(error),)
            return str(error)
        return ""

    def _look(self, block: Block) -> None:  # noqa: B027 - most have nothing to note
        """Inspect a block of the file before the first release, if a subclass needs to."""

    def _check_beginning(self, set_aside: int) -> None:
        """Raise a UserError if the task cannot be learned once this number of rows is set aside."""
        self.device.check_state()

    def _open(self, task: Task) -> None:
        log, crowd = self.log, self.crowd
        task = task.with_simulated(crowd.seed is not None)
        self.source = crowd.open(task)
        # Fail before anything is written if the ledger's key is lost.
        self.ledger.names.reading()
        document = log.document()
        if document is None:
            self._begin(task)
        else:
            self._resume(task, Task.from_document(document, f"the task on {log.url}"))
        self._take_up()
        if not self.task.simulated:
            self.warnings += places.register(self.source, self.ledger)
        self.warnings += tuple(constant_in_public(self.task))

    def _begin(self, task: Task) -> None:
        """Begin on a log without a task; the task is registered last, because it may change until then."""
        self._check_recognised(task)
        self._survey()
        self._check_labels()
        set_aside: Sequence[int] = ()
        path, caution = task.public_path, ""
        if path is not None:
            task = task.with_public(*public_covariates(path, task))
            caution = self._caution(partial(check_apart, self.source, path))
        elif task.public is not None and task.public.set_aside is not None:
            set_aside = self._set_aside(task.name, task.public.set_aside)
            task = task.with_public(*self.source.covariates(set_aside))
        self.task, self.device = task, self._find_problem(task)
        # A log carries its task forever, so never announce one that devices refuse.
        self.crowd.policy.admit(task, self.device.mechanisms)
        self._check_beginning(len(set_aside))
        disclosure = Disclosure.of(task)
        if disclosure is not None:
            self._check_agreed(task, replace(disclosure, caution=caution))
        # Only after consent: whether this refuses depends on people's features.
        check_public(task, self.device)
        self.log.prepare(task.document())
        # Store the rows that never release before the log knows the task.
        window = task.privacy.window
        known_names = listed(task.known_columns)
        self.ledger.bind(
            self.log.identity,
            task.hash,
            name=task.name,
            simulated=task.simulated,
            window=window,
            known=known_names,
            archive=task.archive_words,
        )
        self.ledger.book(task.hash, [])
        self.ledger.begin_run(task.hash, self.source.digest, people=self.source.people, excluded=set_aside)
        places.note(self.log, self._config(), self.ledger.path)
        self.log.register_task(task.document())

    def _check_agreed(self, task: Task, disclosure: Disclosure) -> None:
        if self.crowd.agree is not None:
            self.crowd.agree(disclosure)
        elif not (self.crowd.policy.public_sample or task.simulated):
            raise UserError(
                f"the devices' policy does not allow the features of {disclosure.people:,} people to become public "
                f"with the task {task.name!r}: remove `public:` from the task, or, where they have agreed, use "
                "Policy(public_sample=True)"
            )

    def _set_aside(self, name: str, count: int) -> list[int]:
        if not self.crowd.policy.public_sample:
            raise UserError(
                "the devices' policy does not allow people's features to be published as a public sample: give public "
                "records with `public.file`, or, where people have agreed, use Policy(public_sample=True)"
            )
        # Check by name: the task's hash depends on its sample, and another sample is another task with its own caps.
        if self.ledger.has_released(self.source.digest, task_name=name):
            raise UserError(
                f"people of {self.source.records} have released to a task named {name!r} already (ledger "
                f"{self.ledger.path}), and no record is released twice. Use the log that they released to. (A task of "
                "another name may ask these people again, at additional cost; --lifetime caps the sum.)"
            )
        gone = self.ledger.withdrawn(self.source.digest, task_name=name)
        if count >= self.source.size - len(gone):
            without = f", {len(gone):,} of them of people who have withdrawn" if gone else ""
            raise UserError(
                f"public.set_aside is {count:,}, and {self.source.records} has {self.source.size:,} rows{without}: "
                "nobody would be left to release anything. Set fewer aside"
            )
        return self.source.select(count, self.crowd.noise, excluded=gone)

    def _resume(self, task: Task, carried: Task) -> None:
        places.check_kind(self.log, carried, task.simulated)
        # The author's file lacks the covariates; everything else must be the same.
        check_task_change(self.log.url, carried.without_public().document(), task.document())
        self.task = task if carried.covariates is None else task.with_public(*carried.covariates)
        self.device = self._find_problem(self.task)
        places.compare(self.log, self._config(), self.ledger.path)
        # Several machines may serve one log, each with its own people. A log in a file that was released to, and a task
        # with rows set aside, belong to one file and ledger: with others people would release again.
        set_aside = self.task.public is not None and self.task.public.set_aside is not None
        begun = places.begun_with(self.log, self.ledger.path)
        taken = set_aside or (places.in_file(self.log) is not None and (begun is not None or any(self.log.ends())))
        new = self.ledger.run(self.task.hash, self.source.digest) is None
        if new or (self.crowd.policy.lifetime is not None and not self.ledger.promises()):
            self._check_recognised(task)
        if taken and new:
            if begun is not None and any(self.log.ends()) and not self.ledger.knows(self.task.hash):
                # The note beside the log names this ledger.
                raise places.older_copy(self.log, self.ledger.path)
            if begun is not None:
                raise places.differs(self.log, "another file", "--source", seed=self.crowd.seed)
            other = f"another file than {self.source.records}, or another ledger than {self.ledger.path}"
            raise places.differs(self.log, other, "--source and --ledger", seed=self.crowd.seed)
        if new and self.task.covariates is not None:
            # The task may have been announced without these people's file.
            path = self.task.public_path
            self._caution(partial(check_carried, self.source, self.task.covariates))
            if path is not None and path.exists():
                self._caution(partial(check_apart, self.source, path))
        # The log may carry its task and other releases before this file was ever read.
        self._survey()
        if new:
            self._check_labels()
        if begun is None:
            places.note(self.log, self._config(), self.ledger.path)
        self.log.register_task(self.task.document())

    def _check_recognised(self, task: Task) -> None:
        if not task.simulated:
            capped = self.crowd.policy.lifetime is not None
            self.warnings += places.check_recognised(self.source, self.ledger, capped=capped)

    def _config(self) -> places.RunConfig:
        crowd = self.crowd
        return places.RunConfig(crowd.person, crowd.level, crowd.seed, self.ledger.identity, crowd.order, crowd.time)

    def _blocks(self, size: int | Callable[[], int]) -> Iterator[Block]:
        """Yield the blocks from the next position on, once the ledger knows the run."""
        return self.source.blocks_in_order(self._order_key(), self.next_position, size, excluded=self.excluded)

    def _order_key(self) -> bytes | None:
        """Return the key of the random order; None for the file's order."""
        seed = self.crowd.seed
        if self.crowd.order == "file":
            return None
        return self.ledger.order_key(self.task.hash, self.source.digest) if seed is None else key_of_seed(seed)


def check_records(task: Task, crowd: PopulationConfig) -> Tally:
    """Read a population's file as strictly as a simulation does, and return the numbers of people and rows.

    Neither log nor ledger is opened, so only the caller sees whether the file is refused. Raises UserError for an
    undeclared, non-numeric or missing value (under ``missing: error``), an unreadable row, a row that names nobody or
    no level, labels that are all the same, and people in the file of public covariates. Messages never show a value.
    """
    source = crowd.open(task.with_simulated(crowd.seed is not None), strict=True)
    labels, rows = LabelSurvey(source), 0
    for block in source.blocks():
        labels.add(block)
        rows += len(block)
    labels.check()
    if task.public_path is not None:
        check_apart(source, task.public_path)
    return Tally(rows, rows, 1) if crowd.person is None else source.grouping(b"tally").tally()
