"""Puts a dossier together: what an officer reads first, what is to be settled, and the sections."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any, Final

from murk import __version__
from murk.dossier.answers import asked, guarantee, leaves, purpose
from murk.dossier.content import Claim, Dossier, Sample, Section, Table
from murk.dossier.deployment import span
from murk.dossier.example import caps_of
from murk.dossier.facts import Facts
from murk.dossier.figures import WEAK, stated
from murk.dossier.handling import not_promised, public, retention, trust, withdrawal
from murk.learners.results.report import SEVERAL_RECORDS
from murk.privacy.explain import number, percent, verdict
from murk.stream.log.base import segment_seconds

_LONG_TEXT: Final = 120
_KEPT: Final = 40


def dossier_of(facts: Facts, *, now: datetime | None = None) -> Dossier:
    """Make a dossier.

    Parameters
    ----------
    facts
        What was gathered.
    now
        When that is; by default the clock says.
    """
    moment = now or datetime.now(UTC)
    return Dossier(
        facts.task.name,
        moment.strftime("%Y-%m-%d %H:%M UTC"),
        __version__,
        facts.task.hash,
        facts.task.simulated,
        tuple(_summary(facts)),
        tuple(_to_settle(facts)),
        (
            purpose(facts),
            asked(facts),
            leaves(facts),
            trust(facts),
            guarantee(facts),
            public(facts),
            retention(facts),
            withdrawal(facts),
            not_promised(facts),
            _measured(facts),
            _versions(facts),
        ),
    )


def _summary(facts: Facts) -> Iterator[tuple[str, str]]:
    task = facts.task
    weakest = max(task.privacy.levels, key=facts.any_two)
    promise, worst = task.privacy.levels[weakest], percent(facts.any_two(weakest))
    columns = ", ".join([*(feature.name for feature in task.features), task.target.name])
    yield "Asked", f"{columns}. Nothing else of a record is looked at."
    size = len(facts.example.messages[0])
    window = "for each window of records, " if task.of_organisations else ""
    yield "Leaves", f"{window}one message of about {size:,} bytes, with noise in it; no name, and no value as it is."
    blank = percent(facts.given(weakest).max_attack_accuracy)
    from_blank = f" (and a record from a blank one, as the task states it, in {blank})" if facts.is_central else ""
    yield (
        "Guarantee",
        f"from one release, nobody tells any two records apart in more than {worst} of cases{from_blank}, whatever "
        f"they know and however they compute; tossing a coin: 50%. ({stated(promise)}"
        + (f", level {weakest!r}, the weakest)" if len(task.privacy.levels) > 1 else ")"),
    )
    whole = task.privacy.per_person
    most = (
        f"{percent(whole.max_attack_accuracy)} ({stated(whole)})" if whole is not None else f"{blank}, by one release"
    )
    if facts.is_central:
        both = worst if whole is None else percent(facts.any_two_of(whole).max_attack_accuracy)
        told = f"any two records are told apart in at most {both}; {facts.told} in at most {most}"
    else:
        told = f"{facts.told} are told apart in at most {most}"
    yield "Per task", f"from all releases of one {facts.who} to this task, {told}."
    yield "All tasks", _lifetime(facts)
    holder = (
        "the organisation that holds the records" if task.of_organisations else "the person's own device (or gateway)"
    )
    yield "Trusted", f"{holder}, with the records. Broker, learner, monitor and readers are not trusted with privacy."
    disclosure = facts.disclosure
    if disclosure is not None:
        yield "Public", disclosure.what() + ", as they are."
    elif task.public is not None:
        yield "Public", "features of a public sample, as they are, from when the task is announced."
    else:
        yield "Public", "results; nobody's features or answers."
    stores = {} if facts.deployment is None else facts.deployment.stores
    kept = stores["releases"].kept if "releases" in stores else "as the deployment is configured, which was not read"
    yield "Kept", f"releases: {kept}. Ledgers: as long as there may be another task, since they hold the budgets."
    yield "Measured", _audited(facts)


def _lifetime(facts: Facts) -> str:
    if facts.accounts is None:
        return "not known: no ledger was read. Without a cap over all tasks, further tasks add up."
    return (
        "; ".join(facts.accounts.spent) + "."
        if facts.accounts.lifetime
        else ("nothing was spent yet, and no cap is noted in the ledger.")
    )


def _audited(facts: Facts) -> str:
    audit = facts.audit
    if audit is None:
        return "no audit was run or read for this dossier."
    worst = max(audit.findings, key=lambda one: one["ratio"])
    said = "no claim was refuted" if audit.holds else "A CLAIM WAS REFUTED"
    blind = sum(verdict(one["lower_bound"], one["holds"]) == "no power" for one in audit.findings)
    if blind == len(audit.findings):
        return f"the audit had no power: from so few releases it could not have refuted a claim ({audit.origin})."
    if blind:
        said += f" ({blind} of {len(audit.findings)} audits had no power)"
    return (
        f"{said} in {len(audit.findings)} audit{'s' * (len(audit.findings) != 1)}; closest came a "
        f"{worst['measure']} of at least {number(worst['lower_bound'])} where {number(worst['claimed'])} is claimed "
        f"({audit.origin})."
    )


def _to_settle(facts: Facts) -> Iterator[str]:
    yield from _several_rows(facts)
    if facts.accounts is not None and facts.accounts.rows:
        yield (
            "People are rows of a file: nobody is recognised in a copy that was sorted anew or corrected. A withdrawal "
            "does not follow into it, nor what was spent (under a cap over all tasks this ledger refuses it, another "
            "one does not): name them by a column (use --person)."
        )
    yield from _of_task(facts)
    yield from _of_gateways(facts)
    yield from _of_deployment(facts)
    yield from _of_accounts(facts)
    if facts.audit is None:
        yield "No audit was run or read: `murk audit TASK --json > audit.json`, then --audit audit.json."


def _several_rows(facts: Facts) -> Iterator[str]:
    """Whether a person may have several rows, which decides what every figure is about."""
    task = facts.task
    if task.of_organisations:
        if task.block.person is None:
            yield f"May one person have several records? {SEVERAL_RECORDS}"
    elif facts.accounts is None or facts.accounts.rows:
        yield (
            "May one person have several rows of a file? Where nobody names the people (--person COLUMN of `murk run` "
            "and `murk produce`), each row counts as a person: figures of one person below are then of one row, and a "
            "person's rows together disclose more, up to everything."
        )


def _of_task(facts: Facts) -> Iterator[str]:
    """What the task itself leaves open, and how weak its promise is."""
    task, audit = facts.task, facts.audit
    if task.simulated:
        yield "The task is for SIMULATED releases, which protect nobody: no real person's record may be released to it."
    if audit is not None and not audit.holds:
        yield "An audit REFUTED a claim: releases disclose more than is guaranteed. Stop, and report it."
    for level, one in task.privacy.levels.items():
        if facts.any_two(level) > WEAK:
            worst = percent(facts.any_two(level))
            yield f"Level {level!r} ({stated(one)}) is weak: records are told apart in up to {worst}."
    whole = task.privacy.per_person
    if whole is not None and whole.max_attack_accuracy > WEAK:
        worst = percent(whole.max_attack_accuracy)
        yield f"All of a {facts.who}'s releases to this task together are weak: up to {worst}."
    if not facts.purpose:
        yield "Purpose and legal basis are not stated (--purpose)."
    if not facts.controller:
        yield "Who answers for it is not stated (--controller)."
    yield "Were the bounds and categories chosen without looking at these people's data? Murk cannot tell."
    if task.public is not None:
        yield "Have the people of the public sample agreed that their features become public, as they are?"


def _of_gateways(facts: Facts) -> Iterator[str]:
    """Who can tell more than the log shows."""
    if facts.accounts is not None and facts.accounts.files:
        yield (
            "Who holds the file of records, and runs the gateway? Towards them nothing is promised: they have the "
            "records, the ledger with its key, and perhaps the log."
        )
    if not facts.task.of_organisations:
        yield (
            "Who can see both the log and the order of a gateway's file, or its ledger? They can tell from which block "
            "of its people each release is, and whose, where a block is of one. What it discloses of the record stays "
            "within the guarantee."
        )


def _of_deployment(facts: Facts) -> Iterator[str]:
    """What was read of the log: how long it keeps what, and who gets at it."""
    task, deployment, accounts = facts.task, facts.deployment, facts.accounts
    if deployment is None:
        yield "No log was read (--log): retention is what the task asks for, and nothing is known of copies or access."
        return
    yield from deployment.problems
    releases = deployment.stores.get("releases")
    if releases is not None and releases.seconds is not None and releases.seconds > task.log.retention:
        yield f"Releases are kept longer than the task asks for ({releases.kept}): is that intended?"
    elif releases is not None and releases.later > segment_seconds(task.log.retention):
        yield (
            f"Releases may stay for up to {span(releases.later)} longer than the task asks for, as a broker deletes "
            f"whole segments: set segment.ms={1000 * segment_seconds(task.log.retention)} on {releases.place}."
        )
    if deployment.kind == "file" and accounts is not None and accounts.people < task.duplicates:
        yield (
            f"Releases are never deleted while the log exists: it keeps the newest {task.duplicates:,} of a chain "
            f"(duplicates), and the ledger knows {accounts.people:,} people. Who deletes the file, and when?"
        )
    if deployment.task is None:
        yield "The log carries no task yet: this dossier is of the file, and not of what people will be asked."
    if deployment.encrypted is False:
        yield "Connections to the broker are not encrypted: who sends, and when, can be seen on the network."
    if deployment.identified is False:
        yield "Clients do not say who they are to the broker: nothing keeps others from writing models or floods."
    if deployment.kind == "kafka":
        yield "Rights at the broker were not read: devices need to write releases and to read models, no more."


def _of_accounts(facts: Facts) -> Iterator[str]:
    """What was read of people's accounts."""
    if facts.accounts is None:
        yield "No ledger was read (--ledger): whether there is a cap over all tasks is not known."
        return
    yield from facts.accounts.problems
    if not facts.accounts.capped:
        yield "No cap over all tasks is noted in the ledger: further tasks add up without a limit (--lifetime)."


