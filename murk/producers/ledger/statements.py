"""Statements: a person's own account, and sums over everyone that identify nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from murk._sqlite import Database
from murk.errors import UserError
from murk.privacy import Accountant, Guarantee, PrivacyLoss
from murk.privacy.mechanisms.privacy_loss import really_given
from murk.privacy.sketches.explain import CENTRAL
from murk.producers.ledger import outbox
from murk.producers.ledger import windows as window_notes
from murk.producers.ledger.accounts import Account, CapStatus, LevelAccount, TaskAccount, Totals
from murk.producers.ledger.names import NameKey
from murk.producers.ledger.outbox import Owner
from murk.producers.ledger.prices import CURRENCIES, Price, Promise, parse_history, read_prices
from murk.producers.ledger.progress import Run
from murk.producers.ledger.windows import WindowCounts

_ACCOUNTS = "SELECT DISTINCT home, person FROM spending"
_EACH = ", ".join("?" * len(CENTRAL))


def account(file: Database, owner: Owner, key: NameKey) -> Account:
    """Read a person's account; the key decrypts the outbox."""
    home, person = owner
    prices = read_prices(file)
    rows = file.query(
        "SELECT tariff, released, refused, dropped, first, last FROM spending "
        "WHERE home = ? AND person = ? ORDER BY tariff",
        (home, person),
    )
    queued = outbox.waiting(file.query("SELECT owner, tariff FROM outbox"), key)
    waiting = {tariff: count for (of, tariff), count in queued.items() if of == owner}
    receipts: dict[int, list[int]] = {}
    own_rows = "person = ?" if home == 0 else "source = ? AND key = ? AND task IN (SELECT number FROM tasks)"
    values = (person,) if home == 0 else (home, person)
    for tariff, number in file.query(f"SELECT tariff, number FROM debits WHERE {own_rows} ORDER BY number", values):
        receipts.setdefault(tariff, []).append(number)
    withdrawn = dict(file.query("SELECT task, day FROM withdrawals WHERE home = ? AND person = ?", (home, person)))
    runs = file.query("SELECT task, people, excluded, next_row, counters FROM runs WHERE source = ?", (home,))
    published = {task for task, *row in runs if person in Run.from_row(tuple(row)).excluded}
    promises = [Promise(*row) for row in file.query("SELECT * FROM promises ORDER BY task, level, currency")]
    history = {price: released for price, released, *_ in rows if released}
    tasks = []
    found = file.query("SELECT number, name, hash, simulated FROM tasks ORDER BY number")
    # A withdrawal from a task holds for all tasks of its name.
    left = {name: withdrawn[number] for number, name, *_ in reversed(found) if number in withdrawn and name}
    for number, name, task_hash, simulated in found:
        own = [row for row in rows if prices[row[0]].task == number]
        sums = None if home else window_notes.sums(file, "task = ? AND person = ?", (number, person))
        windows = None if sums == WindowCounts() else sums
        if not own and number not in withdrawn and number not in published and windows is None:
            continue
        levels = _levels([_level(prices[row[0]], row, waiting.get(row[0], 0), receipts.get(row[0], ())) for row in own])
        used = {"", *(level.level for level in levels)}
        caps = [promise for promise in promises if promise.task == number and promise.level in used]
        tasks.append(
            TaskAccount(
                name,
                task_hash,
                levels,
                _cap_statuses(caps, history, prices),
                number in withdrawn or name in left,
                number in published,
                *_compose({row[0]: row[1] for row in own if row[1]}, prices),
                windows,
                withdrawn.get(number, left.get(name)),
                bool(simulated),
            )
        )
    lifetime = _cap_statuses([promise for promise in promises if promise.task == 0], history, prices)
    return Account(tuple(tasks), lifetime, 0 in withdrawn, *_compose(history, prices), withdrawn.get(0))


def together(file: Database) -> tuple[CapStatus, ...]:
    """Read the largest amount spent over all tasks; see `Ledger.together`."""
    prices = read_prices(file)
    rows = file.query(
        """SELECT DISTINCT group_concat(tariff || ':' || released) FROM
           (SELECT * FROM spending WHERE released > 0 ORDER BY home, person, tariff) GROUP BY home, person"""
    )
    histories = [parse_history(text) for (text,) in rows]
    caps = [Promise(*row) for row in file.query("SELECT * FROM promises WHERE task = 0 ORDER BY currency")]
    if caps:
        return tuple(CapStatus(cap.amount, _most(cap, histories, prices)) for cap in caps)
    for currency in CURRENCIES:
        most = _most(Promise(0, "", currency, 0, 0), histories, prices)
        if most is not None and histories:
            return (CapStatus(None, most),)
    return ()


def _most(cap: Promise, histories: Sequence[Mapping[int, int]], prices: Mapping[int, Price]) -> PrivacyLoss | None:
    spent = [cap.spent(history, prices) for history in histories]
    known = [one for one in spent if one is not None]
    return None if len(known) < len(spent) else PrivacyLoss(cap.currency, *max(known, default=(0, 0)))


