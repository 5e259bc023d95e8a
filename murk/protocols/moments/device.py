"""The moments of a task, shared by devices and learners. Does not import River."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk._internal.lazy import bounding
from murk._internal.wiping import track
from murk.errors import UserError
from murk.privacy.mechanisms.base import Randomizer
from murk.privacy.noise import NoiseSource
from murk.protocols.covariates import Covariates
from murk.protocols.mean_functions import LINKS, LOSSES, CodedCurve, Curve, curve_of
from murk.protocols.moments.mechanisms import WHOLE, MomentMechanism, calibrated
from murk.protocols.moments.model import MomentModel, ResponseRange
from murk.protocols.moments.statistics import Statistics, balanced, normal_norm_bound
from murk.protocols.scores.device import ScoreDevice, covariates_of, level_mechanisms
from murk.protocols.scores.model import QUERIES, Query
from murk.protocols.scores.settings import Settings
from murk.stream.wire.codec import MAX_MESSAGE, MAX_STATE
from murk.stream.wire.state import history_bytes
from murk.task.features import ClassTarget, RealTarget

if TYPE_CHECKING:
    from murk.inference.estimate import Estimate
    from murk.protocols.moments.engine import MomentEngine
    from murk.protocols.scores.fast_records import AnswerKernel
    from murk.task.features import Target
    from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"

_ENVELOPE, _NUMBER = 512, 22  # bytes of the longest release: other fields, and a number with sign, comma and space
_STATE_NUMBER = 11  # bytes of a float64 in base64
_COVERS_HALF = {"sigmoid", "softplus"}


@dataclass(frozen=True)
class MomentDevice:
    """The moments of a task's records: layout, mechanisms and fitted model."""

    layout: Statistics
    model: MomentModel
    mechanisms: Mapping[str, Randomizer]
    binary: bool  # whether targets of 0 and 1 are first coded to -1 and +1
    kind: ClassVar[str] = "moment"
    interactive: ClassVar[bool] = False

    @property
    def averages(self) -> bool:
        """Whether people release their records' mean: if all levels have Gaussian noise for joint moments."""
        return all(isinstance(each, MomentMechanism) for each in bounding(self.mechanisms).values())

    @property
    def dimension(self) -> int:
        """Number of integers in a release."""
        return self.layout.dimension

    def check_state(self) -> None:
        """Raise UserError, with the largest number of coded features, if releases or states are too large for a log."""
        check_size(self.layout)

    def vectors(self, X: Floats, y: Floats, theta: Floats | None = None) -> Floats:
        """Return moments of coded records, (m, d), for any ``theta``; the layout determines how NaN targets count."""
        targets = np.asarray(y, dtype=np.float64)
        return self.layout.vectors(X[:, : self.layout.size], track(2.0 * targets - 1.0) if self.binary else targets)

    def engine(self) -> MomentEngine:
        """Return a learner for this task's releases, at version 0."""
        # Imported here, as devices do not need it.
        from murk.protocols.moments.engine import MomentEngine

        return MomentEngine(self.layout, self.model, self.mechanisms)

    def estimate(self, engines: Sequence[MomentEngine]) -> Estimate:
        """Return the joint estimate of several partitions."""
        from murk.protocols.moments.engine import merged

        return merged(engines)


