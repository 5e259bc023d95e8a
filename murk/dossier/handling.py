"""Sections on trust, public data and retention."""

from collections.abc import Iterator

from murk.dossier.content import Block, Table
from murk.dossier.deployment import Accounts, span
from murk.dossier.facts import Facts
from murk.dossier.prose import claims, entries

_NOT_READ = "not read"
_STORES = {
    "releases": "releases",
    "models": "models",
    "states": "learners' states",
    "dead": "dead letters",
    "estimates": "published estimates",
}


def trust(facts: Facts) -> Iterator[Block]:
    """Yield the section on who is trusted with what."""
    rows = tuple(tuple(entry["row"]) for entry in entries("trust", facts))
    yield Table(("who", "sees", "trusted", "not trusted"), rows, ("release", "hostile", "caps", "names"))
    yield from claims("trust-models", facts)


def public(facts: Facts) -> Iterator[Block]:
    """Yield the section on public data."""
    disclosure, block, whose = facts.disclosure, facts.task.public, ""
    if block is not None:
        whose = f"of the file {block.file}" if block.file else f"of {block.set_aside or 0:,} people, drawn at random"
    yield from claims("public", facts, published=disclosure and disclosure.describe(), whose=whose)


def retention(facts: Facts) -> Iterator[Block]:
    """Yield the section on retention, as configured where the deployment was read."""
    task, deployment, accounts = facts.task, facts.deployment, facts.accounts
    asked = span(task.log.retention)
    read = {} if deployment is None else deployment.stores
    newest, least = "the newest of each chain", f"at least {asked}"
    intended = {"releases": f"{least} (log.retention)", "models": newest, "states": newest, "dead": least}
    rows = []
    for kind, name in _STORES.items():
        if kind in read:
            rows.append((name, read[kind].kept, f"{read[kind].place}: {read[kind].settings}"))
        elif kind in intended:
            rows.append((name, f"{intended[kind]}; {_NOT_READ}", _NOT_READ))
    rows += [
        ("releases not sent yet", f"on the {facts.device}, {span(task.expiry)} at most, then deleted", "task: expiry"),
        (
            "ledger (who spent what, on which days)",
            "as long as there may be another task: deleting it gives everybody a new budget",
            _ledger(accounts) if accounts else f"{_NOT_READ}; beside the records unless another place was chosen",
        ),
        ("records", "Murk stores none", "-"),
    ]
    of = {True: "encrypted", False: "NOT encrypted", None: "no network"}
    first, *others = claims("retention", facts, encrypted=deployment and of[deployment.encrypted])
    yield first
    yield Table(("what", "how long", "where, and settings as read"), tuple(rows), ("expiry", "topics"), first.source)
    yield from others


def _ledger(accounts: Accounts) -> str:
    if accounts.plain:
        names = "NAMES AS THEY ARE"
    elif accounts.rows and (accounts.rows == accounts.people or not accounts.keyed):
        names = "people as rows of a file"
    else:
        names = "names as keyed hashes" if accounts.keyed else "no names yet"
    if accounts.digests:
        names += "; UNKEYED DIGESTS OF FILES, from which whoever has all other records can guess one"
    if accounts.keyed:
        names += "; the key is beside it (LEDGER.key), so a backup of the folder has both"
    return f"{accounts.path}: {names}"
