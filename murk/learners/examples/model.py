"""Models on a log of released examples: other columns, another target, another loss.

A release is a vector, or the outer product of one with itself, plus noise on each number. The numbers of a model's
columns are a release of these columns with the same noise, from which the model is learned as a task's own would be:

=============================  ==============================  ===================================
release                        features and target             loss
=============================  ==============================  ===================================
outer product                  any columns                     quadratic, squared
x and y (real, or separate)    any features; y or a feature    quadratic, squared; of y its own
y x of a label                 any features; y                 any loss of a label
directions                     those of the task               quadratic, squared
=============================  ==============================  ===================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import numpy.typing as npt

from murk.learners.core.coordinates import matrix_size
from murk.learners.core.part import Numbers, Part, all_numbers
from murk.learners.core.scoring.mechanism import OuterGaussian, OuterMechanism
from murk.learners.examples import layout as k
from murk.learners.examples.problem import ExampleProblem, check_size, settings_of
from murk.learners.examples.protocol import DIRECTED, LOSSES
from murk.learners.examples.settings import ExampleMechanism, ExampleSettings, settle
from murk.privacy import CompositeMechanism, GaussianMechanism
from murk.stream.task.model import Columns, Model, task_of
from murk.stream.task.task import Task

_KEYS = ("loss", "intercept", "regularization", "truncation", "batch")
_LEARNER = ("step", "averaging", "weighting", "radius")


@dataclass(frozen=True)
class PartOfOuter(OuterMechanism):
    """The numbers of some columns of a released outer product, with its noise and unit.

    ``features`` counts the columns, the target included.
    """

    noise: Any
    whole: OuterGaussian | OuterMechanism = field(kw_only=True)
    numbers: Numbers = field(kw_only=True)

    @classmethod
    def of(cls, whole: ExampleMechanism, numbers: Numbers, features: int) -> PartOfOuter:
        """Return the part of a log's mechanism of outer products."""
        assert isinstance(whole, OuterGaussian | OuterMechanism)
        inner = whole.noise if isinstance(whole, OuterMechanism) else whole
        return cls(features, inner, whole=whole, numbers=numbers)

    @property
    def dimension(self) -> int:
        """Number of numbers of the columns."""
        return matrix_size(self.features)

    @property
    def received(self) -> int:
        """Number of integers in a release."""
        return self.whole.dimension

    def decode(self, payload: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Decode whole payloads (m, received) into unbiased estimates of the columns' numbers."""
        return np.asarray(self.whole.decode(payload)[:, self.numbers.places] * self.numbers.signs)


def part_of(model: Model, task: Task, columns: Columns, whole: ExampleProblem) -> Part:
    """Return the part of released examples that a model uses.

    Raises UserError if they cannot serve the model, with what they could serve.
    """
    model.refuse_beyond(_KEYS, task.protocol, _LEARNER)
    released = whole.settings
    kind = columns.target.kind
    loss = model.loss or ("quadratic" if kind == "binary" else "squared")
    _check_served(model, task, columns, released, loss)
    block = {key: getattr(model, key) for key in _KEYS} | {"loss": loss}
    derived = task_of(model, task, columns, {**block, "release": task.block.release, "split": task.block.split})
    settings = replace(settings_of(derived), polish=True)
    if released.outer:
        numbers = Numbers.of(*_of_matrix(columns, released.features))
        parts = {
            level: PartOfOuter.of(each, numbers, settings.features + 1) for level, each in whole.mechanisms.items()
        }
        # Lengths are those of the released vector, all of whose columns weigh a record.
        note = f"; with x all features of {task.name}"
        return _part(derived, settings, parts, all_numbers, note)
    places = list(columns.places[:-1])
    if released.form == k.PRODUCT:
        take = Numbers.of(columns.places)
    elif released.directed:
        take = Numbers.of(range(released.dimension))
    else:
        # The target is the last number.
        aim = released.features - 1 if columns.own_target else columns.aim
        take = Numbers.of([*places, aim], [1] * len(places) + [columns.sign])
    if columns.own_target:
        # The public bound is that of the released record, by which its target is scaled.
        settings = replace(settings, square=released.square)
    else:
        settings = replace(settings, target="real", loss="squared", release="separate")
    own = columns.own_target
    mechanisms = {level: _restricted(each, settings, own) for level, each in whole.mechanisms.items()}
    return _part(derived, settings, mechanisms, take)


def _check_served(model: Model, task: Task, columns: Columns, released: ExampleSettings, loss: str) -> None:
    """Raise UserError if the release cannot serve these columns with this loss."""
    kind, own = columns.target.kind, task.target.name
    if loss not in LOSSES[kind]:
        raise model.refuse("loss", f"{loss!r} is not a loss of a {kind} target; one of {', '.join(LOSSES[kind])}")
    if released.weighted and loss not in DIRECTED:
        what = "outer products" if released.outer else "directions"
        raise model.refuse(
            "loss",
            f"the log releases {what}, which serve linear fits only ({' and '.join(DIRECTED)}), of any of its columns; "
            f"{loss} needs examples: {{release: joint}} in the task, from its first release on",
        )
    if released.outer:
        return
    others = [feature.name for feature in task.features]
    if columns.uses_own_target:
        raise model.refuse(
            "features",
            f"{own!r}, the task's target, is released with other noise than its features, and cannot be a feature: "
            f"this log serves {', '.join(others)}",
        )
    if released.directed and (not columns.own_target or columns.places != tuple(range(released.features))):
        raise model.refuse(
            "target" if not columns.own_target else "features",
            f"the log releases directions, whose length is that of all features: it serves the target {own!r} by all "
            f"features ({', '.join(others)}), in their order",
        )
    if columns.own_target:
        return
    if released.form == k.PRODUCT:
        raise model.refuse(
            "target",
            f"the log releases the product of {own!r} and the features, from which only {own!r} is learned: it serves "
            f"this target by any of {', '.join(others)}, with any of the losses {', '.join(LOSSES['binary'])}",
        )
    if loss not in DIRECTED:
        raise model.refuse(
            "loss",
            f"{columns.target.name!r} is released as a feature, with Gaussian noise, and as a target it serves linear "
            f"fits only ({' and '.join(DIRECTED)}); {loss} is served for the task's target {own!r}",
        )


def _of_matrix(columns: Columns, features: int) -> tuple[list[int], list[int]]:
    """Return the places and signs of the numbers of a matrix of the model's columns, the target last."""
    position = {pair: at for at, pair in enumerate(combinations_with_replacement(range(features + 1), 2))}
    own = [features if place < 0 else place for place in (*columns.places, columns.aim)]
    places, signs = [], []
    for at, row in enumerate(own):
        for beside, column in enumerate(own[at:], start=at):
            places.append(position[min(row, column), max(row, column)])
            signs.append(columns.sign if (at == len(own) - 1) != (beside == len(own) - 1) else 1)
    return places, signs


def _part(
    task: Task,
    settings: ExampleSettings,
    mechanisms: Mapping[str, ExampleMechanism],
    take: Callable[[Sequence[Any]], Sequence[Any]],
    note: str = "",
) -> Part:
    check_size(settings)
    return Part(task, ExampleProblem(settle(settings, mechanisms), dict(mechanisms)), take, note)


def _restricted(mechanism: ExampleMechanism, settings: ExampleSettings, own: bool) -> ExampleMechanism:
    """Return a Gaussian mechanism of the log restricted to a model's numbers.

    ``own`` tells whether its target is the task's, and not a feature.
    """
    p = settings.features
    if isinstance(mechanism, CompositeMechanism):
        features, target = mechanism.parts
        assert isinstance(features, GaussianMechanism)
        last = target if own else replace(features, dimension=1)
        return CompositeMechanism((replace(features, dimension=p - 1), last))
    if isinstance(mechanism, GaussianMechanism):
        if own:
            return replace(mechanism, dimension=p)
        return CompositeMechanism((replace(mechanism, dimension=p - 1), replace(mechanism, dimension=1)))
    return mechanism
