"""``murk dossier``: a page for a privacy officer, made from a task and a deployment."""

from __future__ import annotations

import hashlib
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from murk._internal.atomic_files import check_place, write_whole
from murk.cli.options import as_json, load_task, log_url
from murk.cli.output import print_json, progress
from murk.errors import UserError, reason_of

if TYPE_CHECKING:
    from murk.dossier.deployment import Accounts, Deployment
    from murk.dossier.facts import Audit
    from murk.dossier.necessity import Necessity
    from murk.task import Task

_ERROR_CODE = "MURK-CLI-002"


@click.command("dossier")
@click.argument("task_path", metavar="TASK", type=click.Path())
@log_url(help="Read the deployment from this log: sqlite:///FILE or kafka://HOST:PORT.")
@click.option(
    "--intake",
    metavar="URL",
    help="Of a shuffled task: read the input log, to which devices send; --log is then the log of releases.",
)
@click.option(
    "--archive", metavar="PATH", help="An archive of the log, which keeps releases longer (see murk archive)."
)
@click.option(
    "--web", is_flag=True, help="People answer in a web page: state whom they trust then, and what is stored."
)
@click.option("--ledger", metavar="PATH", help="Read caps and sums of accounts; nobody is named.")
@click.option("--audit", "audit_path", metavar="FILE", help="Use the output of ``murk audit TASK --json``.")
@click.option(
    "--draws",
    type=click.IntRange(0),
    default=20_000,
    show_default=True,
    metavar="N",
    help="Without --audit: run an audit with N releases of each of two neighbours; 0 skips it.",
)
@click.option(
    "--people",
    type=click.IntRange(1, 10**12),
    metavar="N",
    help="Number of people at hand, or of an organisation's records, for the section on necessity.  [default: the "
    "task's `people`, else the accounts in --ledger]",
)
@click.option("--purpose", default="", metavar="TEXT", help="Purpose and legal basis.")
@click.option("--controller", default="", metavar="TEXT", help="Controller and contact.")
@click.option(
    "--out", type=click.Path(dir_okay=False), metavar="FILE", help="File to write.  [default: NAME.dossier.html]"
)
@click.option(
    "--verify",
    metavar="PAGE",
    help="Make PAGE again from TASK, --log, --intake, --archive and --ledger as they are now, and name the sections "
    "that differ; writes nothing.",
)
@click.option(
    "--registry",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write a draft for the public registry of deployments of differential privacy, too (YAML).",
)
@click.option("--simulated", is_flag=True, help="For simulated releases, which protect nobody.")
@as_json
def command(
    task_path: str,
    log_url: str | None,
    intake: str | None,
    archive: str | None,
    web: bool,
    ledger: str | None,
    audit_path: str | None,
    draws: int,
    people: int | None,
    purpose: str,
    controller: str,
    out: str | None,
    verify: str | None,
    registry: str | None,
    simulated: bool,
    as_json: bool,
) -> None:
    """Write a privacy dossier of TASK: one page for a file such as a data protection impact assessment.

    It states features and target, what leaves a device, who is trusted, guarantees and non-guarantees, retention and
    withdrawal, with the tests and audits that support each statement, and lists open points. It reads no record.
    """
    from murk.dossier.deployment import read_accounts
    from murk.dossier.example import example_of, levels_of
    from murk.dossier.facts import Facts, read_audit
    from murk.dossier.making import dossier_of
    from murk.dossier.page import page_of
    from murk.dossier.provenance import TIME, Inputs

    page = None if verify is None else _read_page(verify)
    inputs = None if page is None else Inputs.of_page(page, str(verify))
    if inputs is not None:
        purpose, controller, web = inputs.purpose, inputs.controller, inputs.web
        simulated, people = inputs.simulated, inputs.people
    task = load_task(task_path).with_simulated(simulated)
    deployment, origin = None, f"the file {Path(task_path).name}"
    if log_url is not None:
        deployment = _read(log_url, task)
        if deployment.task is not None:
            task, origin = deployment.task, f"the log {deployment.url}"
    if web and task.of_organisations:
        raise UserError("--web is for people: only organisations release to this task, and no web page does")
    intake_read = None if intake is None else _read_intake(intake, task)
    from murk.stream.archive.files import shown_url

    access = "" if archive is None else _check_archive(archive, task, deployment)
    path = Path(out or f"{task.name}.dossier.html")
    for output in [] if inputs is not None else [path, *([Path(registry)] if registry is not None else [])]:
        check_place(output)
    accounts = None if ledger is None else read_accounts(ledger)
    if inputs is not None:
        audit, example, now = inputs.audit, inputs.example, inputs.time
    else:
        audit = read_audit(audit_path, task) if audit_path is not None else _run_audit(task, draws, quiet=as_json)
        example, now = example_of(task), datetime.now(UTC)
    purpose, controller = purpose.strip(), controller.strip()
    facts = Facts(
        task,
        origin,
        levels_of(task),
        example,
        deployment,
        accounts,
        audit,
        purpose,
        controller,
        web,
        intake_read,
        shown_url(archive or ""),
        access,
    )
    dossier = dossier_of(facts, _forecast(task, people, accounts, quiet=as_json), now=now)
    made = Inputs(now.strftime(TIME), example, audit, purpose, controller, web, simulated, people)
    again = page_of(dossier, made.encoded())
    if page is not None:
        _compare(str(verify), page, again, as_json)
        return
    write_whole(path, again)
    if registry is not None:
        from murk.dossier.registry import entry_of, yaml_of

        write_whole(Path(registry), yaml_of(entry_of(facts, now)))
    checksum = hashlib.sha256(again.encode()).hexdigest()
    if as_json:
        print_json({"path": str(path), "sha256": checksum, **dossier.to_dict()})
        return
    click.echo(f"{path}: {len(dossier.to_settle)} to be settled before anyone signs")
    for point in dossier.to_settle:
        click.echo(f"  - {point}")
    click.echo(f"SHA-256 of the page: {checksum}")
    if registry is not None:
        click.echo(f"{registry}: a draft for the registry; fill in what begins with TODO")


