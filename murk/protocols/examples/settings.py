"""Public settings of a learner of released examples, checked once and frozen."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from murk import privacy
from murk._internal.arrays import Floats, Integers
from murk._internal.lazy import bounding
from murk.errors import UserError
from murk.privacy import GaussianMechanism, Guarantee
from murk.privacy.mechanisms.costs import is_pure
from murk.privacy.mechanisms.outer_product import OuterGaussian, OuterMechanism, matrix_size, noise_of, outer_mechanism
from murk.protocols.examples import layout as k
from murk.protocols.examples import losses
from murk.protocols.examples.directions import BESIDE, ExampleDirections
from murk.protocols.options import Averaging, InverseScalingStep, Weighting, check_choices
from murk.protocols.stated import StatedCoordinates
from murk.task.learning import ASKED
from murk.task.protocols.examples import example_release

if TYPE_CHECKING:
    from murk.privacy import CompositeMechanism, LaplaceMechanism, RandomizedResponse
    from murk.protocols.examples.cells import CellMechanism, Cells

_ERROR_CODE = "MURK-LEARN-001"
_LAPLACE: Final = "laplace"

ReleaseForm = Literal["outer", "directions", "joint", "separate", "cells"]
# A text, as a device loads the class of its own mechanism alone.
ExampleMechanism: TypeAlias = (
    "GaussianMechanism | LaplaceMechanism | CompositeMechanism | ExampleDirections | OuterGaussian | OuterMechanism "
    "| CellMechanism"
)

LARGEST_LAPLACE = 16  # coefficients under Laplace noise, if not quadratic: derivatives are accurate up to order 34
POLISHED = 64  # Largest number of coefficients polished by default, as the Newton step keeps and updates O(p^2) sums
MOST_EXACT = 20  # largest number of coefficients of outer products with exact O(p^4) sums, which take 300 kB of a state


def released(release: str | None, loss: str, guarantees: Iterable[Guarantee] = (), coded: int = 0) -> Any:
    """Return the form of release: as given, or by the rule of `example_release`."""
    return release or example_release(loss, [guarantee.to_dict() for guarantee in guarantees], coded)


_TYPICAL_SQUARE = 0.25  # ``||theta||^2`` for which `target_scale` is optimal
_MOST_OF_CLASSES = 512  # coefficients of several classes: a Newton step takes time in proportion to their cube
_FAR = 20.0  # default radius of coefficients from cells
AVERAGING = {None: k.NO_AVERAGE, "polyak": k.POLYAK, "polynomial-decay": k.POLYNOMIAL_DECAY}


def target_scale(square: float) -> float:
    """Return the factor a of a real target in a joint release of ``(x, a y)``, ``||x||^2 <= R^2`` and ``|y| <= 1``.

    Where noise dominates, a gradient's variance is proportional to ``(R^2 + a^2)^2 (T + 1/a^2)``, ``T = ||theta||^2``,
    least at ``a^2 = (sqrt(1 + 8 T R^2) - 1) / (4 T)``. T is taken as 1/4.
    """
    return math.sqrt((math.sqrt(1.0 + 8.0 * _TYPICAL_SQUARE * square) - 1.0) / (4.0 * _TYPICAL_SQUARE))


@dataclass(frozen=True)
class ExampleSettings:
    """Public settings of what is released and how it is learned; `settle` fills in ``truncation`` and ``radius``."""

    target: Literal["binary", "real", "classes"]
    names: tuple[str, ...]  # coded features in their fixed order, the constant last
    square: float  # public bound on ||x||^2, the constant's 1 included
    boxed: bool = True  # whether each feature is also projected to [-1, 1]
    release: ReleaseForm = "joint"
    split: float = 0.5  # the features' share of the guarantee in a separate release
    loss: str = "probit"
    truncation: int | None = None
    radius: float | None = None
    calibration: Literal["analytic", "classic"] = "analytic"
    regularization: float = 0.0  # lambda
    batch: int = 1  # releases per step
    step: Literal["noise-aware"] | InverseScalingStep = "noise-aware"
    averaging: Averaging = "polyak"
    weighting: Weighting = "inverse-variance"
    newton: bool = True  # whether to keep the O(p^2) sums of the Newton step
    unit: float = 1.0  # value of a coded real target of 1, in its own units
    intercept: bool = True  # whether the constant has a coefficient; otherwise it is 0
    intervals: Literal["random-scaling"] | None = None  # intervals of an unpolished average
    kind: str | None = None  # kind of mechanism: by default the best for outer products, else Gaussian
    corrected: bool = True  # False to learn from releases as if they were the records
    cells: Cells | None = None  # the combinations of values that `release: cells` releases
    labels: tuple[str, ...] = ()  # names of several classes
    coordinates: StatedCoordinates | None = None  # coordinates of weighted releases, if `typical` ranges are stated

    def __post_init__(self) -> None:
        if self.target == "classes" and not self.cells:
            raise UserError(
                f"release={self.release!r} codes the target as one number, so it has two classes; for more give "
                "release='cells' and loss='log', or use ScoreClassifier"
            )
        if self.labels and self.size > _MOST_OF_CLASSES:
            raise UserError(
                f"{len(self.labels)} classes and {self.features:,} coded features make {self.size:,} coefficients, and "
                f"at most {_MOST_OF_CLASSES} can be learned from cells: give fewer features, categories or classes"
            )
        losses.check_loss(self.loss, self.target)
        check_choices(
            self,
            release=("outer", "directions", "joint", "separate", "cells"),
            averaging=tuple(AVERAGING),
            weighting=("inverse-variance", "uniform"),
            intervals=(ASKED, None),
        )
        if self.intervals is not None and self.newton:
            raise UserError(
                f"intervals={self.intervals!r} are for the unpolished average: give newton=False, too, or leave "
                "intervals= out for the better ones of the Newton step"
            )
        if self.weighted and self.loss not in losses.DIRECTED_LOSSES:
            kind = "directions" if self.directed else "outer products"
            raise UserError(
                f"loss={self.loss!r} cannot be learned from {kind}, only the {' and '.join(losses.DIRECTED_LOSSES)} "
                "losses; give release='joint'"
            )
        if self.kind not in (None, "gaussian") and not self.outer and not self.laplace:
            raise UserError(
                f"mechanism={self.kind!r} is for release='outer', where any unbiased noise works"
                f"{', and for release=' + repr('joint') if self.kind == _LAPLACE else ''}; "
                f"learning from release={self.release!r} requires other noise: leave mechanism= out"
            )
        if self.laplace and self.loss not in losses.DIRECTED_LOSSES and self.features > LARGEST_LAPLACE:
            raise UserError(
                f"mechanism='laplace' with loss={self.loss!r} is for at most {LARGEST_LAPLACE} coefficients, as its "
                f"correction needs as many derivatives, not for {self.features}. Give fewer features, or "
                "loss='quadratic'"
            )
        if self.calibration == "classic" and (self.outer or self.cells):
            raise UserError(
                "calibration='classic' is for release='separate', 'joint' and 'directions'; outer products and cells "
                "use calibration='analytic', which needs less noise for the same guarantee"
            )
        if self.cells and (self.averaging, self.weighting, self.step, self.batch, self.truncation, self.newton) != (
            *("polyak", "inverse-variance", "noise-aware", 1, None, True),
        ):
            raise UserError(
                "release='cells' has a closed form: averaging=, weighting=, step=, batch=, truncation= and "
                "newton=False have no effect; leave them out"
            )
        if not self.corrected and (self.weighted or self.newton):
            raise UserError(
                "corrected=False learns from releases as if they were records: it needs release='separate' or 'joint', "
                "and newton=False. IWPSGDClassifier.as_published(corrected=False) is the paper's baseline"
            )
        if not (math.isfinite(self.square) and self.square > 1.0):
            raise UserError(
                f"the public bound on ||x|| (the constant's 1 included) is {math.sqrt(max(self.square, 0.0)):g}; "
                "it must be finite and more than 1"
            )
        if self.truncation is not None and (self.loss != "log" or self.truncation not in (1, 2, 3)):
            raise UserError(f"truncation={self.truncation!r} is for loss='log': 1, 2, 3, or None for the best of them")
        if self.truncation is not None and self.laplace:
            raise UserError(
                f"truncation={self.truncation!r} has no effect with mechanism='laplace', whose correction of the log "
                "loss is exact; leave it out"
            )
        if not (math.isfinite(self.regularization) and self.regularization >= 0):
            raise UserError(f"regularization={self.regularization!r} must be finite and at least 0")
        if isinstance(self.batch, bool) or not isinstance(self.batch, int) or not 1 <= self.batch <= 65_536:
            raise UserError(f"batch={self.batch!r} is not a whole number from 1 to 65536")
        if not 0.0 < self.split < 1.0:
            raise UserError(f"split={self.split!r} is not between 0 and 1; 0.5 gives features and target equal shares")

    @cached_property
    def features(self) -> int:
        """Number p of coded features, the constant included."""
        return len(self.names)

    @cached_property
    def coefficients(self) -> tuple[str, ...]:
        """Names of the reported coefficients: of features, or ``class:feature``."""
        return tuple(f"{label}:{name}" for label in self.labels for name in self.names) or self.names

    @property
    def size(self) -> int:
        """Number d of learned coefficients: those of the features, for each contrast of several classes."""
        return self.features * max(len(self.labels) - 1, 1)

    @cached_property
    def dimension(self) -> int:
        """Number of integers in a release."""
        if self.outer:
            return matrix_size(self.features + 1)
        if self.cells:
            return 1
        return self.features + (BESIDE if self.directed else 0)

    @property
    def directed(self) -> bool:
        """Whether directions are released."""
        return self.release == "directions"

    @cached_property
    def outer(self) -> bool:
        """Whether outer products are released."""
        return self.release == "outer"

    @cached_property
    def laplace(self) -> bool:
        """Whether the released vector has Laplace noise."""
        return self.kind == _LAPLACE and self.release == "joint"

    @cached_property
    def exact(self) -> bool:
        """Whether a state has the first and second moments of all released numbers."""
        return self.newton and self.outer and self.features <= MOST_EXACT

    @property
    def newton_sums(self) -> int:
        """Code of the Newton step's sums in kernels."""
        return k.EXACT if self.exact else k.AT_REFERENCE if self.newton else k.NO_STEP

    @property
    def weighted(self) -> bool:
        """Whether the loss is weighted by a record's length."""
        return self.directed or self.outer

    @property
    def weight(self) -> str:
        """Formula of a record's weight in the loss."""
        x = "x" if self.coordinates is None else "z"
        return f"1/(1 + |{x}|^2)" if self.outer else f"1/|{x}|^2" if self.directed else "1"

    @cached_property
    def form(self) -> int:
        """Code of the release's form in kernels."""
        if self.outer:
            return k.OUTER_REAL if self.target == "real" else k.OUTER_LABEL
        if self.directed:
            return k.DIRECTED_REAL if self.target == "real" else k.DIRECTED_LABEL
        if self.target == "real":
            return k.REAL
        return k.PRODUCT if self.release == "joint" else k.LABEL

    @property
    def scale(self) -> float:
        """Factor of a real target before its release; 1 unless it is released together with the features."""
        return target_scale(self.square - 1.0) if self.form == k.REAL and self.release == "joint" else 1.0

    @property
    def bound(self) -> float:
        """Public bound on the length of the learned vector: that on ``||x||``, constant included, or 1 if weighted."""
        return 1.0 if self.weighted else math.sqrt(self.square)

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the settings: states load, and partitions merge, only if fingerprints are equal."""
        # `intervals` only decides what is reported of a state.
        parts = [repr(getattr(self, each.name)) for each in fields(self) if each.name != "intervals"]
        parts += ["laplace"] * self.laplace
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]

    def mechanism(self, guarantee: Guarantee) -> ExampleMechanism:
        """Return the least noisy mechanism; raises UserError for a pure guarantee, except for outer products."""
        if self.outer:
            return outer_mechanism(self.kind, guarantee, self.features + 1)
        if self.cells:
            return self.cells.mechanism(guarantee)
        if is_pure(guarantee) and not self.laplace:
            raise UserError(
                f"IWP-SGD cannot give {guarantee!r} with release={self.release!r}: its correction inverts Gaussian "
                "noise, and Gaussian noise has no pure guarantee; ask for ApproxDP (delta > 0), GaussianDP or "
                "ZeroConcentratedDP, or give release='cells', or release='outer' (quadratic and squared losses), "
                "or mechanism='laplace' with release='joint', which needs the most people"
            )
        p, method, inner = self.features, self.calibration, math.sqrt(self.square - 1.0)
        if self.directed:
            return ExampleDirections.calibrate(guarantee, features=p, method=method)
        if self.release == "joint":
            # The constant adds to a product's length; with a real target it is public and not released.
            radius = self.bound if self.form == k.PRODUCT else math.hypot(inner, self.scale)
            kind = privacy.LaplaceMechanism if self.laplace else GaussianMechanism
            return kind.calibrate(guarantee, dimension=p, radius=radius, method=method)  # type: ignore[arg-type]
        first, second = privacy.mechanisms.divided(guarantee, self.split, label=self.form == k.LABEL)
        if p < 2:
            raise UserError("a separate release needs at least one feature besides the constant")
        features = GaussianMechanism.calibrate(first, dimension=p - 1, radius=inner, method=method)
        target: GaussianMechanism | RandomizedResponse
        if self.form == k.LABEL:
            target = privacy.RandomizedResponse.calibrate(second, classes=2)
        else:
            target = GaussianMechanism.calibrate(second, dimension=1, radius=1.0, method=method)
        return privacy.CompositeMechanism((features, target))

    def noise(self, mechanism: ExampleMechanism) -> losses.Noise:
        """Return the noise of a mechanism's releases."""
        if isinstance(mechanism, OuterGaussian | OuterMechanism):
            least, most = noise_of(mechanism)
            return losses.Noise(most, target_variance=least)
        if isinstance(mechanism, ExampleDirections):
            return losses.Noise(mechanism.variance, mechanism.variance, mechanism.variance)
        if isinstance(mechanism, GaussianMechanism | privacy.LaplaceMechanism):
            variance = mechanism.variance
            if self.form == k.PRODUCT:
                return losses.Noise(variance, constant_variance=variance, laplace=self.laplace)
            return losses.Noise(variance, target_variance=variance / self.scale**2, laplace=self.laplace)
        assert isinstance(mechanism, privacy.CompositeMechanism)
        features, target = mechanism.parts
        assert isinstance(features, GaussianMechanism)
        if isinstance(target, privacy.RandomizedResponse):
            return losses.Noise(features.variance, keep=target.weights[0])
        return losses.Noise(features.variance, target_variance=target.variance)


