"""The people of a file, each of whom releases their own records, and waiting for the models that follow."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from murk.errors import MurkError
from murk.populations.file_work import Agree, FilePopulation, PopulationConfig, Step, check_task, open_accounts
from murk.populations.grouping import Tally
from murk.producers.blocks import Block
from murk.producers.ledger.ledger import Ledger
from murk.producers.producer import Producer
from murk.protocols.device import PersonDevice, interactive_of, person_device_for
from murk.stream.log.interface import FIRST_PARTITION, Log, UnreachableError
from murk.stream.wire.releases import ModelMessage
from murk.stream.wire.state import decode_state
from murk.task.learning import MaxStaleness
from murk.task.protocols.registry import PROTOCOLS
from murk.task.task import Task
from murk.task.windows import ONCE, Repeats, repeats_of_counts

if TYPE_CHECKING:
    from murk.protocols.device import InteractiveDevice

__all__ = ["Agree", "Population", "PopulationConfig", "Step", "check_task", "open_accounts", "population_of"]

MOST = 16_384  # largest number of records in a block, which is one transaction of the ledger
# records of a block if releases use no model
BLOCK = 2048
# With several partitions that publish separately, a block holds at most 1 / SHARE of the releases so far, or FEW if
# that is more, so that few people release at a partition's old model after the partition has a new one.
SHARE, FEW = 20, 256


class Population(FilePopulation):
    """The people of a file, who each own one row, or all rows with their name; ``producer`` acts for all devices.

    All rows of a person are one answer.
    """

    device: PersonDevice
    tally: Tally | None = None

    def _totals(self) -> tuple[int, int]:
        return self._counters.get("released", 0), self._counters.get("refused", 0)

    @property
    def size(self) -> int:
        """Number of answers: of rows, or of distinct names in each of their windows."""
        return self.source.size if self.tally is None else self.tally.size

    def repeats(self, released: int = 0) -> Repeats | None:
        """Return how often one person answers; None if others than this file's people have ``released``, too."""
        if released > self.releases:
            return None
        if self.tally is None or self.tally.windows is None:
            return ONCE
        caps, counts = self.task.repeats, Counter[int]()
        for number, people in self.tally.answers.items():
            counts[number if caps.supposed else min(number, caps.most)] += people
        same = self.task.privacy.repeats_answers
        counted = repeats_of_counts(counts, list(self.task.privacy.levels.values()), same=same)
        # Do not disclose one person's number of answers: state the number of the file's windows, as far as caps allow.
        most = self.tally.windows[2] if caps.supposed else min(self.tally.windows[2], caps.most)
        return counted if counted.most == 1 else replace(counted, most=most)

    def steps(self) -> Iterator[Step]:
        """Release the rest of the file, a block per step; see `FilePopulation.steps`."""
        self._load_progress()
        self.producer.flush()
        # Yield first: the backlog must be learned before the next model is read, as if there had been no interruption.
        yield self._step()
        for block in self._blocks(self._size):
            report = self.producer.release_block(block)
            self._counters.update(released=report.released, refused=report.refused)
            self.next_position = report.next_position
            yield self._step()

    def words(self) -> str:
        """Return the progress in a few words."""
        return f"{self.refused:,} refused"

    def figures(self) -> dict[str, Any]:
        """Return the numbers of people and records, and of people set aside and refused."""
        return {
            "people": self.size if self.tally is None else self.tally.people,
            "records": self.source.size,
            "undeclared_labels": self._undeclared,
            "set_aside": len(self.excluded),
            "refusals": self.refused,
            **self._of_windows(),
        }

    def _of_windows(self) -> dict[str, Any]:
        if not self.task.privacy.renews:
            return {}
        number = 1 if self.tally is None or self.tally.windows is None else self.tally.windows[2]
        return {"answers": self.size, "budget_windows": number, "late": self._counters.get("late", 0)}

    def _survey(self) -> None:
        super()._survey()
        if self.crowd.person is not None:
            self.tally = self.source.grouping(b"tally").tally()

    def _blocks(self, size: int | Callable[[], int]) -> Iterator[Block]:
        if self.crowd.person is None:
            return super()._blocks(size)
        key = self._order_key()
        people = self.source.grouping(key or b"rows", by_row=key is None)
        return self.source.people_in_order(people, self.next_position, size)

    def _size(self) -> int:
        size, interactive = BLOCK, interactive_of(self.device)
        if interactive is not None:
            size = min(MOST, interactive.block(self.releases))
            if self.crowd.fast_start and PROTOCOLS[self.task.protocol].reads_staleness:
                size = max(size, first_block(self.task.max_staleness, self.releases))
            if self.task.log.partitions > 1 and not interactive.shares_models:
                size = min(size, max(FEW, self.releases // SHARE))
        return size if self.crowd.block is None else min(size, self.crowd.block)

    def _find_problem(self, task: Task) -> PersonDevice:
        return person_device_for(task)

    def _take_up(self) -> None:
        self.producer = Producer(
            self.task, self.log, self.ledger, noise=self.crowd.noise, policy=self.crowd.policy, device=self.device
        )
        self.source.allow(self.producer.allowed_levels())
        self._load_progress()

    def _load_progress(self) -> None:
        run = self.producer.begin(self.source)
        self.excluded = frozenset(run.excluded)
        self.next_position = run.next_row
        self._counters = Counter(run.counters)


def population_of(task: Task, crowd: PopulationConfig, log: Log, ledger: Ledger) -> FilePopulation:
    """Return the population of a file: people, or with ``protocol: summaries`` organisations; see `FilePopulation`."""
    if task.of_organisations:
        from murk.populations.organisations import OrganisationPopulation

        return OrganisationPopulation(task, crowd, log, ledger)
    return Population(task, crowd, log, ledger)


def first_block(staleness: MaxStaleness, releases: int) -> int:
    """Return how many people may release at one model after a number of releases, so that few have to wait for models.

    Half of the allowed age is left to other senders, and what comes between two models, at most 1% of all releases.

    >>> [first_block(MaxStaleness(), releases) for releases in (0, 1_000, 10_000)]
    [50, 40, -50]
    """
    return staleness.releases // 2 - releases // 100


# shortest and longest pause between two polls, in seconds
_SHORTEST, _LONGEST = 0.005, 0.05


def wait_for_models(
    log: Log,
    device: InteractiveDevice,
    patience: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    idle: Callable[[], None] = lambda: None,
) -> None:
    """Wait until every model that follows from the log's current releases is published.

    ``idle`` is called once if waiting is necessary. Raises MurkError if no learner has read anything for ``patience``
    seconds.
    """
    ends = dict(enumerate(log.ends()))
    # A model is for the releases of one partition, or of all partitions.
    groups = (
        {FIRST_PARTITION: ends}
        if device.shares_models
        else {partition: {partition: end} for partition, end in ends.items()}
    )
    before: object = None
    moved, pause = clock(), _SHORTEST
    while True:
        try:
            progress = [_models_progress(log, device, partition, group) for partition, group in groups.items()]
        except UnreachableError:
            # Wait for an unreachable log as long as for a learner.
            progress = [(False, -1)]
        if all(done for done, _ in progress):
            return
        now = clock()
        if progress != before:
            before, moved = progress, now
        elif now - moved > patience:
            raise MurkError(
                f"no learner has read {log.url} for {patience:g} s: start `murk learn --log {log.url}` "
                "and the same command again; it continues where it stopped",
                code="MURK-LOG-009",
            )
        if pause == _SHORTEST:
            idle()
        time.sleep(pause)
        pause = min(_LONGEST, 1.2 * pause)


def _models_progress(log: Log, device: InteractiveDevice, partition: int, ends: Mapping[int, int]) -> tuple[bool, int]:
    """Return whether a partition's model is the newest one for these log ends, and how many messages were read."""
    message = log.model(partition)
    try:
        published = 0 if message is None else ModelMessage.model_validate_json(message).version
    except ValidationError:
        # The producer refuses such a model.
        return True, 0
    due = device.next_published(published)
    if sum(ends.values()) < due:
        return True, published
    checkpoints = {each: log.checkpoint(each) for each in ends}
    read = sum(checkpoint.offset for checkpoint in checkpoints.values())
    if any(checkpoint.offset < ends[each] for each, checkpoint in checkpoints.items()):
        return False, read
    learned = sum(
        decode_state(checkpoint.state, f"partition {each} of {log.url}").counters.learned
        for each, checkpoint in checkpoints.items()
        if checkpoint.state is not None
    )
    # State and model are written together, but a cluster may show one of them first.
    return learned < due, read