def _check_archive(path: str, task: Task, deployment: Deployment | None) -> str:
    """Return who may read and write an archive; raise `UserError` unless it is one of the task's log."""
    from murk.stream.archive.files import LocalFolder, folder_of
    from murk.stream.archive.reader import ArchiveLog

    folder = folder_of(path)
    archive = ArchiveLog(folder)
    other = deployment is not None and deployment.identity not in ("", archive.identity)
    if archive.task.hash != task.hash or other:
        raise UserError(f"--archive {archive.url}: it is the archive of another log or task", code="MURK-ARCHIVE-002")
    if not isinstance(folder, LocalFolder):
        return "Who can read the archive and write to it was not checked, since it is not a folder on this machine."
    return _access(Path(path))


def _access(folder: Path) -> str:
    """Return who may read an archive's files and write to its folders, by their modes."""
    inside = [each for each in (folder, *folder.rglob("*")) if not each.is_symlink()]
    readable = any(each.is_file() and each.stat().st_mode & 0o044 for each in inside)
    writable = any(each.stat().st_mode & 0o022 for each in inside)
    if not readable and not writable:
        return "Only the owner of the archive's folder can read its files and write to it."
    rights = " and ".join(["read files"] * readable + ["write"] * writable)
    return f"Other users of the machine can {rights} in the archive's folder: chmod -R go= makes it private."


def _read_page(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({reason_of(error, 'it is not text')})") from None


def _compare(name: str, page: str, again: str, as_json: bool) -> None:
    """Say in which sections a page differs from the one made now; exit with status 1 if it does."""
    from murk.dossier.provenance import differences

    differing = differences(page, again)
    if as_json:
        print_json({"path": name, "same": not differing, "differing": differing})
    elif differing:
        click.echo(f"{name} DIFFERS from the page of today in: {', '.join(differing)}")
    else:
        click.echo(f"{name} is, byte for byte, the page of this task, log and ledger today")
    if differing:
        sys.exit(1)


def _forecast(task: Task, people: int | None, accounts: Accounts | None, *, quiet: bool) -> Necessity | None:
    """Forecast for the people at hand, if their number is known."""
    from murk.dossier.necessity import necessity_of
    from murk.planning.plan import FACTORS, size

    numbers = {
        "--people": people,
        "the task's `people`": task.people,
        "the ledger's accounts": accounts and accounts.people,
    }
    origin, number = next(((origin, number) for origin, number in numbers.items() if number), ("", 0))
    if not number or (task.of_organisations and number not in (people, task.people)):
        return None
    with progress(f"{task.name}: plan", size(task, [number], FACTORS, [task.protocol]), quiet=quiet) as tick:
        return necessity_of(task, number, origin, tick)


def _read(url: str, task: Task) -> Deployment:
    """Read a log without changing it, and check that its task, if any, is that of the file."""
    from murk.dossier.deployment import read_deployment
    from murk.stream import open_log
    from murk.task.task import check_task_change

    with open_log(url, create=False, name=task.name) as log:
        deployment = read_deployment(log, task)
        if (carried := deployment.task) is not None:
            if carried.simulated != task.simulated:
                kind, remedy = ("simulated", "add") if carried.simulated else ("real", "remove")
                raise UserError(f"{log.url} carries {kind} releases: {remedy} --simulated")
            expected = task.without_public()
            check_task_change(log.url, carried.without_public().document(), expected.document())
        return deployment


def _read_intake(url: str, task: Task) -> Deployment:
    """Read the input log of a shuffled task."""
    if task.shuffle is None:
        raise UserError("--intake is for shuffled tasks, and this one has no `shuffle:`: leave it out")
    deployment = _read(url, task)
    if not deployment.is_input_log:
        raise UserError(f"--intake {url} is a log that a shuffler writes to: give it as --log")
    return deployment


def _run_audit(task: Task, draws: int, *, quiet: bool) -> Audit | None:
    from murk.audit import audit, cases_of
    from murk.dossier.example import with_sample
    from murk.dossier.facts import Audit, as_findings

    if draws == 0:
        return None
    if draws < 4:
        raise UserError(f"--draws {draws} is too few for an audit: give 4 or more, or 0 for no audit")
    cases = cases_of(with_sample(task))
    with progress("audit", 2 * draws * len(cases), quiet=quiet) as tick:
        findings = as_findings([finding.to_dict() for finding in audit(cases, draws, tick=tick)])
    return Audit(findings, 0.999, False, "run when this dossier was made")
