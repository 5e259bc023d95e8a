"""The protocols, and the block that each has in a task: what people release, and what is made of it."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from murk.errors import UserError
from murk.privacy.guarantees import Guarantee
from murk.stream.task.block import Block, Integer, Number, Text
from murk.stream.task.checks import OBJECTIVES
from murk.stream.task.errors import nearest, problem, shown
from murk.stream.task.features import Target
from murk.stream.task.learner import LearnerBlock, MaxStaleness, Positive
from murk.stream.task.protocols.moments import MomentsBlock, check_directions, release_by_rule

PROTOCOLS: Final = ("gradients", "scores", "examples", "moments", "sketch")
RELEASED: Final = {
    "gradients": "gradient",
    "scores": "score",
    "examples": "example",
    "moments": "moment",
    "sketch": "sketch",
}
"""Kind of the releases of each protocol; of released moments of organisations it is `GRAM`."""
GRAM: Final = "gram"
MECHANISMS: Final = {
    "gradients": ("gaussian", "laplace", "l2-ball", "privunit", "best"),
    "scores": ("gaussian", "laplace", "l2-ball", "privunit", "best"),
    # The inverse of Gaussian smoothing is what makes these learners unbiased.
    "examples": ("gaussian",),
    "moments": ("gaussian", "laplace", "l2-ball", "privunit", "best"),
    "sketch": (),
}
"""Kinds of mechanism that `privacy.mechanism` may ask for, by protocol."""

GRAM_MECHANISMS: Final = ("gaussian",)
"""The same, of organisations' moments."""

GUARANTEES: Final = {
    "gradients": ("pure", "approx", "gdp", "zcdp"),
    "scores": ("pure", "approx", "gdp", "zcdp"),
    "examples": ("approx", "gdp", "zcdp"),
    "moments": ("pure", "approx", "gdp", "zcdp"),
    "sketch": ("approx",),
}
"""Guarantees that a protocol can give; of sketches, by mixing."""

GRAM_GUARANTEES: Final = ("approx", "gdp", "zcdp")
"""Guarantees that organisations' moments can have."""

_WHY: Final = {
    "examples": "its learner takes back Gaussian smoothing, and Gaussian noise gives no pure guarantee",
    "sketch": "what is known of a random mixture of records is a bound on (epsilon, delta)",
}

FORMER_PROTOCOL: Final = "gradients"
"""Protocol that versions up to 0.3 took for a task file that names none; logs that were begun so go on."""

FORMER_RELEASE: Final = "joint"
"""Release of examples and moments that versions up to 0.3 took for a file that names none; logs begun so go on."""

FORMER_SET_ASIDE: Final = 1000
"""Records that versions up to 0.3 set aside of moments' own accord; logs that were begun so go on."""


def _known(value: object) -> object:
    if isinstance(value, str) and value not in PROTOCOLS:
        raise problem(f"{shown(value)} is not a protocol; {nearest(value, PROTOCOLS)}")
    return value


ProtocolName = Annotated[Literal["gradients", "scores", "examples", "moments", "sketch"], BeforeValidator(_known)]


class ScoresBlock(Block):
    """Scores in epochs, at models that are published once an epoch (`protocol: scores`)."""

    exponent: Annotated[Number, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="how much of the outcome's probability a score takes back: 1 is centred, and right whatever the "
        "people's features are; 0 is the label's sign, and tells more where the public rows are like the people; "
        "`null`: by rule from the public rows, 1 without any",
    )


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


class SketchBlock(Block):
    """What organisations release of their records, for GaussMix (`protocol: sketch`)."""

    rows: Annotated[Integer, Field(ge=2, le=100_000)] | None = Field(
        default=None,
        description="rows of a mixture (k; not of `moments`); `null`: 4096, or what fits a message, but no more than "
        "`window`",
    )
    window: Annotated[Integer, Field(ge=1, le=2**40)] | None = Field(
        default=None, description="records of one sketch; `null`: all that a source has"
    )
    organisation: Text | None = Field(
        default=None, description="the column that names a record's organisation; `null`: the source is one"
    )
    method: Literal["moments", "linear-mixing", "mixing"] = Field(
        default="linear-mixing",
        description="`moments` releases the second moments of a window's records with Gaussian noise; `mixing` k "
        "random mixtures of the records, and `linear-mixing`, as published, the least eigenvalue besides, to add less "
        "noise. A file that names none has `moments`, or `linear-mixing` where it says something of `rows` or "
        "`analysis`",
    )
    analysis: Literal["tight", "joint", "published"] = Field(
        default="tight",
        description="how the guarantee of mixtures is proved, and so how much noise they take: `tight` is exact for "
        "mixing and integrates over the eigenvalue's noise, `joint` (until 0.3) adds Renyi divergences, `published` "
        "two pairs of (epsilon, delta)",
    )
    neighbours: Literal["zero-out", "replace-one"] = Field(
        default="zero-out",
        description="what the guarantee hides: whether a record is there at all (`zero-out`, as published), or which "
        "one it is, as the other protocols do (`replace-one`)",
    )
    range: Positive | None = Field(
        default=None,
        description="where the quadratic surrogate of the logistic loss is fitted, [-Q, Q]; `null`: by normal scores "
        "of the sketch's own moments",
    )
    feature_bound: Positive | None = Field(
        default=None, description="public bound of the features' length; `null`: that of their box"
    )
    target_bound: Positive | None = Field(default=None, description="public bound of the target's size; `null`: 1")


