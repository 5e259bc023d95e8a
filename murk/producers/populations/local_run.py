"""A file's people or organisations, a log and its learners in one process: what ``murk run`` does.

The devices are simulated, the log and the accounts are real: a killed run carries on where it stood, with
nobody debited twice and nothing lost.

``murk.run``: a task and its people in, a result out; and what a local run came to, as a report.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from murk.errors import UserError
from murk.learners.results.report import report_log
from murk.learners.results.result import Result
from murk.privacy import guarantee_from_text
from murk.producers.policy import Policy
from murk.producers.populations.ledger_places import default_ledger
from murk.producers.populations.people import Agree, PopulationConfig, Step, open_accounts, population_of
from murk.producers.populations.records.records import open_records
from murk.stream.log.open import open_log
from murk.stream.task.task import Task
from murk.stream.worker.worker import Worker

if TYPE_CHECKING:
    from murk.learners.estimates.estimate import Estimate
    from murk.privacy import Guarantee
    from murk.producers.ledger.ledger import Ledger
    from murk.stream.task.disclosure import Disclosure


class LocalRun:
    """Population and learners in one process, taking turns.

    Gradients of a block are taken at the newest published iterates at its start; then every chain learns. Organisations
    add a block to their open windows.

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
    >>> crowd = PopulationConfig(folder / "people.csv", seed=1)
    >>> with LocalRun(task, crowd, f"sqlite:///{folder}/log.db", folder / "ledger.db") as run:
    ...     for _ in run.steps():
    ...         pass
    ...     run.releases
    100
    """

    def __init__(
        self,
        task: Task,
        crowd: PopulationConfig,
        log_url: str,
        ledger_path: str | Path,
        *,
        block: int | None = None,
        policy: Policy | None = None,
        agree: Agree | None = None,
    ) -> None:
        self._stack = ExitStack()
        try:
            self.log = self._stack.enter_context(open_log(log_url, name=task.name))
            self.ledger = self._stack.enter_context(
                open_accounts(self.log, ledger_path, simulated=crowd.seed is not None)
            )
            self.population = population_of(task, crowd, self.log, self.ledger, block=block, policy=policy, agree=agree)
            self._stack.callback(self.population.close)
            self.task = self.population.task
            self.problem = self.population.problem
            self.engines = [self.problem.engine() for _ in range(self.task.log.partitions)]
            self.workers = [
                self._stack.enter_context(Worker(self.log, self.task, engine, chain, look=0.0))
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
        for step in self.population.steps():
            self._learn()
            yield step

    def estimate(self) -> Estimate:
        """What was learned by all chains together."""
        return self.problem.estimate(self.engines)

    def _learn(self) -> None:
        # The first chain last: where it makes models for all, it does so of all that was released, and not of what
        # happens to be learned by then.
        for worker in reversed(self.workers):
            while worker.step().read:
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def run(
    task: Task | str | Path,
    source: Any,
    *,
    seed: int | None = None,
    log: str | None = None,
    ledger: str | Path | None = None,
    person: str | None = None,
    level: str = "default",
    lifetime: Guarantee | str | None = None,
    publish: bool | int = False,
    block: int | None = None,
    confidence: float = 0.95,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Learn a task from its people: devices, log and learner in one process, as ``murk run`` does.

    Every record is privatized on its person's simulated device, paid for from their account, sent through the log and
    learned exactly once. With real noise a run that was stopped carries on where it stood when it is called again.

    Parameters
    ----------
    task
        The task, or the path of its file.
    source
        The people's records: the path of a CSV, JSON lines or Parquet file, a pandas or Polars data frame, an Arrow
        table, or an iterable of mappings, as `murk.producers.open_records` takes them.
    seed
        Simulate the noise from this seed. Protects nobody: for trying a task out.
    log
        URL of the log, ``sqlite:///FILE`` or ``kafka://HOST:PORT``. By default ``sqlite:///NAME.db`` with real noise;
        of a simulation a temporary one.
    ledger
        Where people's accounts lie, for all tasks: by default beside their file; where they are in memory it
        has to be named, but of a simulation with a temporary log it is temporary, too.
    person
        The column that names people; otherwise each row is one.
    level
        A level of the task's menu, ``"lot"`` (drawn uniformly) or ``"column:NAME"``.
    lifetime
        A person's cap over all tasks in the ledger: a guarantee, or its text as the command line takes it, ``"gdp:2"``.
    publish
        Whether to agree to what becomes public with the task, where that is anything: its public sample; of how many
        people at most, or True for any number.
    block
        At most so many records at a time.
    confidence
        Nominal level of the intervals.
    progress
        Called with the numbers of rows that are done and of rows in all, after each block.

    Raises
    ------
    UserError
        If the task, the source or a setting is not right, or features would become public and that was not agreed to;
        what was begun with other settings is not carried on.

    Examples
    --------
    >>> import tempfile
    >>> people = Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = people.write_text("age,worked\\n" + "30,yes\\n20,no\\n" * 50)
    >>> task = Task.parse('''
    ... name: weeks
    ... features: [{name: age, low: 20, high: 40}]
    ... target: {name: worked, kind: binary, positive: "yes"}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> run(task, people, seed=1)
    <Result of weeks: 100 releases, 2 coefficients (2 not learned), simulated>
    """
    start = monotonic()
    _check_order(task, source)
    task = task if isinstance(task, Task) else Task.load(task)
    records = open_records(source)
    people = PopulationConfig(records, person, level, seed)
    cap = guarantee_from_text(lifetime) if isinstance(lifetime, str) else lifetime
    policy = Policy(lifetime=cap, public_sample=True)
    with ExitStack() as stack:
        if seed is not None and log is None:
            # Nobody's budget is spent: another seed, or other people, need no other place.
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="murk-")))
            log, ledger = f"sqlite:///{folder / 'log.db'}", ledger or folder / "ledger.db"
        log = log or f"sqlite:///{task.name}.db"
        ledger = ledger or default_ledger(records, task.name, simulated=seed is not None)
        agree = _agree(log, str(records), agreed=publish if seed is None else True)
        local = stack.enter_context(LocalRun(task, people, log, ledger, block=block, policy=policy, agree=agree))
        for warning in (*local.population.warnings, *local.population.findings):
            warnings.warn(warning, stacklevel=2)
        for step in local.steps():
            if progress is not None:
                progress(step.rows, local.population.source.size)
        found = report_run(local, start, level=confidence, history=True)
    history = found.pop("history")
    return Result(found, history, local.task)


