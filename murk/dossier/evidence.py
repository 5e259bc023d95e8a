"""Evidence of a dossier: tests that fail if a sentence is not true of the code."""

from dataclasses import dataclass
from importlib.resources import files

import yaml


@dataclass(frozen=True)
class Evidence:
    """A tested property, and its tests (file, two colons, name)."""

    what: str
    tests: tuple[str, ...]


EVIDENCE: dict[str, Evidence] = {
    key: Evidence(entry["what"], tuple(entry["tests"]))
    for key, entry in yaml.safe_load((files("murk.dossier") / "evidence.yaml").read_text(encoding="utf-8")).items()
}
