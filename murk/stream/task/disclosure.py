"""What becomes public with a task: the features of its public sample, as they are."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from murk.stream.task.task import Task

_MOST_NAMED: Final = 8


@dataclass(frozen=True)
class Disclosure:
    """The features of so many people, without the target, that everybody can read in a task's document.

    Parameters
    ----------
    features
        Names of the columns.
    target
        Name of the column that is not among them.
    people
        Number of people.
    file
        The file of public records that they are from; None where they were set aside among the task's own people.
    caution
        What is told about it only to whoever is asked to agree: it may depend on people's records.
    """

    features: tuple[str, ...]
    target: str
    people: int
    file: str | None
    caution: str = field(default="", repr=False, compare=False)

    @classmethod
    def of(cls, task: Task) -> Disclosure | None:
        """Return what a resolved task makes public; None where that is nothing."""
        if task.public is None or task.covariates is None:
            return None
        return cls(task.coding.columns, task.target.name, int(task.covariates.counts.sum()), task.public.file)

    def what(self) -> str:
        """Return what it is and of how many people, to begin a sentence.

        Examples
        --------
        >>> Disclosure(("age", "same_sex"), "third_child", 1000, None).what()
        'The features age, same_sex (without the target third_child) of 1,000 people'
        """
        more = len(self.features) - _MOST_NAMED
        names = ", ".join(self.features[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        noun = "feature" if len(self.features) == 1 else "features"
        return f"The {noun} {names} (without the target {self.target}) of {self.people:,} people"

    def describe(self) -> str:
        """Return what is public, in words."""
        if self.file is None:
            whose = "These people were set aside at random, and release nothing else."
        else:
            whose = f"They are from the file of public records {self.file}."
        return f"{self.what()} are public with this task, as they are and under no guarantee. {whose}"

    def announce(self, url: str, source: str | None = None) -> str:
        """Return what is about to become public, on which log and of whom, in words.

        Parameters
        ----------
        url
            The log that it is about to be written to.
        source
            What people are set aside from.
        """
        if self.file is None:
            whose = f"They are drawn at random from {source}, and these people release nothing else."
        else:
            whose = f"They are all that stand in {self.file}: nobody may be among them who is to release."
        return (
            f"{self.what()} become public: they are written to {url} as they are, without noise and under no "
            f"guarantee, for everybody who reads it, and cannot be taken back. {whose}"
            + (f" CAUTION: {self.caution}." if self.caution else "")
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, with its words."""
        found = {**asdict(self), "features": list(self.features), "words": self.describe()}
        del found["caution"]
        return found
