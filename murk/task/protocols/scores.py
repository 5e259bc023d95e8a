"""Scores in rounds, each at a newly published model, or answered once without a model (`protocol: scores`)."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from murk.privacy.mechanisms import BEST, KINDS
from murk.task.errors import shown, task_error
from murk.task.fields import Block, Number
from murk.task.protocols.base import ALL_GUARANTEES, Scale, SupportedMechanisms, TaskProtocol

ROUNDS_KEPT: Final = 8  # rounds that a learner remembers
MOST_FEATURES: Final = 64  # least number of coded features at which people are not asked for second moments

_EFFECTS = "scores", "effects"
_ONCE: Final = {"interactive": False}
# Settings that have an effect in rounds only, with their defaults.
_OF_ROUNDS: Final = {"exponent": None, "models": "per-partition", "effects": "logistic"}
_PUBLIC = (
    "public: {file: F}, features that everybody may know already; or public: {set_aside: N}, which publishes the "
    "features of N of the people as they are, under no guarantee, while these release nothing"
)


class ScoresBlock(Block):
    """Scores in rounds, each at a newly published model, or answered once without a model (`protocol: scores`)."""

    interactive: Annotated[bool, Field(strict=True)] = Field(
        default=True,
        description="whether devices read the round's model before they answer; `false`: people answer once, at "
        "coefficients of zero, from which public covariates determine the others",
    )
    loss: Literal["logistic", "poisson", "boosting"] | None = Field(
        default=None,
        description="with `interactive: false`, loss for a binary target (`null`: logistic)",
    )
    link: Literal["identity", "sigmoid", "softplus", "exp"] | None = Field(
        default=None,
        description="with `interactive: false`, link for a real target; `exp` is Poisson regression of counts, in "
        "their own unit; `null`: identity",
    )
    exponent: Annotated[Number, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="share of the outcome's probability that a score subtracts: 1 is valid for any features; 0, the "
        "label's sign, is more exact where the public rows are like the people; `null`: by rule from "
        "the public rows, else 1",
    )
    models: Literal["shared", "per-partition"] = Field(
        default="per-partition",
        description="`shared`: all partitions answer at models of the first partition's learner; `per-partition`: each "
        "partition makes its own. If omitted: `shared` with several partitions",
    )
    effects: Literal["linear", "logistic"] = Field(
        default="logistic",
        description="`linear`: while noise hides the curvature of log odds, as with rare outcomes, all people answer "
        "at one probability, and average effects are slopes of a line fitted to the labels; `logistic`: people always "
        "answer at the fitted coefficients. If omitted: `logistic`, or without public covariates `linear` for a "
        "binary target and for several classes, of which only average effects are learned then",
    )


class ScoresProtocol(TaskProtocol):
    """Protocol in which people of a round release scores at one published model; the learner solves once a round."""

    name = "scores"
    rank = 1
    without_models: ClassVar[Mapping[str, Any] | None] = _ONCE
    block = ScoresBlock
    releases = "score"
    offer = SupportedMechanisms((*KINDS, BEST), ALL_GUARANTEES)
    targets = ("binary", "classes", "real")
    why_no_staleness = "learned however old they are"
    why_no_forgetting = ""
    tracks = True
    predicts_sets = True

    def check(self, block: Any, target: str) -> None:
        """Raise PydanticCustomError for settings that the target's kind, or answers without rounds, do not use."""
        if block.interactive:
            for key in ("loss", "link"):
                if (value := getattr(block, key)) is not None:
                    words = f"{value!r} has no effect on scores in rounds; say interactive: false, or remove it"
                    raise task_error(words, "scores", key)
            return
        for key, kind in (("loss", "binary"), ("link", "real")):
            if target != kind and getattr(block, key) is not None:
                raise task_error(f"has no effect on a {target} target; remove it", "scores", key)
        for key, default in _OF_ROUNDS.items():
            # For several classes, public covariates determine the effects.
            if getattr(block, key) != default and not (key == "effects" and target == "classes"):
                words = f"{shown(getattr(block, key))} has no effect with interactive: false; remove one"
                raise task_error(words, "scores", key)

    def check_without_public(self, block: Any, target: str) -> None:
        """Raise PydanticCustomError, with the choices, for log odds of several classes without public covariates."""
        if target == "classes" and block.effects == "logistic":
            raise task_error(
                "log odds of several classes need public covariates (features without the target), and the task has "
                "none; it must say whose features are public. Give effects: linear, which learns average effects "
                f"without any; or {_PUBLIC}",
                *_EFFECTS,
            )
        if not block.interactive and target != "classes":
            raise task_error(
                "false needs public covariates (features without the target) to solve for coefficients, and the task "
                f"has none. Give {_PUBLIC}; or leave interactive out; or choose another protocol",
                "scores",
                "interactive",
            )
        if block.exponent is not None and block.exponent < 1.0 and target == "classes":
            words = f"{block.exponent:g} needs public covariates for a target of several classes; remove the exponent"
            raise task_error(words, "scores", "exponent")

    def check_with_public(self, block: Any, target: str) -> None:
        """Raise PydanticCustomError, with the choices, for linear effects on classes and public covariates."""
        if target == "classes" and block.effects == "linear":
            raise task_error(
                "'linear' with several classes uses no public covariates, but the task has some; remove one", *_EFFECTS
            )

    def why_not_grown(self, block: Any) -> str:
        """Return the reason if each partition has models of its own: a new partition could not use them."""
        if block.interactive and block.models == "per-partition":
            return "each partition has models of its own (scores: {models: shared} lets the number grow)"
        return ""

    def check_shuffled(self, block: Any, crowd: int, partitions: int, forget: int | None) -> None:
        """Raise PydanticCustomError if partitions have models of their own, or rounds are smaller than crowds."""
        super().check_shuffled(block, crowd, partitions, forget)
        if not block.interactive:
            return
        if block.models == "per-partition" and partitions > 1:
            words = (
                f"'per-partition' models of {partitions} partitions would split every crowd; say models: shared, "
                "or log: "
            )
            raise task_error(words + "{partitions: 1}", "scores", "models")
        if forget is not None and forget // ROUNDS_KEPT < crowd:
            words = f"{forget:,} makes rounds of {forget // ROUNDS_KEPT:,} releases, fewer than a crowd of {crowd:,}"
            raise task_error(f"{words}; give at least {ROUNDS_KEPT * crowd:,}, or a smaller crowd", "forget")

    def check_forget(self, block: Any, forget: int) -> None:
        """Raise PydanticCustomError if there are no rounds that the learner could forget."""
        if not block.interactive:
            words = f"{forget:,} has no effect with scores: {{interactive: false}}, whose learner keeps one sum of all "
            raise task_error(f"{words}releases; remove it and begin a new task for each period", "forget")

    def check_predictions(self, block: Any, features: int, partitions: int) -> None:
        """Raise PydanticCustomError if no prediction is sent to people, or partitions would have different sets."""
        super().check_predictions(block, features, partitions)
        if not block.interactive:
            words = "has no effect with scores: {interactive: false}, as people read no prediction; remove one"
            raise task_error(words, "predictions")
        if block.models == "per-partition" and partitions > 1:
            words = (
                f"'per-partition' models of {partitions} partitions would have as many different prediction sets; "
                "say models: "
            )
            raise task_error(words + "shared, or log: {partitions: 1}, or remove predictions", "scores", "models")

    def why_not_weighed(self, block: Any, *, public: bool, predictions: bool) -> str:
        """Return why people cannot be weighted by rows: public rows and prediction sets weight people equally."""
        sets = " and predictions, whose sets give all people the same weight; remove one" if predictions else ""
        return super().why_not_weighed(block, public=public, predictions=predictions) or sets

    def fill_in(self, block: Mapping[str, Any], target: str, task: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in ``effects: linear`` for several classes without public covariates, and an omitted loss or link."""
        filled = dict(block)
        if target == "classes" and not task.get("public") and filled.get("effects") is None:
            filled["effects"] = "linear"
        for key, kind, value in (("loss", "binary", "logistic"), ("link", "real", "identity")):
            if filled.get("interactive") is False and target == kind and filled.get(key) is None:
                filled[key] = value
        return filled

    def why_impractical(self, features: int, public: bool) -> str:
        """Return why people cannot be asked for second moments of so many features; empty if they can."""
        if public or features < MOST_FEATURES:
            return ""
        return f"{features} coded features are too many for people to release matrices of second moments"

    def has_link(self, block: Any) -> bool:
        """Return whether the block has a link other than the identity."""
        return block.link not in (None, "identity")

    def scale(self, block: Any, target: str) -> Scale:
        """Return "log odds" for two labels, "slope" for a real target, "probability" for classes' lines, else "own"."""
        if target == "classes" and block.effects == "linear":
            return "probability"
        if block.loss not in (None, "logistic") or self.has_link(block):
            return "own"
        return {"binary": "log odds", "real": "slope"}.get(target, "own")  # type: ignore[return-value]

    def model(self, block: Any, target: str) -> str:
        """Return "least squares" for a line, "softmax" or "logistic", or another loss or link."""
        if target == "classes" and block.effects == "linear":
            return "least squares"
        if self.scale(block, target) == "own" and target != "classes":
            return f"{block.loss} loss" if target == "binary" else f"{block.link} link"
        return {"real": "least squares", "classes": "softmax"}.get(target, "logistic")


PROTOCOL: Final = ScoresProtocol()
