"""Base class for protocols: what task files, reports and the monitor need to know about each."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from murk.task.errors import task_error
from murk.task.fields import Block

Scale = Literal["log odds", "probability", "slope", "own"]
"""Scale of a coefficient: log odds, half the probability of a label, the target, or the loss's own unit."""


@dataclass(frozen=True, slots=True)
class SupportedMechanisms:
    """Mechanisms and guarantees for one kind of release."""

    mechanisms: tuple[str, ...]  # that `privacy.mechanism` may name; empty if the protocol has its own mechanism
    guarantees: tuple[str, ...]  # kinds of guarantee that are possible
    why_no_other: str = ""  # why other kinds are not possible; empty if all are


ALL_GUARANTEES = ("pure", "approx", "gdp", "zcdp")
PUBLIC_PEOPLE: Final = (
    " and public, whose covariates give all people the same weight; remove one, or say protocol: moments"
)


def coded_features(task: Mapping[str, Any]) -> int:
    """Return the number of coded features of a task file, without the constant; an invalid one counts as one."""
    features = task.get("features")
    count = 0
    for feature in features if isinstance(features, list | tuple) else ():
        categories = feature.get("categories") if isinstance(feature, dict) else getattr(feature, "categories", None)
        count += len(categories) - 1 if isinstance(categories, list | tuple) else 1
    return count


