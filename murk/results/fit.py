"""Fit models to the releases of a log: one worker for each model and partition, each release exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Self

from murk._internal.numbers import listed
from murk.errors import UserError
from murk.inference.estimate import Estimate
from murk.protocols.device import Device, device_for
from murk.protocols.further_models import FurtherModel, FurtherModelEngine
from murk.protocols.registry import has_part, part
from murk.results.diagnosis import coded_as
from murk.results.report import report_log
from murk.results.result import Result
from murk.stream.log.interface import Checkpoint, Log
from murk.stream.log.open import open_log
from murk.stream.worker.interface import StreamLearner
from murk.stream.worker.pool import WorkerPool
from murk.task.models import Model, columns_of
from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"

Publisher = Callable[[Log, Task, "ModelDevice"], Callable[[StreamLearner], bytes | None] | None]


class ModelDevice:
    """A model's device, which learns a part of the releases of the log's task ``released``."""

    interactive = False

    def __init__(self, model: Model, released: Task, whole: Device, used: FurtherModel) -> None:
        self.model, self.released, self.whole, self.used = model, released, whole, used
        self.task = used.task  # the task with the model's columns and settings, for names, units and words
        self.kind, self.mechanisms, self.dimension = whole.kind, whole.mechanisms, whole.dimension

    def check_state(self) -> None:
        """Raise UserError, with the size, if a state is too large for a log."""
        self.used.device.check_state()

    def engine(self) -> FurtherModelEngine:
        """Return a learner of the model, at version 0."""
        return FurtherModelEngine(self.whole.engine(), self.used.device.engine(), self.used.take, self.model.hash)

    def estimate(self, engines: Sequence[Any]) -> Estimate:
        """Return the joint estimate of several partitions."""
        estimate: Estimate = self.used.device.estimate([engine.own for engine in engines])
        return replace(estimate, note=estimate.note + self.used.note) if self.used.note else estimate


def model_device_for(model: Model, task: Task) -> ModelDevice:
    """Return the device of a model on a log of ``task``; raise UserError if the log's releases cannot serve it."""
    if not has_part(task.protocol, "models"):
        raise UserError(
            f"{model.source}: the log of {task.name!r} has protocol: {task.protocol}, whose releases serve only "
            "the task's own model, which `murk learn` fits. For several models, release examples or "
            "moments (docs/models.md)",
            code="MURK-TASK-004",
        )
    whole = device_for(task)
    columns = columns_of(model, task)
    used: FurtherModel = part(task.protocol, "models").part_of(model, task, columns, whole)
    for feature in task.features:
        if feature.name == columns.target.name:
            note = f"{used.note}; missing values of {feature.name} count as {coded_as(feature)}"
            used = replace(used, note=note)
    return ModelDevice(model, task, whole, used)


_PAUSE = 0.05  # seconds between two looks at a log while nothing arrives


class Fitting:
    """A model that is being fitted to a log. Use as a context manager; ``estimates`` makes its message.

    ``adopted`` returns a partition's state of the task's own learner, from which a new model continues.
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
        self._of_task, self._continued = adopted, False
        message = None if estimates is None else partial(estimates, log, device.released, device)
        membership = log.join()
        self.pool = WorkerPool(
            log,
            device.released,
            device.engine,
            membership,
            estimates=message or (lambda: None),
            adopted=adopted and self._adopted,
        )

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.device.model.name

    @property
    def n_releases(self) -> int:
        """Number of releases that this process's partitions have learned."""
        return sum(engine.n_releases for engine in self.pool.learners.values())

    def _adopted(self, partition: int) -> Checkpoint:
        assert self._of_task is not None
        checkpoint = self._of_task(partition)
        self._continued |= checkpoint.state is not None
        return checkpoint

    def has_learned(self, ends: Sequence[int]) -> bool:
        """Return whether every partition is committed up to its end, by this process or another."""
        partitions = self.pool.pulse.vitals().partitions
        return all(
            (partitions[partition].offset if partition in partitions else self.log.checkpoint(partition).offset) >= end
            for partition, end in enumerate(ends)
        )

    def report(self, names: Sequence[str], *, level: float = 0.95, live: bool = False, **more: Any) -> dict[str, Any]:
        """Return the model's report; the intervals of all models in ``names`` hold simultaneously (Bonferroni).

        Those of a ``live`` log hold at every look, others at one, like those of a run, unless the task asks for others.
        """
        device, count = self.device, max(len(names), 1)
        simultaneous = 1.0 - (1.0 - level) / count
        found = report_log(
            device.released, self.log, level=simultaneous, live=live, device=device, shown=device.task, **more
        )
        found["model"] = {
            "name": self.name,
            "log_task": device.released.name,
            "simultaneous": list(names) if count > 1 else [],
            "level": level,
            "before": found.pop("before"),
            "from_states": self._continued,
        }
        found["model"]["words"] = _words(found, device)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with self.log:
            self.pool.close(for_good=not isinstance(error, Exception))


