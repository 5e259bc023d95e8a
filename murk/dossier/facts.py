"""Facts from which a dossier is made, with guarantees converted to every kind."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murk import __version__
from murk._internal.numbers import listed
from murk.audit.run import checksum
from murk.dossier.deployment import Accounts, Deployment
from murk.dossier.example import Example
from murk.errors import UserError
from murk.privacy import Accountant, Guarantee
from murk.privacy.central.explain import any_two_records, strongest_replace_one
from murk.privacy.guarantees import CENTRAL, guarantee_from_dict, number, percent
from murk.privacy.mechanisms import Costed
from murk.task import Task
from murk.task.task import ArchiveBlock, Disclosure

_ERROR_CODE = "MURK-AUDIT-001"

DELTA = 1e-5  # delta at which epsilon is stated
WEAK = 0.9  # attack accuracy above which the dossier warns

# What a dossier says of each finding of an audit.
_FINDING: Mapping[str, Callable[[Any], Any]] = {
    "name": str,
    "measure": str,
    "claimed": float,
    "lower_bound": float,
    "draws": int,
    "detectable": lambda least: math.inf if least is None else float(least),
}


@dataclass(frozen=True)
class Audit:
    """Results of an audit in the format of `murk audit --json`; all bounds hold with probability ``confidence``."""

    findings: Sequence[Mapping[str, Any]]
    confidence: float
    simulated: bool
    origin: str
    problems: tuple[str, ...] = ()  # sentences

    @property
    def holds(self) -> bool:
        """Whether no claim was refuted, by the numbers alone."""
        return not any(map(is_refuted, self.findings))


@dataclass(frozen=True)
class Facts:
    """Facts that determine a dossier; what was not read is None, and statements that nobody made are empty."""

    task: Task  # as carried by the log, if one was read
    origin: str  # where the task was read
    mechanisms: Mapping[str, Any]
    example: Example
    deployment: Deployment | None = None
    accounts: Accounts | None = None
    audit: Audit | None = None
    purpose: str = ""  # the organisation's own statements
    controller: str = ""
    web: bool = False  # whether people answer in a web page
    intake: Deployment | None = None  # the input log of a shuffled task
    archive: str = ""  # path or URL of an archive of the log
    archive_access: str = ""  # who may read and write the archive, as far as that was checked

    @property
    def disclosure(self) -> Disclosure | None:
        """The features that the task makes public, if any."""
        return Disclosure.of(self.task)

    @property
    def declared(self) -> ArchiveBlock | None:
        """What the task tells people about an archive."""
        return None if self.task.about is None else self.task.about.archive

    @property
    def copies(self) -> str:
        """Words for the archive, at the begin of a sentence; empty if there is none."""
        return f"The archive {self.archive}" if self.archive else "The archive" if self.declared else ""

    @property
    def who(self) -> str:
        """Word for the owner of an account, for whom the page's figures are: a person, a row or an organisation."""
        if self.task.of_organisations:
            return "organisation"
        if self.of_rows:
            return "row of the file"
        return "browser profile" if self.web and not self.from_file else "person"

    @property
    def is_central(self) -> bool:
        """Whether releases summarise a window of records; their guarantee compares a record with a blank one."""
        return any(mechanism.kind in CENTRAL for mechanism in self.mechanisms.values())

    @property
    def compared(self) -> str:
        """Words for the two records compared by the guarantee."""
        return "a record from a blank one (all zeros)" if self.is_central else self.pair

    @property
    def pair(self) -> str:
        """Words for the records that an attacker tells apart."""
        known_words = self.known
        return f"any two records that agree in {known_words}" if known_words else "any two records"

    @property
    def known(self) -> str:
        """Names of the columns that are sent as they are."""
        return listed(self.task.known_columns)

    def given(self, level: str) -> Guarantee:
        """Return the strongest guarantee of one release at a level."""
        return strongest(self.task.privacy.levels[level], self.mechanisms[level])

    def any_two(self, level: str) -> float:
        """Return the largest probability that an attacker tells any two records apart by one release at a level."""
        if not self.is_central:
            return self.given(level).max_attack_accuracy
        return strongest_replace_one(self.mechanisms[level]).max_attack_accuracy

    def any_two_of(self, whole: Guarantee) -> Guarantee:
        """Return the joint guarantee of all windows of an organisation for any two records."""
        mechanism = self.mechanisms["default"]
        stated, replaced = (made.to_dict()[made.kind] for made in (mechanism.stated, mechanism.replace_one()))
        if whole.kind != mechanism.stated.kind or mechanism.replace_one().kind != whole.kind:
            return any_two_records(whole)
        of = whole.to_dict()[whole.kind]
        return guarantee_from_dict({whole.kind: {name: of[name] * replaced[name] / stated[name] for name in of}})

    @property
    def from_file(self) -> bool:
        """Whether the ledger shows that records came from a file, so that their people have no device of their own."""
        return self.accounts is not None and self.accounts.files > 0 and not self.task.of_organisations

    @property
    def of_rows(self) -> bool:
        """Whether every account is a row of a file, so that it is unknown which rows are one person's."""
        return self.from_file and self.accounts is not None and 0 < self.accounts.rows == self.accounts.people

    @property
    def by_device(self) -> bool:
        """Whether people's own devices or apps release, as far as is known: neither a file nor a web page."""
        return not (self.task.of_organisations or self.from_file or self.web)

    @property
    def has_ledger(self) -> bool:
        """Whether spending is recorded in a ledger file, not in people's browsers alone."""
        return self.from_file or not self.web

    @property
    def device(self) -> str:
        """Word for the releasing device."""
        if self.task.of_organisations:
            return "organisation's machine"
        holders = ["machine that holds the file of records"] * self.from_file + ["person's browser"] * self.web
        return " or the ".join(holders) or "person's device"

    @property
    def stated_purpose(self) -> str:
        """Purpose and legal basis, as the organisation states them, or else as people are told (`about:`)."""
        return self.purpose or (self.task.about and self.task.about.purpose) or ""

    @property
    def stated_controller(self) -> str:
        """Controller and contact, as the organisation states them, or else as people are told (`about:`)."""
        about = self.task.about
        return self.controller or "; ".join(filter(None, (about.controller, about.contact) if about else ()))

    @property
    def input_log(self) -> Deployment | None:
        """The input log of a shuffled task, if one was read: that of --intake, or the log itself."""
        if self.intake is None and self.deployment is not None and self.deployment.is_input_log:
            return self.deployment
        return self.intake

    @property
    def reworded(self) -> bool:
        """Whether the organisation states another purpose or controller than people are told."""
        about = self.task.about
        pairs = ((self.purpose, about.purpose), (self.controller, about.controller)) if about else ()
        return any(stated and told and stated != told for stated, told in pairs)


