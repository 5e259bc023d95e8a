"""Assembly of a dossier: summary, open questions and sections."""

import json
import platform
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any, Final

from murk import __version__
from murk.dossier.answers import asked, guarantee, leaves, purpose
from murk.dossier.content import Block, Claim, Dossier, Sample, Section, Table
from murk.dossier.deployment import span
from murk.dossier.example import caps_of
from murk.dossier.facts import WEAK, Facts, stated
from murk.dossier.handling import not_promised, public, retention, trust, withdrawal
from murk.learners.results.report import SEVERAL_RECORDS
from murk.privacy.explain import number, percent, verdict
from murk.stream.log.base import segment_seconds

_LONG_TEXT: Final = 120
_KEPT: Final = 40


def dossier_of(facts: Facts, *, now: datetime | None = None) -> Dossier:
    """Return the dossier of these facts, made at ``now``, by default the current time."""
    task, made = facts.task, (now or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M UTC")
    parts = ((key, title.format(device=facts.device), blocks(facts)) for key, (title, blocks) in _SECTIONS.items())
    sections = tuple(Section(key, title, tuple(blocks)) for key, title, blocks in parts)
    summary, to_settle = tuple(_summary(facts)), tuple(_to_settle(facts))
    return Dossier(task.name, made, __version__, task.hash, task.simulated, summary, to_settle, sections)


def _summary(facts: Facts) -> Iterator[tuple[str, str]]:
    task = facts.task
    weakest = max(facts.mechanisms, key=facts.any_two)
    promise, worst = task.privacy.levels[weakest], percent(facts.any_two(weakest))
    columns = ", ".join([*(feature.name for feature in task.features), task.target.name])
    yield "Asked", f"{columns}. Nothing else of a record is used."
    size = len(facts.example.messages[0])
    window = "for each window of records, " if task.of_organisations else ""
    yield "Leaves", f"{window}one message of about {size:,} bytes, with noise; no name, and no exact value."
    blank = percent(facts.given(weakest).max_attack_accuracy)
    from_blank = f" (and a record from a blank one, as the task states it, in {blank})" if facts.is_central else ""
    yield (
        "Guarantee",
        f"from one release, nobody tells any two records apart in more than {worst} of cases{from_blank}, whatever "
        f"they know or compute; guessing: 50%. ({stated(promise)}"
        + (f", level {weakest!r}, the weakest)" if len(task.privacy.levels) > 1 else ")"),
    )
    if task.shuffle is not None:
        central = task.shuffle.central(promise)
        yield (
            "Shuffled",
            f"nobody but the shuffler does so in more than {percent(central.max_attack_accuracy)} of cases "
            f"({stated(central)}), if it keeps the order to itself and {task.shuffle.honest_people:,} of each crowd of "
            f"{task.shuffle.crowd:,} are honest.",
        )
    whole, most = task.privacy.per_person, f"{blank}, by one release"
    if whole is not None:
        most = f"{percent(whole.max_attack_accuracy)} ({stated(whole)})"
    if facts.is_central:
        both = worst if whole is None else percent(facts.any_two_of(whole).max_attack_accuracy)
        told = f"any two records are told apart in at most {both}; {facts.compared} in at most {most}"
    else:
        told = f"{facts.compared} are told apart in at most {most}"
    yield "Per task", f"from all releases of one {facts.who} to this task, {told}."
    yield "All tasks", _lifetime(facts)
    holder = "organisation that holds the records" if task.of_organisations else "person's own device (or gateway)"
    yield (
        "Trusted",
        f"the {holder}, with the records. Broker, learner, monitor and readers are not trusted with privacy.",
    )
    disclosure = facts.disclosure
    if disclosure is not None:
        yield "Public", disclosure.what() + ", as they are."
    elif task.public is not None:
        yield "Public", "features of a public sample, as they are, once the task is announced."
    else:
        yield "Public", "results; nobody's features or answers."
    stores = {} if facts.deployment is None else facts.deployment.stores
    kept = stores["releases"].kept if "releases" in stores else "as the deployment is configured, which was not read"
    yield "Kept", f"releases: {kept}. Ledgers: as long as there may be another task, because they hold the budgets."
    yield "Measured", _audited(facts)


def _lifetime(facts: Facts) -> str:
    if facts.accounts is None:
        return "not known: no ledger was read. Without a cap over all tasks, further tasks add up."
    if facts.accounts.lifetime:
        return "; ".join(facts.accounts.spent) + "."
    return "nothing was spent yet, and the ledger has no cap."


def _audited(facts: Facts) -> str:
    audit = facts.audit
    if audit is None:
        return "no audit was run or read for this dossier."
    worst = max(audit.findings, key=lambda finding: finding["ratio"])
    said = "no claim was refuted" if audit.holds else "A CLAIM WAS REFUTED"
    blind = sum(verdict(finding["lower_bound"], finding["holds"]) == "no power" for finding in audit.findings)
    if blind == len(audit.findings):
        return f"the audit had no power: it had too few releases to refute a claim ({audit.origin})."
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
            "People are rows of a file: nobody is recognised in a copy that was sorted or corrected, so withdrawals "
            "and spending do not carry over to it (under a cap over all tasks this ledger refuses the copy, another "
            "one does not). Name people by a column (--person)."
        )
    yield from _of_task(facts)
    yield from _of_gateways(facts)
    yield from _of_deployment(facts)
    yield from _of_accounts(facts)
    if facts.audit is None:
        yield "No audit was run or read: `murk audit TASK --json > audit.json`, then --audit audit.json."


