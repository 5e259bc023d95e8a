"""Public settings of LDP-SGD, checked once and frozen, and the largest length of a weighted record."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Literal

import numpy as np

from murk._internal.arrays import Floats
from murk.errors import UserError
from murk.protocols.gradients.objectives import Balanced, Huber, Logistic, Softmax
from murk.protocols.linear_algebra import whitening
from murk.protocols.options import Averaging, InverseScalingStep, Weighting, check_choices
from murk.task.learning import COMPLETE, MaxStaleness

_ERROR_CODE = "MURK-LEARN-001"

Weights = Literal["norm", "mallows", "clip"]
NAMES: tuple[Weights, ...] = ("norm", "mallows", "clip")
UNKNOWN_SHARE = 0.5  # largest share of missing targets for which intervals allow if the task states none
SCALE = "scale"  # name of the estimated scale of residuals among the coefficients


def reach(weights: Weights, smallest_square: float = 0.0, largest_square: float = math.inf) -> float:
    """Return the supremum of ``||x|| w(x)`` over features with ``smallest_square <= ||x||^2 <= largest_square``.

    For ``norm``, ``||x|| w`` is ``min(1, ||x||)``; for ``mallows`` ``min(||x||, 2 / ||x||)`` (Shi et al., section 5),
    at most sqrt 2 in general but only ``2 / sqrt(d)`` if every coded feature is -1 or +1. ``clip`` has no weight.

    >>> reach("mallows", smallest_square=9, largest_square=9)  # eight features of +-1 and the constant
    0.6666666666666666
    """
    small, large = math.sqrt(smallest_square), math.sqrt(largest_square)
    if weights == "norm":
        return min(1.0, large)
    if weights == "mallows":
        peak = math.sqrt(2.0)
        return large if large < peak else 2.0 / small if small > peak else peak
    raise UserError(f"weights={weights!r} do not bound a record's length; use one of {', '.join(NAMES)}")


@dataclass(frozen=True)
class Settings:
    """Public settings that decide how releases are made and learned."""

    objective: Logistic | Balanced | Softmax | Huber
    names: tuple[str, ...]  # coded features in their fixed order, the constant last
    weights: Weights = "norm"
    clip: float | None = None  # bound on gradients with weights="clip"
    step: Literal["noise-aware"] | InverseScalingStep = "noise-aware"  # noise-aware: radius w_i / sqrt(2 sum w_j^2 v_j)
    averaging: Averaging = "polyak"  # how to average iterates
    weighting: Weighting = "inverse-variance"  # how to weight people by public noise levels
    radius: float = 3.0  # radius of the ball to which the iterate is projected, in working coordinates
    scale_start: float = 1.0  # first value of an estimated scale
    scale_floor: float = 0.01
    scale_ceiling: float = 1e6
    second_moment: Floats | None = None  # public E x x' for whitening, (p, p)
    smallest_square: float = 0.0  # least ||x||^2 of features within their bounds
    largest_square: float = math.inf
    random_scaling: bool = True  # whether to keep the sums of random scaling
    intervals: Literal["random-scaling", "complete"] | None = None  # "complete": assume no missing target
    missing_share: float | None = None  # publicly known largest share of missing targets
    staleness: MaxStaleness = field(default_factory=MaxStaleness)  # limit of a gradient's age in releases
    delays: Literal["adaptive"] | None = None  # "adaptive" for shorter steps with older gradients (`kernels`)
    start: Floats | None = None  # coefficients of version 0 as reported, without the scale, (p,) or (K, p)
    transform: Floats | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        check_choices(
            self,
            weights=NAMES,
            averaging=("polyak", "polynomial-decay", None),
            intervals=("random-scaling", "complete", None),
            weighting=("inverse-variance", "uniform"),
        )
        if (self.weights == "clip") != (self.clip is not None):
            raise UserError('give weights="clip" together with clip=, the bound to clip at, or neither')
        if self.clip is not None and not (math.isfinite(self.clip) and self.clip > 0):
            raise UserError(f"clip must be positive and finite, got {self.clip!r}")
        share: object = self.missing_share
        if share is not None and not (isinstance(share, int | float) and 0.0 <= share < 1.0):
            raise UserError(f"missing_share must be a number of at least 0 and below 1, got {share!r}")
        if self.intervals == COMPLETE and self.missing_share:
            raise UserError(
                f'intervals="complete" states that no target is missing, missing_share={self.missing_share!r} that '
                "some may be: remove one of them"
            )
        if not self.radius > 0 or (self.step == "noise-aware" and math.isinf(self.radius)):
            raise UserError(f"radius must be positive, and finite for noise-aware steps, got {self.radius!r}")
        if self.delays is not None and self.step != "noise-aware":
            raise UserError(f"delays={self.delays!r} has no effect on given steps: leave it out")
        if not 0 < self.scale_floor <= self.scale_start <= self.scale_ceiling:
            raise UserError(
                f"need 0 < scale_floor <= scale_start <= scale_ceiling, got {self.scale_floor!r}, "
                f"{self.scale_start!r}, {self.scale_ceiling!r}"
            )
        if self.scaled and SCALE in self.names:
            raise UserError(
                f"a feature is named {SCALE!r}, like the estimated scale of residuals: rename the feature, or give the "
                "scale if it is known"
            )
        if self.second_moment is not None:
            transform = whitening(self.second_moment)
            if transform.shape[0] != len(self.names):
                raise UserError(
                    f"the second-moment matrix has {transform.shape[0]} rows for {len(self.names)} coded features "
                    "(the constant is one of them, the last)"
                )
            object.__setattr__(self, "transform", transform)
        self._check_start()

    def _check_start(self) -> None:
        if self.start is None:
            return
        p, objective = self.features, self.objective
        shape = (objective.classes, p) if isinstance(objective, Softmax) else (p,)
        if self.start.shape != shape or not np.all(np.isfinite(self.start)):
            raise UserError(
                f"start= must be finite numbers of shape {shape}, the constant's last, got shape {self.start.shape}"
            )
        length = float(np.linalg.norm(self.working_start))
        if length > self.radius:
            raise UserError(f"start= has norm {length:.6g} in working coordinates, beyond radius={self.radius:g}")

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the settings that affect learning: states load, and partitions merge, only if equal."""
        excluded = ("second_moment", "transform", "intervals", "missing_share", "start", "delays")
        names = [field_.name for field_ in fields(self) if field_.name not in excluded]
        parts = [repr(getattr(self, name)) for name in names]
        if self.transform is not None:
            parts.append(self.transform.tobytes().hex())
        if self.start is not None:
            parts.append(f"start {self.start.tobytes().hex()}")
        if self.delays is not None:
            parts.append(f"delays={self.delays}")
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]

    @property
    def working_start(self) -> Floats:
        """Initial coefficients in working coordinates, without an estimated scale."""
        assert self.start is not None
        rows = self.start
        if isinstance(self.objective, Softmax):
            rows = self.objective.basis.T @ rows
        if self.transform is not None:
            rows = rows @ np.linalg.inv(self.transform)
        return rows.ravel()

    @property
    def features(self) -> int:
        """Number p of coded features, the constant among them."""
        return len(self.names)

    @property
    def dimension(self) -> int:
        """Number d of parameters, and of numbers in a release."""
        return self.objective.dimension(self.features)

    @property
    def scaled(self) -> bool:
        """Whether the last parameter is an estimated scale."""
        return isinstance(self.objective, Huber) and self.objective.scale is None

    @property
    def multiplier(self) -> float:
        """Units of the scale's working coordinate."""
        return self.objective.multiplier if isinstance(self.objective, Huber) else 1.0

    @property
    def most_missing(self) -> float:
        """Largest share of missing targets for which plug-in intervals allow."""
        if self.intervals == COMPLETE:
            return 0.0
        return UNKNOWN_SHARE if self.missing_share is None else self.missing_share

    @property
    def bound(self) -> float:
        """``C0``: l2 norm that no centred gradient exceeds, for any record and iterate."""
        if self.clip is not None:
            return self.clip
        small, large = self.smallest_square, self.largest_square
        if self.transform is not None:
            shrink, stretch = np.linalg.eigvalsh(self.transform)[[0, -1]]
            small, large = small * shrink**2, large * stretch**2
        return self.objective.bound(reach(self.weights, small, large))
