"""Ledgers with small round numbers: what releases cost is said here, and not by any mechanism."""

import json
from collections.abc import Sequence
from pathlib import Path

from murk.privacy import GaussianDP, PrivacyLoss
from murk.producers.ledger.costs import Charge
from murk.producers.ledger.ledger import Ledger
from murk.producers.ledger.names import ReleaseRequests
from murk.producers.ledger.spending import Spending

LOG = "a" * 32
TASK = "7" * 64
OTHER = "8" * 64
FILE = "f" * 64


def by_name(
    ledger: Ledger, rows: Sequence[tuple[object, ...]], *people: str, keys: Sequence[str] = ()
) -> list[tuple[object, ...]]:
    """Rows of a ledger's file with people and their records under the names that they have outside of it."""
    names = ledger.names.reading()
    called: dict[object, object] = {names.person(person): person for person in people}
    called |= {names.record(key, names.person(person)): key for person in people for key in keys}
    return [tuple(called.get(value, value) for value in row) for row in rows]


def charge(level: str = "default", **costs: int | tuple[int, int]) -> Charge:
    """A level that costs so many units in each currency, e.g. ``rho=5`` or ``approx=(5, 1)``."""
    amounts = {}
    for currency, units in costs.items():
        pair = units if isinstance(units, tuple) else (units, 0)
        amounts[currency] = PrivacyLoss(currency, *pair)
    return Charge(level, "gaussian", GaussianDP(1.0), amounts)


def rho(units: int) -> PrivacyLoss:
    return PrivacyLoss("rho", units, 0)


def booked(
    path: Path,
    charges: Sequence[Charge] = (charge(rho=30),),
    caps: Sequence[tuple[str, PrivacyLoss]] = (("", rho(100)),),
    lifetime: PrivacyLoss | None = None,
    task: str = TASK,
) -> Ledger:
    """A ledger that knows one task."""
    ledger = Ledger(path)
    ledger.bind(LOG, task, name="demo")
    ledger.book(task, charges, caps=caps, lifetime=lifetime)
    return ledger


def spend(ledger: Ledger, claims: ReleaseRequests, task: str = TASK) -> Spending:
    """Spend for one block; each release's bytes are its number."""
    with ledger.spending(task, claims) as spending:
        count = len(spending.granted)
        messages = [json.dumps(number).encode() for number in spending.numbers]
        spending.freeze(messages, [0] * count, [0] * count, expires=1_000)
    return spending


def ask(ledger: Ledger, person: str = "ann", key: str | None = None, level: str = "default", task: str = TASK) -> str:
    """Ask for one release; "released", "known", or the scope of the cap that had no room."""
    spending = spend(ledger, ReleaseRequests([key], [person], [level]), task)
    if spending.known:
        return "known"
    return spending.refusals[0].scope if spending.refusals else "released"