DIRECTED: Final = ("quadratic", "squared")
"""Losses that `release: directions` tells."""
_LOSSES: Final = {"binary": ("probit", "quadratic", "exponential", "log"), "real": ("squared",)}
_BY_TARGET: Final[dict[str, dict[str, dict[str, str]]]] = {
    "examples": {"loss": {"binary": "quadratic", "real": "squared"}},
    "moments": {"loss": {"binary": "logistic"}, "link": {"real": "identity"}},
}
_LEARNER_KEYS: Final = {
    "scores": (),
    "examples": ("step", "averaging", "weighting", "radius"),
    "moments": ("radius",),
    "sketch": ("radius",),
}
_OF_MIXING: Final = ("rows", "analysis")
BLOCKS: Final = {"scores": ScoresBlock, "examples": ExamplesBlock, "moments": MomentsBlock, "sketch": SketchBlock}


_OF_GRADIENTS: Final = ("objective", "learner", "max_staleness")
_MOST_OF_SCORES: Final = 64


def protocol_by_rule(data: Mapping[str, Any]) -> str:
    """Choose the protocol of a task file that names none.

    It is `scores`, except where the file has what only `gradients` read (an objective, a learner's settings, a limit of
    staleness), several classes without public covariates, or so many coded features that a matrix of their second
    moments is too much to ask of a person.
    """
    target, features = data.get("target"), data.get("features")
    kind = target.get("kind") if isinstance(target, dict) else getattr(target, "kind", None)
    many = isinstance(features, list | tuple) and sum(map(_coded, features)) >= _MOST_OF_SCORES
    if (kind == "classes" and not data.get("public")) or many or any(data.get(key) for key in _OF_GRADIENTS):
        return "gradients"
    return "scores"


def _coded(feature: object) -> int:
    categories = feature.get("categories") if isinstance(feature, dict) else getattr(feature, "categories", None)
    return len(categories) - 1 if isinstance(categories, list | tuple) else 1


FORMER_METHOD: Final = "linear-mixing"
"""Method that versions up to 0.3 took for a sketch that names none; logs that were begun so go on."""


def method_by_rule(block: Mapping[str, Any]) -> str:
    """Choose what organisations release where a task file does not say.

    It is `moments`: at equal guarantees their error is that of mixing where there are few records for the number of
    features, and falls below it by orders of magnitude from there (docs/gaussmix.md has the table). A file that says
    how many rows a mixture has, or how one is proved private, means mixing.
    """
    return FORMER_METHOD if any(block.get(key) is not None for key in _OF_MIXING) else "moments"


def released_kind(protocol: str, sketch: SketchBlock | None, moments: MomentsBlock | None) -> str:
    """Kind of a task's releases."""
    if moments is not None and moments.release == "directions":
        # They are scores at the model of version 0.
        return RELEASED["scores"]
    return GRAM if sketch is not None and sketch.method == "moments" else RELEASED[protocol]


def resolved(data: dict[str, Any]) -> dict[str, Any]:
    """Fill in what follows from a task's protocol and target, before the task is checked.

    What cannot be made out (a target that is no mapping) is left as it is: its own mistake is reported.
    """
    target = data.get("target")
    kind = target.get("kind") if isinstance(target, dict) else getattr(target, "kind", None)
    if not isinstance(kind, str):
        kind = "binary"
    protocol = data.get("protocol")
    if protocol is None:
        protocol = protocol_by_rule(data)
        data = {**data, "protocol": protocol}
    if protocol == "gradients":
        return (
            data
            if data.get("objective") is not None
            else {**data, "objective": OBJECTIVES.get(kind, OBJECTIVES["binary"])[0]}
        )
    if not isinstance(protocol, str) or protocol not in BLOCKS:
        return data
    block = data.get(protocol)
    if block is None:
        block = {}
    if protocol == "sketch" and isinstance(block, dict) and block.get("method") is None:
        block = {**block, "method": method_by_rule(block)}
    if isinstance(block, dict):
        for key, by_kind in _BY_TARGET.get(protocol, {}).items():
            if kind in by_kind and block.get(key) is None:
                block = {**block, key: by_kind[kind]}
        if protocol == "examples" and block.get("release") is None:
            block = {**block, "release": "directions" if block.get("loss") in DIRECTED else "joint"}
        if protocol == "moments" and block.get("release") is None:
            block = {**block, "release": release_by_rule(block, bool(data.get("public")))}
    return {**data, protocol: block}


