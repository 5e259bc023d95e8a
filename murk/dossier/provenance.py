"""Provenance of a dossier: hashes of the code, and the inputs that make the same page again."""

import base64
import hashlib
import html
import json
import re
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final, Self

import murk
from murk.dossier.example import Example
from murk.dossier.facts import Audit, as_findings
from murk.errors import UserError

_ERROR_CODE = "MURK-AUDIT-001"

TIME: Final = "%Y-%m-%d %H:%M UTC"
_META: Final = re.compile(r'<meta name="murk-inputs" content="([A-Za-z0-9+/=]*)">')
_SECTION: Final = re.compile(r'<section id="([a-z-]+)"')


@cache
def code_hash() -> str:
    """Return the SHA-256 of all files of the installed package, by name and content; caches are left out."""
    folder, total = Path(murk.__file__).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*"), key=lambda each: each.relative_to(folder).as_posix()):
        if path.is_file() and "__pycache__" not in path.parts:
            name, content = path.relative_to(folder).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{content}  {name}\n".encode())
    return total.hexdigest()


@cache
def commit() -> str:
    """Return the commit of a checkout from which murk runs, and whether files were changed; empty elsewhere."""
    folder = Path(murk.__file__).parent
    if not (folder.parent / ".git").exists():
        return ""

    def git(*words: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + (", with changes" if git("status", "--porcelain", "--", str(folder)) else "")
    except (OSError, subprocess.SubprocessError):
        return "not known: git does not answer"


@dataclass(frozen=True)
class Inputs:
    """Everything in a page that neither task, log nor ledger determine."""

    made: str
    example: Example
    audit: Audit | None
    purpose: str
    controller: str
    web: bool
    simulated: bool
    people: int | None

    @property
    def time(self) -> datetime:
        """Time at which the page was made."""
        return datetime.strptime(self.made, TIME).replace(tzinfo=UTC)

    def encoded(self) -> str:
        """Return the inputs as base64 of JSON, for a page."""
        content = asdict(self)
        content["example"]["messages"] = [message.decode("ascii") for message in self.example.messages]
        return base64.b64encode(json.dumps(content).encode()).decode()

    @classmethod
    def of_page(cls, page: str, name: str) -> Self:
        """Read the inputs of a page; raise `UserError` if it has none."""
        match = _META.search(page)
        try:
            content = json.loads(base64.b64decode(match[1] if match else "", validate=True))
            example = content["example"]
            messages = tuple(message.encode("ascii") for message in example["messages"])
            made = cls(**{**content, "example": Example(**{**example, "messages": messages})})
            audit = content["audit"]
            if audit is not None:
                findings = as_findings(audit["findings"])
                made = cls(
                    **{
                        **vars(made),
                        "audit": Audit(**{**audit, "findings": findings, "problems": tuple(audit["problems"])}),
                    }
                )
            assert made.time
            return made
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{name} is not a dossier's page, or another version made it: make it again") from None


def differences(page: str, again: str) -> list[str]:
    """Return the sections in which two pages differ, by key; ``head`` is what comes before them."""
    first, second = _parts(page), _parts(again)
    return [key for key in dict.fromkeys([*first, *second]) if first.get(key) != second.get(key)]


def _parts(page: str) -> dict[str, str]:
    indices = [("head", 0), *((found[1], found.start()) for found in _SECTION.finditer(page))]
    ends = [index for _, index in indices[1:]] + [len(page)]
    return {key: html.unescape(page[index:end]) for (key, index), end in zip(indices, ends, strict=True)}
