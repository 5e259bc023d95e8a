"""The settings with which the work on a log was begun, stored in a small file beside it, and the lock on that work.

For a log on a cluster the file lies beside the ledger; it distinguishes a lost ledger from a new one.
"""

from __future__ import annotations

import fcntl
import json
import os
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from murk._files import open_own, write_whole
from murk.errors import MurkError, UserError
from murk.stream.log.base import Log
from murk.stream.task.task import Task

SUFFIX = ".run.json"


@dataclass(frozen=True)
class RunConfig:
    """Settings that must be the same to continue the work on a log.

    Only the ledger checks the data file: this file must not hold its digest, from which a short file could be guessed.
    """

    person: str | None
    level: str
    seed: int | None
    ledger: str


def note(log: Log, facts: RunConfig, ledger: str | Path) -> None:
    """Store the settings that the work on a log begins with."""
    path = beside(log, SUFFIX, ledger)
    if path is not None:
        write_durably(path, json.dumps(asdict(facts), indent=2) + "\n")


def noted(log: Log, ledger: str | Path) -> RunConfig | None:
    """Return the settings that the work on a log was begun with; None if unknown. A damaged file is a MurkError."""
    path = beside(log, SUFFIX, ledger)
    # Without a task on the log the work has not begun.
    if path is None or log.document() is None or not path.exists():
        return None
    try:
        return RunConfig(**json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise MurkError(f"{path} is damaged: restore it from a copy, or begin with a new log") from error


def compare(log: Log, facts: RunConfig, ledger: str | Path) -> None:
    """Raise a UserError if a setting differs from those that the work on a log was begun with."""
    known = noted(log, ledger)
    if known is None or known == facts:
        return
    name = next(field.name for field in fields(RunConfig) if getattr(known, field.name) != getattr(facts, field.name))
    if name == "ledger":
        found = "another ledger"
    else:
        before, now = (
            f"no --{name}" if value is None else f"--{name} {value}"
            for value in (getattr(known, name), getattr(facts, name))
        )
        found = f"{before}, not {now}"
    raise differs(log, found, f"--{name}", seed=known.seed)


def differs(log: Log, found: str, options: str, *, seed: int | None) -> UserError:
    """Return the error for settings other than those that the work on a log was begun with."""
    again = (
        "what its people spent stays spent. For another task, give another --log and the same ledger"
        if seed is None
        else "to begin again, give another --log and --ledger"
    )
    return UserError(f"{log.url} was begun with {found}: give the same {options} again to continue; {again}")


def begun_with(log: Log, ledger: str | Path) -> str | None:
    """Return the identity of the ledger that the work on a log was begun with; None if unknown."""
    known = noted(log, ledger)
    return None if known is None else known.ledger


def check_kind(log: Log, carried: Task, simulated: bool) -> None:
    """Raise a UserError if a log carries releases of the other kind, real or simulated."""
    if carried.simulated != simulated:
        kind = "simulated" if carried.simulated else "real"
        raise UserError(
            f"{log.url} carries {kind} releases, and the kind is fixed when a log is begun: "
            f"{'give the --seed it was begun with' if carried.simulated else 'leave --seed out'}, or use another log"
        )


def hold(log: Log, owner: object, ledger: str | Path, task: str) -> Callable[[], object]:
    """Lock a log against other releasing processes until ``owner`` is deleted or the result is called.

    On a cluster's log this excludes only processes with the same ledger and a task of the same name. Raises UserError
    if another process holds the lock.
    """
    path = Path(f"{ledger}.{task}.lock") if in_file(log) is None else beside(log, ".lock", ledger)
    if path is None:
        return lambda: None
    handle = open_own(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UserError(
            f"another `murk run` or `murk produce` is working on {log.url}: wait for it to end, or use another log"
        ) from None
    return weakref.finalize(owner, os.close, handle)


def in_file(log: Log) -> Path | None:
    """Return the path of a log in a file; None for other logs."""
    scheme, _, path = log.url.partition(":///")
    return Path(path) if scheme == "sqlite" else None


def beside(log: Log, suffix: str, ledger: str | Path) -> Path | None:
    """Return the path of a small file that belongs to a log; None before the log's streams exist."""
    path = in_file(log)
    if path is not None:
        return Path(f"{path}{suffix}")
    try:
        return Path(f"{ledger}.{log.identity[:13]}{suffix}")
    except UserError:
        return None


def write_durably(path: Path, text: str) -> None:
    """Write a small file, readable by its owner only, so that a crash leaves it complete or absent."""
    try:
        write_whole(path, text, own=True, mode=0o600)
    except OSError as error:
        raise MurkError(f"{path} cannot be written ({error.strerror}): make room or give another place") from error