def _several_rows(facts: Facts) -> Iterator[str]:
    """Yield the question whether a person may have several rows, since figures are then for a row."""
    task = facts.task
    if task.of_organisations:
        if task.block.person is None:
            yield f"May one person have several records? {SEVERAL_RECORDS}"
    elif facts.accounts is None or facts.accounts.rows:
        yield (
            "May one person have several rows of a file? Unless a column names the people (--person COLUMN of "
            "`murk run` and `murk produce`), each row counts as a person: figures for one person below are then for "
            "one row, and a person's rows together disclose more, without a limit."
        )


def _of_task(facts: Facts) -> Iterator[str]:
    task, audit = facts.task, facts.audit
    if task.simulated:
        yield "The task is for SIMULATED releases, which protect nobody: release no real person's record to it."
    if audit is not None and not audit.holds:
        yield "An audit REFUTED a claim: releases disclose more than is guaranteed. Stop, and report it."
    for level in facts.mechanisms:
        if facts.any_two(level) > WEAK:
            worst, one = percent(facts.any_two(level)), task.privacy.levels[level]
            yield f"Level {level!r} ({stated(one)}) is weak: records are told apart in up to {worst}."
    whole = task.privacy.per_person
    if whole is not None and whole.max_attack_accuracy > WEAK:
        worst = percent(whole.max_attack_accuracy)
        yield f"All of a {facts.who}'s releases to this task together are weak: up to {worst}."
    if not facts.purpose:
        yield "Purpose and legal basis are not stated (--purpose)."
    if not facts.controller:
        yield "Who is responsible is not stated (--controller)."
    yield "Were the bounds and categories chosen without looking at these people's data? Murk cannot check that."
    if task.public is not None:
        yield "Have the people of the public sample agreed that their exact features become public?"


def _of_gateways(facts: Facts) -> Iterator[str]:
    if facts.accounts is not None and facts.accounts.files:
        yield (
            "Who holds the file of records, and runs the gateway? Towards them nothing is promised: they have the "
            "records, the ledger with its key, and possibly the log."
        )
    if facts.task.shuffle is not None:
        yield (
            "Who runs the shuffler, with its intake and its store, and may they be a colleague of whoever reads the "
            "log? Towards them only the first of the two guarantees holds. Nobody else may read the intake."
        )
        yield (
            f"Are at least {facts.task.shuffle.honest_people:,} of {facts.task.shuffle.crowd:,} releases those of "
            "honest people? Whoever can make up people can fill a crowd: who decides who may send?"
        )
    elif not facts.task.of_organisations:
        yield (
            "Who can see both the log and the order of a gateway's file, or its ledger? They can tell from which block "
            "of people each release is, and from whom if the block has one person. What the release discloses of the "
            "record stays within the guarantee."
        )