def _measured(facts: Facts) -> Section:
    blocks: list[Claim | Table | Sample] = [
        Claim(
            "An audit makes releases of the two records that are furthest apart, by the code that devices run, and "
            "tells them apart as well as can be. It finds a lower bound of what is disclosed: one above its claim "
            "refutes it, one below proves nothing.",
            ("audit",),
        )
    ]
    audit = facts.audit
    if audit is None:
        blocks.append(Claim("No audit was run or read for this dossier.", (), "audit"))
    else:
        noise = "simulated noise" if audit.simulated else "the randomness that devices use"
        blocks.append(
            Claim(f"This task's figures, {audit.origin}, with {noise}; all bounds hold with a probability of "
                  f"{audit.confidence:g}:", (), "audit")
        )  # fmt: skip
        rows = tuple(
            (
                str(one["name"]), str(one["measure"]), number(one["claimed"]), number(one["lower_bound"]),
                f"{one['draws']:,}", verdict(one["lower_bound"], one["holds"]),
            )
            for one in audit.findings
        )  # fmt: skip
        blocks.append(
            Table(
                ("audited", "measure", "claimed", "found at least", "releases of each", "claim"),
                rows,
                ("audit",),
                "audit",
            )
        )
    return Section("measured", "What was measured", tuple(blocks))