def settle(settings: ExampleSettings, mechanisms: Mapping[str, ExampleMechanism]) -> ExampleSettings:
    """Return settings with radius and truncation for the noisiest level, or raise UserError for an invalid radius."""
    if settings.cells:
        # Every radius is valid without noise in the features; this one is far beyond any effect.
        return replace(settings, radius=losses.checked_radius(settings.loss, settings.radius or _FAR, 1e-9))
    worst = max(settings.noise(mechanism).variance for mechanism in bounding(mechanisms).values())
    radius = losses.checked_radius(settings.loss, settings.radius, worst, settings.features * settings.laplace)
    terms = settings.truncation
    if settings.loss == "log" and terms is None and not settings.laplace:
        terms = losses.best_truncation(worst * radius**2, settings.bound * radius)
    return replace(settings, radius=radius, truncation=terms)


def level_rows(settings: ExampleSettings, mechanisms: list[ExampleMechanism]) -> tuple[Floats, Integers]:
    """Return the parameters of levels as kernels read them, a row each, or raise UserError if one is too noisy."""
    reals = np.zeros((len(mechanisms), k.LEVEL_REALS))
    wholes = np.zeros((len(mechanisms), k.LEVEL_WHOLES), dtype=np.int64)
    for row, mechanism in enumerate(mechanisms):
        reals[row], wholes[row] = _level_row(settings, mechanism)
    return reals, wholes


