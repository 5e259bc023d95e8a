"""Experiments: arms, which are assigned to people and known to the receiver, and the differences that are watched."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from murk.task.errors import nearest, shown, task_error
from murk.task.features import ClassTarget, RealTarget, Share, Target
from murk.task.fields import Block, Number, Text

_TOLERANCE: Final = 1e-6  # tolerance of the sum of shares
MOST_METRICS: Final = 20
"""Largest number of metrics beside the target, among which each person's release is drawn."""


def assigned_place(salt: str, identifier: str, shares: Sequence[float]) -> int:
    """Return the position of the arm to which a person's own random identifier is assigned.

    The first 53 bits of HMAC-SHA256(salt, identifier) are a number between 0 and 1; the arm is the first whose summed
    share exceeds it. The same person has the same arm in every window, and arms of other salts are independent of it.

    >>> [assigned_place("checkout-7", f"person {number}", [0.5, 0.5]) for number in range(8)]
    [1, 1, 1, 0, 0, 0, 0, 1]
    """
    digest = hmac.digest(salt.encode(), identifier.encode(), hashlib.sha256)
    uniform = (int.from_bytes(digest[:8], "big") >> 11) * 2.0**-53
    total = 0.0
    for place, share in enumerate(shares):
        total += share
        if uniform < total:
            return place
    return len(shares) - 1


class AssignmentBlock(Block):
    """Who assigns arms, and with which shares."""

    by: Literal["device", "server"] = Field(
        description="`device`: by a keyed hash of the person's own random identifier; `server`: the record has the "
        "column"
    )
    salt: Text | None = Field(
        default=None,
        description="public salt: key of the hash, different for each experiment (`by: device`), as in `checkout-7`",
    )
    shares: Annotated[tuple[Share, ...], Field(min_length=2)] = Field(
        description="the share of people in each category of `arm`, in order, adding up to 1"
    )

    @model_validator(mode="after")
    def _check(self) -> "AssignmentBlock":
        if self.by == "device" and self.salt is None:
            words = "missing, and required where devices assign arms; give a text that no other experiment has"
            raise task_error(words, "salt")
        if self.by == "server" and self.salt is not None:
            raise task_error("has no effect where the server assigns arms; remove it, or say by: device", "salt")
        if abs(sum(self.shares) - 1.0) > _TOLERANCE:
            raise task_error(f"the shares add up to {sum(self.shares):g}; give shares that add up to 1", "shares")
        return self


class GuardrailBlock(Block):
    """A difference that must not be exceeded."""

    margin: Annotated[Number, Field(gt=0)] = Field(
        description="the tolerated difference from `control`: of a probability (0.01 is a percentage point), in a "
        "real target's units, or of a ratio"
    )
    worse: Literal["lower", "higher"] = Field(description="the direction in which the target is worse")
    metric: Text | None = Field(default=None, description="the metric or ratio with the margin; `null`: the target")


class RatioBlock(Block):
    """A ratio of the means of two metrics, such as the amount per order."""

    name: Text = Field(description="its name in reports")
    numerator: Text = Field(description="a metric, or the target, that every person has (`missing_share: 0`)")
    denominator: Text = Field(description="another one, without negative values")


class ExperimentBlock(Block):
    """An experiment: its arms, and what is watched."""

    arm: Text = Field(description="a known feature, whose categories are the arms")
    control: Text = Field(description="the category that the others are compared with")
    assigned: AssignmentBlock | None = Field(
        default=None, description="how arms are assigned; `null`: unknown, so that their counts are not tested"
    )
    segments: tuple[Text, ...] = Field(
        default=(),
        description="known features; lifts are also estimated in each of their categories, with simultaneous intervals",
    )
    guardrail: GuardrailBlock | None = Field(default=None, description="`null`: none")
    metrics: Annotated[tuple[Target, ...], Field(max_length=MOST_METRICS)] = Field(
        default=(),
        description="further binary or real targets; each release is of the target or of one metric, drawn at random",
    )

    ratios: Annotated[tuple[RatioBlock, ...], Field(max_length=MOST_METRICS)] = Field(
        default=(), description="ratios of the means of two metrics, or of one and the target"
    )

    def check_metrics(self, target: Target) -> None:
        """Raise `PydanticCustomError` unless metrics are binary or real, and ratios and guard rail name some."""
        names = [target.name, *(metric.name for metric in self.metrics)]
        for index, metric in enumerate(self.metrics):
            if isinstance(metric, ClassTarget):
                words = "a metric is binary or real; make the class of interest a binary metric"
                raise task_error(words, "experiment", "metrics", index, "kind")
            if isinstance(metric, RealTarget) and metric.quantiles is not None:
                raise task_error(
                    "a metric is learned as a mean; remove it", "experiment", "metrics", index, "quantiles"
                )
        names += [ratio.name for ratio in self.ratios]
        if self.guardrail is not None and self.guardrail.metric is not None and self.guardrail.metric not in names:
            words = f"{shown(self.guardrail.metric)} is neither the target nor a metric or ratio; "
            raise task_error(words + nearest(self.guardrail.metric, names), "experiment", "guardrail", "metric")
        self._check_ratios([target, *self.metrics])

    def _check_ratios(self, targets: Sequence[Target]) -> None:
        """Raise `PydanticCustomError` unless ratios are of two targets of all people, and have names of their own."""
        by_name, taken = {each.name: each for each in targets}, {each.name for each in targets}
        for index, ratio in enumerate(self.ratios):
            at = "experiment", "ratios", index
            for key, name in (("numerator", ratio.numerator), ("denominator", ratio.denominator)):
                if name not in by_name:
                    words = f"{shown(name)} is neither the target nor a metric; {nearest(name, list(by_name))}"
                    raise task_error(words, *at, key)
                if by_name[name].missing_share != 0.0:
                    words = (
                        f"{shown(name)} may be missing, and means of different people have no common ratio; state "
                        "missing_share: 0 if every person has one, as in an amount of 0 without an order"
                    )
                    raise task_error(words, *at, key)
            if ratio.numerator == ratio.denominator:
                raise task_error(f"{shown(ratio.numerator)} is divided by itself; name another one", *at, "denominator")
            below = by_name[ratio.denominator]
            if isinstance(below, RealTarget) and below.low < 0.0:
                words = f"{shown(below.name)} may be negative (low: {below.low:g}); name one with a low of 0 or more"
                raise task_error(words, *at, "denominator")
            if ratio.name in taken:
                raise task_error(f"{shown(ratio.name)} is a name already; give another one", *at, "name")
            taken.add(ratio.name)
