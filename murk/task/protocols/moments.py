"""Released moments, for public-data GLM (`protocol: moments`)."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from murk.privacy.mechanisms import BEST, KINDS
from murk.task.errors import nearest, task_error
from murk.task.fields import Block
from murk.task.learning import Positive
from murk.task.protocols.base import ALL_GUARANTEES, Scale, SupportedMechanisms, TaskProtocol

# Losses and links that directions identify; the cubic link is flat at coefficients of zero.
TOLD: Final = ("logistic", "poisson", "boosting", "identity", "sigmoid", "softplus", "exp")
# Losses by kind of target.
LOSSES: Final[dict[str, tuple[str, ...]]] = {
    "binary": ("logistic", "poisson", "boosting"),
    "classes": ("softmax", "squared"),
}
# Settings that only second moments use, with their defaults.
OF_MOMENTS: Final = {
    "design": "bounded",
    "covariance": "both",
    "solver": "stein",
    "radius": None,
    "outliers": "clip",
    "repair": True,
    "intercept": True,
}


class MomentsBlock(Block):
    """Released moments, for public-data GLM (`protocol: moments`)."""

    release: Literal["directions", "observed", "joint", "separate"] | None = Field(
        default=None,
        description="`directions` releases y z / abs(z), z the features whitened by the public ones; `observed` x "
        "x' and x y as one vector, zeros without a target, and whether there is one; `joint` without "
        "that number, a missing target being the middle of its range; `separate` as two, as published; "
        "`null`: `directions` with public covariates, unless the link is cubic or a key below needs "
        "second moments; else `observed`",
    )
    loss: Literal["logistic", "poisson", "boosting", "softmax", "squared"] | None = Field(
        default=None,
        description="loss for a binary target (`null`: logistic); for classes `softmax` with public covariates, else "
        "`squared`",
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
        default=None, description="public bound on the length of the coded features; `null`: their box's"
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
    """People release moments of features and target, or directions where covariates are public."""

    name = "moments"
    rank = 2
    block = MomentsBlock
    releases = "moment"
    offer = SupportedMechanisms((*KINDS, BEST), ALL_GUARANTEES)
    targets = ("binary", "classes", "real")
    learner_keys = ("radius",)
    classic = ("moment",)
    left_open: ClassVar[Mapping[str, tuple[str, ...]]] = {"calibration": ("analytic", "classic")}

    def release_kind(self, block: Any) -> str:
        """Return the kind of release: scores for directions, else moments."""
        return "score" if block is not None and block.release == "directions" else self.releases

    def fill_in(self, block: Mapping[str, Any], target: str, task: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in an omitted loss or link, by the kind of target, and an omitted release."""
        filled = dict(block)
        of_classes = "softmax" if task.get("public") else "squared"
        rules = (("loss", "binary", "logistic"), ("loss", "classes", of_classes), ("link", "real", "identity"))
        for key, kind, value in rules:
            if target == kind and filled.get(key) is None:
                filled[key] = value
        if target == "classes" and filled.get("release") is None:
            filled["release"] = "directions"
        if filled.get("release") is None:
            # Directions with public covariates and no setting for second moments.
            needed = any(filled.get(key, value) != value for key, value in OF_MOMENTS.items())
            identified = filled.get("loss") in TOLD or filled.get("link") in TOLD
            privacy = task.get("privacy")
            needed |= isinstance(privacy, dict) and privacy.get("calibration") == "classic"
            whole = "joint" if filled.get("intercept") is False else "observed"
            filled["release"] = "directions" if task.get("public") and identified and not needed else whole
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
        known = LOSSES.get(target, ())
        if known and block.loss not in known:
            words = f"{block.loss!r} is not a loss of a {target} target; {nearest(str(block.loss), known)}"
            raise task_error(words, "moments", "loss")
        if target == "classes" and block.release != "directions":
            words = f"{block.release} is not for several classes; say release: directions, or leave release out"
            raise task_error(words, "moments", "release")
        if block.release == "observed" and not block.intercept:
            words = "false leaves no number for who has a target; say release: joint, or remove it"
            raise task_error(words, "moments", "intercept")
        if block.design == "gaussian" and block.radius is not None:
            raise task_error(f"{block.radius:g} has no effect with design: gaussian; remove one", "moments", "radius")
        if block.release != "directions":
            return
        model = getattr(block, right)
        if target != "classes" and model not in TOLD:
            words = f"{model} cannot be learned from directions, only {', '.join(TOLD)} models; say release: observed"
            raise task_error(f"{words}, or leave release out", "moments", "release")
        for key, value in OF_MOMENTS.items():
            if getattr(block, key) != value:
                words = "has no effect with release: directions; remove it, or say release: observed"
                raise task_error(words, "moments", key)

    def check_without_public(self, block: Any, target: str) -> None:
        """Check that no setting needs public covariates."""
        wanted = {"release": "directions", "design": "gaussian", "covariance": "pooled"}
        if block.link != "identity":
            wanted["solver"] = "score"
        if target == "classes":
            wanted = {"loss": "softmax"}
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

    def check_with_public(self, block: Any, target: str) -> None:
        """Check that lines of several classes are not given public covariates, which they do not use."""
        if target == "classes" and block.loss == "squared":
            raise task_error("squared uses no public covariates, but the task has some; remove one", "moments", "loss")

    def has_link(self, block: Any) -> bool:
        """Return whether the link is not the identity."""
        return bool(block.link != "identity")

    def scale(self, block: Any, target: str) -> Scale:
        """Return "log odds" for the logistic loss, "probability" for the squared, "slope" for a line, else "own"."""
        if block.loss == "squared":
            return "probability"
        if block.loss == "logistic":
            return "log odds"
        return "slope" if block.link == "identity" else "own"

    def model(self, block: Any, target: str) -> str:
        """Return the link or the loss, and for several classes that of scores."""
        if target == "classes":
            return "least squares" if block.loss == "squared" else "softmax"
        return f"{block.link} link" if block.loss is None else f"{block.loss} loss"


PROTOCOL: Final = MomentsProtocol()
