"""Sections on what is asked for, what leaves a device, who is trusted, the guarantee, public data and retention."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from murk._internal.lazy import bounding
from murk._internal.numbers import many
from murk.dossier.content import Block, Claim, Sample, Table
from murk.dossier.deployment import Accounts, span
from murk.dossier.example import caps_of
from murk.dossier.facts import DELTA, Facts, row, stated, together
from murk.dossier.prose import claims, entries
from murk.privacy.central.explain import described, promised
from murk.privacy.guarantees import number, percent
from murk.task.features import BinaryTarget, CategoryFeature, ClassTarget, Feature, Target
from murk.task.shuffling import COLLUDING

_SHOWN = 900
_COUNTS = (1, 2, 4, 10)
_FIELDS = {
    "schema": "version of this format",
    "kind": "protocol",
    "id": "128 random bits, new for every release and used for nothing else",
    "task": "the task's hash",
    "level": "the chosen privacy level, independent of the record",
    "partition": "partition, drawn at random",
    "version": "version of the published model",
    "query": "the answered query, drawn independently of the record",
    "item": "which feature and threshold a survey's query is about, drawn independently of the record",
    "payload": "the answer with noise: the only field that depends on the record",
    "spread": "size of the noise, which depends on the records through a noisy eigenvalue alone",
    "records": "number of records of the window",
    "time": "time of the release, truncated to the task's granularity (with `track`, the begin of its window)",
    "expires": "time until which it may be learned, truncated in the same way",
    "simulated": "whether the noise is simulated and protects nobody",
}
_NOT_READ = "not read"
_STORES = {
    "releases": "releases",
    "models": "models",
    "states": "learners' states",
    "dead": "dead letters",
    "estimates": "published estimates",
}


def purpose(facts: Facts) -> Iterator[Block]:
    """Yield the section on the purpose."""
    yield from claims("purpose", facts, names=", ".join(feature.name for feature in facts.task.features))


def asked(facts: Facts) -> Iterator[Block]:
    """Yield the section on features and target."""
    task = facts.task
    known_names = set(task.known_columns)
    rows = [
        (feature.name, "known: sent as it is" if feature.name in known_names else "feature", _values(feature))
        for feature in task.features
    ]
    rows += [(metric.name, "metric", _values(metric)) for metric in task.metrics]
    rows.append((task.target.name, "target", _values(task.target)))
    first, *others = claims("asked", facts, coded=task.missing == "midpoint")
    yield first
    yield Table(("column", "used as", "public bounds or values"), tuple(rows), source="task")
    yield from others


def leaves(facts: Facts) -> Iterator[Block]:
    """Yield the section on what leaves the device, byte for byte."""
    task, example = facts.task, facts.example
    fields = example.fields
    text = example.messages[0].decode("ascii", "backslashreplace")
    excerpt = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text) - _SHOWN:,} more characters like these)"
    meanings = _FIELDS | ({"payload": "a summary of the window, with noise"} if "records" in fields else {})
    if facts.known:
        drawn = "the number of the drawn metric, then " if task.metrics else ""
        meanings |= {
            "payload": f"{drawn}known columns as they are, then the answer with noise: all that depends on the record"
        }
    known_names = tuple(
        (name, meanings.get(name, "a setting of the protocol"), _shown(name, value)) for name, value in fields.items()
    )
    of = f"a window of {example.records:,} such records" if example.records > 1 else "this record"
    yield from claims("leaves", facts)
    yield Sample("MADE UP: a record that nobody has", json.dumps(dict(example.record), ensure_ascii=False))
    yield Sample(
        f"MADE UP: the bytes ({len(text):,}) of the release of {of}, by the Python code of devices"
        + (", with a public sample that was made up, too" if example.made_up_public else ""),
        excerpt,
    )
    yield Table(("field", "what it is", "in the example"), known_names, ("release", "days"))
    again = _short(json.loads(example.messages[1])["payload"]) if len(example.messages) > 1 else ""
    source = "window is summarised and" if task.of_organisations else "record is"
    yield from claims("leaves-again", facts, again=again, what=source)


def guarantee(facts: Facts) -> Iterator[Block]:
    """Yield the section on the guarantee per release, per task and over all tasks."""
    task = facts.task
    central = facts.is_central
    apart = "told from a blank one at most" if central else "told apart at most"
    columns = ("", apart, "mu", "epsilon", "rho")
    levels = tuple(
        (f"{name} ({stated(level)}, {facts.mechanisms[name].kind})", *row(facts.given(name), stated=level))
        for name, level in bounding(task.privacy.levels).items()
    )
    default, noise = task.privacy.guarantee, ("calibration", "noise", "bound")
    yield from claims(
        "guarantee",
        facts,
        delta=f"{DELTA:g}",
        described=central and described(facts.mechanisms["default"])[0],
        any_two=central and percent(facts.any_two("default")),
    )
    if (shuffle := task.shuffle) is not None:
        yield Claim(f"Each release at the default level. {COLLUDING}: {default.describe()}", noise)
        yield Claim(shuffle.promised(default).describe(), ("shuffling",))
        crowds = [(f"{name} ({stated(at)})", *row(shuffle.central(at))) for name, at in task.privacy.levels.items()]
        yield Table(("towards all but the shuffler, at level", *columns[1:]), tuple(crowds), ("shuffling",))
    elif not central:
        promise = promised(default, facts.mechanisms["default"].kind)
        yield Claim(f"Each release at the default level: {f'{promise} {task.known_words}'.rstrip()}", noise)
    if task.privacy.grid is not None:
        yield Claim(
            f"A person with a budget of their own releases at the largest one of a public grid within it: "
            f"{task.privacy.range_words}. The table has its ends; everybody can read the budget beside a release.",
            ("calibration",),
        )
    yield Table(("each release, at level", *columns[1:]), levels, ("calibration", "attack"))
    whole = task.privacy.whole
    alternatives = task.privacy.per_person is None and len(task.privacy.levels) > 1
    raised = "; ".join(facts.accounts.raised) if facts.accounts is not None else ""
    first, *others = claims("guarantee-task", facts, caps=caps_of(task), alternatives=alternatives, raised=raised)
    yield first
    if whole is not None:
        # If records change, repeated answers reveal when they did, and no guarantee covers that.
        of_records = ", of people whose records changed at the same times" if task.privacy.repeats_answers else ""
        title = f"all releases to this task{of_records}"
        yield Table((title, *columns[1:]), ((stated(whole), *row(whole)),), ("composition",))
    yield from others
    figures = {}
    if (accounts := facts.accounts) is not None:
        figures = {
            "spent": ". ".join(accounts.spent) or "nothing spent yet",
            "tasks": ", ".join(f"{name} ({count:,})" for name, count in accounts.tasks.items()) or "none yet",
            "withdrawals": many(accounts.withdrawn, "withdrawal"),
        }
    yield from claims("guarantee-together", facts, **figures)
    counted = [(count, together(facts.mechanisms["default"], count)) for count in _COUNTS]
    rows = tuple((f"{count}", *row(*joint)) for count, joint in counted if joint)
    yield Table(("releases of one " + facts.who, *columns[1:]), rows, ("composition",))


def trust(facts: Facts) -> Iterator[Block]:
    """Yield the section on who is trusted with what."""
    rows = tuple(tuple(entry["row"]) for entry in entries("trust", facts))
    yield Table(("who", "sees", "trusted", "not trusted"), rows, ("release", "hostile", "caps", "names"))
    yield from claims("trust-models", facts)


def web(facts: Facts) -> Iterator[Block]:
    """Yield the section on a web page, if people answer in one."""
    if facts.web:
        yield from claims("web", facts)


def intake(facts: Facts) -> Iterator[Block]:
    """Yield the section on crowds, if the task is shuffled."""
    if (shuffle := facts.task.shuffle) is None:
        return
    yield from claims("intake", facts)
    central = shuffle.central(facts.task.privacy.guarantee)
    rows = [(f"{count}", number(count * central.epsilon), f"{count * central.delta:g}") for count in _COUNTS]
    yield Table(("such tasks of one person", "central epsilon", "delta"), tuple(rows), ("shuffling",))


def public(facts: Facts) -> Iterator[Block]:
    """Yield the section on public data."""
    disclosure, block, whose = facts.disclosure, facts.task.public, ""
    if block is not None:
        whose = f"of the file {block.file}" if block.file else f"of {block.set_aside or 0:,} people, drawn at random"
    yield from claims(
        "public", facts, deployment=facts.deployment, published=disclosure and disclosure.describe(), whose=whose
    )


def retention(facts: Facts) -> Iterator[Block]:
    """Yield the section on retention, as configured where the deployment was read."""
    task, deployment, accounts = facts.task, facts.deployment, facts.accounts
    asked = span(task.log.retention)
    read = {} if deployment is None else deployment.stores
    newest, least = "the newest of each partition", f"at least {asked}"
    intended = {"releases": f"{least} (log.retention)", "models": newest, "states": newest, "dead": least}
    rows = []
    for kind, name in _STORES.items():
        if kind in read:
            rows.append((name, read[kind].kept, f"{read[kind].place}: {read[kind].settings}"))
        elif kind in intended:
            rows.append((name, f"{intended[kind]}; {_NOT_READ}", _NOT_READ))
    if facts.copies:
        declared = facts.declared
        kept = f"{span(declared.kept)} at most (about.archive)" if declared else "until somebody deletes them"
        where = f"the archive {facts.archive}" if facts.archive else f"an archive; {_NOT_READ}"
        rows.append(("copies of releases", kept, where))
    for kind, store in facts.intake.stores.items() if facts.intake is not None else ():
        rows.append((f"{_STORES[kind]} on the input log", store.kept, f"{store.place}: {store.settings}"))
    rows.append(
        ("releases not sent yet", f"on the {facts.device}, {span(task.expiry)} at most, then deleted", "task: expiry")
    )
    if facts.has_ledger:
        kept = "as long as there may be another task: deleting it gives everybody a new budget (`murk ledger --close`)"
        where = _ledger(accounts) if accounts else f"{_NOT_READ}; beside the records unless another place was chosen"
        rows.append(("ledger (who spent what, on which days)", kept, where))
    if facts.web:
        kept = "until the person or the browser deletes it; the profile then stays silent as one without a ledger"
        rows.append(
            ("ledger and newest message of a browser profile", kept, "the browser's storage, for the page's origin")
        )
    rows.append(("records", _records(facts), "-"))
    of, input_log = {True: "encrypted", False: "NOT encrypted", None: "no network"}, facts.input_log
    checked = " ".join(input_log.checked) if input_log is not None else ""
    unchecked = input_log is not None and not input_log.checked and not input_log.problems
    first, *others = claims(
        "retention", facts, encrypted=deployment and of[deployment.encrypted], checked=checked, unchecked=unchecked
    )
    yield first
    yield Table(("what", "how long", "where, and settings as read"), tuple(rows), ("expiry", "topics"), first.source)
    yield from others


_UNTIL = "until a new one or their withdrawal"


def _records(facts: Facts) -> str:
    """Return which parts of records are stored; where a person may have several, records wait for a window's end."""
    if facts.task.of_organisations:
        return "Murk stores none: only sums in memory, while a window is open"
    if not facts.task.privacy.renews:
        return "Murk stores none"
    kept = (
        "; and each person's last answer, with a keyed hash of what it was made of, encrypted in the same place, "
        f"{_UNTIL}"
        if (facts.task.privacy.repeats_answers)
        else ""
    )
    return (
        f"only where several records of a {facts.task.privacy.window} are held, one of each person: encrypted on the "
        f"{facts.device}, until the window has ended{kept}"
    )


