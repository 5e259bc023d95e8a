"""Report of a learner in process, with the same entries as the report of a log, as far as a learner knows them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from murk.errors import UserError
from murk.learners.estimates.units import Unit, units_beside
from murk.learners.results.diagnosis import categories, diagnose
from murk.learners.results.html import folded, result_html
from murk.learners.results.report import describe_forgetting, describe_level, report_estimate
from murk.learners.results.result import Result

if TYPE_CHECKING:
    from murk.learners.estimates.estimate import Estimate
    from murk.privacy import Guarantee
    from murk.stream.task.protocol import Scale
    from murk.stream.task.task import Task

_CAP: Final = "Each call of learn_one, and each row of learn_many, is one release of one person."
_WINDOWS: Final = "Each window of records is one release: a record is in one window."


def summarize(
    learner: Any, estimate: Estimate, scale: Scale, task: Task | None, level: float, *, forecast: bool = True
) -> Result:
    """Return the result of a learner; see `StreamEstimator.summary`.

    Raises UserError if nothing was learned yet, or the task has other features.
    """
    if not estimate.n_releases:
        raise UserError("nothing was learned yet: call learn_one or learn_many before the summary")
    mechanisms = learner._require().mechanisms
    promised: dict[str, Guarantee] = {**(learner.levels or {}), "default": learner.budget}
    levels = {name: describe_level(each, mechanisms[name]) for name, each in promised.items()}
    report: dict[str, Any] = {
        "task": type(learner).__name__ if task is None else f"{task.name} ({type(learner).__name__})",
        "odds_ratios": scale == "log odds",
        "chances": scale == "probability",
        "releases": estimate.n_releases,
        **report_estimate(estimate, scale, _units(task, estimate, scale), level, forecast=forecast),
        "forget": describe_forgetting(getattr(learner, "forget", None), estimate),
        "guarantee": levels["default"]["guarantee"],
        "levels": levels,
        "cap": None,
        "cap_words": _WINDOWS if hasattr(learner, "windows") else _CAP,
        "public_sample": None,
        "simulated": learner.seed is not None or bool(getattr(learner.noise, "simulated", False)),
    }
    unit, known = getattr(estimate, "unit", None), None if task is None else categories(task)
    report["diagnosis"] = diagnose(report, estimate, scale, unit=unit, categories=known, forecast=forecast)
    return Result(report)


def learner_html(learner: Any, parameters: str) -> str:
    """Return HTML of a learner for notebooks: its result, and its parameters."""
    beneath = folded("Parameters", f"<pre>{escape(parameters)}</pre>")
    if not learner.n_releases:
        name = escape(type(learner).__name__)
        return f"<div><p><b>{name}</b>: nothing learned yet</p>{beneath}</div>"
    result = learner.summary(forecast=False)
    return result_html(result.report, list(result), beneath)


def _units(task: Task | None, estimate: Estimate, scale: Scale) -> dict[str, Unit]:
    if task is None:
        return {}
    units = units_beside(task, scale)
    if units and tuple(units) != tuple(estimate.names):
        raise UserError(
            f"the task {task.name!r} codes the features {', '.join(units)}, but the learner has "
            f"{', '.join(estimate.names)}: give the task (or Encoder) that coded the learner's records"
        )
    return units