def _level_row(settings: ExampleSettings, mechanism: ExampleMechanism) -> tuple[Floats, Integers]:
    noise, radius = settings.noise(mechanism), settings.radius
    assert radius is not None
    largest = losses.largest_radius(settings.loss, noise.variance, settings.features * settings.laplace)
    if radius >= largest:
        raise UserError(
            f"this budget's noise (standard deviation {math.sqrt(noise.variance):.4g}) is too large for the "
            f"{settings.loss} loss in a ball of radius {radius:.4g}: the largest radius that works is "
            f"{0.999 * largest:.4g}. Give a smaller radius, use loss='quadratic', or include this budget in the "
            "learner's levels=, which its default radius allows for"
        )
    real, whole = np.zeros(k.LEVEL_REALS), np.zeros(k.LEVEL_WHOLES, dtype=np.int64)
    if settings.outer:
        # A part of an outer product is weighted, and implausible, like the whole of it.
        settings, mechanism = getattr(mechanism, "origin", (settings, mechanism))
        radius = settings.radius
        assert radius is not None
        # b, and each of the p products of A with theta, have half the noise variance of an entry.
        real[k.SPREAD - k.UNIT] = (1.0 + radius**2) * (1.0 + 0.5 * (settings.features + 1) * noise.variance)
        real[k.VARIANCE - k.UNIT], real[k.TARGET_VARIANCE - k.UNIT] = noise.variance, noise.target_variance
        assert not isinstance(mechanism, privacy.CompositeMechanism)
        real[k.UNIT - k.UNIT] = mechanism.unit
        real[k.LIMIT - k.UNIT] = 1.0 + math.sqrt(mechanism.variance) * (math.sqrt(settings.dimension) + 8.0)
        return real, whole
    features = mechanism.parts[0] if isinstance(mechanism, privacy.CompositeMechanism) else mechanism
    assert isinstance(features, GaussianMechanism | privacy.LaplaceMechanism | ExampleDirections)
    noised = settings.features if settings.directed or settings.form == k.PRODUCT else settings.features - 1
    limit = settings.bound + math.sqrt(noise.variance) * (math.sqrt(noised) + 8.0)
    target_limit = 1.0 + 8.0 * math.sqrt(noise.target_variance)
    if isinstance(features, privacy.LaplaceMechanism):
        # Laplace noise has long tails, so that every vector that a receiver accepts counts as plausible.
        ((_, _, square),) = features.payload_bound.parts
        limit = features.spacing * math.sqrt(square)
        target_limit = limit / settings.scale
    unit, spacing, steps, threshold = features.unit / settings.scale, 0.0, 0, np.uint64(0)
    if isinstance(mechanism, privacy.CompositeMechanism):
        target = mechanism.parts[1]
        if isinstance(target, GaussianMechanism):
            unit, spacing, steps = target.unit, target.spacing, target.steps
        else:
            unit, threshold = 1.0, np.uint64(target.threshold)
    loss = "squared" if settings.directed else settings.loss
    size = losses.spread(loss, noise, settings.features, settings.bound, radius)
    values = {
        k.UNIT: features.unit,
        k.TARGET_UNIT: unit,
        k.SPACING: features.spacing,
        k.TARGET_SPACING: spacing,
        k.VARIANCE: noise.variance,
        k.CONSTANT_VARIANCE: noise.constant_variance,
        k.TARGET_VARIANCE: noise.target_variance,
        k.KEEP: noise.keep if settings.corrected else 1.0,
        k.SPREAD: size,
        k.LIMIT: limit,
        k.TARGET_LIMIT: target_limit,
    }
    for index, value in values.items():
        real[index - k.UNIT] = value
    whole[k.STEPS - k.STEPS] = features.steps
    whole[k.TARGET_STEPS - k.STEPS] = steps
    whole[k.THRESHOLD - k.STEPS] = threshold.astype(np.int64)
    return real, whole


