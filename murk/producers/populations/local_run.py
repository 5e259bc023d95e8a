"""A file's people or organisations, a log and its learners in one process: what ``murk run`` does.

The devices are simulated, the log and the accounts are real: a killed run carries on where it stood, with
nobody debited twice and nothing lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from murk.producers.policy import Policy
from murk.producers.populations.people import Agree, PopulationConfig, Step, open_accounts, population_of
from murk.stream.log.open import open_log
from murk.stream.task.task import Task
from murk.stream.worker.worker import Worker

if TYPE_CHECKING:
    from murk.learners.estimates.estimate import Estimate


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
