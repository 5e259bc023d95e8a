"""What devices and learners must agree on to speak of the same gradient, derived from a task.

River-free: a device imports this and nothing heavier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from murk._scratch import copied, empty
from murk.errors import UserError
from murk.learners.core.options import InverseScalingStep
from murk.learners.estimates.estimate import Estimate, PublicCovariates
from murk.learners.gradients import kernels as k
from murk.learners.gradients.buffers import Memory
from murk.learners.gradients.engine import SGDEngine
from murk.learners.gradients.inference import estimate
from murk.learners.gradients.losses import Balanced, Huber, Logistic, Softmax
from murk.learners.gradients.settings import Settings
from murk.learners.problem import HostileModelError
from murk.privacy.mechanisms import Mechanism, calibrate
from murk.stream.log.base import MAX_STATE
from murk.stream.messages.trail import trail_bytes
from murk.stream.task.data.features import ClassTarget
from murk.stream.task.task import Task
from murk.stream.worker.publication import is_published, newest_published, spacing

# In coded units: features and a real target lie in [-1, 1], so a regression's fit has a norm near 1; a logit of 3
# is odds of 20. A radius much beyond the truth makes steps too large (docs/coverage.md).
# Of a real target coded to [-1, 1]: no residual of a fit within that range is beyond 2, so that nothing of it is cut
# and the mean is learned; and next to none is within a twentieth, where Huber's loss is that of the median.
_REAL = {"squared": Huber(2.0, 1.0), "median": Huber(0.05, 1.0)}
LOGIT_RADIUS, FIT_RADIUS = 3.0, 1.5
# The scale's coordinate, multiplied by 4, is heard above the noise (with 1 it is lost at c = 0.5).
SCALE_MULTIPLIER = 4.0
# A block of people holds at most a SHARE-th of the releases so far.
SHARE = 100


@dataclass(frozen=True)
class GradientProblem:
    """The gradients of a task: where they are taken, how they are bounded, how they are randomized.

    Attributes
    ----------
    settings
        Public settings of the update.
    mechanisms
        Level name to mechanism.
    covariates
        Public covariates of the task, if it has any.
    classes
        The target's classes, for names.
    """

    settings: Settings
    mechanisms: dict[str, Mechanism]
    covariates: PublicCovariates | None = None
    classes: tuple[str, ...] = ()
    kind: ClassVar[str] = "gradient"
    interactive: ClassVar[bool] = True
    _memory: Memory = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_memory", Memory(self.settings))

    @property
    def dimension(self) -> int:
        """Numbers in an iterate and in a release."""
        return self.settings.dimension

    @property
    def model_size(self) -> int:
        """Numbers in an iterate."""
        return self.dimension

    @property
    def initial(self) -> NDArray[np.float64]:
        """The iterate of version 0, in working coordinates."""
        return np.array(self._memory.ring[0])

    def check_state(self) -> None:
        """Refuse a task whose learner's state no log would take, before anything is set up.

        Raises
        ------
        UserError
            Saying how large it would be.
        """
        rows = self._memory.ring.shape[0] + self._memory.rows.shape[0]
        # Base64 of float64, and the versions of the remembered iterates as numbers.
        size = rows * (11 * self.dimension + 24) + trail_bytes(self.engine().coefficients) + 4096
        if size > MAX_STATE:
            raise UserError(
                f"a chain's state would take up to {size / 2**20:.1f} MB, and a log takes {MAX_STATE / 2**20:g}: it "
                f"remembers {self._memory.ring.shape[0]:,} iterates of {self.dimension:,} numbers. Give the task fewer "
                "features, or a smaller max_staleness, as in max_staleness: {releases: 20}"
            )

    @property
    def shares_models(self) -> bool:
        """No: each chain publishes its own iterates."""
        return False

    def is_published(self, version: int) -> bool:
        """Whether the iterate of a version is published."""
        return bool(is_published(version, self.settings.staleness.floor))

    def next_published(self, version: int) -> int:
        """The first version after this one whose iterate is published."""
        newest = newest_published(version, self.settings.staleness.floor)
        return int(newest + spacing(newest, self.settings.staleness.floor))

    def block(self, releases: int) -> int:
        """A hundredth of the releases so far: with more at once gradients grow stale."""
        return max(1, releases // SHARE)

    def check_iterate(self, theta: NDArray[np.float64]) -> None:
        """Refuse an iterate that no honest learner publishes, before any record is read.

        Raises
        ------
        HostileModelError
            If ``theta`` has another size, is not finite, lies outside the radius, or its scale outside its bounds.
        """
        d, settings = self.dimension, self.settings
        theta = np.asarray(theta, dtype=np.float64)
        if theta.shape != (d,):
            raise HostileModelError(f"the model has shape {theta.shape}, the task's has ({d},): refused")
        if not np.all(np.isfinite(theta)):
            raise HostileModelError("the model holds numbers that are not finite: refused")
        slopes = theta[: d - settings.scaled]
        # Brought to size before it is squared: a huge model must not overflow its own check.
        largest = max(float(np.max(np.abs(slopes))), 1e-300)
        norm = largest * float(np.linalg.norm(slopes / largest))
        # Rounding of the projection is all that an honest iterate may exceed the radius by.
        if norm > settings.radius * (1.0 + 1e-9):
            raise HostileModelError(f"the model's norm {norm:.6g} exceeds the task's radius {settings.radius:g}")
        if settings.scaled:
            scale = float(theta[-1]) * settings.multiplier
            if not settings.scale_floor * (1 - 1e-9) <= scale <= settings.scale_ceiling * (1 + 1e-9):
                raise HostileModelError(f"the model's scale {scale:.6g} lies outside its bounds: refused")

    def vectors(
        self, X: NDArray[np.float64], y: NDArray[np.float64], theta: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Bounded gradients at ``theta`` of coded records, ``(m, d)``; a NaN target gives the zero gradient.

        ``theta`` is the iterate of version 0 where none is given.
        """
        theta = self.initial if theta is None else theta
        out = empty((X.shape[0], self.dimension))
        out.fill(0.0)
        memory = self._memory
        k.gradients(
            # A copy: what devices share is not written to, and would be another type to compile the kernel for.
            memory.real, memory.whole, np.array(theta, dtype=np.float64),
            copied(X), copied(y), out,
        )  # fmt: skip
        return out

    def engine(self) -> SGDEngine:
        """A learner for this task's releases, standing at version 0."""
        return SGDEngine(self.settings, self.mechanisms, covariates=self.covariates, classes=self.classes)

    def estimate(self, engines: Sequence[SGDEngine]) -> Estimate:
        """What the learners of all chains have learned together."""
        memories = [engine.snapshot() for engine in engines]
        return estimate(self.settings, memories, self.covariates, self.classes, self.mechanisms)


