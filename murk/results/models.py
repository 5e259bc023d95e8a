"""Models of a log's releases as devices, and their reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from murk._internal.numbers import listed
from murk.errors import UserError
from murk.inference.estimate import Estimate
from murk.inference.levels import divided_error
from murk.protocols.device import Device, device_for, has_part, part
from murk.protocols.further_models import FurtherModel, FurtherModelEngine, own_model
from murk.results.diagnosis import coded_as
from murk.results.report import report_log
from murk.stream.log.interface import Log
from murk.task.fields import format_duration
from murk.task.models import Model, columns_of
from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"


class ModelDevice:
    """Device of a model, whose learner uses a part of the releases of ``released``, the log's task."""

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
        whole = self.whole.engine()
        learner = whole if self.used.is_own else self.used.device.engine()
        return FurtherModelEngine(whole, learner, self.used.take, self.model.hash)

    def estimate(self, engines: Sequence[Any]) -> Estimate:
        """Return the joint estimate of several partitions."""
        estimate: Estimate = self.used.device.estimate([engine.own for engine in engines])
        return replace(estimate, note=estimate.note + self.used.note) if self.used.note else estimate


def model_device_for(model: Model, task: Task) -> ModelDevice:
    """Return the device of a model on a log of ``task``; raise UserError if the log's releases cannot serve it."""
    whole = device_for(task)
    if not task.features or not has_part(task.protocol, "models"):
        reason = (
            f"the log of {task.name!r} has protocol: {task.protocol}, whose releases serve only the task's own model"
        )
        return ModelDevice(model, task, whole, own_model(model, task, whole, reason))
    columns = columns_of(model, task)
    used: FurtherModel = part(task.protocol, "models").part_of(model, task, columns, whole)
    for feature in task.features:
        if feature.name == columns.target.name:
            note = f"{used.note}; missing values of {feature.name} count as {coded_as(feature)}"
            used = replace(used, note=note)
    return ModelDevice(model, task, whole, used)


def retention_cautions(task: Task) -> list[str]:
    """Return cautions on what retention deletes that further models need; none if states hold what they learn."""
    try:
        if model_device_for(Model(name="further"), task).used.of_state:
            return []
    except UserError:
        return []
    kept = format_duration(task.log.retention)
    words = f"further models (`murk fit`) learn from releases, which the log keeps for {kept}: fit them within {kept}"
    return [f"{words}, give a longer log.retention, or keep an archive (`murk archive`)"]


def report_model(
    device: ModelDevice, log: Log, names: Sequence[str], *, level: float, from_states: bool = False, **more: Any
) -> dict[str, Any]:
    """Return the report of a model whose states are on a log; see `Fitting.report`.

    ``from_states`` tells that the model is the task's own, and its states those of the task's learner.
    """
    count, used = max(len(names), 1), None if device.used.is_own else device
    report = report_log(device.released, log, level=divided_error(level, count), device=used, shown=device.task, **more)
    report["model"] = {
        "name": device.model.name,
        "log_task": device.released.name,
        "simultaneous": list(names) if count > 1 else [],
        "level": level,
        "before": report.pop("before", 0),
        "from_states": report.pop("from_states", from_states),
    }
    report["task"] = device.model.name
    report["model"]["words"] = _words(report, device)
    return report


def _words(report: dict[str, Any], device: ModelDevice) -> str:
    """Describe a model's columns, and the models for which its intervals hold together."""
    about, target = report["model"], device.task.target.name
    columns = ", ".join(feature.name for feature in device.task.features)
    fitted = f"{target} by {columns}" if columns else target
    words = [f"Model {about['name']} of the log of {about['log_task']}: {fitted}. It cost nobody further budget."]
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
    if device.used.is_own and about["from_states"]:
        words.append(
            f"It is the task's own model, as far as `murk learn` has learned it: {report['lag']:,} messages behind."
        )
    elif about["from_states"]:
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
