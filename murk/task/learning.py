"""The blocks of a task about learning: learner, staleness limit, log and public covariates."""

import base64
import binascii
from functools import cached_property
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Discriminator, Field, PlainSerializer, PlainValidator, Tag, model_validator

from murk.task.errors import shown, task_error
from murk.task.fields import Block, Duration, Integer, Number, Text
from murk.task.windows import task_window

LARGEST: Final = 1e12  # keeps sums and squares of settings far from overflow
Positive = Annotated[Number, Field(gt=0, le=LARGEST)]


def _word_or(kind: str) -> Discriminator:
    return Discriminator(lambda value: "<word>" if isinstance(value, str) else kind)


ASKED, COMPLETE = "random-scaling", "complete"  # values of the key `learner.intervals`


class StepSchedule(Block):
    """Steps eta i^-alpha, i = 1, 2, ..."""

    eta: Positive = Field(description="the first step")
    alpha: Annotated[Number, Field(ge=0, le=1)] = Field(default=0.5, description="how fast steps shrink")


Step = Annotated[
    Annotated[Literal["noise-aware"], Tag("<word>")] | Annotated[StepSchedule, Tag("<schedule>")],
    _word_or("<schedule>"),
]
_Estimated = Annotated[Literal["estimate"], Tag("<word>")]
Scale = Annotated[_Estimated | Annotated[Positive, Tag("<number>")], _word_or("<number>")]
_Unbounded = Annotated[Literal["unbounded"], Tag("<word>")]
Radius = Annotated[_Unbounded | Annotated[Positive, Tag("<number>")], _word_or("<number>")]


ADDED: Final[dict[tuple[str, str], object]] = {
    ("learner", "intervals"): None,
    ("learner", "delays"): None,
    ("learner", "scale_multiplier"): 4.0,
    ("learner", "coordinates"): "contrasts",
    ("privacy", "calibration"): "analytic",
    ("privacy", "window"): "none",
    ("privacy", "lifetime"): None,
    ("privacy", "repeat"): "anew",
    ("examples", "newton"): None,
    ("moments", "intercept"): True,
    ("moments", "radius"): None,
    ("moments", "outliers"): "clip",
    ("moments", "repair"): True,
    ("summaries", "debiased"): True,
    ("examples", "intercept"): True,
    ("examples", "grid"): None,
    ("examples", "for"): [],
    ("summaries", "first"): None,
    ("summaries", "person"): None,
    ("summaries", "rows_per_person"): None,
    ("scores", "interactive"): True,
    ("scores", "loss"): None,
    ("scores", "link"): None,
    ("scores", "models"): "per-partition",
    ("scores", "effects"): "logistic",
    ("experiment", "metrics"): [],
    ("experiment", "ratios"): [],
}
"""Keys of blocks that a document omits at these defaults: a new key changes no hash of a task that does not set it."""
# Keys of the task that a document omits at these defaults.
ADDED_TO_TASK: Final[dict[str, object]] = {
    **dict.fromkeys(("forget", "shuffle", "people", "intervals", "predictions", "about", "track", "experiment")),
    "as_published": False,
    "contrasts": [],
    "weight": "people",
}

TIGHTEST_AT: Final = 100_000  # number of releases at which confidence sequences are tightest, unless a task states one


class IntervalsBlock(Block):
    """The looks at which intervals hold."""

    validity: Literal["always-valid", "fixed-n"] = Field(
        default="always-valid",
        description="`always-valid`: intervals hold at all looks together, so that anybody may watch and stop at any "
        "time; `fixed-n`: at one planned look only, narrower. If the block is omitted: `always-valid` on live displays "
        "of an open stream, `fixed-n` at the end of a file or at `people`",
    )
    tightest_at: Annotated[Integer, Field(ge=1_000, le=10**12)] | None = Field(
        default=None,
        description="the number of releases (records with `summaries`) at which intervals of `always-valid` are "
        f"tightest; `null`: `people`, else {TIGHTEST_AT:,}",
    )

    @model_validator(mode="after")
    def _check(self) -> "IntervalsBlock":
        if self.validity == "fixed-n" and self.tightest_at is not None:
            raise task_error(
                f"{self.tightest_at:,} has no effect with validity: fixed-n; remove it, or say validity: always-valid",
                "tightest_at",
            )
        return self


class TrackBlock(Block):
    """Estimates of each window of `privacy.window`, and the path that smooths them."""

    window: Annotated[str, BeforeValidator(task_window)] = Field(
        description="the window of each estimate: that of `privacy.window`, in which a person answers once"
    )
    windows: Annotated[Integer, Field(ge=2, le=400)] = Field(
        default=53, description="number of windows, counted back from the newest one, whose estimates are kept"
    )
    smooth: Annotated[Integer, Field(ge=0, le=52)] = Field(
        default=2,
        description="number of windows to either side whose answers the smoothed path uses, too; 0: the path is not "
        "smoothed",
    )


