"""The block of moments in a task: what people release, and what is made of it."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field

from murk.stream.task.block import Block
from murk.stream.task.errors import problem

_TOLD: Final = ("logistic", "identity")
"""Losses and links whose coefficients released directions tell."""
_OF_MOMENTS: Final = {"design": "bounded", "covariance": "both", "solver": "stein"}
"""Settings that say how second moments are released or used, with their defaults."""


class MomentsBlock(Block):
    """Released moments, for public-data GLM (`protocol: moments`)."""

    release: Literal["directions", "joint", "separate"] | None = Field(
        default=None,
        description="`directions` releases y z / abs(z), z the features whitened by the public ones; `joint` "
        "randomizes x x' and x y as one vector; `separate` as two, as published; `null`: `directions` with public "
        "covariates, where the loss is logistic or the link the identity and no key below asks for more; else `joint`",
    )
    loss: Literal["logistic", "poisson", "boosting"] | None = Field(
        default=None, description="of a binary target's model; `null`: logistic"
    )
    link: Literal["identity", "sigmoid", "cubic", "softplus"] | None = Field(
        default=None, description="of a real target's model; `null`: identity"
    )
    design: Literal["bounded", "gaussian"] = Field(
        default="bounded",
        description="what bounds a person's features: `bounded` their box, `gaussian` the public ones' covariance",
    )
    covariance: Literal["both", "private", "pooled"] = Field(
        default="both",
        description="second moment of the features: `both` weighs private and public ones by variance, `pooled` by "
        "numbers of people, as published",
    )
    solver: Literal["stein", "score"] = Field(
        default="stein",
        description="`stein`, as published, turns least squares into the model's coefficients; `score` solves the "
        "model's own equations over the public features, without bias where these are like the people's",
    )


def release_by_rule(block: Mapping[str, Any], public: bool) -> str:
    """What moments release: directions where covariates are public, unless what is asked for takes second moments."""
    asked = [key for key, value in _OF_MOMENTS.items() if block.get(key, value) != value]
    told = block.get("loss") in _TOLD or block.get("link") in _TOLD
    return "directions" if public and told and not asked else "joint"


def check_public(moments: MomentsBlock) -> None:
    """Check that moments without public covariates are not asked for what is made from them.

    What remains needs none: scores are then taken as normal, with the mean and variance that the releases tell.

    Raises
    ------
    PydanticCustomError
        Naming the key, with the choices.
    """
    wanted = {"release": "directions", "design": "gaussian", "covariance": "pooled"}
    if moments.link != "identity":
        wanted["solver"] = "score"
    for key, value in wanted.items():
        if getattr(moments, key) == value:
            raise problem(
                f"{value} needs public covariates (features without the target), and the task has none; nobody's are "
                "public unless it says so. Give public: {file: F}, features that everybody may know already; or "
                "public: {set_aside: N}, which publishes the features of N of the people as they are, under no "
                f"guarantee, while they release nothing; or leave {key} out; or choose another protocol",
                "moments", key,
            )  # fmt: skip


def check_directions(block: MomentsBlock, curve: str) -> None:
    """Check that released directions are not asked for what takes second moments.

    Raises
    ------
    PydanticCustomError
        Naming the key.
    """
    chosen = getattr(block, curve)
    if chosen not in _TOLD:
        raise problem(
            f"{chosen} is not learned from directions, which tell {' and '.join(_TOLD)} models only; say "
            "release: joint, or leave release out",
            "moments", "release",
        )  # fmt: skip
    for key, value in _OF_MOMENTS.items():
        if getattr(block, key) != value:
            raise problem("has no effect with release: directions; remove it, or say release: joint", "moments", key)
