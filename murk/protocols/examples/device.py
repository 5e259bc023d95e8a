"""The example device of a task, shared by devices and learners. Does not import River."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from murk._internal.arrays import Floats
from murk._internal.wiping import copied, empty
from murk.errors import UserError
from murk.privacy.guarantees import Guarantee
from murk.protocols.examples import layout as k
from murk.protocols.examples.device_kernels import to_units, to_vectors
from murk.protocols.examples.settings import POLISHED, ExampleMechanism, ExampleSettings, released, settle
from murk.protocols.options import InverseScalingStep
from murk.protocols.rows import Rows
from murk.protocols.stated import StatedCoordinates
from murk.stream.wire.codec import MAX_MESSAGE, MAX_STATE, history_bytes, longest_release
from murk.task.features import ClassTarget
from murk.task.protocols.examples import BY_RULE
from murk.task.task import Task

if TYPE_CHECKING:
    from murk.inference.estimate import Estimate
    from murk.protocols.examples.cells import Cells
    from murk.protocols.examples.cells_device import CellDevice
    from murk.protocols.examples.engine import IWPEngine

_ERROR_CODE = "MURK-LEARN-001"


@dataclass(frozen=True)
class ExampleDevice:
    """The examples of a task: which vector of a record is randomized, and how a learner uses the release."""

    settings: ExampleSettings  # public settings, from `settle`
    mechanisms: Mapping[str, ExampleMechanism]
    covariates: Rows | None = None  # public covariates, for the learner alone
    kind = "example"
    interactive = False
    averages = False

    @property
    def dimension(self) -> int:
        """Number of integers in a release."""
        return self.settings.dimension

    def check_state(self) -> None:
        """Refuse a task whose learner's state is too large for a log. Raises UserError with the sizes."""
        check_size(self.settings)

    def vectors(self, X: Floats, y: Floats, theta: Floats | None = None) -> Floats:
        """Return the vectors that the mechanism randomizes, for coded records ``X``, ``(m, p)``, the constant last.

        A vector is v of an outer product, (m, p + 1), a direction, ``y x``, or ``(x, a y)``. If the target is missing
        (NaN), all numbers are zero except a direction's missingness.
        """
        settings = self.settings
        rows = copied(X) if settings.coordinates is None else settings.coordinates.rows(X)
        targets = copied(y)
        if settings.outer:
            units = empty((len(rows), settings.features + 1))
            to_units(settings.form, int(settings.boxed), math.sqrt(settings.square - 1.0), rows, targets, units)
            return units
        out = empty((len(rows), self.dimension))
        out.fill(0.0)
        scale = math.sqrt(settings.square - 1.0) if settings.directed else settings.scale
        to_vectors(settings.form, int(settings.boxed), scale, rows, targets, out)
        return out

    def engine(self) -> IWPEngine:
        """Return a learner for this task's releases, at version 0."""
        # Imported here, as devices do not need it.
        from murk.protocols.examples.engine import engine_of

        engine: IWPEngine = engine_of(self.settings, self.mechanisms)
        engine.covariates = self.covariates
        return engine

    def estimate(self, engines: Sequence[IWPEngine]) -> Estimate:
        """Return the joint estimate of several partitions."""
        from murk.protocols.examples.estimate import estimate

        return estimate([engine.snapshot() for engine in engines])


def check_size(settings: ExampleSettings) -> None:
    """Refuse examples with too many numbers for a message or a learner's state. Raises UserError with the sizes."""
    p = settings.features
    numbers = k.ROWS * p + (2 * k.triangle(p) if settings.newton else 0)
    numbers += k.moments_of(settings.dimension) if settings.exact else 0
    state = 11 * numbers + history_bytes(len(settings.names)) + 4096
    release = longest_release(ExampleDevice.kind, settings.dimension)
    if state > MAX_STATE or release > MAX_MESSAGE:
        raise UserError(
            f"an example of {p:,} coded features has {settings.dimension:,} numbers: a release would take up to "
            f"{release:,} bytes (at most {MAX_MESSAGE:,} fit), a partition's state up to {state / 2**20:.1f} MB (at "
            f"most {MAX_STATE / 2**20:g}). Give the task fewer features"
            + (", or examples: {release: joint}" if settings.outer else "")
        )


def labels_of(task: Task) -> tuple[str, ...]:
    """Return the names of the classes of a task's target; empty for other targets."""
    return tuple(task.target.classes) if isinstance(task.target, ClassTarget) else ()


def cells_of(task: Task) -> Cells:
    """Return the combinations of values of a task that releases cells."""
    # Imported here, as devices of other releases do not need it.
    from murk.protocols.examples.cells import Cells

    return Cells.of_task(task, task.block.grid)


def settings_of(task: Task) -> ExampleSettings:
    """Return a resolved task's settings, before `settle`."""
    block, learner, coding = task.block, task.learner, task.coding
    if block is None:
        raise UserError(f"the task {task.name!r} does not release examples")
    step = learner.step
    default = BY_RULE[task.target.kind]
    release = block.release or released(None, block.loss or default, task.privacy.levels.values(), coding.size - 1)
    coordinates = None
    if release in ("outer", "directions") and block.intercept and task.covariates is None:
        # Vectors of any length are divided by their length, so that no coordinate needs a bound.
        coordinates = StatedCoordinates.of(coding)
    return ExampleSettings(
        target=task.target.kind,
        names=tuple(coding.names),
        square=coding.largest_square if coordinates is None else coordinates.largest_square,
        boxed=coordinates is None,
        coordinates=coordinates,
        release=release,
        loss=block.loss or default,
        step=step if step == "noise-aware" else InverseScalingStep(step.eta, step.alpha),
        newton=(coding.size <= POLISHED or block.release in ("outer", "cells"))
        if block.newton is None
        else block.newton,
        calibration=task.privacy.calibration,
        cells=cells_of(task) if block.release == "cells" else None,
        kind=task.privacy.mechanism if block.release == "joint" else None,
        labels=labels_of(task),
        **{name: getattr(block, name) for name in ("intercept", "split", "truncation", "regularization", "batch")},
        **{name: getattr(learner, name) for name in ("radius", "averaging", "weighting")},
    )


def device_for(task: Task) -> ExampleDevice | CellDevice:
    """Return the example device of a resolved task.

    Raises UserError if a level's guarantee is impossible, the radius is outside the valid region, or examples are too
    long.
    """
    settings = settings_of(task)
    if settings.cells:
        from murk.protocols.examples.cells_device import cell_device_for

        return cell_device_for(task, settings)
    # Checked before mechanisms are made: their errors would blame the guarantees.
    check_size(settings)

    def mechanism(guarantee: Guarantee) -> ExampleMechanism:
        own = replace(settings, kind=task.privacy.kind_for(guarantee)) if settings.outer else settings
        return own.mechanism(guarantee)

    mechanisms = task.privacy.by_level(mechanism)
    covariates = None if task.covariates is None else Rows.counted(*task.covariates)
    return ExampleDevice(settle(settings, mechanisms), mechanisms, covariates)