def _check_order(task: object, source: object) -> None:
    """Say what is wrong with arguments that are not a task and its people."""
    if isinstance(source, Task) or (isinstance(source, str | Path) and str(source).endswith((".yaml", ".yml"))):
        raise UserError("the people's records were given a task: murk.run(task, people) takes the task first")
    if isinstance(task, str) and "\n" in task:
        raise UserError("task= is the text of a task: give Task.parse(text), or the path of its file")
    if not isinstance(task, Task | str | Path):
        raise UserError(
            f"task= is a {type(task).__name__}: give a Task, or the path of its file, and the people's records after "
            "it: murk.run(task, people)"
        )


def _agree(url: str, source: str, *, agreed: bool | int) -> Agree:
    def agree(disclosure: Disclosure) -> None:
        if not (agreed is True or disclosure.people <= agreed):
            raise UserError(
                f"{disclosure.announce(url, source)} Agree with publish={disclosure.people} (or publish=True, to any "
                "number); until then nothing was published and nothing was begun"
            )

    return agree


def report_run(run: LocalRun, start: float, *, level: float = 0.95, history: bool = False) -> dict[str, Any]:
    """Report a run at its end: what is committed on its log, who released, and what they have spent.

    Parameters
    ----------
    run
        The run.
    start
        When it began, by `time.monotonic`.
    level, history
        As `murk.learners.results.report.report_log` has them.
    """
    from murk.planning.advice import advise

    totals = run.ledger.totals()
    return report_log(
        run.task,
        run.log,
        level=level,
        history=history,
        people_are_rows=run.population.source.people == "row",
        advise=advise,
        **run.population.figures(),
        accounts=totals.people,
        **spent_together(run.ledger),
        by_level={level: count for (task, level), count in totals.levels.items() if task == run.task.name},
        seconds=monotonic() - start,
    )


def spent_together(ledger: Ledger) -> dict[str, Any]:
    """Where the accounts lie, and what their people have spent on all tasks together."""
    return {
        "ledger": str(ledger.path),
        "together": [one.to_dict() for one in ledger.together()],
        "together_words": ledger.describe_together(),
    }