def fill(real: Floats, whole: Integers, settings: ExampleSettings) -> None:
    """Write settled settings into the arrays that kernels read."""
    assert settings.radius is not None
    weighted = settings.weighted
    # For directions of labels, the quadratic loss is the squared loss of a target t.
    whole[k.LOSS], whole[k.TERMS] = losses.CODES["squared" if weighted else settings.loss], settings.truncation or 0
    whole[k.NUMBERS], whole[k.FREE] = settings.dimension, settings.features - (not settings.intercept)
    whole[k.FORM], whole[k.FEATURES], whole[k.BATCH] = settings.form, settings.features, settings.batch
    whole[k.AVERAGING] = AVERAGING[settings.averaging]
    whole[k.WEIGHTING] = k.UNIFORM if settings.weighting == "uniform" else k.INVERSE_VARIANCE
    whole[k.BOXED] = settings.boxed
    whole[k.UNCORRECTED] = not settings.corrected
    whole[k.POLISH] = settings.newton_sums
    whole[k.NEXT_REFRESH] = k.FIRST_REFRESH if settings.newton else 0
    real[k.WIDTH], real[k.RADIUS], real[k.BOUND] = losses.LOGIT_WIDTH, settings.radius, settings.bound
    # The penalty is weighted like the loss.
    real[k.DIRECTED_RIDGE if weighted else k.RIDGE] = settings.regularization
    real[k.DECAY], real[k.TARGET_SCALE] = 3.0, math.sqrt(settings.square - 1.0) if weighted else settings.scale
    if isinstance(settings.step, InverseScalingStep):
        whole[k.STEP] = k.INVERSE_SCALING
        real[k.ETA], real[k.ALPHA] = settings.step.eta, settings.step.alpha
