"""What becomes public with a task: the features of its public sample."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from murk.stream.task.task import Task

_MOST_NAMED: Final = 8


@dataclass(frozen=True)
class Disclosure:
    """The features of some people, without the target, that everybody can read in a task's document."""

    features: tuple[str, ...]
    target: str
    people: int
    file: str | None  # of public records; None if people were set aside from the task's source
    # Shown only to whoever is asked to agree, since it may depend on people's records.
    caution: str = field(default="", repr=False, compare=False)

    @classmethod
    def of(cls, task: Task) -> Disclosure | None:
        """Return what a resolved task makes public, or None."""
        if task.public is None or task.covariates is None:
            return None
        return cls(task.coding.columns, task.target.name, int(task.covariates.counts.sum()), task.public.file)

    def what(self) -> str:
        """Return the beginning of a sentence: the features and the number of people.

        >>> Disclosure(("age", "same_sex"), "third_child", 1000, None).what()
        'The features age, same_sex (without the target third_child) of 1,000 people'
        """
        more = len(self.features) - _MOST_NAMED
        names = ", ".join(self.features[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        noun = "feature" if len(self.features) == 1 else "features"
        return f"The {noun} {names} (without the target {self.target}) of {self.people:,} people"

    def describe(self) -> str:
        """Describe what is public."""
        if self.file is None:
            whose = "These people were set aside at random, and release nothing else."
        else:
            whose = f"They are from the file of public records {self.file}."
        return f"{self.what()} are public with this task, as they are and under no guarantee. {whose}"

    def announce(self, url: str, source: str | None = None) -> str:
        """Describe what is about to become public, and on which log; ``source`` is what people are set aside from."""
        if self.file is None:
            whose = f"They are drawn at random from {source}, and these people release nothing else."
        else:
            whose = f"They are all people in {self.file}: nobody among them may release to this task."
        return (
            f"{self.what()} become public: they are written to {url} as they are, without noise and under no "
            f"guarantee, for everybody who reads it, and cannot be taken back. {whose}"
            + (f" CAUTION: {self.caution}." if self.caution else "")
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the disclosure as plain data, with its description."""
        data = {**asdict(self), "features": list(self.features), "words": self.describe()}
        del data["caution"]
        return data