def _of_deployment(facts: Facts) -> Iterator[str]:
    task, deployment, accounts = facts.task, facts.deployment, facts.accounts
    if deployment is None:
        yield "No log was read (--log): retention is what the task asks for, and copies and access are not known."
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
        yield "The log carries no task yet: this dossier is about the file, not about what people will be asked."
    if deployment.encrypted is False:
        yield "Connections to the broker are not encrypted: the network reveals who sends, and when."
    if deployment.identified is False:
        yield "The broker does not authenticate clients: nothing prevents others from writing models or floods."
    if deployment.kind == "kafka":
        yield "Permissions at the broker were not read: devices only need to write releases and to read models."


def _of_accounts(facts: Facts) -> Iterator[str]:
    if facts.accounts is None:
        yield "No ledger was read (--ledger): whether there is a cap over all tasks is not known."
        return
    yield from facts.accounts.problems
    if not facts.accounts.capped:
        yield "The ledger has no cap over all tasks: further tasks add up without a limit (--lifetime)."


def _measured(facts: Facts) -> Iterator[Block]:
    yield Claim(
        "An audit releases the two records that are furthest apart, by the code that devices run, and tells them apart "
        "with an optimal test. That gives a lower bound on the privacy loss: a bound above the claim refutes it, a "
        "bound below proves nothing.",
        ("audit",),
    )
    audit = facts.audit
    if audit is None:
        yield Claim("No audit was run or read for this dossier.", (), "audit")
        return
    noise = "simulated noise" if audit.simulated else "the randomness that devices use"
    held = f"all bounds hold with probability {audit.confidence:g}"
    yield Claim(f"This task's figures, {audit.origin}, with {noise}; {held}:", (), "audit")
    rows = []
    for each in audit.findings:
        bound, claim = each["lower_bound"], verdict(each["lower_bound"], each["holds"])
        figures = number(each["claimed"]), number(bound), f"{each['draws']:,}"
        rows.append((str(each["name"]), str(each["measure"]), *figures, claim))
    columns = ("audited", "measure", "claimed", "lower bound", "releases of each", "claim")
    yield Table(columns, tuple(rows), ("audit",), "audit")


def _versions(facts: Facts) -> Iterator[Block]:
    task = facts.task
    dependencies = ", ".join(f"{name} {installed}" for name, installed in _dependencies())
    rows = [
        ("task", f"{task.name}, read from {facts.origin}"),
        ("task hash (SHA-256), on every release", task.hash),
        ("protocol", f"{task.protocol}, model: {task.fitted_model}"),
        ("mechanisms", ", ".join(dict.fromkeys(mechanism.kind for mechanism in facts.mechanisms.values()))),
        ("a person's cap for the task", caps_of(task)),
        ("murk", __version__),
        ("Python", f"{platform.python_version()} ({platform.python_implementation()}), {platform.system()}"),
        ("dependencies", dependencies or "not known: murk is not installed"),
    ]
    if facts.deployment is not None:
        rows.insert(1, ("log", facts.deployment.url))
    yield Claim(
        "The hash covers the whole task except its log's retention: bounds, guarantee, levels, mechanism, rules. A "
        "device releases only to the task with this hash. This dossier is about that task alone.",
        ("release",),
    )
    yield Table(("what", "which"), tuple(rows))
    yield Sample("The resolved task: the hash covers all of it except `log`", abridged(task.document()), "task")


_SECTIONS: dict[str, tuple[str, Callable[[Facts], Iterator[Block]]]] = {
    "purpose": ("Purpose", purpose),
    "asked": ("Features and target", asked),
    "leaves": ("What leaves the {device}", leaves),
    "trust": ("Who is trusted with what", trust),
    "guarantee": ("What is guaranteed", guarantee),
    "public": ("What is public", public),
    "retention": ("How long data is kept", retention),
    "withdrawal": ("Withdrawing", withdrawal),
    "not-promised": ("What is not guaranteed", not_promised),
    "measured": ("What was measured", _measured),
    "versions": ("Versions and hashes", _versions),
}
"""Sections of a dossier by key, in order."""


def abridged(document: bytes) -> str:
    """Return a JSON document with long texts cut, such as encoded public rows.

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
