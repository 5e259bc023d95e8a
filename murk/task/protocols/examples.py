"""Released examples, for IWP-SGD (`protocol: examples`)."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import Field

from murk.task.errors import nearest, task_error
from murk.task.fields import Block, Integer, Number
from murk.task.protocols.base import ALL_GUARANTEES, Scale, SupportedMechanisms, TaskProtocol, coded_features

DIRECTED: Final = ("quadratic", "squared")  # Losses that `release: outer` and `release: directions` support
OUTER: Final = "outer"  # Learning uses only means of these releases, so any unbiased mechanism works
_OF_OUTER: Final = SupportedMechanisms(("gaussian", "laplace", "l2-ball", "privunit", "best"), ALL_GUARANTEES)
CELLS: Final = "cells"  # Learning uses only the shares of released combinations of values
_OF_CELLS: Final = SupportedMechanisms((), ALL_GUARANTEES)  # randomized response alone
JOINT: Final = "joint"
_OF_JOINT: Final = SupportedMechanisms(("gaussian", "laplace"), ALL_GUARANTEES)
MOST_CELLS: Final = 4096
_MOST_OUTER = 64
LARGEST_OUTER: Final = 3.0  # Largest mu of Gaussian noise at which outer products need no more people than directions
ROWS_OF_EACH: Final = 20  # Least number of public rows for each coefficient to fit directions of labels with them
LOUD: Final = 2.0  # Largest mu at which directions of labels are fitted with public rows
BinaryLoss = Literal["probit", "quadratic", "exponential", "log"]
# Losses by kind of target.
LOSSES: Final[dict[str, tuple[str, ...]]] = {
    "binary": get_args(BinaryLoss),
    "classes": ("log",),
    "real": ("squared",),
}
BY_RULE: Final = {"binary": "quadratic", "classes": "log", "real": "squared"}


class ExamplesBlock(Block):
    """Released examples, for IWP-SGD (`protocol: examples`)."""

    release: Literal["outer", "directions", "joint", "separate", "cells"] | None = Field(
        default=None,
        description="`outer` releases the outer product of the direction of features, constant and target with "
        "itself, by any mechanism; `directions` features and target divided by the record's length; "
        "`joint` features and target as one vector (for a binary target their product), by Gaussian noise "
        "or `mechanism: laplace`; `separate` each with its share of the budget, as published; "
        "`cells` the combination of all values, by randomized response, "
        "for every loss; `null`: by [rule](iwp-sgd.md#which-release). "
        "`outer` and `directions` serve the `quadratic` and `squared` losses",
    )
    grid: Annotated[Integer, Field(ge=2, le=512)] | None = Field(
        default=None,
        description="number of evenly spaced values, from the lower to the upper bound, to which a number is rounded "
        "at random (`cells` only); required if a feature is a number; `null`: 2 for a real target",
    )
    intercept: Annotated[bool, Field(strict=True)] = Field(
        default=True, description="whether the constant has a coefficient"
    )
    split: Annotated[Number, Field(ge=0.05, le=0.95)] = Field(
        default=0.5, description="the features' share of epsilon (`separate` only)"
    )
    loss: Literal[BinaryLoss, "squared"] | None = Field(
        default=None,
        description="`quadratic`, `probit`, `exponential` or `log` (truncated for Gaussian noise) for a binary target, "
        "`log` (softmax) for classes, `squared` for a real one; `null`: quadratic, log or squared",
    )
    serves: tuple[Literal[BinaryLoss, "squared"], ...] = Field(
        default=(),
        alias="for",
        description="losses of further [models](models.md) of the log, besides `loss`: the default `release` is then "
        "the one with the least noise that serves all of them",
    )
    truncation: Annotated[Integer, Field(ge=1, le=3)] | None = Field(
        default=None,
        description="terms of the truncated log loss (`log` only); `null`: the number with the least error",
    )
    regularization: Annotated[Number, Field(ge=0, le=1e6)] = Field(
        default=0.0, description="lambda of the ridge penalty lambda/2 |theta|^2"
    )
    batch: Annotated[Integer, Field(ge=1, le=65_536)] = Field(default=1, description="releases averaged per step")
    newton: Annotated[bool, Field(strict=True)] | None = Field(
        default=None,
        description="whether a Newton step completes the estimate and gives intervals; `false` as published; `null`: "
        "up to 64 coefficients, and with `outer`",
    )


def example_release(
    loss: object, guarantees: Iterable[object], coded: int, label: bool = False, rows: float = 0
) -> str:
    """Return the release of a task that names none (docs/iwp-sgd.md): `joint` unless the loss is quadratic or squared.

    For these two losses the first rule that applies decides: `outer` if a guarantee is pure; `directions` for more than
    64 coded features; `outer` if a guarantee is (epsilon, delta); `directions` for labels with 20 public rows for each
    coefficient and a level of mu up to 2; `outer` if the default level's mu is up to 3; `directions`. ``guarantees``
    are those of all levels, the default one first, as in a task file; ``coded`` is the number of coded features without
    the constant, and ``rows`` that of public rows.

    >>> gdp = lambda mu: [{"gdp": {"mu": mu}}]
    >>> example_release("squared", gdp(1.0), 2), example_release("squared", gdp(4.0), 2)
    ('outer', 'directions')
    """
    if loss not in DIRECTED:
        return "joint"
    levels = list(guarantees)
    kinds = {kind for each in levels if isinstance(each, dict) for kind in each}
    if "pure" in kinds:
        return OUTER
    if coded > _MOST_OUTER:
        return "directions"
    if "approx" in kinds:
        return OUTER
    mus = [_mu(each) for each in levels]
    by_rows = label and rows >= ROWS_OF_EACH * (coded + 1) and any(mu <= LOUD for mu in mus)
    return OUTER if mus and mus[0] <= LARGEST_OUTER and not by_rows else "directions"


def _mu(guarantee: object) -> float:
    """Return mu of a Gaussian guarantee as a task file writes it; infinite if there is none."""
    for kind, key in (("gdp", "mu"), ("zcdp", "rho")):
        block = guarantee.get(kind) if isinstance(guarantee, dict) else None
        value = block.get(key) if isinstance(block, dict) else None
        if isinstance(value, int | float) and value > 0.0:
            return float(value) if kind == "gdp" else math.sqrt(2.0 * value)
    return math.inf


def _guarantees(privacy: object) -> list[object]:
    if not isinstance(privacy, dict):
        return []
    levels, default = privacy.get("levels"), privacy.get("guarantee")
    guarantees = list(levels.values()) if isinstance(levels, dict) else []
    if isinstance(default, dict) and len(default) == 1:
        # The ends of a grid are numbers: budgets in the parameter of the default guarantee.
        [(kind, block)] = default.items()
        key = next(iter(block), "") if isinstance(block, dict) else ""
        guarantees = [{kind: {key: each}} if isinstance(each, int | float) else each for each in guarantees]
    return [default, *guarantees]


def _cells(task: Mapping[str, Any]) -> float:
    """Return the number of combinations of label and features' categories; infinite with a feature of another kind."""
    features, count = task.get("features"), 2.0
    for feature in features if isinstance(features, list) else ():
        categories = feature.get("categories") if isinstance(feature, dict) else None
        count *= len(categories) + (feature.get("missing") == "indicator") if isinstance(categories, list) else math.inf
    return count


