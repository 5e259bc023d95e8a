"""The moments of a task, shared by devices and learners. Does not import River."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.lazy import bounding
from murk._internal.wiping import track
from murk.errors import UserError
from murk.privacy.mechanisms.base import Randomizer
from murk.protocols.mean_functions import curve_for, response_range_of
from murk.protocols.moments.mechanisms import WHOLE, MomentMechanism, calibrated
from murk.protocols.moments.model import MomentModel
from murk.protocols.moments.statistics import Statistics, balanced, normal_norm_bound
from murk.protocols.rows import public_rows
from murk.protocols.stated import StatedCoordinates
from murk.stream.wire.codec import MAX_MESSAGE, MAX_STATE, history_bytes

if TYPE_CHECKING:
    from murk.inference.estimate import Estimate
    from murk.protocols.moments.engine import MomentEngine
    from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"

_ENVELOPE, _NUMBER = 512, 22  # bytes of the longest release: other fields, and a number with sign, comma and space
_STATE_NUMBER = 11  # bytes of a float64 in base64


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
        """Whether people release the mean of their records' moments: true if all levels have joint Gaussian noise."""
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


def device_for(task: Task) -> MomentDevice:
    """Return the moments of a resolved task; raise UserError if mechanism or public covariates do not fit."""
    block, coding = task.block, task.coding
    assert block is not None
    public = public_rows(task)
    binary, intercept = task.target.kind == "binary", block.intercept
    clipping_norm = math.inf if block.radius is None else block.radius
    if public is not None:
        public = public.clipped(clipping_norm).select(slice(coding.size - (not intercept)))
    curve = curve_for(block, binary)
    response = response_range_of(task.target, curve, intercept)
    radius = math.sqrt(min(coding.largest_square - 1.0, clipping_norm**2) + intercept)
    if block.design == "gaussian" and public is not None:
        second_moment = public.second_moment[:-1, :-1] if intercept else public.second_moment
        clipping_norm = normal_norm_bound(second_moment, published=block.release == "separate")
        radius = min(radius, math.sqrt(intercept + clipping_norm**2))
    coordinates = None
    if public is None and block.release == "observed" and block.radius is None:
        coordinates = StatedCoordinates.of(coding)
    if coordinates is not None:
        radius = math.sqrt(1.0 + coordinates.ordinary_square)
    whole = block.release in WHOLE
    layout = Statistics(
        coding.names if intercept else coding.names[:-1],
        radius,
        balanced(radius) if whole else 1.0,
        intercept,
        root=math.sqrt(2.0) if whole else 1.0,
        zero=block.outliers == "zero",
        observed=block.release == "observed",
        coordinates=coordinates,
    )
    # Checked before mechanisms are calibrated, which may be impossible for so many numbers.
    check_size(layout)
    release, privacy = block.release or "observed", task.privacy
    mechanisms = privacy.by_level(
        lambda guarantee: calibrated(
            guarantee, layout, release=release, kind=privacy.kind_for(guarantee), method=privacy.calibration
        )
    )
    model = MomentModel(curve, response, public, block.covariance, block.solver, block.repair)
    return MomentDevice(layout, model, mechanisms, binary and intercept)
