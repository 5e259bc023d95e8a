"""Releases of a target alone, or with known columns and private features (`protocol: univariate`)."""

import math
from collections.abc import Sequence
from typing import Any, Final

from murk.task.errors import task_error
from murk.task.features import INDICATOR
from murk.task.protocols.base import ALL_GUARANTEES, Scale, SupportedMechanisms, TaskProtocol

MOST_CELLS: Final = 1_000
"""Largest number of combinations of the values of known columns, missing ones among them."""
FEWEST_PEOPLE: Final = 20
"""Least number of people for each combination, on average, that a task with a stated size may have."""


class UnivariateProtocol(TaskProtocol):
    """Protocol that randomizes the target by the mechanism of least variance for its kind.

    A task without features learns shares or a mean. A task with known columns sends these as they are. It may also have
    private features: their products with each other and the target are randomized together.
    """

    name = "univariate"
    rank = 0
    releases = "target"
    offer = SupportedMechanisms((), ALL_GUARANTEES)
    targets = ("binary", "classes", "real")
    target_alone = True
    tracks = True
    repeats_answers = True
    estimates_effects = True

    def check_features(self, features: Sequence[Any], target: str, people: int | None) -> None:
        """Raise PydanticCustomError unless some features are known, and their combinations few."""
        known = is_known(features)
        if not any(known):
            words = "univariate learns from the target alone: say features: [], or leave protocol out"
            raise task_error(words, "protocol")
        if target == "classes" and not all(known):
            name = features[known.index(False)].name
            words = (
                f"{name!r} is private beside known columns, with which several classes are not learned: make it known: "
                "true, remove it, or make the class of interest a binary target"
            )
            raise task_error(words, "features", known.index(False))
        features = [feature for feature, is_one in zip(features, known, strict=True) if is_one]
        # A missing or undeclared value is a further category, unless it counts as one of the declared ones.
        sizes = [len(feature.categories) + (feature.missing in (None, INDICATOR)) for feature in features]
        cells = math.prod(sizes)
        product = " x ".join(map(str, sizes)) + f" = {cells:,}" if len(sizes) > 1 else f"{cells:,}"
        remedy = "give fewer known columns, or coarser categories"
        product += " combinations of known columns, missing values among them,"
        if cells > MOST_CELLS:
            words = f"{product} identify people; at most {MOST_CELLS:,} are sent: {remedy}"
            raise task_error(words, "features")
        if people is not None and people < FEWEST_PEOPLE * cells:
            words = (
                f"{product} for {people:,} people are {people / cells:.3g} people each, and at least {FEWEST_PEOPLE} "
                f"are required: {remedy}"
            )
            raise task_error(words, "people")

    def check_without_features(self, block: Any, target: str) -> None:
        """Accept any target."""

    def check_with_public(self, block: Any, target: str) -> None:
        """Raise PydanticCustomError: known columns are sent with each release, so public covariates are not used."""
        raise task_error("known columns come with each person's release; remove it", "public")

    def scale(self, block: Any, target: str) -> Scale:
        """Return "slope" for a real target, else "log odds" (for shares, see `Task.coefficient_scale`)."""
        return "slope" if target == "real" else "log odds"

    def model(self, block: Any, target: str) -> str:
        """Return the name of the model of a target with known columns."""
        return {"real": "squared", "classes": "softmax"}.get(target, "logistic")


def is_known(features: Sequence[Any]) -> list[bool]:
    """Return for each feature, or its content in a task file, whether the receiver knows the column."""
    return [
        feature.get("known") is True if isinstance(feature, dict) else getattr(feature, "known", None) is True
        for feature in features
    ]


PROTOCOL: Final = UnivariateProtocol()