# Settings that do not apply to `release: cells`, with the values that change nothing.
_NOT_OF_CELLS: Final[dict[str, tuple[object, ...]]] = {
    "truncation": (None,),
    "batch": (None, 1),
    "newton": (None, True),
    "split": (None, 0.5),
}


def _beyond_cells(setting: Callable[[str], object]) -> list[str]:
    """Return the keys of a block, read by ``setting``, that do not apply to `release: cells`."""
    return [key for key, unused in _NOT_OF_CELLS.items() if setting(key) not in unused]


def _leaves_mechanism_open(privacy: object) -> bool:
    """Return whether a task file names no mechanism and no calibration, so that randomized response can be used."""
    block = privacy if isinstance(privacy, dict) else {}
    return block.get("mechanism") is None and block.get("calibration", "analytic") == "analytic"


def _rows(public: object) -> float:
    """Return a task's number of public rows; infinite for a file, whose number of rows is unknown until it is read."""
    if not isinstance(public, dict):
        return 0.0
    aside = public.get("set_aside")
    if isinstance(aside, int | float):
        return float(aside)
    return math.inf if public.get("file") is not None else 0.0


class ExamplesProtocol(TaskProtocol):
    """People release their features and target, once and without reading a model."""

    name = "examples"
    rank = 4
    block = ExamplesBlock
    repeats_answers = True
    targets = ("binary", "classes", "real")
    releases = "example"
    # Learning inverts Gaussian smoothing.
    offer = SupportedMechanisms(
        ("gaussian",),
        ("approx", "gdp", "zcdp"),
        "learning from this release inverts Gaussian noise, and Gaussian noise gives no pure guarantee "
        "(examples: {release: cells}, for the quadratic and squared losses outer, and joint with mechanism: laplace "
        "have one)",
    )
    learner_keys = ("step", "averaging", "weighting", "radius")
    estimates_loss = True
    estimates_effects = True
    classic = ("example", JOINT)
    left_open: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "loss": ("log", "quadratic"),
        "regularization": (),
        "batch": (),
        "step": (),
    }

    def offered(self, block: Any) -> str:
        """Return the kind of release: outer products, joint releases and cells have mechanisms of their own."""
        return block.release if block is not None and block.release in (OUTER, JOINT, CELLS) else self.releases

    def offer_of(self, released: str | None) -> SupportedMechanisms:
        """Return what is supported: any mechanism for outer products, none for cells, Laplace noise for `joint`."""
        return {OUTER: _OF_OUTER, JOINT: _OF_JOINT, CELLS: _OF_CELLS}.get(str(released), self.offer)

    def fill_in(self, block: Mapping[str, Any], target: str, task: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in an omitted loss, by the kind of target, and an omitted release, the one with the least noise."""
        filled = dict(block)
        if target in BY_RULE and filled.get("loss") is None:
            filled["loss"] = BY_RULE[target]
        if target == "classes" and filled.get("release") is None:
            filled["release"] = CELLS
        further = filled.get("for")
        served = [filled.get("loss"), *further] if isinstance(further, list | tuple) and further else []
        if any(each not in DIRECTED for each in served) and filled.get("release") is None and target in BY_RULE:
            # Choose the release with less noise, if cells are possible. Records without a target have one further cell.
            few = _cells(task) < MOST_CELLS and not _beyond_cells(filled.get)
            possible = few and _leaves_mechanism_open(task.get("privacy"))
            filled["release"] = CELLS if possible or filled.get("grid") is not None else JOINT
        if filled.get("release") is None:
            levels = _guarantees(task.get("privacy"))
            label, rows = target == "binary", _rows(task.get("public"))
            filled["release"] = example_release(filled.get("loss"), levels, coded_features(task), label, rows)
        return filled

    def published(self, target: str, guarantee: str) -> dict[tuple[str, ...], Any]:
        """Return the paper's settings of IWP-SGD: separate releases, constant steps on batches, the last iterate."""
        return {
            ("examples", "release"): "separate",
            ("examples", "loss"): "squared" if target == "real" else "exponential",
            ("examples", "regularization"): 5.0,
            ("examples", "batch"): 128,
            ("examples", "newton"): False,
            ("learner", "step"): {"eta": 1e-4, "alpha": 0.0},
            ("learner", "averaging"): None,
            ("learner", "weighting"): "uniform",
        }

    def check(self, block: Any, target: str) -> None:
        """Check that the loss fits the target, and that the release fits the loss."""
        if target == "classes" and block.release != CELLS:
            raise task_error(
                f"{block.release} codes the target as one number, so it has two classes or is real; for several "
                "classes say release: cells, or protocol: scores",
                "examples",
                "release",
            )
        losses = LOSSES[target]
        for key, loss in [("loss", block.loss), *(("for", each) for each in block.serves)]:
            if loss not in losses:
                words = f"{loss!r} is not a loss of a {target} target; {nearest(str(loss), losses)}"
                raise task_error(words, "examples", key)
        if block.truncation is not None and block.loss != "log":
            raise task_error(f"has no effect with loss: {block.loss}; remove it", "examples", "truncation")
        if block.split != ExamplesBlock.model_fields["split"].default and block.release != "separate":
            raise task_error(
                f"has no effect with release: {block.release}; remove it, or say release: separate", "examples", "split"
            )
        if block.release == CELLS:
            for key in _beyond_cells(partial(getattr, block)):
                raise task_error("has no effect with release: cells; remove it", "examples", key)
        elif block.grid is not None:
            raise task_error(f"has no effect with release: {block.release}; remove it", "examples", "grid")
        others = [each for each in (block.loss, *block.serves) if each not in DIRECTED]
        if block.release in (OUTER, "directions") and others:
            linear = " and ".join(DIRECTED)
            words = f"{block.release} is for the {linear} losses only, not {others[0]}; say release: joint"
            raise task_error(words, "examples", "release")

    def why_not_weighed(self, block: Any, *, public: bool, predictions: bool) -> str:
        """Return why people cannot be weighted by rows: in joint or separate releases missing targets bias fits."""
        if block.release in (JOINT, "separate"):
            return (
                f" and release: {block.release}, whose fit answers without a target bias; say release: outer or cells"
            )
        return super().why_not_weighed(block, public=public, predictions=predictions)

    def alternatives(self, block: Any, target: str) -> Sequence[dict[str, Any]]:
        """Return cells, unless the block has settings that they cannot have."""
        fixed = block is None or block.release == CELLS or _beyond_cells(partial(getattr, block))
        return () if fixed else ({"release": CELLS},)

    def scale(self, block: Any, target: str) -> Scale:
        """Return "log odds" for two labels' log loss, "probability" or "slope" for quadratic losses, else "own"."""
        if target == "classes":
            return "own"
        return {"log": "log odds", "quadratic": "probability", "squared": "slope"}.get(block.loss, "own")  # type: ignore[return-value]

    def model(self, block: Any, target: str) -> str:
        """Return the loss and its weight."""
        if target == "classes":
            return "softmax"
        return f"{block.loss} loss" + {OUTER: " over 1 + |x|^2", "directions": " over |x|^2"}.get(block.release, "")


PROTOCOL: Final = ExamplesProtocol()