def check_size(layout: Statistics) -> None:
    """Raise UserError, with the largest number of coded features, for too many moments for a message or a state."""
    fits = min((MAX_MESSAGE - _ENVELOPE) // _NUMBER, (MAX_STATE - history_bytes(layout.size) - 4096) // _STATE_NUMBER)
    if layout.dimension <= fits:
        return
    # p (p + 1) / 2 + p numbers, one fewer if the constant's own entry is public.
    public = layout.constant and not layout.observed
    most = int((math.isqrt(9 + 8 * (fits + public)) - 3) // 2)
    raise UserError(
        f"a release of {layout.dimension:,} second moments, for {layout.size:,} coded features, exceeds the largest "
        f"message of a log ({MAX_MESSAGE:,} bytes): at most {most:,} coded features fit (the constant is one, and so "
        "is each category but the first). Give the task fewer features, or protocol: examples"
    )


def _curve_for(block: Any, binary: bool) -> Curve:
    if binary:
        return curve_of(block.loss or "logistic", LOSSES, "loss")
    return curve_of(block.link or "identity", LINKS, "link")


def response_range_of(target: Target, curve: Curve, intercept: bool = True) -> ResponseRange:
    """Return the response, as a function of the coded target, to which a curve is fitted.

    Sigmoid and softplus apply to a real target's position in its range, the exponential to the target itself, others to
    the coded target. Without an intercept, labels are 0 and 1, and all curves but the line apply to the target itself.
    """
    if isinstance(target, RealTarget):
        if not intercept and target.low != -target.high:
            raise UserError(
                f"moments.intercept: false needs a target with bounds of -b and b, but {target.name!r} is from "
                f"{target.low:g} to {target.high:g}: give such bounds, or intercept: true"
            )
        if curve.name == "exp" or not (intercept or curve.name == "identity"):
            return ResponseRange(target.low, target.high)
        return ResponseRange(0.0, 1.0) if curve.name in _COVERS_HALF else ResponseRange(-1.0, 1.0)
    return ResponseRange(0.0, 1.0) if intercept else ResponseRange(-1.0, 1.0)


@dataclass(frozen=True)
class DirectionDevice(ScoreDevice):
    """The directions of a task: scores at coefficients of zero, in one round, so that nobody reads a model.

    A person releases their label's sign times ``z / |z|``, where z are their whitened features. The learner solves for
    the coefficients at which the expected mean over public rows equals the released mean. With at most 34 features, one
    person in ten, drawn without looking at the record, releases ``z z'`` instead, to compare public rows with people.
    """

    interactive: ClassVar[bool] = False

    @property
    def queries(self) -> tuple[Query, ...]:
        """The queries asked."""
        if self.settings.labels and self.settings.covariates is None:
            return QUERIES
        return ("score", "curvature") if self.settings.matrices else ("score",)

    def draw_query(self, noise: NoiseSource, indices: Integers, model: Floats) -> list[Query]:
        """Draw the query that each person answers, at version 0."""
        return super().draw_query(noise, indices, self.initial)

    def vectors(self, X: Floats, y: Floats, theta: Floats | None = None, query: Query = "score") -> Floats:
        """Return the vectors that `ScoreDevice` returns at version 0."""
        return super().vectors(X, y, None, query)

    def record_kernel(self, level: str, theta: Floats, seed: int | None) -> AnswerKernel | None:
        """Return the kernel that `ScoreDevice` returns at version 0."""
        return super().record_kernel(level, self.initial, seed)


def own_curve(curve: Curve, middle: float, half: float) -> CodedCurve | None:
    """Return the curve to solve for, or None for the curves that scores solve for by default."""
    return None if curve.name in ("logistic", "identity") else CodedCurve(curve, middle, half)


def directions_of(task: Task) -> DirectionDevice:
    """Return the directions of a task with ``release: directions``, or raise UserError like `device_for`."""
    block, target = task.block, task.target
    assert block is not None
    labels: tuple[str, ...] = ()
    own: CodedCurve | None = None
    if isinstance(target, ClassTarget):
        labels = tuple(target.classes)
    else:
        curve = _curve_for(block, target.kind == "binary")
        response = response_range_of(target, curve)
        own = own_curve(curve, *((response.middle, response.half) if target.kind == "real" else (0.0, 1.0)))
    settings = Settings(
        task.coding.names, target.kind == "binary", covariates_of(task), labels=labels, once=True, curve=own
    )
    if labels and not settings.matrices:
        raise UserError(
            f"moments of several classes are for few features, and the task {task.name!r} has {task.coding.size} coded "
            "ones, whose second moments are too noisy: give the task fewer features, or protocol: gradients"
        )
    return DirectionDevice(settings, level_mechanisms(task, settings))


def device_for(task: Task) -> MomentDevice | DirectionDevice:
    """Return the moments of a resolved task; raise UserError if mechanism or public covariates do not fit."""
    block, coding = task.block, task.coding
    assert block is not None
    if block.release == "directions":
        return directions_of(task)
    covariates = covariates_of(task)
    binary, intercept = task.target.kind == "binary", block.intercept
    clipping_norm = math.inf if block.radius is None else block.radius
    public = None if covariates is None else Covariates.of(covariates, clipping_norm, constant=intercept)
    curve = _curve_for(block, binary)
    response = response_range_of(task.target, curve, intercept)
    radius = math.sqrt(min(coding.largest_square - 1.0, clipping_norm**2) + intercept)
    if block.design == "gaussian" and public is not None:
        own = public.second_moment[:-1, :-1] if intercept else public.second_moment
        clipping_norm = normal_norm_bound(own, published=block.release == "separate")
        radius = min(radius, math.sqrt(intercept + clipping_norm**2))
    whole = block.release in WHOLE
    layout = Statistics(
        coding.names if intercept else coding.names[:-1],
        radius,
        balanced(radius) if whole else 1.0,
        intercept,
        root=math.sqrt(2.0) if whole else 1.0,
        zero=block.outliers == "zero",
        observed=block.release == "observed",
    )
    # Before mechanisms are calibrated, which may be impossible for so many numbers.
    check_size(layout)
    release, privacy = block.release or "observed", task.privacy
    mechanisms = privacy.by_level(
        lambda guarantee: calibrated(
            guarantee, layout, release=release, kind=privacy.kind_for(guarantee), method=privacy.calibration
        )
    )
    model = MomentModel(curve, response, public, block.covariance, block.solver, block.repair)
    return MomentDevice(layout, model, mechanisms, binary and intercept)
