"""The gradient device of a task, shared by devices and learners. Does not import River."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.wiping import copied, empty
from murk.errors import UserError
from murk.privacy.guarantees import Guarantee
from murk.privacy.mechanisms import Mechanism, calibrate
from murk.protocols.device import HostileModelError
from murk.protocols.gradients import kernels as k
from murk.protocols.gradients.kernels import is_published, newest_published, spacing
from murk.protocols.gradients.memory import Memory
from murk.protocols.gradients.objectives import Balanced, FullSoftmax, Huber, Logistic, Softmax
from murk.protocols.gradients.settings import Settings
from murk.protocols.options import InverseScalingStep
from murk.protocols.rows import Rows
from murk.stream.wire.codec import MAX_STATE, history_bytes
from murk.task.coding import Coding
from murk.task.features import ClassTarget
from murk.task.task import Task

if TYPE_CHECKING:
    from murk.inference.estimate import Estimate
    from murk.protocols.gradients.engine import SGDEngine

_ERROR_CODE = "MURK-LEARN-001"

# Targets are coded to [-1, 1]. So no residual exceeds 2, and Huber's loss with c = 2 is the squared loss; few residuals
# are within 0.05, so with c = 0.05 it is nearly the loss of the median.
_OBJECTIVES: dict[str, Logistic | Balanced | Softmax | Huber] = {
    "logistic": Logistic(),
    "balanced": Balanced(),
    "squared": Huber(2.0, 1.0),
    "median": Huber(0.05, 1.0),
}
# In coded units a logit of 3 means odds of 20, and a linear fit's norm is near 1. Larger radii make steps too large
# (docs/coverage.md).
LOGIT_RADIUS, FIT_RADIUS = 3.0, 1.5
SCALE_MULTIPLIER = 4.0  # raises the scale's coordinate above the noise; with 1 and c = 0.5 noise hides the scale
SHARE = 100  # a block of people has at most 1 / SHARE of the number of releases so far


# Keys of a task's `learner` whose values are settings of the same name.
_SETTINGS = ("weights", "clip", "averaging", "weighting", "scale_start", "scale_floor", "intervals", "delays")


@dataclass(frozen=True)
class GradientDevice:
    """The gradients of a task: at which iterates they are taken, and how they are bounded and randomized."""

    settings: Settings
    mechanisms: Mapping[str, Mechanism]
    covariates: Rows | None = None  # public covariates of the task
    classes: tuple[str, ...] = ()  # the target's classes, for names
    kind: ClassVar[str] = "gradient"
    interactive: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    _memory: Memory = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_memory", Memory(self.settings))

    @cached_property
    def dimension(self) -> int:
        """Length of an iterate and of a release."""
        return self.settings.dimension

    @property
    def model_size(self) -> int:
        """Length of an iterate."""
        return self.dimension

    @property
    def initial(self) -> Floats:
        """The iterate of version 0, in working coordinates."""
        return np.array(self._memory.ring[0])

    def check_state(self) -> None:
        """Raise UserError, with the size, if a learner's state is too large for a log."""
        iterates = len(self._memory.ring)
        # Base64 of float64, and the versions of the remembered iterates as numbers.
        size = (iterates + k.ROWS) * (11 * self.dimension + 24) + history_bytes(self.engine().coefficients) + 4096
        if size > MAX_STATE:
            raise UserError(
                f"a partition's state would take up to {size / 2**20:.1f} MB (at most {MAX_STATE / 2**20:g} fit): it "
                f"remembers {iterates:,} iterates of {self.dimension:,} numbers. Give the task fewer "
                "features, or a smaller max_staleness, as in max_staleness: {releases: 20}"
            )

    @property
    def shares_models(self) -> bool:
        """False: each partition publishes its own iterates."""
        return False

    def is_published(self, version: int) -> bool:
        """Return whether the iterate of a version is published."""
        return bool(is_published(version, self.settings.staleness.floor))

    def next_published(self, version: int) -> int:
        """Return the first version after this one whose iterate is published."""
        newest = newest_published(version, self.settings.staleness.floor)
        return int(newest + spacing(newest, self.settings.staleness.floor))

    def block(self, releases: int) -> int:
        """Return how many releases to make at one iterate: 1% of those so far, so that gradients stay fresh."""
        return max(1, releases // SHARE)

    def check_model(self, theta: Floats) -> None:
        """Raise HostileModelError, before a record is read, for a wrong size, radius or scale of the model."""
        d, settings = self.dimension, self.settings
        theta = np.asarray(theta, dtype=np.float64)
        if theta.shape != (d,):
            raise HostileModelError(f"the model has shape {theta.shape}, the task's has ({d},): refused")
        if not np.all(np.isfinite(theta)):
            raise HostileModelError("the model holds numbers that are not finite: refused")
        slopes = theta[: d - settings.scaled]
        # Scaled before it is squared: a huge model must not overflow its own check.
        largest = max(float(np.max(np.abs(slopes))), 1e-300)
        norm = largest * float(np.linalg.norm(slopes / largest))
        # An honest iterate exceeds the radius by rounding errors at most.
        if norm > settings.radius * (1.0 + 1e-9):
            raise HostileModelError(f"the model's norm {norm:.6g} exceeds the task's radius {settings.radius:g}")
        if settings.scaled:
            scale = float(theta[-1]) * settings.multiplier
            if not settings.scale_floor * (1 - 1e-9) <= scale <= settings.scale_ceiling * (1 + 1e-9):
                raise HostileModelError(f"the model's scale {scale:.6g} lies outside its bounds: refused")

    def vectors(self, X: Floats, y: Floats, theta: Floats | None = None) -> Floats:
        """Return bounded gradients of records at ``theta``, by default version 0, (m, d); NaN targets give zeros."""
        theta = self.initial if theta is None else theta
        out = empty((X.shape[0], self.dimension))
        out.fill(0.0)
        real, whole = self._memory.real, self._memory.whole
        # Theta is copied, as the kernel would be compiled once more for a read-only array.
        k.gradients(real, whole, np.array(theta, dtype=np.float64), copied(X), copied(y), out)
        return out

    def engine(self) -> SGDEngine:
        """Return a learner for this task's releases, at version 0."""
        # Imported here, as devices do not need it.
        from murk.protocols.gradients.engine import SGDEngine

        return SGDEngine(self.settings, self.mechanisms, covariates=self.covariates, classes=self.classes)

    def estimate(self, engines: Sequence[SGDEngine]) -> Estimate:
        """Return the joint estimate of several partitions."""
        from murk.protocols.gradients.estimate import estimate

        memories = [engine.snapshot() for engine in engines]
        return estimate(self.settings, memories, self.covariates, self.classes, self.mechanisms)


def _stated_moment(coding: Coding) -> Floats | None:
    """Return the second moment of uncorrelated features with the stated centres and spreads; None if none is stated."""
    stated = coding.stated_coordinates
    if stated is None:
        return None
    mean, spread = np.append(stated[0], 1.0), np.append(stated[1], 0.0)
    return np.asarray(np.outer(mean, mean) + np.diag(spread**2))


def device_for(task: Task) -> GradientDevice:
    """Return the gradient device of a resolved task, or raise UserError if a guarantee does not fit the mechanism."""
    learner, coding = task.learner, task.coding
    assert task.objective is not None
    classes: tuple[str, ...] = ()
    if task.objective in _OBJECTIVES:
        objective = _OBJECTIVES[task.objective]
    elif task.objective == "softmax":
        assert isinstance(task.target, ClassTarget)
        classes = tuple(task.target.classes)
        objective = (FullSoftmax if learner.coordinates == "classes" else Softmax)(len(classes))
    else:
        scale = None if learner.scale == "estimate" else float(learner.scale)
        objective = Huber(learner.huber_c, scale, learner.scale_multiplier if scale is None else 1.0)
    covariates = None if task.covariates is None else Rows.counted(*task.covariates)
    step = learner.step
    unbounded, radius = learner.radius == "unbounded", FIT_RADIUS if isinstance(objective, Huber) else LOGIT_RADIUS
    settings = Settings(
        objective=objective,
        names=coding.names,
        step=step if step == "noise-aware" else InverseScalingStep(step.eta, step.alpha),
        radius=math.inf if unbounded else radius if learner.radius is None else float(learner.radius),
        # A scale beyond the coded target's range is meaningless.
        scale_ceiling=Settings.scale_ceiling if unbounded else max(4.0, learner.scale_start),
        second_moment=_stated_moment(coding) if covariates is None else covariates.second_moment,
        smallest_square=coding.smallest_square,
        largest_square=coding.largest_square,
        staleness=task.max_staleness,
        missing_share=task.target.missing_share,
        **{name: getattr(learner, name) for name in _SETTINGS},
    )

    def mechanism(guarantee: Guarantee) -> Mechanism:
        kind, method = task.privacy.kind_for(guarantee), task.privacy.calibration
        return calibrate(kind, guarantee, dimension=settings.dimension, radius=settings.bound, method=method)

    return GradientDevice(settings, task.privacy.by_level(mechanism), covariates, classes)
