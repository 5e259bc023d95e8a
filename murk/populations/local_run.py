"""A population, a log and its learners in one process; an interrupted run continues with no double debit or loss."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from murk._internal.numbers import many
from murk.errors import UserError
from murk.populations.ledger_places import default_ledger
from murk.populations.order import Order
from murk.populations.people import Agree, PopulationConfig, Step, check_task, open_accounts, population_of
from murk.populations.records.records import open_records
from murk.privacy import guarantee_from_text
from murk.producers.producer import Policy
from murk.results.report import report_log
from murk.results.result import Result
from murk.stream.log.open import open_log
from murk.stream.worker.worker import Worker
from murk.task.task import Task
from murk.task.windows import begin_of, many_of

if TYPE_CHECKING:
    from murk.inference.estimate import Estimate
    from murk.populations.file_work import FilePopulation
    from murk.populations.grouping import Tally
    from murk.privacy import Guarantee
    from murk.producers.ledger.ledger import Ledger
    from murk.shuffler.shuffler import Shuffler
    from murk.stream.log.interface import Log
    from murk.task.task import Disclosure

_ERROR_CODE = "MURK-DATA-001"


class LocalRun:
    """A population and its learners in one process, taking turns: a block is released, then every partition learns it.

    Use as a context manager: it locks the log against other runs.
    """

    def __init__(self, task: Task, crowd: PopulationConfig, log_url: str, ledger_path: str | Path) -> None:
        check_task(task, crowd.policy)
        self._stack = ExitStack()
        try:
            self.log = self._stack.enter_context(open_log(log_url, name=task.name))
            # Devices write to an input log, if a shuffler stands between them and the log.
            input_log = self.log if task.shuffle is None else self._stack.enter_context(open_log(_input_log(log_url)))
            ledger = open_accounts(input_log, ledger_path, simulated=crowd.seed is not None)
            self.ledger = self._stack.enter_context(ledger)
            self.population = population_of(task, crowd, input_log, self.ledger)
            self._stack.callback(self.population.close)
            self.task = self.population.task
            self.device = self.population.device
            self.shuffler = None if task.shuffle is None else self._shuffler(input_log, f"{_input_log(log_url)}.store")
            self.engines = [self.device.engine() for _ in range(self.task.log.partitions)]
            self.workers = [
                self._stack.enter_context(Worker(self.log, self.task, engine, partition, look=0.0))
                for partition, engine in enumerate(self.engines)
            ]
        except BaseException:
            self._stack.close()
            raise

    @property
    def releases(self) -> int:
        """Number of releases that all partitions have learned."""
        return sum(engine.n_releases for engine in self.engines)

    def steps(self) -> Iterator[Step]:
        """Release the rest of the file; after each step everything released is learned."""
        for step in self.population.steps():
            self.learn()
            yield step

    def learn(self) -> None:
        """Learn everything that is on the log."""
        self._shuffle()
        # Learn the first partition last: the models that it makes for all partitions then use all releases.
        for worker in reversed(self.workers):
            while worker.step().read:
                pass
        # The next people answer at the model that follows from the newest crowd.
        self._shuffle()

    def estimate(self) -> Estimate:
        """Return the estimate of all partitions together."""
        return self.device.estimate(self.engines)

    def _shuffler(self, input_log: Log, store: str) -> Shuffler:
        from murk.shuffler.shuffler import Shuffler
        from murk.shuffler.store import Store

        self.log.register_task(self.task.document())
        opened_store = Store(store.partition(":///")[2])
        return self._stack.enter_context(Shuffler(input_log, self.log, self.task, self.device, opened_store))

    def _shuffle(self) -> None:
        while self.shuffler is not None and not self.shuffler.step().idle:
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


def _input_log(log_url: str) -> str:
    if not log_url.startswith("sqlite:"):
        raise UserError(
            "a shuffled task runs in one process on a log in a file only: on Kafka, start `murk shuffle` and "
            "`murk learn`, and send to the input log with `murk produce`"
        )
    return f"{log_url}.input"


def run(
    task: Task | str | Path,
    source: Any,
    *,
    seed: int | None = None,
    log: str | None = None,
    ledger: str | Path | None = None,
    person: str | None = None,
    time: str | None = None,
    level: str = "default",
    lifetime: Guarantee | str | None = None,
    publish: bool | int = False,
    block: int | None = None,
    order: Order = "random",
    confidence: float = 0.95,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Learn a task from people's records: devices, log and learner in one process, as ``murk run`` does.

    Every person's answer is randomized, paid for from their account, sent through the log and learned exactly once.
    With real noise, an interrupted run continues when it is called again. Raises UserError if the task, the source or a
    setting is invalid or differs from those of the interrupted run, or if features would become public without consent.

    >>> people = [{"age": 30, "worked": "yes"}, {"age": 20, "worked": "no"}] * 50
    >>> task = Task.parse('''
    ... name: weeks
    ... features: [{name: age, low: 20, high: 40}]
    ... target: {name: worked, kind: binary, positive: "yes"}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> run(task, people, seed=1)
    <Result of weeks: 100 releases, 2 coefficients (2 not learned), simulated>

    Parameters
    ----------
    task, source
        The task, or the path of its file; and the people's records: the path of a CSV, JSON lines or Parquet file, a
        pandas or Polars data frame, an Arrow table, or an iterable of mappings; see `murk.populations.open_records`.
    seed
        Simulate the noise from this seed, to try a task out; this protects nobody.
    log
        URL of the log, ``sqlite:///FILE`` or ``kafka://HOST:PORT``. By default ``sqlite:///NAME.db`` with real noise,
        and a temporary log for a simulation.
    ledger
        File of people's accounts, for all tasks. By default it lies beside their file, or is temporary with a temporary
        log; for records in memory and real noise it is required.
    person
        The column that names people; by default each row is a person. All rows of a person are one answer, so all
        people have the same weight.
    time
        The column of rows' dates or times (UTC), if the task has windows; by default all rows are in today's window.
    level
        A level of the task, ``"lot"`` (drawn uniformly), ``"column:NAME"`` for a column of levels, or
        ``"guarantee:NAME"`` for a column of budgets, which are rounded down to the task's grid of levels.
    lifetime
        Each person's cap over all tasks in the ledger: a guarantee, or text such as ``"gdp:2"``.
    publish
        Consent to publishing the task's public sample, if it has one: the largest number of people, or True for any.
    block, confidence
        Largest number of records in a block; nominal level of the intervals.
    order
        People release in a ``"random"`` order, whatever the order of the records. ``"file"`` keeps the records' order,
        to simulate people who change over time (only with a seed).
    progress
        Called after each block with the number of people done and of all people.
    """
    start = monotonic()
    _check_order(task, source)
    task = task if isinstance(task, Task) else Task.load(task)
    records = open_records(source)
    cap = guarantee_from_text(lifetime) if isinstance(lifetime, str) else lifetime
    policy = Policy(lifetime=cap, public_sample=True)
    with ExitStack() as stack:
        if seed is not None and log is None:
            # A simulation spends nobody's budget, so its accounts need not be kept.
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="murk-")))
            log, ledger = f"sqlite:///{folder / 'log.db'}", ledger or folder / "ledger.db"
        log = log or f"sqlite:///{task.name}.db"
        ledger = ledger or default_ledger(records, task.name, simulated=seed is not None)
        agree = _agree(log, str(records), agreed=publish if seed is None else True)
        crowd = PopulationConfig(records, person, level, seed, block, policy, agree, order, time)
        local = stack.enter_context(LocalRun(task, crowd, log, ledger))
        for warning in (*local.population.warnings, *local.population.findings):
            warnings.warn(warning, stacklevel=2)
        for step in local.steps():
            if progress is not None:
                progress(step.rows, local.population.size)
        report = report_run(local, start, level=confidence, history=True, kept=True)
    history, estimate = report.pop("history"), report.pop("estimate")
    return Result(report, history, local.task, estimate)


