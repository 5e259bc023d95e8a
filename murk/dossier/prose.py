"""Sentences of a dossier, filled in: `prose.yaml` is their text."""

from collections.abc import Iterator, Mapping
from functools import cache, reduce
from importlib.resources import files
from typing import Any, Final

import yaml

from murk.dossier.content import Claim
from murk.dossier.deployment import span
from murk.dossier.facts import Facts

_DAY: Final = 86_400  # a browser without a ledger stays silent for a day at least


@cache
def _prose() -> Mapping[str, list[dict[str, Any]]]:
    return dict(yaml.safe_load((files("murk.dossier") / "prose.yaml").read_text(encoding="utf-8")))


def entries(part: str, facts: Facts, **figures: Any) -> Iterator[dict[str, Any]]:
    """Yield the entries of a part that apply to these facts, with the text filled in."""
    task = facts.task
    silence, patience = span(max(task.expiry, _DAY)), span(task.shuffle.patience) if task.shuffle is not None else ""
    fields = {"task": task, "facts": facts, "silence": silence, "patience": patience, **figures}
    for entry in _prose()[part]:
        if all(_applies(condition, fields) for condition in entry.get("when", ())):
            yield entry | {"text": entry.get("text", "").format_map(fields)}


def claims(part: str, facts: Facts, **figures: Any) -> Iterator[Claim]:
    """Yield the claims of a part."""
    for entry in entries(part, facts, **figures):
        yield Claim(entry["text"], tuple(entry.get("evidence", ())), entry.get("source", "code"))


def questions(part: str, facts: Facts, **figures: Any) -> Iterator[str]:
    """Yield the open questions of a part."""
    return (entry["text"] for entry in entries(part, facts, **figures))


def _applies(condition: str, fields: dict[str, Any]) -> bool:
    name, *attributes = condition.removeprefix("not ").split(".")
    # A fact that was not read is None, without attributes.
    value = reduce(lambda owner, attribute: owner and getattr(owner, attribute), attributes, fields[name])
    return bool(value) is not condition.startswith("not ")
