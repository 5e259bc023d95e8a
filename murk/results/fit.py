"""Fit models to the releases of a log: one worker for each model and partition, each release exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Self

from murk.errors import UserError
from murk.protocols.further_models import FurtherModelEngine
from murk.results.models import ModelDevice, model_device_for, models_of, report_model
from murk.results.result import Result
from murk.stream.log.interface import Checkpoint, Log
from murk.stream.log.open import open_log
from murk.stream.worker.interface import StreamLearner
from murk.stream.worker.pool import WorkerPool
from murk.task.models import Model
from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"

Publisher = Callable[[Log, Task, ModelDevice], Callable[[StreamLearner], bytes | None] | None]


_PAUSE = 0.05  # seconds between two looks at a log while nothing arrives


class Fitting:
    """A model that is being fitted to a log. Use as a context manager; ``estimates`` makes messages of its estimate.

    ``adopted`` returns a partition's state of the task's own learner, from which a new model continues. If the model is
    the task's own, nothing is learned: its states are those that the task's learner has committed on ``log``.
    """

    def __init__(
        self,
        device: ModelDevice,
        log: Log,
        *,
        estimates: Publisher | None = None,
        adopted: Callable[[int], Checkpoint] | None = None,
    ) -> None:
        self.device, self.log = device, log
        self.pool: WorkerPool[FurtherModelEngine] | None = None
        if device.used.is_own:
            return
        message = None if estimates is None else partial(estimates, log, device.released, device)
        membership = log.join()
        self.pool = WorkerPool(
            log,
            device.released,
            device.engine,
            membership,
            estimates=message or (lambda: None),
            adopted=adopted,
        )

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.device.model.name

    @property
    def n_releases(self) -> int:
        """Number of releases that this process's partitions have learned."""
        return 0 if self.pool is None else sum(engine.n_releases for engine in self.pool.learners.values())

    def step(self) -> int:
        """Let every partition of this process make a step; return the number of messages read."""
        return 0 if self.pool is None else self.pool.step()

    @property
    def trouble(self) -> str:
        """Why nothing can be learned at the moment; empty if something can."""
        return "" if self.pool is None else self.pool.trouble or ""

    def has_learned(self, ends: Sequence[int]) -> bool:
        """Return whether every partition is committed up to its end, by this process or another."""
        if self.pool is None:
            return True
        partitions = self.pool.pulse.vitals().partitions
        return all(
            (partitions[partition].offset if partition in partitions else self.log.checkpoint(partition).offset) >= end
            for partition, end in enumerate(ends)
        )

    def report(self, names: Sequence[str], *, level: float = 0.95, live: bool = False, **more: Any) -> dict[str, Any]:
        """Return the model's report; the intervals of all models in ``names`` hold simultaneously (Bonferroni).

        Intervals of a ``live`` log hold at every look, others at one look, unless the task's settings say otherwise.
        """
        return report_model(
            self.device, self.log, names, level=level, live=live, from_states=self.device.used.is_own, **more
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with self.log:
            if self.pool is not None:
                self.pool.close(for_good=not isinstance(error, Exception))


def open_fittings(
    stack: ExitStack, models: Sequence[Model], url: str, *, estimates: Publisher | None = None, replay: bool = False
) -> list[Fitting]:
    """Return the fittings of models on a log, to be closed by ``stack``; raise UserError if it cannot serve a model.

    New models continue from the states of the task's own learner if these contain all that the models learn; with
    ``replay`` they learn every release on the log.
    """
    with open_log(url, create=False) as log:
        document = log.document()
        if document is None:
            raise UserError(f"{log.url} carries no task yet: nothing was released to it", code="MURK-LOG-003")
        task = Task.from_document(document, f"the task on {log.url}")
    problems = []
    for model in models:
        if model.name == task.name:
            raise UserError(
                f"{model.source}: name: {model.name!r} is the name of the log's task, which `murk learn` fits; "
                "give the model another name",
                code="MURK-TASK-004",
            )
        problems.append(model_device_for(model, task))
        problems[-1].check_state()
    fittings = []
    of_task = stack.enter_context(open_log(url, create=False, name=task.name))
    for device in problems:
        if device.used.is_own and replay:
            raise UserError(
                f"{device.model.source}: --replay cannot be given with the task's own model, which `murk learn` fits"
            )
        name = None if device.used.is_own else device.model.name
        opened = stack.enter_context(open_log(url, create=False, name=task.name, model=name))
        adopted = of_task.checkpoint if device.used.of_state and not replay else None
        fittings.append(stack.enter_context(Fitting(device, opened, estimates=estimates, adopted=adopted)))
    return fittings


def fit(
    models: Model | str | Path | Sequence[Model | str | Path],
    log: str | None = None,
    *,
    archive: str | Path | None = None,
    confidence: float = 0.95,
    replay: bool = False,
    map: Any = map,
) -> Any:
    """Fit models to the releases on a log, like ``murk fit``, without spending more of anybody's budget.

    A model's states are kept on the log under its name: a repeated call learns only new releases, and a call after a
    kill ends with the same bits. Returns a `Result`, or a list of them for a sequence of models, whose
    intervals are then simultaneous by Bonferroni. Raises UserError if a model has mistakes, or if the log's releases
    cannot serve it; the error names what they could serve.

    Parameters
    ----------
    models
        A `Model`, the path of its file, or a sequence of these.
    log
        URL of the log, ``sqlite:///FILE`` or ``kafka://HOST:PORT[/NAME]``.
    archive
        Instead of a log: path or URL of an archive of it (``murk archive``), which answers after the log's retention.
        States are not kept.
    confidence
        Nominal level of the intervals; for several models, of all their intervals together.
    replay
        Whether a new model reads every release on the log, which gives it a history. By default it continues from the
        states of the task's own learner if these contain all that the model learns: moments, cells, outer products of
        up to 20 coefficients, known columns, windows of organisations, and the task's own model (a name alone) with
        protocols that serve no other.
    map
        How parts of an archive are learned: a function like the builtin `map`, such as the method of a
        ``concurrent.futures.ProcessPoolExecutor``. Results are the same, bit for bit, with every such function.

    Examples
    --------
    >>> import tempfile
    >>> import murk
    >>> task = Task.parse('''
    ... name: wages
    ... features: [{name: age, low: 20, high: 60}, {name: hours, low: 0, high: 80}]
    ... target: {name: wage, kind: real, low: 0, high: 100}
    ... protocol: examples
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> people = [{"age": 20 + i % 40, "hours": 30 + i % 10, "wage": 40 + i % 20} for i in range(400)]
    >>> folder = tempfile.mkdtemp()
    >>> url = f"sqlite:///{folder}/wages.db"
    >>> _ = murk.run(task, people, seed=1, log=url, ledger=f"{folder}/ledger.db")
    >>> fit(Model.parse("{name: hours-by-age, features: [age], target: hours}"), url)
    <Result of hours-by-age: 400 releases, 2 coefficients, simulated>
    """
    start, chosen = monotonic(), models_of(models)
    if (log is None) == (archive is None):
        raise UserError("give either a log or an archive")
    if archive is not None:
        if replay:
            raise UserError("replay=True needs a log: an archive is always read whole")
        # Imported here, as a log needs no pyarrow.
        from murk.results.archives import fit_archive

        fitted = [
            _result(device, report, start)
            for device, report in fit_archive(chosen, str(archive), level=confidence, map=map, history=True, kept=True)
        ]
        return fitted[0] if isinstance(models, Model | str | Path) else fitted
    assert log is not None
    with ExitStack() as stack:
        fittings = open_fittings(stack, chosen, log, replay=replay)
        ends = fittings[0].log.ends()
        while not all(fitting.has_learned(ends) for fitting in fittings):
            if not sum(fitting.step() for fitting in fittings):
                sleep(_PAUSE)
        names, results = [model.name for model in chosen], []
        for fitting in fittings:
            report = fitting.report(names, level=confidence, history=True, kept=True)
            results.append(_result(fitting.device, report, start))
    return results[0] if isinstance(models, Model | str | Path) else results


def _result(device: ModelDevice, report: dict[str, Any], start: float) -> Result:
    """Return the result of a report with history and estimate."""
    history, estimate = report.pop("history"), report.pop("estimate")
    return Result({**report, "seconds": monotonic() - start}, history, device.task, estimate)