def check_public_classes() -> None:
    """Say that scores of several classes are not learned without public covariates.

    Raises
    ------
    PydanticCustomError
        With the choices.
    """
    raise problem(
        "scores of several classes need public covariates (features without the target), and the task has none; "
        "nobody's are public unless it says so. Give public: {file: F}, features that everybody may know already; or "
        "public: {set_aside: N}, which publishes the features of N of the people as they are, under no guarantee, "
        "while they release nothing; or choose protocol: gradients, which needs none",
        "protocol",
    )


def check_protocol(
    protocol: str,
    objective: str | None,
    target: Target,
    blocks: Mapping[str, Block | None],
    learner: LearnerBlock,
    staleness: MaxStaleness,
) -> None:
    """Check that a task's protocol, its block, its objective and its target fit each other.

    Raises
    ------
    PydanticCustomError
        Naming the key.
    """
    for name, block in blocks.items():
        if block is not None and name != protocol:
            raise problem(f"has no effect with protocol: {protocol}; remove it, or say protocol: {name}", name)
    if protocol == "gradients":
        return
    if objective is not None:
        raise problem(
            f"{objective!r} has no effect with protocol: {protocol}, whose own block says what is learned; remove it",
            "objective",
        )
    if target.kind not in ("binary", "real") and protocol != "scores":
        raise problem(
            f"{protocol} learns a binary or a real target, not {target.kind!r}; use gradients",
            "protocol",
        )
    _check_losses(blocks[protocol], protocol, target.kind)
    # A bound of the coefficients may stand in tasks that take none; the other keys say how gradients or steps are made.
    unread = [key for key in LearnerBlock.model_fields if key not in _LEARNER_KEYS[protocol]]
    key = learner.beyond_defaults(tuple(unread))
    if key:
        raise problem(f"has no effect with protocol: {protocol}; remove it", "learner", key)
    if staleness != MaxStaleness():
        why = "learned however old they are" if protocol == "scores" else "of no model"
        raise problem(f"has no effect with protocol: {protocol}, whose releases are {why}; remove it", "max_staleness")


def _check_losses(block: Block | None, protocol: str, kind: str) -> None:
    if isinstance(block, ExamplesBlock):
        losses = _LOSSES[kind]
        if block.loss not in losses:
            raise problem(
                f"{block.loss!r} is not a loss of a {kind} target; {nearest(str(block.loss), losses)}", protocol, "loss"
            )
        if block.truncation is not None and block.loss != "log":
            raise problem(f"has no effect with loss: {block.loss}; remove it", protocol, "truncation")
        if block.split != ExamplesBlock.model_fields["split"].default and block.release != "separate":
            raise problem(
                f"has no effect with release: {block.release}; remove it, or say release: separate", protocol, "split"
            )
        if block.release == "directions" and block.loss not in DIRECTED:
            raise problem(
                f"directions tell the {' and '.join(DIRECTED)} losses alone, not {block.loss}; say release: joint",
                protocol, "release",
            )  # fmt: skip
    elif isinstance(block, SketchBlock):
        for key in _OF_MIXING if block.method == "moments" else ():
            if getattr(block, key) != SketchBlock.model_fields[key].default:
                raise problem(
                    "has no effect with method: moments; remove it, or say method: linear-mixing", protocol, key
                )
        if kind == "real" and block.range is not None:
            raise problem("has no effect on a real target; remove it", protocol, "range")
        if kind == "binary" and block.target_bound not in (None, 1.0):
            raise problem("labels are -1 and +1, and their bound is 1; remove it", protocol, "target_bound")
        if block.feature_bound is not None and block.feature_bound <= 1.0:
            raise problem(
                f"{block.feature_bound:g} leaves no room beside the constant 1 that every record has; raise it",
                protocol, "feature_bound",
            )  # fmt: skip
    elif isinstance(block, MomentsBlock):
        wrong, right = ("link", "loss") if kind == "binary" else ("loss", "link")
        if getattr(block, wrong) is not None:
            raise problem(f"has no effect on a {kind} target; remove it, or give {right}", protocol, wrong)
        if block.release == "directions":
            check_directions(block, right)


def check_guarantee(protocol: str, guarantee: Guarantee, released: str | None = None) -> None:
    """Refuse a guarantee that no mechanism of a protocol can give, with those that it can.

    ``released`` is the kind of its releases, where the protocol has several.

    Raises
    ------
    UserError
        Naming the guarantee and what can be given.
    """
    able = GRAM_GUARANTEES if released == GRAM else GUARANTEES[protocol]
    if guarantee.kind not in able:
        why = (
            "second moments have Gaussian noise, which gives no pure guarantee" if released == GRAM else _WHY[protocol]
        )
        raise UserError(f"protocol: {protocol} cannot give {guarantee.kind}: {why}; it can give {', '.join(able)}")