class WeightBlock(Block):
    """Weight of a person by their number of rows."""

    rows: Annotated[Integer, Field(ge=2, le=100)] = Field(
        description="the largest number of a person's rows that count, 2 to 100; fewer rows weigh less, in proportion"
    )


def _weight(value: Any) -> Any:
    if isinstance(value, str) and value != "people":
        raise task_error(
            f"{shown(value)} is not people or a number of rows; say weight: people, or give the largest number of a "
            "person's rows that count, as in weight: {rows: 10}"
        )
    return value


Weight = Annotated[
    Annotated[Literal["people"], BeforeValidator(_weight), Tag("<word>")] | Annotated[WeightBlock, Tag("<rows>")],
    _word_or("<rows>"),
]


class PredictionsBlock(Block):
    """Prediction sets: the share of people whose target they contain, and the share asked to verify that."""

    coverage: Annotated[Number, Field(ge=0.5, le=0.99)] = Field(
        default=0.9, description="the share of people whose target is in their prediction set"
    )
    share: Annotated[Number, Field(ge=0.01, le=0.3)] = Field(
        default=0.1,
        description="the share of people who release, instead of a score, whether their target is in the published "
        "prediction set for their features",
    )


class ContrastBlock(Block):
    """A comparison of two categories of a feature."""

    feature: Text = Field(description="a feature with categories")
    category: Text = Field(description="the category whose effect is stated, such as the treatment")
    against: Text = Field(description="the category it is compared with, such as the control")


class LearnerBlock(Block):
    """Settings of the learner."""

    weights: Literal["norm", "mallows", "clip"] = Field(
        default="norm",
        description="the bound on a gradient: `norm` divides by the features' length, `mallows` weighs by min(1, "
        "2/length^2), `clip` shortens to `clip` and biases the estimate",
    )
    clip: Positive | None = Field(default=None, description="maximum length of a gradient with `weights: clip`")
    huber_c: Positive = Field(default=0.5, description="Huber's constant, in units of the scale (`huber` only)")
    scale: Scale = Field(
        default="estimate", description="`estimate`, or the known residual scale in coded units (`huber` only)"
    )
    scale_floor: Positive = Field(
        default=0.01, description="lower bound on the estimated scale, in coded units (`huber` only)"
    )
    scale_start: Positive = Field(
        default=1.0, description="start of the estimated scale, in coded units (`huber` only)"
    )
    scale_multiplier: Positive = Field(
        default=4.0,
        description="unit of the estimated scale's coordinate, above the noise; 1 as published (`huber` only)",
    )
    coordinates: Literal["contrasts", "classes"] = Field(
        default="contrasts",
        description="`contrasts`: K - 1 rows for K classes; `classes`: K rows, as published, with more noise "
        "(`softmax` only)",
    )
    step: Step = Field(default="noise-aware", description="`noise-aware`, or `{eta: , alpha: }` for steps eta i^-alpha")
    delays: Literal["adaptive"] | None = Field(
        default=None,
        description="`adaptive` shortens steps for old gradients; `null`: age does not matter. If omitted with "
        "noise-aware steps: `adaptive`",
    )
    averaging: Literal["polyak", "polynomial-decay"] | None = Field(
        default="polyak", description="`polyak`, `polynomial-decay`, or `null` for the last iterate"
    )
    weighting: Literal["inverse-variance", "uniform"] = Field(
        default="inverse-variance", description="weights of releases with different noise"
    )
    intervals: Literal["random-scaling", "complete"] | None = Field(
        default=None,
        description="`null`: only intervals from public covariates, which allow for the target's `missing_share`; "
        "`complete`: the same, as if the target had `missing_share: 0`; `random-scaling`: from the "
        "average's path (`gradients` only), with less coverage than nominal",
    )
    radius: Radius | None = Field(
        default=None,
        description="iterates longer than this are shortened to it, and steps are proportional to it, in coded units; "
        "`unbounded`: no projection (`gradients` with given steps only); `null`: 1.5 for a real target, else 3",
    )

    @model_validator(mode="after")
    def _check(self) -> "LearnerBlock":
        if self.weights == "clip" and self.clip is None:
            raise task_error("missing, and required with weights: clip, as in clip: 1.0", "clip")
        if self.weights != "clip" and self.clip is not None:
            raise task_error(
                f"{self.clip:g} has no effect with weights: {self.weights}; remove it, or say weights: clip", "clip"
            )
        if self.delays is not None and self.step != "noise-aware":
            raise task_error("has no effect on steps that are given; remove it, or say step: noise-aware", "delays")
        if self.radius == "unbounded" and self.step == "noise-aware":
            raise task_error(
                "unbounded leaves noise-aware steps without a size; give a number, or steps as in step: {eta: 0.2}",
                "radius",
            )
        if self.scale_start < self.scale_floor:
            raise task_error(f"{self.scale_start:g} is below scale_floor {self.scale_floor:g}; raise it", "scale_start")
        return self

    def beyond_defaults(self, keys: tuple[str, ...]) -> str | None:
        """Return the first key whose value is not its default, or None."""
        fields = type(self).model_fields
        return next((key for key in keys if getattr(self, key) != fields[key].default), None)


