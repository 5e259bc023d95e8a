"""Models on a log of released examples: other columns, another target, another loss.

A release is a vector, or the outer product of one with itself, plus noise on each number. Of a release, the numbers
that belong to a model's columns are again a release, of these columns, with the same noise. Each model is learned from
them as the task's own model is:

=============================  ================================  =======================================
release                        features and target               loss
=============================  ================================  =======================================
outer product, directions      any columns                       quadratic, squared
x and y (real, or separate)    any features; y or a feature      quadratic, squared; of y also others
y x of a label                 any features; y or a feature      of y any; of a feature quadratic, squared
cell                           any columns                       any
=============================  ================================  =======================================

With a label, ``y x`` has the same squares as x, as ``(theta'(y x) - y x_j)^2 = (theta'x - x_j)^2``; directions have all
columns divided by ``|x|``. There the constant is as noisy as the features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats
from murk._internal.lazy import map_levels
from murk._internal.locks import locked
from murk.privacy import CompositeMechanism, GaussianMechanism, LaplaceMechanism
from murk.privacy.mechanisms.outer_product import OuterGaussian, OuterMechanism, matrix_size
from murk.protocols.examples import kernels as f
from murk.protocols.examples import layout as k
from murk.protocols.examples.cells import CellTable
from murk.protocols.examples.cells_device import CellDevice
from murk.protocols.examples.device import ExampleDevice, check_size, labels_of, settings_of
from murk.protocols.examples.directions import ExampleDirections
from murk.protocols.examples.engine import IWPEngine, engine_of
from murk.protocols.examples.estimate import WEIGHTED
from murk.protocols.examples.losses import Noise
from murk.protocols.examples.settings import ExampleMechanism, ExampleSettings, level_rows, settle
from murk.protocols.further_models import EntrySelection, FurtherModel, all_numbers
from murk.stream.wire.columns import columns_of
from murk.stream.wire.releases import ExampleRelease
from murk.task.models import OWN, Columns, Model, task_of
from murk.task.protocols.examples import BY_RULE, DIRECTED, LOSSES
from murk.task.task import Task

_KEYS = ("loss", "intercept", "regularization", "truncation", "batch")
_LEARNER = ("step", "averaging", "weighting", "radius")


@dataclass(frozen=True)
class PartOfOuter(OuterMechanism):
    """Mechanism of a part of released outer products: the numbers of ``features`` columns, the target included."""

    noise: Any
    released: ExampleSettings = field(kw_only=True)  # of the log's task
    whole: OuterGaussian | OuterMechanism = field(kw_only=True)
    numbers: EntrySelection = field(kw_only=True)

    @classmethod
    def of(
        cls, released: ExampleSettings, whole: ExampleMechanism, numbers: EntrySelection, features: int
    ) -> PartOfOuter:
        """Return the part of a log's mechanism of outer products."""
        assert isinstance(whole, OuterGaussian | OuterMechanism)
        inner = whole.noise if isinstance(whole, OuterMechanism) else whole
        return cls(features, inner, released=released, whole=whole, numbers=numbers)

    @property
    def origin(self) -> tuple[ExampleSettings, OuterGaussian | OuterMechanism]:
        """Settings and mechanism of the whole release, which determine its weight and whether it is plausible."""
        return self.released, self.whole

    @cached_property
    def _limit(self) -> float:
        """Largest length of a plausible release."""
        return float(level_rows(self.released, [self.whole])[0][0, k.LIMIT - k.UNIT])

    @property
    def dimension(self) -> int:
        """Number of entries that belong to the columns."""
        return matrix_size(self.features)

    @property
    def received(self) -> int:
        """Number of integers in a release."""
        return self.whole.dimension

    def decode(self, payload: npt.ArrayLike) -> Floats:
        """Decode whole payloads (m, received) into unbiased estimates of the columns' numbers; infinite if implausible.

        Squares are added in the order of the kernel that judges whole releases.
        """
        whole = self.whole.decode(payload)
        part = np.asarray(whole[:, self.numbers.places] * self.numbers.signs)
        part[~(np.cumsum(whole * whole, axis=1)[:, -1] <= self._limit**2)] = np.inf
        return part


@dataclass(frozen=True)
class VectorSettings(ExampleSettings):
    """Settings of a squared loss whose constant and target are as noisy as its features."""

    @cached_property
    def form(self) -> int:
        """Code of the release in kernels: a vector with a noisy constant."""
        return k.PRODUCT

    @cached_property
    def dimension(self) -> int:
        """Number of integers of a release in kernels, without the target's (with it under Laplace noise)."""
        return self.features + self.laplace

    def noise(self, mechanism: ExampleMechanism) -> Noise:
        """Return the noise of a mechanism's releases, the same for each number."""
        assert isinstance(mechanism, GaussianMechanism | LaplaceMechanism)
        return Noise(mechanism.variance, mechanism.variance, mechanism.variance, laplace=self.laplace)