def _words(report: dict[str, Any], device: ModelDevice) -> str:
    """Describe a model's columns, and what its intervals hold for."""
    about, target = report["model"], device.task.target.name
    columns = ", ".join(feature.name for feature in device.task.features)
    words = [
        (
            f"Model {about['name']} of the log of {about['log_task']}: {target} by {columns}. "
            "It cost nobody further budget."
        )
    ]
    together = about["simultaneous"]
    if together:
        words.append(
            f"Intervals are simultaneous (Bonferroni) over the {len(together)} models {listed(together)}: one "
            f"coefficient of each, chosen like the models before anybody saw an estimate, holds together with the "
            f"others at {100.0 * about['level']:g}%. P-values and e-values of contrasts are each model's own."
        )
    else:
        words.append(
            "Intervals are of this model alone: further models on this log are further looks at the same people. "
            "For intervals that hold together, name the models beforehand and fit them in one command."
        )
    if about["before"] > 0:
        words.append(f"Retention had removed the log's first {about['before']:,} messages before the model was fitted.")
    if about["from_states"]:
        words.append(
            "It continues from the states of the task's own learner, so its history before that is not known (--replay "
            "reads every release on the log)."
        )
    return " ".join(words)


def models_of(given: Model | str | Path | Sequence[Model | str | Path]) -> list[Model]:
    """Return models, read from files where paths are given; raise UserError for none, or two of one name."""
    several = [given] if isinstance(given, Model | str | Path) else list(given)
    models = [each if isinstance(each, Model) else Model.load(each) for each in several]
    if not models:
        raise UserError("no model is given: give a Model, or the path of its file")
    names = [model.name for model in models]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two models have the name {name!r}, under which their states are stored: rename one")
    return models


def open_fittings(
    stack: ExitStack, models: Sequence[Model], url: str, *, estimates: Publisher | None = None, replay: bool = False
) -> list[Fitting]:
    """Return the fittings of models on a log, to be closed by ``stack``; raise UserError if it cannot serve one.

    New models continue from the states of the task's own learner where these hold all that they learn; with ``replay``
    they learn every release on the log.
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
        opened = stack.enter_context(open_log(url, create=False, name=task.name, model=device.model.name))
        adopted = of_task.checkpoint if device.used.of_state and not replay else None
        fittings.append(stack.enter_context(Fitting(device, opened, estimates=estimates, adopted=adopted)))
    return fittings


def fit(
    models: Model | str | Path | Sequence[Model | str | Path],
    log: str,
    *,
    confidence: float = 0.95,
    replay: bool = False,
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
    confidence
        Nominal level of the intervals; for several models, of all their intervals together.
    replay
        Whether a new model reads every release on the log, for its history. By default it continues from the states of
        the task's own learner where these hold all that it learns: moments, and cells of examples.

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
    with ExitStack() as stack:
        fittings = open_fittings(stack, chosen, log, replay=replay)
        ends = fittings[0].log.ends()
        while not all(fitting.has_learned(ends) for fitting in fittings):
            if not sum(fitting.pool.step() for fitting in fittings):
                sleep(_PAUSE)
        names, results = [model.name for model in chosen], []
        for fitting in fittings:
            report = fitting.report(names, level=confidence, history=True, kept=True, seconds=monotonic() - start)
            history, estimate = report.pop("history"), report.pop("estimate")
            results.append(Result(report, history, fitting.device.task, estimate))
    return results[0] if isinstance(models, Model | str | Path) else results