class MaxStaleness(Block):
    """Largest age of a gradient, in releases: the larger of a number and a share of the partition's releases."""

    releases: Annotated[Integer, Field(ge=1, le=1_000_000)] = Field(
        default=100, description="a gradient at most this many releases old is accepted"
    )
    # A partition publishes at every 1% of its count, and a block is another 1%: less would refuse honest people.
    share: Annotated[Number, Field(ge=0.02, le=0.5)] = Field(
        default=0.02, description="a gradient at most this share of its partition's releases old is accepted, too"
    )

    @cached_property
    def share_ppm(self) -> int:
        """The share in millionths, for integer arithmetic."""
        return round(self.share * 1_000_000)

    @property
    def floor(self) -> int:
        """Parameter ``floor`` of the spacing of published versions (see `murk.protocols.gradients.kernels`)."""
        return self.releases // 64

    def limit(self, count: int) -> int:
        """Return the largest age of a gradient once a partition has learned ``count`` releases."""
        return max(self.releases, count * self.share_ppm // 1_000_000)


class LogBlock(Block):
    """Settings of the log. They do not change what a release means and are not part of the task's hash.

    With `forget` and partitions that have their own models, the number of partitions decides which releases are
    forgotten.
    """

    partitions: Annotated[Integer, Field(ge=1, le=4_096)] = Field(
        default=1, description="number of partitions; `gradients` learn best with one"
    )
    retention: Duration = Field(
        default=8 * 86_400, description="how long the log keeps releases; at least, and by default, `expiry` and a day"
    )


class PublicBlock(Block):
    """Source of public covariates (features without the target): exactly one of two keys."""

    file: Text | None = Field(
        default=None, description="a file of public records, relative to the task file; the target is not read"
    )
    set_aside: Annotated[Integer, Field(ge=2, le=1_000_000)] | None = Field(
        default=None,
        description="number of records, drawn at random, whose features become public and which release nothing",
    )

    @model_validator(mode="after")
    def _check(self) -> "PublicBlock":
        if (self.file is None) == (self.set_aside is None):
            given = "neither file nor set_aside" if self.file is None else "both file and set_aside"
            raise task_error(f"{given}; give exactly one of them")
        return self


MOST_VALUES = 50_000_000


class Covariates(NamedTuple):
    """Distinct coded points, including the constant, and the number of people at each."""

    points: NDArray[np.float64]  # (u, p), within [-1, 1], with last column 1
    counts: NDArray[np.int64]  # (u,), at least 1


def covariates(points: Any, counts: Any) -> Covariates:
    """Validate public covariates and make them read-only; raise `PydanticCustomError` if they are invalid."""
    points, counts = np.array(points, dtype=np.float64), np.array(counts, dtype=np.int64)
    if points.ndim != 2 or counts.shape != points.shape[:1] or not points.size:
        raise task_error(f"points of shape {points.shape} and counts of shape {counts.shape}; give (u, p) and (u,)")
    if points.size > MOST_VALUES:
        raise task_error(f"{points.size} values; at most {MOST_VALUES}")
    if not np.all(np.abs(points) <= 1):
        raise task_error("a point is not within [-1, 1]; give points in coded units")
    if not np.all(points[:, -1] == 1):
        raise task_error("the last coordinate of a point is not the constant 1; give points in coded units")
    if int(counts.min()) < 1:
        raise task_error(f"a count of {int(counts.min())}; leave out points that do not occur")
    points += 0.0  # -0.0 and 0.0 are the same point
    points.setflags(write=False)
    counts.setflags(write=False)
    return Covariates(points, counts)


def _read_covariates(value: Any) -> Covariates:
    if isinstance(value, Covariates):
        return value
    if not isinstance(value, dict) or set(value) != {"size", "points", "counts"}:
        raise task_error("not public covariates; they hold size, points and counts")
    size = value["size"]
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise task_error("not a number of features", "size")
    points = _floats(value["points"], "points", np.dtype("<f8"))
    counts = _floats(value["counts"], "counts", np.dtype("<i8"))
    if points.size != size * counts.size:
        raise task_error(f"{points.size} values are not {counts.size} points of {size}", "points")
    return covariates(points.reshape(-1, size), counts)


def _floats(value: Any, key: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    try:
        data = base64.b64decode(value, validate=True)
        return np.frombuffer(data, dtype=dtype)
    except (binascii.Error, TypeError, ValueError):
        raise task_error("not base64 of little-endian 64-bit values", key) from None


def _write_covariates(value: Covariates) -> dict[str, Any]:
    arrays = {"points": value.points.astype("<f8"), "counts": value.counts.astype("<i8")}
    encoded = {key: base64.b64encode(array.tobytes()).decode("ascii") for key, array in arrays.items()}
    return {"size": value.points.shape[1], **encoded}


PublicCovariates = Annotated[
    Covariates,
    PlainValidator(_read_covariates, json_schema_input_type=dict[str, Any]),
    PlainSerializer(_write_covariates, return_type=dict[str, Any]),
]
