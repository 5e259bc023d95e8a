"""Released moments, for public-data GLM (`protocol: moments`)."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from murk.privacy.mechanisms import BEST, KINDS
from murk.task.errors import task_error
from murk.task.fields import Block
from murk.task.learning import Positive
from murk.task.protocols.base import ALL_GUARANTEES, Scale, SupportedMechanisms, TaskProtocol


class MomentsBlock(Block):
    """Released moments, for public-data GLM (`protocol: moments`)."""

    release: Literal["observed", "joint", "separate"] | None = Field(
        default=None,
        description="`observed` releases x x', x y and whether there is a target as one vector, all zeros without a "
        "target; `joint` leaves that number out, and a missing target counts as the middle of its range; `separate` "
        "releases x x' and x y as two vectors, as published; `null`: `observed`, or `joint` without an intercept",
    )
    loss: Literal["logistic", "poisson", "boosting"] | None = Field(
        default=None, description="loss for a binary target (`null`: logistic)"
    )
    link: Literal["identity", "sigmoid", "cubic", "softplus", "exp"] | None = Field(
        default=None,
        description="link for a real target; `exp` is Poisson regression of counts, in their own unit; `null`: "
        "identity",
    )
    design: Literal["bounded", "gaussian"] = Field(
        default="bounded",
        description="the bound on a person's features: `bounded` by their box, `gaussian` by the public covariance",
    )
    covariance: Literal["both", "private", "pooled"] = Field(
        default="both",
        description="second moment of the features: `both` weighs private and public ones by inverse variance, "
        "`pooled` by numbers of people, as published",
    )
    solver: Literal["stein", "score"] = Field(
        default="stein",
        description="`stein`, as published, turns least squares into the model's coefficients; `score` solves the "
        "model's equations over the public features, without bias where these are like the people's",
    )
    radius: Positive | None = Field(
        default=None,
        description="public bound on the length of the coded features; `null`: the largest length in their box",
    )
    outliers: Literal["clip", "zero"] = Field(
        default="clip",
        description="features beyond the bound are shortened to it (`clip`), or the record becomes zeros, as "
        "published (`zero`)",
    )
    repair: Annotated[bool, Field(strict=True)] = Field(
        default=True, description="whether second moments below their noise are raised to it; `false` as published"
    )
    intercept: Annotated[bool, Field(strict=True)] = Field(
        default=True,
        description="whether there is a constant; `false` as published, for labels of 0 and 1 or a target within -b "
        "and b, in its own unit unless the link is identity",
    )


class MomentsProtocol(TaskProtocol):
    """People release second moments of features and target."""

    name = "moments"
    rank = 2
    block = MomentsBlock
    releases = "moment"
    offer = SupportedMechanisms((*KINDS, BEST), ALL_GUARANTEES)
    learner_keys = ("radius",)
    repeats_answers = True
    classic = ("moment",)
    left_open: ClassVar[Mapping[str, tuple[str, ...]]] = {"calibration": ("analytic", "classic")}

    def fill_in(self, block: Mapping[str, Any], target: str, task: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in an omitted loss or link, by the kind of target, and an omitted release."""
        filled = dict(block)
        for key, kind, value in (("loss", "binary", "logistic"), ("link", "real", "identity")):
            if target == kind and filled.get(key) is None:
                filled[key] = value
        if filled.get("release") is None:
            filled["release"] = "joint" if filled.get("intercept") is False else "observed"
        return filled

    def published(self, target: str, guarantee: str) -> dict[tuple[str, ...], Any]:
        """Return the paper's settings: separate releases without a constant, pooled with public second moments."""
        own: dict[str, Any] = {"release": "separate", "covariance": "pooled", "solver": "stein", "outliers": "zero"}
        own |= {"repair": False, "intercept": False}
        calibration = "classic" if guarantee == "approx" else "analytic"
        settings: dict[tuple[str, ...], Any] = {("moments", key): value for key, value in own.items()}
        return settings | {("privacy", "calibration"): calibration}

    def check(self, block: Any, target: str) -> None:
        """Check that the model fits the target, and that the release fits the model."""
        wrong, right = ("loss", "link") if target == "real" else ("link", "loss")
        if getattr(block, wrong) is not None:
            raise task_error(f"has no effect on a {target} target; remove it, or give {right}", "moments", wrong)
        if block.release == "observed" and not block.intercept:
            words = "false leaves no number that says who has a target; say release: joint, or remove it"
            raise task_error(words, "moments", "intercept")
        if block.design == "gaussian" and block.radius is not None:
            raise task_error(f"{block.radius:g} has no effect with design: gaussian; remove one", "moments", "radius")

    def why_not_weighed(self, block: Any, *, public: bool, predictions: bool) -> str:
        """Return why people cannot be weighted by rows: only "observed" releases say whether there is a target."""
        return "" if block.release == "observed" else f" and release: {block.release}; say release: observed"

    def check_without_public(self, block: Any, target: str) -> None:
        """Check that no setting needs public covariates."""
        wanted = {"design": "gaussian", "covariance": "pooled"}
        if block.link != "identity":
            wanted["solver"] = "score"
        for key, value in wanted.items():
            if getattr(block, key) == value:
                raise task_error(
                    f"{value} needs public covariates (features without the target), and the task has none. Give "
                    "public: {file: F}, features that everybody may know already; or public: {set_aside: N}, which "
                    "publishes the features of N people as they are, without a guarantee, while these release nothing; "
                    f"or leave {key} out; or choose another protocol",
                    "moments",
                    key,
                )

    def has_link(self, block: Any) -> bool:
        """Return whether the link is not the identity."""
        return bool(block.link != "identity")

    def scale(self, block: Any, target: str) -> Scale:
        """Return "log odds" for the logistic loss, "slope" for a line, else "own"."""
        if block.loss == "logistic":
            return "log odds"
        return "slope" if block.link == "identity" else "own"

    def model(self, block: Any, target: str) -> str:
        """Return the link or the loss."""
        return f"{block.link} link" if block.loss is None else f"{block.loss} loss"


PROTOCOL: Final = MomentsProtocol()
