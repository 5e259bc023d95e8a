"""Assembly of a dossier: summary, open questions and sections."""

import json
import math
import platform
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from murk import __version__
from murk.dossier.answers import asked, guarantee, intake, leaves, public, purpose, retention, trust, web
from murk.dossier.content import Block, Dossier, Sample, Section, Table
from murk.dossier.deployment import Deployment, span
from murk.dossier.example import caps_of
from murk.dossier.facts import WEAK, Facts, is_refuted, stated
from murk.dossier.necessity import Necessity, necessity
from murk.dossier.prose import claims, entries, questions
from murk.dossier.provenance import TIME, code_hash, commit
from murk.privacy.guarantees import number, percent, verdict
from murk.results.report import SEVERAL_RECORDS
from murk.stream.log.interface import segment_seconds
from murk.task.windows import each_of

_LONG_TEXT: Final = 120
_KEPT: Final = 40
_MISSED: Final = 1.1  # largest violation, as a factor of the claim, that an audit may miss without an open question


def dossier_of(facts: Facts, found: Necessity | None = None, *, now: datetime | None = None) -> Dossier:
    """Return the dossier of these facts and a forecast, made at ``now``, by default the current time."""
    task, made = facts.task, (now or datetime.now(UTC)).strftime(TIME)
    of_sections: dict[str, _Part] = {**_SECTIONS, "necessity": ("Necessity", partial(necessity, found=found))}
    parts = ((key, title.format(device=facts.device), blocks(facts)) for key, (title, blocks) in of_sections.items())
    made_parts = ((key, title, tuple(blocks)) for key, title, blocks in parts)
    sections = tuple(Section(key, title, blocks) for key, title, blocks in made_parts if blocks)
    summary, to_settle = tuple(_summary(facts)), tuple(_to_settle(facts, found))
    return Dossier(task.name, made, __version__, task.hash, task.simulated, summary, to_settle, sections)


def _summary(facts: Facts) -> Iterator[tuple[str, str]]:
    task, whole = facts.task, facts.task.privacy.whole
    weakest = max(facts.mechanisms, key=facts.any_two)
    promise, worst = task.privacy.levels[weakest], percent(facts.any_two(weakest))
    central = task.shuffle.central(promise) if task.shuffle is not None else None
    all_windows = facts.any_two_of(whole) if facts.is_central and whole is not None else None
    stores = {} if facts.deployment is None else facts.deployment.stores
    given = entries(
        "summary",
        facts,
        columns=", ".join(task.coding.all_columns),
        size=len(facts.example.messages[0]),
        longest=facts.example.longest,
        worst=worst,
        blank=percent(facts.given(weakest).max_attack_accuracy),
        promise=stated(promise),
        weakest=repr(weakest) if len(task.privacy.levels) > 1 else "",
        shuffled=central and percent(central.max_attack_accuracy),
        central=central and stated(central),
        cap=whole and f"{percent(whole.max_attack_accuracy)} ({stated(whole)})",
        both=percent(all_windows.max_attack_accuracy) if all_windows is not None else worst,
        spent="; ".join(facts.accounts.spent) if facts.accounts is not None else "",
        published=facts.disclosure and facts.disclosure.what(),
        store=stores.get("releases"),
        audited=_audited(facts),
    )
    for name, same in groupby(given, key=itemgetter("name")):
        yield name, "".join(entry["text"] for entry in same)


def _audited(facts: Facts) -> str:
    audit = facts.audit
    if audit is None:
        return "no audit was run or read for this dossier."
    worst = max(audit.findings, key=lambda finding: finding["lower_bound"] / (finding["claimed"] or 1.0))
    said = "no claim was refuted" if audit.holds else "A CLAIM WAS REFUTED"
    blind = sum(verdict(finding["lower_bound"], not is_refuted(finding)) == "no power" for finding in audit.findings)
    if blind == len(audit.findings):
        return f"the audit had no power: it had too few releases to refute a claim ({audit.origin})."
    if blind:
        said += f" ({blind} of {len(audit.findings)} audits had no power)"
    return (
        f"{said} in {len(audit.findings)} audit{'s' * (len(audit.findings) != 1)}; closest came a "
        f"{worst['measure']} of at least {number(worst['lower_bound'])} where {number(worst['claimed'])} is claimed "
        f"({audit.origin})."
    )


def _weakest(facts: Facts) -> str:
    """Return the largest violation of a claim that the audit may have missed, in words; empty if it is a small one."""
    if facts.audit is None:
        return ""
    worst = max(facts.audit.findings, key=lambda finding: finding["detectable"] / (finding["claimed"] or 1.0))
    if worst["detectable"] <= _MISSED * worst["claimed"]:
        return ""
    if not math.isfinite(worst["detectable"]):
        return f"a violation of any size of the {worst['measure']} of {number(worst['claimed'])} ({worst['name']})"
    detectable, claimed = number(worst["detectable"]), number(worst["claimed"])
    return f"a {worst['measure']} below {detectable} where {claimed} is claimed ({worst['name']})"


