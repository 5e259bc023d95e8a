"""Content of a dossier as data, for a page or JSON: sections of claims with their evidence, tables and samples."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any, Literal

import yaml

Source = Literal["task", "deployment", "audit", "code", "example", "organisation"]
"""Source of a sentence that no test supports, such as settings, measurements, or the organisation's statements."""


@dataclass(frozen=True)
class Evidence:
    """A tested property, and its tests (file, two colons, name)."""

    what: str
    tests: tuple[str, ...]


EVIDENCE: dict[str, Evidence] = {
    key: Evidence(entry["what"], tuple(entry["tests"]))
    for key, entry in yaml.safe_load((files("murk.dossier") / "evidence.yaml").read_text(encoding="utf-8")).items()
}


@dataclass(frozen=True)
class Claim:
    """One or two sentences with their evidence (keys of `EVIDENCE`) or, without evidence, their source."""

    text: str
    evidence: tuple[str, ...] = ()
    source: Source = "code"


@dataclass(frozen=True)
class Table:
    """Rows of texts under column names; the first column names the row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    evidence: tuple[str, ...] = ()
    source: Source = "code"


@dataclass(frozen=True)
class Sample:
    """Text shown verbatim."""

    caption: str
    text: str
    source: Source = "example"


Block = Claim | Table | Sample  # a part of a section


@dataclass(frozen=True)
class Section:
    """A heading and its blocks."""

    key: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Dossier:
    """A whole dossier."""

    title: str
    made: str  # time of the dossier's creation (UTC)
    murk: str  # version of Murk
    task_hash: str
    simulated: bool  # whether noise is simulated and protects nobody
    summary: tuple[tuple[str, str], ...]  # pairs (heading, text) to be read first
    to_settle: tuple[str, ...]  # open questions
    sections: tuple[Section, ...]

    @property
    def blocks(self) -> Iterator[Block]:
        """All blocks of all sections."""
        for section in self.sections:
            yield from section.blocks

    @property
    def evidence(self) -> tuple[str, ...]:
        """Keys of all evidence, in order of first use."""
        return tuple(
            dict.fromkeys(key for block in self.blocks if not isinstance(block, Sample) for key in block.evidence)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)