def problem_for(task: Task) -> GradientProblem:
    """The gradient problem of a resolved task.

    Raises
    ------
    UserError
        If a level's guarantee and the task's mechanism do not fit.
    """
    learner, coding = task.learner, task.coding
    assert task.objective is not None
    objective: Logistic | Balanced | Softmax | Huber
    classes: tuple[str, ...] = ()
    if task.objective == "logistic":
        objective = Logistic()
    elif task.objective == "balanced":
        objective = Balanced()
    elif task.objective == "softmax":
        assert isinstance(task.target, ClassTarget)
        classes = tuple(task.target.classes)
        objective = Softmax(len(classes))
    elif task.objective in _REAL:
        objective = _REAL[task.objective]
    else:
        known = None if learner.scale == "estimate" else float(learner.scale)
        objective = Huber(learner.huber_c, known, SCALE_MULTIPLIER if known is None else 1.0)
    covariates = None
    if task.covariates is not None:
        covariates = PublicCovariates(*task.covariates)
    step = learner.step
    radius = FIT_RADIUS if isinstance(objective, Huber) else LOGIT_RADIUS
    settings = Settings(
        objective=objective,
        names=coding.names,
        weights=learner.weights,
        clip=learner.clip,
        step=step if step == "noise-aware" else InverseScalingStep(step.eta, step.alpha),
        averaging=learner.averaging,
        weighting=learner.weighting,
        radius=radius if learner.radius is None else learner.radius,
        scale_start=learner.scale_start,
        scale_floor=learner.scale_floor,
        # A scale beyond the coded target's whole range says nothing.
        scale_ceiling=max(4.0, learner.scale_start),
        second_moment=None if covariates is None else covariates.second_moment,
        smallest_square=coding.smallest_square,
        largest_square=coding.largest_square,
        intervals=learner.intervals,
        staleness=task.max_staleness,
        delays=learner.delays,
    )
    mechanisms = {
        level: calibrate(
            task.privacy.kind_for(guarantee), guarantee, dimension=settings.dimension, radius=settings.bound
        )
        for level, guarantee in task.privacy.levels.items()
    }
    return GradientProblem(settings, mechanisms, covariates, classes)