def _to_settle(facts: Facts, found: Necessity | None) -> Iterator[str]:
    task, accounts = facts.task, facts.accounts
    # If a person may have several rows or records, figures are for a row.
    rows_possible = accounts is None or accounts.rows
    yield from questions("settle-people", facts, several_records=SEVERAL_RECORDS, rows_possible=rows_possible)
    for level in facts.mechanisms:
        if facts.any_two(level) > WEAK:
            worst, guarantee = percent(facts.any_two(level)), task.privacy.levels[level]
            yield f"Level {level!r} ({stated(guarantee)}) is weak: records are told apart in up to {worst}."
    whole = task.privacy.whole
    if whole is not None and whole.max_attack_accuracy > WEAK:
        worst = percent(whole.max_attack_accuracy)
        yield f"All releases of one {facts.who} to this task together are weak: up to {worst}."
    if task.privacy.renews and whole is None:
        yield (
            f"A person's budget renews {each_of(task.privacy.window)} without an end: state for how long people are "
            "asked, or cap all windows with privacy.lifetime."
        )
    if task.privacy.repeats_answers:
        yield (
            "Answers are repeated while records do not change (privacy.repeat). So the log shows when records change, "
            "and answers with many values show which are one person's. No guarantee covers that: people must know it "
            "when they consent."
        )
    yield from questions("settle-necessity", facts, found=found)
    shuffle = task.shuffle
    forged = (shuffle.crowd - shuffle.honest_people, shuffle.crowd - 1) if shuffle is not None else (0, 0)
    yield from questions("settle-purpose", facts, forged=forged[0], isolating=forged[1])
    if (deployment := facts.deployment) is not None:
        yield from deployment.problems
        yield from _of_deployment(facts, deployment)
    yield from facts.intake.problems if facts.intake is not None else ()
    yield from accounts.problems if accounts is not None else ()
    raised = "; ".join(accounts.raised) if accounts is not None else ""
    yield from questions("settle-ledger", facts, raised=raised)
    yield from facts.audit.problems if facts.audit is not None else ()
    yield from questions("settle-audit", facts, weakest=_weakest(facts))


def _of_deployment(facts: Facts, deployment: Deployment) -> Iterator[str]:
    releases, retention = deployment.stores.get("releases"), facts.task.log.retention
    segment, accounts = segment_seconds(retention), facts.accounts
    return questions(
        "settle-deployment",
        facts,
        releases=releases,
        longer=releases is not None and releases.seconds is not None and releases.seconds > retention,
        later=span(releases.later) if releases is not None and releases.later > segment else "",
        segment=1000 * segment,
        on_file=deployment.kind == "file",
        is_input_log=deployment.is_input_log,
        few_people=accounts is not None and accounts.people < facts.task.duplicates,
        unencrypted=deployment.encrypted is False,
        unidentified=deployment.identified is False,
    )


def _measured(facts: Facts) -> Iterator[Block]:
    audit = facts.audit
    noise = "simulated noise" if audit is not None and audit.simulated else "the randomness of this machine's system"
    yield from claims("measured", facts, noise=noise, confidence=f"{audit.confidence:g}" if audit is not None else "")
    rows = []
    for each in audit.findings if audit is not None else ():
        least = number(each["detectable"]) if math.isfinite(each["detectable"]) else "-"
        figures = number(each["claimed"]), number(each["lower_bound"]), least, f"{each['draws']:,}"
        rows.append((each["name"], each["measure"], *figures, verdict(each["lower_bound"], not is_refuted(each))))
    if rows:
        columns = ("audited", "measure", "claimed", "lower bound", "would be found from", "releases of each", "claim")
        yield Table(columns, tuple(rows), ("audit",), "audit")


def _versions(facts: Facts) -> Iterator[Block]:
    task = facts.task
    rows = [
        ("task", f"{task.name}, read from {facts.origin}"),
        ("task hash (SHA-256), on every release", task.hash),
        ("protocol", f"{task.protocol}, model: {task.fitted_model}"),
        ("mechanisms", ", ".join(dict.fromkeys(mechanism.kind for mechanism in facts.mechanisms.values()))),
        ("a person's cap for the task", caps_of(task)),
        ("murk", __version__),
        ("code of murk (SHA-256 of all its files)", code_hash()),
        ("commit", commit() or "not run from a checkout"),
        ("Python", f"{platform.python_version()} ({platform.python_implementation()}), {platform.system()}"),
        ("dependencies", ", ".join(_dependencies()) or "not known: murk is not installed"),
    ]
    read = {"log": facts.deployment, "input log": facts.intake}
    for name, deployment in read.items():
        if deployment is not None:
            rows.append((name, f"{deployment.url}, identity {deployment.identity or 'none yet'}"))
    if facts.accounts is not None:
        rows.append(("ledger", f"{facts.accounts.path}, identity {facts.accounts.identity or 'not known'}"))
    yield from claims("versions", facts)
    yield Table(("what", "which"), tuple(rows))
    yield Sample("The resolved task: the hash covers all of it except `log`", abridged(task.document()), "task")


_Part = tuple[str, Callable[[Facts], Iterator[Block]]]
_SECTIONS: dict[str, _Part] = {
    "purpose": ("Purpose", purpose),
    "necessity": ("Necessity", partial(necessity, found=None)),
    "asked": ("Features and target", asked),
    "leaves": ("What leaves the {device}", leaves),
    "trust": ("Who is trusted with what", trust),
    "web": ("In the web page", web),
    "intake": ("Crowds and their shuffler", intake),
    "guarantee": ("What is guaranteed", guarantee),
    "public": ("What is public", public),
    "retention": ("How long data is kept", retention),
    "withdrawal": ("Withdrawing", partial(claims, "withdrawal")),
    "not-promised": ("What is not guaranteed", partial(claims, "not-promised")),
    "measured": ("What was measured", _measured),
    "versions": ("Provenance", _versions),
}
"""Sections of a dossier by key, in order."""


def abridged(document: bytes) -> str:
    """Return a JSON document with long texts cut, such as encoded public rows.

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


def _dependencies() -> Iterator[str]:
    try:
        needed = requires("murk") or []
    except PackageNotFoundError:
        needed = []
    for text in needed:
        if "extra ==" not in text:
            name = re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0]
            try:
                yield f"{name} {version(name)}"
            except PackageNotFoundError:
                yield f"{name} not installed"
