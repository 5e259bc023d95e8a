"""A file's people, a log and its learners in one process: what ``murk run`` does.

The devices are simulated, the log and the accounts are real: a killed run carries on where it stood, with
nobody debited twice and nothing lost.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from murk.errors import MurkError, UserError
from murk.learners.problem import GradientProblem, problem_for
from murk.privacy.noise import NoiseSource, SecureNoise, SimulatedNoise
from murk.producers.ledger import Ledger
from murk.producers.producer import Producer
from murk.producers.public import public_covariates
from murk.producers.sources import FileSource
from murk.stream.log import Log, open_log
from murk.stream.task import Task
from murk.stream.worker import Worker

if TYPE_CHECKING:
    from murk.learners.inference import Estimate

SHARE = 100
"""A block holds at most a SHARE-th of the releases so far: larger ones make gradients stale."""


@dataclass(frozen=True)
class Crowd:
    """Who the people of a population are.

    Parameters
    ----------
    source
        Their file.
    person
        The column that names them, or None where each row is a person.
    level
        A level of the menu, ``"lot"``, or ``"column:NAME"``.
    seed
        Simulate noise from this seed; None for real (secure) noise.
    """

    source: Path
    person: str | None = None
    level: str = "default"
    seed: int | None = None

    @property
    def noise(self) -> NoiseSource:
        """Where their noise comes from."""
        return SecureNoise() if self.seed is None else SimulatedNoise(self.seed)

    def open(self, task: Task) -> FileSource:
        """Open the file for a task."""
        kind, colon, column = self.level.partition(":")
        if colon and kind == "column":
            return FileSource(self.source, task, person_column=self.person, level_column=column)
        return FileSource(self.source, task, person_column=self.person, level=self.level)


@dataclass(frozen=True)
class Step:
    """What one block came to.

    Parameters
    ----------
    rows
        Rows of the file worked on so far, those set aside among them.
    releases, refused
        Sums so far.
    """

    rows: int
    releases: int
    refused: int


class Population:
    """The people of a file, ready to release to a log block by block.

    Parameters
    ----------
    task
        The task as its author wrote it; where the log carries it already, resolved, that one is used.
    crowd
        Who the people are.
    log, ledger
        Where their releases go, and their accounts.
    block
        Most records of a block; by default a hundredth of the releases so far.

    Attributes
    ----------
    task
        The task as the log carries it.
    problem, producer, source
        Made from it.

    Raises
    ------
    UserError
        When the log carries another task, or the file, the seed, the naming of people or the ledger are not
        those that the log was begun with.
    """

    def __init__(self, task: Task, crowd: Crowd, log: Log, ledger: Ledger, *, block: int | None = None) -> None:
        self.log, self.ledger, self.crowd = log, ledger, crowd
        self._block = block
        task = task.with_simulated(crowd.seed is not None)
        self.source = crowd.open(task)
        self._remember()
        self.task, set_aside = self._resolve(task)
        self.source = crowd.open(self.task)
        self.problem: GradientProblem = problem_for(self.task)
        self._begin_ledger(set_aside)
        log.announce(self.task.document())
        self.producer = Producer(self.task, log, ledger, noise=crowd.noise, problem=self.problem)
        run = self.producer.begin(self.source)
        self.excluded = frozenset(run.excluded)
        self.next_row = run.next_row
        self._counters = dict(run.counters)

    @property
    def releases(self) -> int:
        """Releases so far, those of earlier processes among them."""
        return int(self._counters.get("released", 0))

    @property
    def refused(self) -> int:
        """Records refused so far for want of budget."""
        return int(self._counters.get("refused", 0))

    def steps(self, first: int | None = None) -> Iterator[Step]:
        """Release the rest of the file, a block a step; what waits in the outbox is sent first."""
        self.producer.flush()
        for block in self.source.blocks(self.next_row, self._size, excluded=self.excluded):
            report = self.producer.release_block(block)
            for name in ("released", "refused"):
                self._counters[name] = self._counters.get(name, 0) + getattr(report, name)
            self.next_row = report.next_row
            yield Step(self.next_row, self.releases, self.refused)

    def _size(self) -> int:
        size = max(1, self.releases // SHARE)
        return size if self._block is None else min(size, self._block)

    # Beginning, so that a crash at any point leaves a beginning that can be taken up

    def _resolve(self, task: Task) -> tuple[Task, Sequence[int]]:
        """The task with its public covariates, and the rows that they come from."""
        standing = self.log.document()
        if standing is not None:
            carried = Task.from_document(standing)
            if carried.simulated != task.simulated:
                kind = "simulated" if carried.simulated else "real"
                raise UserError(
                    f"{self.log.url} carries {kind} releases, and which kind is fixed when a log is begun: "
                    f"{'give the --seed it was begun with' if carried.simulated else 'leave --seed out'}, "
                    "or use another log"
                )
        if task.public_path is not None:
            return task.with_public(*public_covariates(task.public_path, task)), ()
        if standing is not None and carried.covariates is not None:
            # Who was set aside is known to the log and the ledger; everything else must be the same.
            return task.with_public(*carried.covariates), ()
        if standing is not None or task.public is None:
            return task, ()
        count = task.public.set_aside or 0
        if count >= self.source.size:
            raise UserError(
                f"public.set_aside is {count:,}, and {self.source.path} has {self.source.size:,} rows: "
                "nobody would be left to release anything. Set fewer aside"
            )
        rows = self.source.select(count, self.crowd.noise)
        return task.with_public(*self.source.covariates(rows)), rows

    def _begin_ledger(self, set_aside: Sequence[int]) -> None:
        """Note which rows release nothing before the log knows the task: they never will."""
        run = self.ledger.run(self.task.hash, self.source.digest)
        public = self.task.public
        if run is None and self.log.document() is not None and public is not None and public.set_aside is not None:
            raise UserError(
                f"{self.ledger.path} does not know who was set aside as the public sample of {self.log.url}: "
                "it is not the ledger that this log was begun with. Give that one"
            )
        if run is None:
            self.ledger.bind(self.log.identity, self.task.hash, name=self.task.name)
            self.ledger.book(self.task.hash, [])
            self.ledger.begin_run(self.task.hash, self.source.digest, people=self.source.people, excluded=set_aside)

    def _remember(self) -> None:
        """Check that file, people, seed and ledger are those that the log was begun with, or note them."""
        path = beside(self.log, ".run.json")
        facts: dict[str, Any] = {
            "file": self.source.digest,
            "people": self.source.people,
            "level": self.crowd.level,
            "seed": self.crowd.seed,
            "ledger": self.ledger.identity,
        }
        if path is None:
            return
        try:
            known = json.loads(path.read_text())
        except FileNotFoundError:
            write_durably(path, json.dumps(facts, indent=2) + "\n")
            return
        except ValueError as error:
            raise MurkError(f"{path} is damaged: bring it back from a copy, or begin with a new log") from error
        for name, value in facts.items():
            if known.get(name) != value:
                raise UserError(
                    f"{self.log.url} was begun with another {name}"
                    f"{'' if name in ('file', 'ledger') else f' ({known.get(name)!r}, not {value!r})'}: "
                    "give the same again to carry on, or use another log to begin anew"
                )


class LocalRun:
    """Population and learners in one process, taking turns.

    Gradients of a block are taken at the newest published iterates at its start; then every chain learns.

    Use as a context manager: it holds a lock on the log, so that two runs cannot work on one.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "people.csv").write_text("age,worked\\n" + "30,yes\\n20,no\\n" * 50)
    >>> task = Task.parse('''
    ... name: weeks
    ... features: [{name: age, low: 20, high: 40}]
    ... target: {name: worked, kind: binary, positive: "yes"}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> crowd = Crowd(folder / "people.csv", seed=1)
    >>> with LocalRun(task, crowd, f"sqlite:///{folder}/log.db", folder / "ledger.db") as run:
    ...     for _ in run.steps():
    ...         pass
    ...     run.releases
    100
    """

    def __init__(
        self, task: Task, crowd: Crowd, log_url: str, ledger_path: str | Path, *, block: int | None = None
    ) -> None:
        self._stack = ExitStack()
        try:
            self.log = self._stack.enter_context(open_log(log_url))
            self._lock()
            self.ledger = self._stack.enter_context(Ledger(ledger_path))
            self.population = Population(task, crowd, self.log, self.ledger, block=block)
            self.task = self.population.task
            self.problem = self.population.problem
            self.engines = [self.problem.engine() for _ in range(self.task.log.partitions)]
            self.workers = [
                self._stack.enter_context(Worker(self.log, self.task, engine, chain))
                for chain, engine in enumerate(self.engines)
            ]
        except BaseException:
            self._stack.close()
            raise

    @property
    def releases(self) -> int:
        """Releases learned from, by all chains."""
        return sum(engine.n_releases for engine in self.engines)

    def steps(self) -> Iterator[Step]:
        """Work through the rest of the file; after each step all that was released is learned."""
        self._learn()
        for step in self.population.steps():
            self._learn()
            yield step
        # What an earlier process had left in the outbox of a finished file.
        self._learn()

    def estimate(self) -> Estimate:
        """What was learned by all chains together."""
        from murk.learners.inference import estimate

        memories = [engine.memory for engine in self.engines]
        return estimate(self.problem.settings, memories, self.problem.covariates, self.problem.classes)

    def _learn(self) -> None:
        for worker in self.workers:
            while worker.step().read:
                pass

    def _lock(self) -> None:
        path = beside(self.log, ".lock")
        if path is None:
            return
        handle = self._stack.enter_context(path.open("a"))
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(
                f"another `murk run` is working on {self.log.url}: wait for it to end, or use another log"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def beside(log: Log, suffix: str) -> Path | None:
    """Path of a small file that belongs to a log in a file; None where the log is no file."""
    scheme, _, path = log.url.partition(":///")
    return Path(path + suffix) if scheme == "sqlite" else None


def write_durably(path: Path, text: str) -> None:
    """Write a small file so that a crash leaves it whole or not there."""
    draft = path.with_name(path.name + ".new")
    try:
        with draft.open("w") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        draft.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise MurkError(f"{path} cannot be written ({error.strerror}): make room or give another place") from error
