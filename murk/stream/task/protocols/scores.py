"""Scores in epochs, at models that are published once an epoch (`protocol: scores`)."""

from typing import Annotated, Any, Literal

from pydantic import Field

from murk.privacy.mechanisms import BEST, KINDS
from murk.stream.task.block import Block, Number
from murk.stream.task.errors import task_error
from murk.stream.task.protocols.base import ALL_GUARANTEES, Offer, Scale, TaskProtocol

_EFFECTS = "scores", "effects"


class ScoresBlock(Block):
    """Scores in epochs, at models that are published once an epoch (`protocol: scores`)."""

    exponent: Annotated[Number, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="how much of the outcome's probability a score takes back: 1 is centred, and right whatever the "
        "people's features are; 0 is the label's sign, and tells more where the public rows are like the people; "
        "`null`: by rule from the public rows, 1 without any",
    )
    models: Literal["shared", "own"] = Field(
        default="own",
        description="`shared`: people of all partitions answer at models that the first chain's learner makes of what "
        "all have learned; `own`: each chain makes its own. A file that does not say has `shared` where it has several "
        "partitions",
    )
    effects: Literal["line", "curve"] = Field(
        default="curve",
        description="`line`: as long as noise would hide the curvature of log odds, as of rare outcomes, people are "
        "asked at one probability for everybody, and average effects are slopes of the line through the labels; "
        "`curve`: always at the fitted coefficients. A file that does not say has `line` for a binary target and for "
        "several classes without public covariates; of these classes the lines are all that is learned",
    )


class ScoresProtocol(TaskProtocol):
    """People of one epoch release scores at one published model, and the learner solves once an epoch."""

    name = "scores"
    learner = "scores"
    block = ScoresBlock
    releases = "score"
    offer = Offer((*KINDS, BEST), ALL_GUARANTEES)
    targets = ("binary", "classes", "real")
    why_no_staleness = "learned however old they are"
    forgets = True

    def check_without_public(self, block: Any, target: str) -> None:
        """Check that log odds of several classes have public covariates.

        Raises
        ------
        PydanticCustomError
            With the choices.
        """
        if target == "classes" and block.effects == "curve":
            raise task_error(
                "log odds of several classes need public covariates (features without the target), and the task has "
                "none; nobody's are public unless it says so. Say effects: line, which learns average effects without "
                "any; or give public: {file: F}, features that everybody may know already; or public: {set_aside: N}, "
                "which publishes the features of N of the people as they are, under no guarantee, while they release "
                "nothing",
                *_EFFECTS,
            )
        if block.exponent is not None and block.exponent < 1.0 and target == "classes":
            raise task_error(
                f"{block.exponent:g} needs public covariates where the target is of several classes; remove it",
                "scores", "exponent",
            )  # fmt: skip

    def check_with_public(self, block: Any, target: str) -> None:
        """Check that several classes with public covariates have log odds.

        Raises
        ------
        PydanticCustomError
            With the choices.
        """
        if target == "classes" and block.effects == "line":
            raise task_error(
                "'line' of several classes uses no public covariates, and the task has some; remove either", *_EFFECTS
            )

    def scale(self, block: Any, target: str) -> Scale:
        """Log odds of two labels, slopes of a real target; of several classes lines through labels, or log odds."""
        if target == "classes" and block.effects == "line":
            return "probability"
        return {"binary": "log odds", "real": "slope"}.get(target, "own")  # type: ignore[return-value]

    def model(self, block: Any, target: str) -> str:
        """Least squares of a real target and of classes' lines, else the logistic model of its labels."""
        if target == "classes" and block.effects == "line":
            return "least squares"
        return {"real": "least squares", "classes": "softmax"}.get(target, "logistic")
