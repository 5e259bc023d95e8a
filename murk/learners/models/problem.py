"""The problem of a model on a log: what it learns from the log's releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from murk.errors import UserError
from murk.learners.core.part import Part, PartEngine
from murk.learners.problem import problem_for
from murk.learners.results.missing import coded_as
from murk.stream.task.model import Model, columns_of
from murk.stream.task.registry import FOLDERS, part

if TYPE_CHECKING:
    from murk.learners.estimates.estimate import Estimate
    from murk.learners.problem import Problem
    from murk.privacy.mechanisms import Costed
    from murk.stream.task.task import Task


@dataclass(frozen=True)
class ModelProblem:
    """A model's problem: the releases of the log's task, a part of which the model's own problem learns.

    ``released`` is the log's task, ``task`` the one whose own fit the model would be.
    """

    model: Model
    released: Task
    whole: Problem
    used: Part
    interactive = False

    @property
    def task(self) -> Task:
        """Task with the model's columns and settings, for names, units and words."""
        return self.used.task

    @property
    def kind(self) -> str:
        """Kind of the releases."""
        return self.whole.kind

    @property
    def mechanisms(self) -> Mapping[str, Costed]:
        """Level name to the mechanism of the log."""
        return self.whole.mechanisms

    @property
    def dimension(self) -> int:
        """Number of integers in a release."""
        return self.whole.dimension

    def check_state(self) -> None:
        """Raise UserError, with the size, if a state is too large for a log."""
        self.used.problem.check_state()

    def engine(self) -> PartEngine:
        """Return a learner of the model, at version 0."""
        return PartEngine(self.whole.engine(), self.used.problem.engine(), self.used.take, self.model.hash)

    def estimate(self, engines: Sequence[Any]) -> Estimate:
        """Return the joint estimate of several chains."""
        estimate: Estimate = self.used.problem.estimate([engine.own for engine in engines])
        return replace(estimate, note=estimate.note + self.used.note) if self.used.note else estimate


def model_problem_for(model: Model, task: Task) -> ModelProblem:
    """Return the problem of a model on a log of ``task``.

    Raises UserError if the log's releases cannot serve the model, with what they could serve.

    Examples
    --------
    >>> from murk.stream import Task
    >>> task = Task.parse('''
    ... name: wages
    ... features: [{name: age, low: 20, high: 60}, {name: hours, low: 0, high: 80}]
    ... target: {name: wage, kind: real, low: 0, high: 100}
    ... protocol: examples
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> problem = model_problem_for(Model.parse("{name: hours-by-age, features: [age], target: hours}"), task)
    >>> problem.task.coding.names, problem.dimension
    (('age', 'intercept'), 10)
    """
    if find_spec(f"{FOLDERS[task.protocol]}.model") is None:
        raise UserError(
            f"{model.source}: the log of {task.name!r} has protocol: {task.protocol}, whose releases each answer the "
            "task's own model and serve no other: `murk learn` learns it. For several models, release examples or "
            "moments (docs/models.md)",
            code="MURK-TASK-004",
        )
    whole = problem_for(task)
    columns = columns_of(model, task)
    used: Part = part(task.protocol, "model").part_of(model, task, columns, whole)
    for feature in task.features:
        if feature.name == columns.target.name:
            note = f"{used.note}; missing values of {feature.name} count as {coded_as(feature)}"
            used = replace(used, note=note)
    return ModelProblem(model, task, whole, used)
