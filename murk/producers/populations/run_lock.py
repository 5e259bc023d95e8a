"""What the work on a log was begun with, noted in a small file beside it.

Where the log is a cluster's, the note lies beside the ledger: it tells a ledger that was lost from one that never
was.
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
    """What must be the same again for the work on a log to be carried on.

    The file must be the same too, and that is noted in the ledger alone: from the digest of a short file its
    raw values can be guessed.

    Parameters
    ----------
    person, level, seed
        How people and levels are chosen, and the seed of simulated noise.
    ledger
        Identity of the ledger.
    """

    person: str | None
    level: str
    seed: int | None
    ledger: str


def note(log: Log, facts: RunConfig, ledger: str | Path) -> None:
    """Note what the work on a log begins with."""
    path = beside(log, SUFFIX, ledger)
    if path is not None:
        write_durably(path, json.dumps(asdict(facts), indent=2) + "\n")


def noted(log: Log, ledger: str | Path) -> RunConfig | None:
    """What was noted when the work on a log was begun; None where that is not known.

    Raises
    ------
    MurkError
        When the file is damaged.
    """
    path = beside(log, SUFFIX, ledger)
    # What was noted before the log got its task came to nothing.
    if path is None or log.document() is None or not path.exists():
        return None
    try:
        return RunConfig(**json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise MurkError(f"{path} is damaged: bring it back from a copy, or begin with a new log") from error


def compare(log: Log, facts: RunConfig, ledger: str | Path) -> None:
    """Make sure that the work on a log is carried on with what it was begun with.

    Raises
    ------
    UserError
        Naming what differs.
    """
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
    """The refusal to carry on with something else than what the work on a log was begun with."""
    again = (
        "its people's releases are spent: another --log is for another task, by the same ledger"
        if seed is None
        else "to begin again, give another --log and --ledger"
    )
    return UserError(f"{log.url} was begun with {found}: give the same {options} again to carry on; {again}")


def begun_with(log: Log, ledger: str | Path) -> str | None:
    """Identity of the ledger that the work on a log was begun with; None where that is not known."""
    known = noted(log, ledger)
    return None if known is None else known.ledger


def check_kind(log: Log, carried: Task, simulated: bool) -> None:
    """Make sure that a log takes releases of a kind.

    Raises
    ------
    UserError
        When it carries those of the other kind.
    """
    if carried.simulated != simulated:
        kind = "simulated" if carried.simulated else "real"
        raise UserError(
            f"{log.url} carries {kind} releases, and which kind is fixed when a log is begun: "
            f"{'give the --seed it was begun with' if carried.simulated else 'leave --seed out'}, or use another log"
        )


def hold(log: Log, owner: object, ledger: str | Path, task: str) -> Callable[[], object]:
    """Keep other processes that let people release off a log, while its owner lives or until this is called.

    Off a cluster's log only those with the same ledger and a task of the same name: a ledger serves several tasks.

    Raises
    ------
    UserError
        When another one is at work.
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
    """Path of a log in a file; None where the log is no file."""
    scheme, _, path = log.url.partition(":///")
    return Path(path) if scheme == "sqlite" else None


def beside(log: Log, suffix: str, ledger: str | Path) -> Path | None:
    """Path of a small file that belongs to a log; None where the log's streams are not made yet."""
    path = in_file(log)
    if path is not None:
        return Path(f"{path}{suffix}")
    try:
        return Path(f"{ledger}.{log.identity[:13]}{suffix}")
    except UserError:
        return None


def write_durably(path: Path, text: str) -> None:
    """Write a small file, for its owner's eyes, so that a crash leaves it whole or not there."""
    try:
        write_whole(path, text, own=True, mode=0o600)
    except OSError as error:
        raise MurkError(f"{path} cannot be written ({error.strerror}): make room or give another place") from error
