"""What is to be said of a protocol in one place: its block in a task, its releases, what can randomize them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from murk.stream.task.block import Block

Scale = Literal["log odds", "probability", "slope", "own"]
"""What a coefficient is of: log odds, half the probability of a label, the target itself, or the loss's own unit."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What can randomize releases of one kind, and which guarantees they can have.

    Parameters
    ----------
    mechanisms
        Kinds that ``privacy.mechanism`` may ask for; none where the protocol has its own.
    guarantees
        Kinds of guarantee that can be given.
    why_no_other
        Why it cannot give others; empty where it gives all.
    """

    mechanisms: tuple[str, ...]
    guarantees: tuple[str, ...]
    why_no_other: str = ""


ALL_GUARANTEES = ("pure", "approx", "gdp", "zcdp")


def coded_features(task: Mapping[str, Any]) -> int:
    """Coded features of a task file, without the constant; what is no feature counts as one."""
    features = task.get("features")
    return sum(map(_coded, features)) if isinstance(features, list | tuple) else 0


def _coded(feature: object) -> int:
    categories = feature.get("categories") if isinstance(feature, dict) else getattr(feature, "categories", None)
    return len(categories) - 1 if isinstance(categories, list | tuple) else 1


class TaskProtocol(ABC):
    """One protocol of tasks. What it says here is all that task files, reports and the monitor know of it.

    Attributes
    ----------
    name
        What ``protocol:`` says.
    block
        The model of its block in a task; None where it has none.
    releases
        Kind of its releases, where its block says nothing else.
    offer
        What can randomize them.
    targets
        Kinds of target that it learns.
    learner_keys
        Keys of the task's ``learner`` block that it reads.
    reads_staleness
        Whether ``max_staleness`` bounds the age of its releases.
    why_no_staleness
        Why it does not.
    forgets
        Whether its learner can forget old releases.
    why_no_forgetting
        Why it cannot.
    rank
        Order of preference among protocols that do about equally well: the lowest asks for the fewest public rows, or
        for the least trust.
    reads_models
        Whether devices read a model before they release.
    of_organisations
        Whether organisations release, not people.
    estimates_loss
        Whether its learner estimates its loss without bias from releases alone.
    """

    name: ClassVar[str]
    block: ClassVar[type[Block] | None] = None
    releases: ClassVar[str]
    offer: ClassVar[Offer]
    targets: ClassVar[tuple[str, ...]] = ("binary", "real")
    learner_keys: ClassVar[tuple[str, ...]] = ()
    reads_staleness: ClassVar[bool] = False
    why_no_staleness: ClassVar[str] = "of no model"
    forgets: ClassVar[bool] = False
    why_no_forgetting: ClassVar[str] = "keeps one sum of all releases"
    rank: ClassVar[int]
    reads_models: ClassVar[bool] = False
    of_organisations: ClassVar[bool] = False
    estimates_loss: ClassVar[bool] = False

    def release_kind(self, block: Any) -> str:
        """Kind of the releases of a task with this block."""
        return self.releases

    def offer_of(self, released: str | None) -> Offer:
        """What can randomize releases of a kind (None: the usual one)."""
        return self.offer

    def offered(self, block: Any) -> str:
        """What `offer_of` is to be asked of a task with this block: kind of its releases, or a name within it."""
        return self.release_kind(block)

    def fill_in(self, block: Mapping[str, Any], target: str, task: Mapping[str, Any]) -> dict[str, Any]:
        """Return a task file's block with what follows from the task's kind of target and the rest of the file."""
        return dict(block)

    def check(self, block: Any, target: str) -> None:  # noqa: B027 - most blocks need no more than their model
        """Check a block against the task's kind of target.

        Raises
        ------
        PydanticCustomError
            Naming the key.
        """

    def check_without_public(self, block: Any, target: str) -> None:  # noqa: B027
        """Check that a task without public covariates needs none.

        Raises
        ------
        PydanticCustomError
            Naming the key, with the choices.
        """

    def former_settings(self, block: Any, by_rule: Set[str]) -> dict[str, Any]:
        """Return the settings of a log's task to keep where a task file leaves them to the rules of earlier versions.

        Parameters
        ----------
        block
            Settings of the task that the log carries.
        by_rule
            Keys that the task file leaves out.
        """
        return {}

    def why_impractical(self, features: int, public: bool) -> str:
        """Return why a task of so many coded features should not use this protocol; empty where it may.

        Parameters
        ----------
        features
            Number of coded features, the constant included.
        public
            Whether the task has public covariates.
        """
        return ""

    def alternatives(self, block: Any, target: str) -> Sequence[dict[str, Any]]:
        """Return other settings that planners should compare with a task's own."""
        return ()

    def has_link(self, block: Any) -> bool:
        """Return whether coefficients are on the scale of a link function of a real target."""
        return False

    def check_with_public(self, block: Any, target: str) -> None:  # noqa: B027
        """Check that a task with public covariates has a use for them.

        Raises
        ------
        PydanticCustomError
            Naming the key, with the choices.
        """

    @abstractmethod
    def scale(self, block: Any, target: str) -> Scale:
        """What the coefficients of a task with this block are of."""

    @abstractmethod
    def model(self, block: Any, target: str) -> str:
        """What is fitted to the releases, in a word or two."""