class TaskProtocol(ABC):
    """Base class for protocols."""

    name: ClassVar[str]  # value of `protocol` in a task file
    block: ClassVar[type[Block] | None] = None  # class of its settings in a task
    releases: ClassVar[str]  # default kind of release
    offer: ClassVar[SupportedMechanisms]  # default mechanisms and guarantees
    targets: ClassVar[tuple[str, ...]] = ("binary", "real")
    learner_keys: ClassVar[tuple[str, ...]] = ()  # keys of the task's `learner` block that it reads
    reads_staleness: ClassVar[bool] = False  # whether `max_staleness` bounds the age of its releases
    why_no_staleness: ClassVar[str] = "of no model"
    repeats_answers: ClassVar[bool] = False  # whether people answer the same question in every window
    tracks: ClassVar[bool] = False  # whether its learner can estimate each window
    predicts_sets: ClassVar[bool] = False  # whether people can be asked about prediction sets
    why_no_forgetting: ClassVar[str] = "keeps one sum of all releases"  # empty if its learner can forget old releases
    # Rank among protocols that do about equally well: the lowest needs the fewest public rows or the least trust.
    rank: ClassVar[int]
    target_alone: ClassVar[bool] = False  # whether it serves tasks without features, from targets alone
    # Settings of its block with which devices read no model before they release; None if they always read one.
    without_models: ClassVar[Mapping[str, Any] | None] = {}
    of_organisations: ClassVar[bool] = False  # whether organisations release, not people
    why_not_shuffled: ClassVar[str] = ""  # why its releases form no crowds; empty if they do
    classic: ClassVar[tuple[str, ...]] = ()  # kinds of release whose Gaussian noise can have `calibration: classic`
    # Keys of `published` that the paper leaves open, each with the words that a task may give; numbers are always
    # allowed.
    left_open: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    estimates_loss: ClassVar[bool] = False  # whether its learner estimates its loss without bias from releases alone
    estimates_effects: ClassVar[bool] = False  # whether average effects of classes are estimated besides their log odds

    def why_not_grown(self, block: Any) -> str:
        """Return why a log cannot have more partitions later; empty if it can, as the sums of partitions are added."""
        return ""

    def reads_models(self, block: Any) -> bool:
        """Return whether devices read a model before they release."""
        settings = self.without_models
        return settings is None or any(getattr(block, key) != value for key, value in settings.items())

    def release_kind(self, block: Any) -> str:
        """Return the kind of release of a task with this block."""
        return self.releases

    def offer_of(self, released: str | None) -> SupportedMechanisms:
        """Return the supported mechanisms and guarantees for a kind of release; None means the default kind."""
        return self.offer

    def offered(self, block: Any) -> str:
        """Return the argument of `offer_of` for a task with this block."""
        return self.release_kind(block)

    def fill_in(self, block: Mapping[str, Any], target: str, task: Mapping[str, Any]) -> dict[str, Any]:
        """Return a task file's block with defaults that depend on the kind of target and the rest of the file."""
        return dict(block)

    def published(self, target: str, guarantee: str) -> dict[tuple[str, ...], Any]:
        """Return the paper's settings, by path in a task file, for a kind of target and of guarantee; or none."""
        return {}

    def check(self, block: Any, target: str) -> None:  # noqa: B027 - most blocks need no more than their model
        """Check a block against the task's kind of target; raise `PydanticCustomError`, naming the key."""

    def check_without_public(self, block: Any, target: str) -> None:  # noqa: B027
        """Raise `PydanticCustomError`, with the choices, if a task without public covariates needs some."""

    def check_without_features(self, block: Any, target: str) -> None:
        """Raise `PydanticCustomError`, with the remedy, if a task without features cannot use the protocol or block."""
        raise task_error(
            f"{self.name} cannot learn {'a mean' if target == 'real' else 'shares'} without features: leave protocol "
            "out, or say protocol: univariate",
            "protocol",
        )

    def check_features(self, features: Sequence[Any], target: str, people: int | None) -> None:
        """Raise `PydanticCustomError`, with the remedy, if a task with these features cannot use the protocol."""
        for index, feature in enumerate(features):
            if getattr(feature, "known", None):
                words = f"{self.name} randomizes every feature; leave protocol out, or remove it"
                raise task_error(words, "features", index, "known")

    def why_impractical(self, features: int, public: bool) -> str:
        """Return why a task with this many coded features, without the constant, should not use the protocol, or ""."""
        return ""

    def alternatives(self, block: Any, target: str) -> Sequence[dict[str, Any]]:
        """Return other settings that planners should compare with the task's own."""
        return ()

    def has_link(self, block: Any) -> bool:
        """Return whether coefficients are on the scale of a link function of a real target."""
        return False

    def check_with_public(self, block: Any, target: str) -> None:  # noqa: B027
        """Raise `PydanticCustomError`, with the choices, if a task has no use for its public covariates."""

    def check_shuffled(self, block: Any, crowd: int, partitions: int, forget: int | None) -> None:
        """Check that crowds of this size form; raise `PydanticCustomError`, naming the key, with the choices."""
        if self.why_not_shuffled:
            why = f"whose releases {self.why_not_shuffled}; remove it, or say protocol: scores"
            raise task_error(f"has no effect with protocol: {self.name}, {why}", "shuffle")

    def check_forget(self, block: Any, forget: int) -> None:
        """Raise `PydanticCustomError`, with the remedy, if the learner cannot forget old releases."""
        if self.why_no_forgetting:
            raise task_error(
                f"{forget:,} has no effect with protocol: {self.name}, whose learner {self.why_no_forgetting}; remove "
                "it and begin a new task for each period, or say protocol: scores",
                "forget",
            )

    def why_not_weighed(self, block: Any, *, public: bool, predictions: bool) -> str:
        """Return why people cannot be weighted by their number of rows, with the remedy; empty if they can."""
        return PUBLIC_PEOPLE if public else ""

    def check_predictions(self, block: Any, features: int, partitions: int) -> None:
        """Raise `PydanticCustomError`, with the remedy, if people cannot be asked about prediction sets."""
        if not self.predicts_sets:
            why = "whose people are not asked about a published prediction; remove it, or say protocol: scores"
            raise task_error(f"has no effect with protocol: {self.name}, {why}", "predictions")

    @abstractmethod
    def scale(self, block: Any, target: str) -> Scale:
        """Return the scale of the coefficients."""

    @abstractmethod
    def model(self, block: Any, target: str) -> str:
        """Return the name of the fitted model."""