def _versions(facts: Facts) -> Section:
    task = facts.task
    rows = [
        ("task", f"{task.name}, read from {facts.origin}"),
        ("task hash (SHA-256), on every release", task.hash),
        ("protocol", f"{task.protocol}, model: {task.fitted_model}"),
        ("mechanisms", ", ".join(dict.fromkeys(one.kind for one in facts.mechanisms.values()))),
        ("a person's cap for the task", caps_of(task)),
        ("murk", __version__),
        ("Python", f"{platform.python_version()} ({platform.python_implementation()}), {platform.system()}"),
        ("dependencies", ", ".join(f"{name} {found}" for name, found in _dependencies()) or "not known: not installed"),
    ]
    if facts.deployment is not None:
        rows.insert(1, ("log", facts.deployment.url))
    return Section(
        "versions",
        "Versions and hashes",
        (
            Claim(
                "The hash is of the whole task but its log's retention: bounds, guarantee, levels, mechanism, rules. "
                "A device releases to the task with this hash alone. This dossier is of that task, and of no other.",
                ("release",),
            ),
            Table(("what", "which"), tuple(rows)),
            Sample("The resolved task: the hash covers all of it but `log`", abridged(task.document()), "task"),
        ),
    )


def abridged(document: bytes) -> str:
    """Return a JSON document with its long texts cut, as encoded public rows are: a page is for reading.

    Examples
    --------
    >>> abridged(b'{"name":"weeks","rows":"' + 500 * b"A" + b'"}')
    '{"name":"weeks","rows":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA… (460 more characters)"}'
    """

    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: cut(item) for key, item in value.items()}
        if isinstance(value, list):
            return [cut(item) for item in value]
        if isinstance(value, str) and len(value) > _LONG_TEXT:
            return f"{value[:_KEPT]}… ({len(value) - _KEPT:,} more characters)"
        return value

    return json.dumps(cut(json.loads(document)), ensure_ascii=False, separators=(",", ":"))


def _dependencies() -> Iterator[tuple[str, str]]:
    try:
        needed = requires("murk") or []
    except PackageNotFoundError:
        needed = []
    for text in needed:
        name = re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0]
        if "extra ==" in text:
            continue
        try:
            yield name, version(name)
        except PackageNotFoundError:
            yield name, "not installed"
