"""What a dossier is made of: sections of claims, tables and samples, as data that a page or JSON is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

Source = Literal["task", "deployment", "audit", "code", "example", "organisation"]
"""Where a sentence is from that no test supports: settings, readings, what was measured, or what others must say."""


@dataclass(frozen=True)
class Claim:
    """A sentence or two, and what supports them.

    Parameters
    ----------
    text
        The sentences.
    evidence
        Keys of `murk.dossier.evidence.EVIDENCE`: the tests that fail where this is not so.
    source
        Where it is from, if not from tested code.
    """

    text: str
    evidence: tuple[str, ...] = ()
    source: Source = "code"


@dataclass(frozen=True)
class Table:
    """Rows of texts under the names of their columns; the first column says what a row is of."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    evidence: tuple[str, ...] = ()
    source: Source = "code"


@dataclass(frozen=True)
class Sample:
    """Something shown as it is, letter by letter."""

    caption: str
    text: str
    source: Source = "example"


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    key: str
    title: str
    blocks: tuple[Claim | Table | Sample, ...]


@dataclass(frozen=True)
class Dossier:
    """All of it.

    Parameters
    ----------
    title, made, murk, task_hash
        The task's name; when and by which version this was made (UTC); the task's hash.
    simulated
        Whether releases protect nobody.
    summary
        What an officer reads first.
    to_settle
        What nobody has said or what could not be read: to be settled before anyone signs.
    sections
        The rest.
    """

    title: str
    made: str
    murk: str
    task_hash: str
    simulated: bool
    summary: tuple[tuple[str, str], ...]
    to_settle: tuple[str, ...]
    sections: tuple[Section, ...]

    @property
    def blocks(self) -> Iterator[Claim | Table | Sample]:
        """All blocks of all sections."""
        for section in self.sections:
            yield from section.blocks

    @property
    def evidence(self) -> tuple[str, ...]:
        """Keys of all evidence, in the order in which it is first called upon."""
        return tuple(dict.fromkeys(key for one in self.blocks if not isinstance(one, Sample) for key in one.evidence))

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)
