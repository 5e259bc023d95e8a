"""Sections on the purpose, the data asked for, what leaves a device, and the guarantee."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from murk._lazy import bounding
from murk.dossier.content import Block, Claim, Sample, Table
from murk.dossier.example import caps_of
from murk.dossier.facts import DELTA, Facts, row, stated, together
from murk.learners.results.numbers import many
from murk.privacy.explain import percent
from murk.privacy.sketches.explain import described, promised
from murk.stream.task.data.features import BinaryTarget, ClassTarget
from murk.stream.task.shuffle import COLLUDING

_SHOWN = 900
_COUNTS = (1, 2, 4, 10)
_FIELDS = {
    "schema": "version of this format",
    "kind": "protocol",
    "id": "128 random bits, new for every release and used for nothing else",
    "task": "the task's hash",
    "level": "the chosen privacy level, independent of the record",
    "chain": "partition, drawn at random",
    "version": "version of the published model",
    "question": "the answered question, drawn independently of the record",
    "payload": "the answer with noise: the only field that depends on the record",
    "spread": "size of the noise, which depends on the records through a noisy eigenvalue alone",
    "records": "number of records of the window",
    "time": "time of the release, truncated to the task's granularity",
    "expires": "time until which it may be learned, truncated in the same way",
    "simulated": "whether the noise is simulated and protects nobody",
}


def purpose(facts: Facts) -> Iterator[Block]:
    """Yield the section on the purpose."""
    task = facts.task
    names = ", ".join(feature.name for feature in task.features)
    yield Claim(
        f"To learn how “{task.target.name}” depends on {names}, across all participants: an estimate of each of "
        f"{task.coding.size} coefficients, with its uncertainty. No individual record is learned.",
        source="task",
    )
    for label, text, empty in (
        ("Purpose", facts.purpose, "not stated (--purpose): for which purpose, and on which legal basis"),
        ("Responsible", facts.controller, "not stated (--controller): the controller, and whom to ask"),
    ):
        yield Claim(f"{label}: {text or f'________ {empty}.'}", source="organisation")


def asked(facts: Facts) -> Iterator[Block]:
    """Yield the section on features and target."""
    task = facts.task
    rows = [(feature.name, "feature", _values(feature)) for feature in task.features]
    rows.append((task.target.name, "target", _values(task.target)))
    yield Claim("Only these columns of a record are used.", ("release",))
    yield Table(("column", "used as", "public bounds or values"), tuple(rows), source="task")
    yield Claim(
        "The bounds are public and part of the task. They must be known without looking at these people's data: bounds "
        "derived from the data would disclose it. Murk cannot check where they come from.",
        source="organisation",
    )
    yield Claim(
        "A missing or undeclared value is replaced by a public rule, by default by the middle; nobody is left out."
        if task.missing == "midpoint"
        else "A file with a missing or undeclared value is refused as a whole, before any release.",
        ("values",),
    )


def leaves(facts: Facts) -> Iterator[Block]:
    """Yield the section on what leaves the device, to the byte."""
    task, example = facts.task, facts.example
    fields = example.fields
    text = example.messages[0].decode("ascii", "backslashreplace")
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text) - _SHOWN:,} more characters like these)"
    known = tuple((name, _meaning(name, fields), _shown(name, fields[name])) for name in fields)
    of = f"a window of {example.records:,} such records" if example.records > 1 else "this record"
    yield Claim(
        f"Only a release leaves the {facts.device}: a message with the fields below. The answer in it is bounded and "
        "randomized before anything is sent or written to disk. No field contains the record, a name or an identifier "
        "of a person or device.",
        ("window",) if task.of_organisations else ("release", "bound", "noise"),
    )
    yield Sample("MADE UP: a record that nobody has", json.dumps(dict(example.record), ensure_ascii=False))
    yield Sample(
        f"MADE UP: the bytes ({len(text):,}) of the release of {of}, by a device's code and randomness"
        + (", with a public sample that was made up, too" if example.made_up_public else ""),
        shown,
    )
    yield Table(("field", "what it is", "in the example"), known, ("release", "days"))
    if len(example.messages) > 1:
        again = _short(json.loads(example.messages[1])["payload"])
        yield Claim(
            f"The same made-up record released again, by somebody else: payload {again}. Two releases have only "
            "settings in common, but their positions in a log can link them, also one person's releases to two tasks. "
            "What they disclose together is covered by their joint guarantee.",
            source="example",
        )
    what = "window is summarised and" if task.of_organisations else "record is"
    yield Claim(
        f"Each {what} randomized once; a retry sends the same bytes. Whether, when and where something is sent does "
        "not depend on any value.",
        ("once", "values"),
    )


def guarantee(facts: Facts) -> Iterator[Block]:
    """Yield the section on the guarantee per release, per task, and over all tasks."""
    task = facts.task
    apart = "told from a blank one at most" if facts.is_central else "told apart at most"
    columns = ("", apart, "mu", "epsilon", "rho")
    levels = tuple(
        (f"{name} ({stated(level)}, {facts.mechanisms[name].kind})", *row(facts.given(name), level))
        for name, level in bounding(task.privacy.levels).items()
    )
    default, noise = task.privacy.guarantee, ("calibration", "noise", "bound")
    yield Claim(
        "“Told apart at most” is how often an attacker correctly names which of two records is behind a release, "
        "knowing everything else and with unlimited computing power; guessing is right in 50%. Epsilon is stated at "
        f"delta {DELTA:g} unless the guarantee has its own; a dash means that the guarantee implies no such figure.",
        ("attack",),
    )
    if facts.is_central:
        yield Claim(f"Each release. {described(facts.mechanisms['default'])[0]}", ("calibration", "bound"))
        yield Claim(
            "The tables are about a record and a blank one. One release at the default level tells any two records "
            f"apart in at most {percent(facts.any_two('default'))}.",
            ("attack",),
        )
    elif (shuffle := task.shuffle) is not None:
        yield Claim(f"Each release at the default level. {COLLUDING}: {default.describe()}", noise)
        yield Claim(shuffle.promised(default).describe(), ("shuffling",))
        central = [(f"{name} ({stated(at)})", *row(shuffle.central(at))) for name, at in task.privacy.levels.items()]
        yield Table(("towards all but the shuffler, at level", *columns[1:]), tuple(central), ("shuffling",))
    else:
        promise = promised(default, facts.mechanisms["default"].kind)
        yield Claim(f"Each release at the default level: {promise}", noise)
    if task.privacy.grid is not None:
        yield Claim(
            f"A person with a budget of their own releases at the largest one of a public grid within it: "
            f"{task.privacy.range_words}. The table has its ends; everybody can read the budget beside a release.",
            ("calibration",),
        )
    yield Table(("each release, at level", *columns[1:]), levels, ("calibration", "attack"))
    whole = task.privacy.per_person
    yield Claim(
        f"This task, all releases of one {facts.who}: at most {caps_of(task)}. Beyond that the {facts.device} refuses "
        "every request.",
        ("caps", "composition", "crash"),
    )
    if whole is not None:
        yield Table(("all releases to this task", *columns[1:]), ((stated(whole), *row(whole)),), ("composition",))
    elif len(task.privacy.levels) > 1:
        yield Claim("A release at one level spends the budgets of all: they are alternatives, not a sum.", ("caps",))
    yield _all_tasks(facts)
    counted = [(count, together(facts.mechanisms["default"], default, count)) for count in _COUNTS]
    rows = tuple((f"{count}", *row(total)) for count, total in counted if total is not None)
    yield Claim("Releases add up. The joint guarantee of several at this task's default level:", ("composition",))
    yield Table(("releases of one " + facts.who, *columns[1:]), rows, ("composition",))


def _all_tasks(facts: Facts) -> Claim:
    accounts = facts.accounts
    if accounts is None:
        return Claim(
            "All tasks together: no ledger was read (--ledger), so it is not known whether there is a cap over all "
            f"tasks. Without one (--lifetime, Policy(lifetime=...)) the loss of one {facts.who} is unlimited.",
            ("caps",),
        )
    tasks = ", ".join(f"{name} ({count:,})" for name, count in accounts.tasks.items()) or "none yet"
    return Claim(
        f"All tasks together, by the ledger {accounts.path}: {'. '.join(accounts.spent) or 'nothing spent yet'}. Tasks "
        f"with their releases: {tasks}; {accounts.counted}, {many(accounts.withdrawn, 'withdrawal')}.",
        ("caps", "composition"),
        "deployment",
    )


def _values(block: Any) -> str:
    if isinstance(block, BinaryTarget):
        return f"{block.positive} or {block.negative or 'anything else'}"
    if isinstance(block, ClassTarget):
        return ", ".join(block.classes)
    if getattr(block, "categories", None):
        return ", ".join(block.categories)
    low, high = getattr(block, "low", None), getattr(block, "high", None)
    return "a value" if low is None or high is None else f"{_figure(low)} to {_figure(high)}"


def _meaning(name: str, fields: Mapping[str, Any]) -> str:
    if name == "payload" and "records" in fields:
        return "a summary of the window, with noise"
    return _FIELDS.get(name, "a setting of the protocol")


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