def _check_order(task: object, source: object) -> None:
    if isinstance(source, Task) or (isinstance(source, str | Path) and str(source).endswith((".yaml", ".yml"))):
        raise UserError("a task was given in place of people's records: murk.run(task, people) takes the task first")
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
                f"{disclosure.announce(url, source)} To agree, give publish={disclosure.people} (or publish=True for "
                "any number). Nothing was published or begun"
            )

    return agree


def report_run(
    run: LocalRun, start: float, *, level: float = 0.95, history: bool = False, kept: bool = False
) -> dict[str, Any]:
    """Report a run begun at ``start`` (`time.monotonic`): what its log holds, who released, what they spent."""
    from murk.planning.advice import advise

    totals = run.ledger.totals()
    by_level = {level: count for (task, level), count in totals.levels.items() if task == run.task.name}
    return report_log(
        run.task,
        run.log,
        level=level,
        history=history,
        kept=kept,
        people_are_rows=run.population.source.people == "row",
        advise=advise,
        **run.population.figures(),
        accounts=totals.people,
        counted_rows=counted_rows(run.population),
        repeats=run.population.repeats(sum(by_level.values())),
        **spent_together(run.ledger),
        by_level=by_level,
        seconds=monotonic() - start,
    )


def counted_rows(population: FilePopulation) -> str:
    """Return how people's rows counted, in a sentence; empty if each row is a person."""
    tally = getattr(population, "tally", None)
    if tally is None:
        return ""
    window = population.task.privacy.window
    answer = "one answer a person" if tally.windows is None else "one answer a person and window"
    # Do not state how many rows one person has: readers of a result need not know.
    most = population.task.most_rows
    if most == 1:
        count = "so all people have the same weight"
    else:
        count = f"and each person has the weight of their rows, at most {most}"
    words = f"{describe_tally(tally, window, most=False)}: {answer}, {count}."
    if population.refused:
        late = population.figures().get("late")
        why = f"{late:,} of a window before their newest one" if late else "no budget left, or withdrawn"
        nouns = ("person was", "people were") if tally.windows is None else ("answer was", "answers were")
        refused = many(population.refused, *nouns)
        words += f" {refused} refused ({why}), and nothing was sent."
    return words


def describe_tally(tally: Tally, window: str, *, most: bool = True) -> str:
    """Return numbers of people and rows in words, as in "20 people with 60 rows (most: 5)"."""
    people, rows = many(tally.people, "person", "people"), f"with {many(tally.rows, 'row')}"
    rows += f" (most: {tally.most:,})" if most else ""
    if tally.windows is None:
        return f"{people} {rows}"
    first, last, count = tally.windows
    begins = " to ".join(dict.fromkeys(begin_of(window, each).isoformat() for each in (first, last)))
    return f"{people} {rows} in {many_of(window, count)} ({begins}), {many(tally.size, 'answer')}"


def spent_together(ledger: Ledger) -> dict[str, Any]:
    """Return the ledger's path, and what its people have spent over all tasks."""
    return {
        "ledger": str(ledger.path),
        "together": [each.to_dict() for each in ledger.together()],
        "together_words": ledger.describe_together(),
    }
