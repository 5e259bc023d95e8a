"""Released examples, for IWP-SGD (`protocol: examples`)."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from murk.stream.task.block import Block, Integer, Number
from murk.stream.task.errors import nearest, problem
from murk.stream.task.protocols.base import Offer, Scale, TaskProtocol

DIRECTED: Final = ("quadratic", "squared")
"""Losses that `release: directions` tells."""
LOSSES: Final = {"binary": ("probit", "quadratic", "exponential", "log"), "real": ("squared",)}
"""Losses by kind of target."""
_BY_RULE: Final = {"binary": "quadratic", "real": "squared"}


class ExamplesBlock(Block):
    """Released examples, for IWP-SGD (`protocol: examples`)."""

    release: Literal["directions", "joint", "separate"] | None = Field(
        default=None,
        description="`directions` randomizes features, constant and target divided by the record's length, which tells "
        "the `quadratic` and `squared` losses weighted by 1 over its square; `joint` "
        "randomizes features and target as one vector (for a binary target their product); `separate` randomizes each "
        "with its share of the budget, as published; `null`: directions for these two losses, else joint",
    )
    intercept: Annotated[bool, Field(strict=True)] = Field(
        default=True, description="whether the constant has a coefficient; without it the coefficient is 0"
    )
    split: Annotated[Number, Field(ge=0.05, le=0.95)] = Field(
        default=0.5, description="the features' share of epsilon (`separate` only)"
    )
    loss: Literal["probit", "quadratic", "exponential", "log", "squared"] | None = Field(
        default=None,
        description="`quadratic`, `probit`, `exponential` or `log` (truncated) for a binary target, `squared` for a "
        "real one; `null`: quadratic or squared",
    )
    truncation: Annotated[Integer, Field(ge=1, le=3)] | None = Field(
        default=None, description="terms of the truncated log loss (`log` only); `null`: the best by its error"
    )
    regularization: Annotated[Number, Field(ge=0, le=1e6)] = Field(
        default=0.0, description="lambda of the ridge penalty lambda/2 |theta|^2"
    )
    batch: Annotated[Integer, Field(ge=1, le=65_536)] = Field(default=1, description="releases averaged for each step")


class Examples(TaskProtocol):
    """People release their features and target, once and without reading a model."""

    name = "examples"
    block = ExamplesBlock
    releases = "example"
    # The inverse of Gaussian smoothing is what makes these learners unbiased.
    offer = Offer(
        ("gaussian",),
        ("approx", "gdp", "zcdp"),
        "its learner takes back Gaussian smoothing, and Gaussian noise gives no pure guarantee",
    )
    learner_keys = ("step", "averaging", "weighting", "radius")
    estimates_loss = True

    def fill_in(self, block: Mapping[str, Any], target: str, *, public: bool) -> dict[str, Any]:
        """Fill in the target's loss, and directions where they tell it."""
        filled = dict(block)
        if target in _BY_RULE and filled.get("loss") is None:
            filled["loss"] = _BY_RULE[target]
        if filled.get("release") is None:
            filled["release"] = "directions" if filled.get("loss") in DIRECTED else "joint"
        return filled

    def check(self, block: Any, target: str) -> None:
        """Check that the loss is the target's, and the release the loss's."""
        losses = LOSSES[target]
        if block.loss not in losses:
            raise problem(
                f"{block.loss!r} is not a loss of a {target} target; {nearest(str(block.loss), losses)}",
                "examples",
                "loss",
            )
        if block.truncation is not None and block.loss != "log":
            raise problem(f"has no effect with loss: {block.loss}; remove it", "examples", "truncation")
        if block.split != ExamplesBlock.model_fields["split"].default and block.release != "separate":
            raise problem(
                f"has no effect with release: {block.release}; remove it, or say release: separate", "examples", "split"
            )
        if block.release == "directions" and block.loss not in DIRECTED:
            raise problem(
                f"directions tell the {' and '.join(DIRECTED)} losses alone, not {block.loss}; say release: joint",
                "examples", "release",
            )  # fmt: skip

    def scale(self, block: Any, target: str) -> Scale:
        """Log odds by the log loss; a line through labels by the quadratic one."""
        return {"log": "log odds", "quadratic": "probability", "squared": "slope"}.get(block.loss, "own")  # type: ignore[return-value]

    def model(self, block: Any, target: str) -> str:
        """The loss, and its weight."""
        return f"{block.loss} loss" + (" over |x|^2" if block.release == "directions" else "")