def as_findings(findings: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return the fields of an audit's findings that a dossier uses, converted to their types."""
    return tuple({key: kind(finding[key]) for key, kind in _FINDING.items()} for finding in findings)


def is_refuted(finding: Mapping[str, Any]) -> bool:
    """Return whether a finding refutes its claim; NaN as the lower bound counts as a refutation."""
    return not finding["lower_bound"] <= finding["claimed"]


def read_audit(path: str | Path, task: Task) -> Audit:
    """Read the output of ``murk audit TASK --json``; raise `UserError` if it is not an audit of this task."""
    remedy = f"make it with `murk audit TASK --json > {path}`"
    try:
        content = json.loads(Path(path).read_bytes())
        findings = as_findings(content["findings"])
        task_hash = None if content["task"] is None else str(content["task"]["hash"])
        confidence, simulated = float(content["confidence"]), bool(content["simulated"])
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}): {remedy}") from None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise UserError(f"{path} is not the result of a task's audit: {remedy}") from None
    if task_hash != task.hash:
        whose = "no task" if task_hash is None else f"a task with the hash {task_hash[:12]}"
        raise UserError(f"{path} is an audit of {whose}, not of this task ({task.hash[:12]}): {remedy}")
    if not findings:
        raise UserError(f"{path} is an audit that has no findings: {remedy}")
    problems = []
    if content.get("sha256") != checksum(content):
        problems.append(f"{Path(path).name} was changed since `murk audit` wrote it: make it again.")
    if content.get("holds") is not (verdict := not any(map(is_refuted, findings))):
        problems.append(
            f"{Path(path).name} says that {'a' if verdict else 'no'} claim was refuted, and its numbers say the "
            "opposite: this dossier follows the numbers."
        )
    if (version := content.get("murk")) != __version__:
        problems.append(
            f"{Path(path).name} is an audit of murk {version}, and this is murk {__version__}: it says nothing about "
            "this version."
        )
    made = f"read from {Path(path).name}, made on {content.get('date', '?')} by murk {content.get('murk', '?')}"
    return Audit(findings, confidence, simulated, made, tuple(problems))


def row(*claims: Guarantee, stated: Guarantee | None = None) -> tuple[str, str, str, str]:
    """Return guarantees' least attack accuracy, mu, epsilon (at delta) and rho; a dash where no guarantee implies one.

    Epsilon is that of ``stated``, the guarantee in the task's own terms, if given, else that of the first guarantee.
    """
    epsilon, least = (
        _epsilon(claims[0] if stated is None else stated),
        min(claim.max_attack_accuracy for claim in claims),
    )
    return percent(least), _of(claims, "gdp"), epsilon, _of(claims, "zcdp")


def strongest(guarantee: Guarantee, mechanism: Costed) -> Guarantee:
    """Return the guarantee with the lowest attack accuracy: the task's, or one of its mechanism's.

    If Gaussian noise was calibrated to (epsilon, delta), its own mu bounds attacks more tightly.
    """
    return min((guarantee, *mechanism.guarantees), key=lambda claim: claim.max_attack_accuracy)


def stated(guarantee: Guarantee) -> str:
    """Format a guarantee as its task states it."""
    return ", ".join(f"{name} = {value:.10g}" for name, value in guarantee.to_dict()[guarantee.kind].items())


def together(mechanism: Costed, count: int) -> tuple[Guarantee, ...]:
    """Return the joint guarantees of several releases, as a ledger states them, strongest kind first."""
    return Accountant().compose(mechanism, count).guarantees


def _of(claims: Iterable[Guarantee], kind: Any) -> str:
    figures: list[float] = []
    for claim in claims:
        with suppress(UserError):
            implied = claim.to(kind)
            figures += implied.to_dict()[implied.kind].values()
    return number(min(figures)) if figures else "-"


def _epsilon(guarantee: Guarantee) -> str:
    if guarantee.kind in ("pure", "approx"):
        return stated(guarantee).removeprefix("epsilon = ").replace(", delta = ", " at delta ")
    try:
        implied = guarantee.to("approx", delta=DELTA)
    except UserError:
        return "-"
    return f"{number(implied.epsilon)} at delta {DELTA:g}"