def _values(block: Feature | Target) -> str:
    if isinstance(block, BinaryTarget):
        return f"{block.positive} or {block.negative or 'anything else'}"
    if isinstance(block, ClassTarget):
        return ", ".join(block.classes)
    if isinstance(block, CategoryFeature):
        return ", ".join(block.categories)
    return f"{_figure(block.low)} to {_figure(block.high)}"


def _shown(name: str, value: Any) -> str:
    if name in ("time", "expires") and isinstance(value, int):
        return f"{value} ({datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M} UTC)"
    return _short(value)


def _figure(value: Any) -> str:
    return f"{value:,.10g}" if isinstance(value, int | float) else str(value)


def _short(value: Any) -> str:
    if isinstance(value, list) and len(value) > 4:
        return f"[{', '.join(map(str, value[:4]))}, … {len(value):,} in all]"
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 60 else f"{text[:48]}… ({len(text):,} characters)"


def _ledger(accounts: Accounts) -> str:
    if accounts.rows and (accounts.rows == accounts.people or not accounts.keyed):
        names = "people as rows of a file"
    else:
        names = "names as keyed hashes" if accounts.keyed else "no names yet"
    if accounts.keyed:
        names += "; the key is beside it (LEDGER.key), so a backup of the folder has both"
    return f"{accounts.path}: {names}"