@dataclass(frozen=True)
class FeatureTargetSettings(ExampleSettings):
    """Settings of a real target that was released as a feature, and so without a scale of its own."""

    @property
    def scale(self) -> float:
        """Factor of the target before its release: 1."""
        return 1.0


class VectorEngine(IWPEngine):
    """An `IWPEngine` of released vectors ``(u, t)`` of features, a noisy constant and a target."""

    @locked
    def learn_releases(self, releases: Sequence[ExampleRelease]) -> None:
        """Learn from admitted releases in turn."""
        if not releases:
            return
        columns = columns_of(releases)
        rows, (levels, index) = columns.rows(self.dimension + 1), columns.levels()
        for run in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(index)) + 1):
            mechanism = self.mechanisms[levels[index[run[0]]]]
            self.use(mechanism)
            values = rows[run] * mechanism.unit
            f.learn_decoded(self.real, self.whole, values[:, :-1].copy(), values[:, -1].copy())


@dataclass(frozen=True)
class VectorDevice(ExampleDevice):
    """The examples of a model with a noisy constant."""

    def engine(self) -> IWPEngine:
        """Return a learner of the model, at version 0."""
        made: IWPEngine = (engine_of if self.settings.laplace else VectorEngine)(self.settings, self.mechanisms)
        return made


def part_of(model: Model, task: Task, columns: Columns, whole: ExampleDevice | CellDevice) -> FurtherModel:
    """Return the part of released examples that a model uses, or raise UserError if they cannot serve it."""
    model.refuse_beyond(_KEYS, task.protocol, _LEARNER)
    released, own = whole.settings, columns.own_target
    kind = columns.target.kind
    loss = model.loss or BY_RULE[kind]
    _check_served(model, task, columns, released, loss)
    block = {key: getattr(model, key) for key in _KEYS} | {"loss": loss}
    if isinstance(whole, CellDevice):
        return _of_cells(model, task, columns, whole, block)
    derived = task_of(model, task, columns, {**block, "release": task.block.release, "split": task.block.split})
    coordinates = released.coordinates
    if coordinates is not None:
        if not model.intercept:
            raise model.refuse(
                "intercept", f"the log of {task.name!r} has centred features (`typical`), which need one"
            )
        coordinates = coordinates.part(columns.places, columns.aim)
    settings = replace(settings_of(derived), newton=True, coordinates=coordinates)
    # A record's weight depends on the length of the released vector, with all of the task's columns.
    note = f"; with x all features of {task.name}" if released.weighted else ""
    p = released.features
    if not own and (released.weighted or released.form == k.PRODUCT):
        note += f"; of people whose {task.target.name} is known"
    if released.outer:
        numbers = EntrySelection.of(*_of_matrix(columns, p))
        size = settings.features + 1
        parts = map_levels(lambda each: PartOfOuter.of(released, each, numbers, size), whole.mechanisms)
        of_state = released.exact and settings.weighting == released.weighting
        return replace(_part(derived, settings, parts, all_numbers, note), of_state=of_state)
    if released.directed and own and columns.places == tuple(range(p)):
        return _part(derived, settings, whole.mechanisms, all_numbers, note)
    if released.directed or (released.form == k.PRODUCT and not own):
        if released.directed and model.regularization > 0.0:
            raise model.refuse(
                "regularization", "can be given for directions only with all features of the task; remove it"
            )
        # A label multiplies all numbers of a direction, so that the target is 1/|x|.
        index = {OWN: p - 1, p - 1: p} if released.form == k.DIRECTED_LABEL else {OWN: p}
        indices = [index.get(each, each) if released.directed else each for each in (*columns.places, columns.aim)]
        values = {each.name: getattr(settings, each.name) for each in fields(ExampleSettings)}
        values |= {"target": "real", "loss": "squared", "release": "joint"}
        values["square"] = 2.0 if released.directed else released.square
        note = f"{WEIGHTED.format(released.weight)}{note}" if released.directed else note
        take = EntrySelection.of(indices, [1] * (len(indices) - 1) + [columns.sign])
        vector = VectorSettings(**values)
        vectors = map_levels(partial(_vector, dimension=vector.dimension), whole.mechanisms)
        return _part(derived, vector, vectors, take, note, VectorDevice)
    if released.form == k.PRODUCT:
        take = EntrySelection.of(columns.places)
    else:
        # The target is the last number.
        indices = list(columns.places[:-1])
        take = EntrySelection.of([*indices, p - 1 if own else columns.aim], [1] * len(indices) + [columns.sign])
    if own:
        # The public bound is that of the whole released record, as it determined the scale of the released target.
        settings = replace(settings, square=released.square)
    else:
        values = {each.name: getattr(settings, each.name) for each in fields(ExampleSettings)}
        values |= {"target": "real", "loss": "squared"}
        settings = (
            FeatureTargetSettings(**values) if settings.laplace else ExampleSettings(**values | {"release": "separate"})
        )
    mechanisms = map_levels(partial(_restricted, settings=settings, own=own), whole.mechanisms)
    # The features of a record without the task's own target are released as zeros.
    others = "" if own else f"; people whose {task.target.name} is missing count as the middle of every column"
    return _part(derived, settings, mechanisms, take, others)