def tasks_named(file: Database, name: str) -> list[str]:
    """Read the hashes of the tasks of a name; see `Ledger.tasks_named`."""
    known = file.query("SELECT name, hash FROM tasks ORDER BY number")
    hashes = [task_hash for other, task_hash in known if other == name]
    if not hashes:
        names = ", ".join(dict.fromkeys(other for other, _ in known)) or "none"
        raise UserError(f"the ledger {file.path} knows no task of the name {name!r}: it knows {names}")
    return hashes


def withdrawn(file: Database, source: str, task_name: str) -> frozenset[int]:
    """Read the rows of a file whose people have withdrawn from every task or from one of this name."""
    rows = file.query(
        """SELECT person FROM withdrawals JOIN sources ON sources.number = home
           WHERE digest = ? AND (task = 0 OR task IN (SELECT number FROM tasks WHERE name = ?))""",
        (source, task_name),
    )
    return frozenset(person for (person,) in rows)


def has_released(file: Database, source: str, task_name: str) -> bool:
    """Return whether a file's people have released to a task of a name."""
    rows = file.query(
        """SELECT 1 FROM runs JOIN sources ON sources.number = source JOIN tasks ON tasks.number = runs.task
           WHERE digest = ? AND name = ? AND next_row > 0""",
        (source, task_name),
    )
    return bool(rows)


def totals(file: Database) -> Totals:
    """Read sums over everyone."""
    releases, refused, dropped = file.query(
        "SELECT coalesce(sum(released), 0), coalesce(sum(refused), 0), coalesce(sum(dropped), 0) FROM spending"
    )[0]
    by_level = file.query(
        """SELECT tasks.name, tariffs.level, sum(released) FROM spending
           JOIN tariffs ON tariffs.number = spending.tariff JOIN tasks ON tasks.number = tariffs.task
           GROUP BY tasks.name, tariffs.level ORDER BY min(tasks.number), tariffs.level"""
    )
    return Totals(
        people=file.query("SELECT count(*) FROM (SELECT DISTINCT home, person FROM spending)")[0][0],
        releases=releases,
        refused=refused,
        queued=file.query("SELECT count(*) FROM outbox")[0][0],
        dropped=dropped,
        withdrawn=file.query("SELECT count(*) FROM withdrawals")[0][0],
        levels={(name, level): count for name, level, count in by_level},
        files=file.query("SELECT count(DISTINCT source) FROM runs")[0][0],
        rows=file.query(f"SELECT count(*) FROM ({_ACCOUNTS} WHERE home > 0)")[0][0],
        organisations=file.query(
            f"SELECT count(*) FROM ({_ACCOUNTS} JOIN tariffs ON number = tariff WHERE mechanism IN ({_EACH}))", CENTRAL
        )[0][0],
    )


def _level(price: Price, row: Sequence[int], waiting: int, receipts: Sequence[int]) -> LevelAccount:
    _, released, refused, dropped, first, last = row
    guarantee, counts = really_given(price.guarantee, price.guarantees), (released, refused, waiting, dropped)
    return LevelAccount(price.level, guarantee, price.mechanism, *counts, first, last, tuple(receipts), price.central)


def _levels(accounts: Sequence[LevelAccount]) -> tuple[LevelAccount, ...]:
    """Merge accounts of a level whose prices differ in the last digit between versions."""
    merged: dict[tuple[object, ...], LevelAccount] = {}
    for account in accounts:
        key = account.level, account.guarantee, account.mechanism, account.central
        merged[key] = merged[key].plus(account) if key in merged else account
    return tuple(merged.values())


def _cap_statuses(
    promises: Sequence[Promise], history: Mapping[int, int], prices: Mapping[int, Price]
) -> tuple[CapStatus, ...]:
    statuses = []
    for promise in promises:
        spent = promise.spent(history, prices)
        amount = None if spent is None else PrivacyLoss(promise.currency, *spent)
        statuses.append(CapStatus(promise.amount, amount, promise.level))
    return tuple(statuses)


def _compose(history: Mapping[int, int], prices: Mapping[int, Price]) -> tuple[Accountant, Guarantee | None]:
    """Compose releases, and return their guarantee in the strongest definition that all of them satisfy, or None."""
    accountant = Accountant()
    own = 0.0
    for number, count in history.items():
        accountant.compose(prices[number], count)
        own += count * getattr(prices[number].guarantee, "delta", 0.0)
    if not history:
        return accountant, None
    attempts: tuple[Callable[[], Guarantee], ...] = (
        lambda: accountant.spent("pure"),
        lambda: accountant.spent("gdp"),
        lambda: accountant.spent("zcdp"),
        # Half of this delta is left for the conversion of releases that have none.
        lambda: accountant.spent("approx", delta=2 * own),
    )
    for attempt in attempts:
        try:
            return accountant, attempt()
        except UserError:
            continue
    return accountant, None