def _of_cells(model: Model, task: Task, columns: Columns, whole: CellDevice, block: Mapping[str, Any]) -> FurtherModel:
    """Return the part of released cells that a model uses: all columns and losses are served."""
    cells, released = whole.settings.cells, whole.settings
    assert cells is not None
    model.refuse_beyond(("loss", "intercept", "regularization"), task.protocol, ("radius",))
    derived = task_of(model, task, columns, {**block, "release": "cells", "grid": task.block.grid})
    names = tuple(derived.coding.names)
    values = {key: getattr(model, key) for key in ("intercept", "regularization")}
    values |= {"radius": model.learner.radius}
    settings = replace(
        released,
        target=columns.target.kind,
        names=names,
        square=derived.coding.largest_square,
        loss=block["loss"],
        labels=labels_of(derived),
        **values,
    )
    note = "" if columns.own_target else f"; of people whose {task.target.name} is known"
    table = CellTable.of(cells, columns, real=task.target.kind == "real")
    device = CellDevice(settle(settings, whole.mechanisms), whole.mechanisms, table)
    return FurtherModel(derived, device, all_numbers, note, of_state=True)


def _check_served(model: Model, task: Task, columns: Columns, released: ExampleSettings, loss: str) -> None:
    """Raise UserError if the release cannot serve these columns with this loss."""
    kind, own = columns.target.kind, task.target.name
    linear = " and ".join(DIRECTED)
    if loss not in LOSSES[kind]:
        raise model.refuse("loss", f"{loss!r} is not a loss of a {kind} target; one of {', '.join(LOSSES[kind])}")
    if released.cells:
        return
    if released.weighted:
        if loss not in DIRECTED:
            released_words = "outer products" if released.outer else "directions"
            # Only cells serve such a loss of another column.
            served = f"{{for: [{loss}]}}" if columns.own_target else "{release: cells}"
            raise model.refuse(
                "loss",
                f"the log releases {released_words}, which serve linear fits only ({linear}), of any of its columns; "
                f"{loss} needs examples: {served} in the task, from its first release on",
            )
        return
    if columns.uses_own_target:
        others = ", ".join(feature.name for feature in task.features)
        raise model.refuse(
            "features",
            f"{own!r}, the task's target, is released with other noise than its features, and cannot be a feature: "
            f"this log serves {others}",
        )
    if not columns.own_target and loss not in DIRECTED:
        raise model.refuse(
            "loss",
            f"{columns.target.name!r} is released as a feature, with noise, and as a target it serves linear "
            f"fits only ({linear}); {loss} is served for the task's target {own!r}",
        )


def _of_matrix(columns: Columns, features: int) -> tuple[list[int], list[int]]:
    """Return the indices and signs of a matrix's entries for the model's columns, the target last."""
    position = {pair: at for at, pair in enumerate(combinations_with_replacement(range(features + 1), 2))}
    positions = [features if index < 0 else index for index in (*columns.places, columns.aim)]
    indices, signs = [], []
    for at, row in enumerate(positions):
        for beside, column in enumerate(positions[at:], start=at):
            indices.append(position[min(row, column), max(row, column)])
            signs.append(columns.sign if (at == len(positions) - 1) != (beside == len(positions) - 1) else 1)
    return indices, signs


def _part(
    task: Task,
    settings: ExampleSettings,
    mechanisms: Mapping[str, ExampleMechanism],
    take: Callable[[Sequence[Any]], Sequence[Any]],
    note: str = "",
    device: type[ExampleDevice] = ExampleDevice,
) -> FurtherModel:
    check_size(settings)
    return FurtherModel(task, device(settle(settings, mechanisms), mechanisms), take, note)


def _vector(mechanism: ExampleMechanism, dimension: int) -> GaussianMechanism | LaplaceMechanism:
    """Return the noise of some numbers of a direction, of ``y x``, or of ``(x, a y)`` with Laplace noise."""
    noise = mechanism.noise if isinstance(mechanism, ExampleDirections) else mechanism
    if isinstance(noise, LaplaceMechanism):
        # A lattice step is sqrt(d) radius / steps, and must stay the same.
        return replace(noise, dimension=dimension, radius=noise.radius * math.sqrt(noise.dimension / dimension))
    assert isinstance(noise, GaussianMechanism)
    return replace(noise, dimension=dimension)


def _restricted(mechanism: ExampleMechanism, settings: ExampleSettings, own: bool) -> ExampleMechanism:
    """Return a mechanism restricted to a model's entries; with ``own`` the model has the task's target."""
    p = settings.features
    if isinstance(mechanism, LaplaceMechanism):
        return _vector(mechanism, p)
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
