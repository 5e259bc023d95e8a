"""The path of a ledger, the settings with which a population's work on a log was started, and its lock.

The people of a file have one ledger for all tasks, beside the file. Ledgers in which they have accounts are listed
there, too (``FILE.ledgers.json``), or found by the file's digest. A copy elsewhere, or another file of the same people,
cannot be detected. Simulations spend no budget: each task has its own ledger, which is not listed.

The settings of a run are stored, with the log's identity, in a small file, which also locks the work. It lies beside
the log; for a log on a cluster it lies beside the ledger, where it distinguishes a lost ledger from a new one.
"""

from __future__ import annotations

import fcntl
import glob
import json
import logging
import os
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from murk._internal.atomic_files import open_own, write_whole
from murk.errors import MurkError, UserError
from murk.populations.records.files import readable, survey
from murk.populations.records.records import Records, open_records
from murk.producers.ledger.identity import describe, remedy, unrecognised
from murk.producers.ledger.names import NameKey, key_path, read_key
from murk.producers.ledger.schema import APPLICATION, LOST
from murk.stream.log.interface import Log
from murk.task.task import Task

if TYPE_CHECKING:
    from murk.populations.file_source import FileSource
    from murk.producers.ledger.ledger import Ledger

_ERROR_CODE = "MURK-DATA-001"

SUFFIX = ".run.json"


@dataclass(frozen=True)
class RunConfig:
    """Settings that must be equal to continue the work on a log; without a digest, which could reveal a short file."""

    person: str | None
    level: str
    seed: int | None
    ledger: str
    order: str
    time: str | None = None


def note(log: Log, facts: RunConfig, ledger: str | Path) -> None:
    """Store the settings with which work on a log starts."""
    path = beside(log, SUFFIX, ledger)
    if path is not None:
        write_durably(path, json.dumps({**asdict(facts), "log": log.identity}, indent=2) + "\n")


def noted(log: Log, ledger: str | Path) -> RunConfig | None:
    """Return the settings with which work on a log was started; None if unknown. Raise MurkError for a damaged file."""
    path = beside(log, SUFFIX, ledger)
    # Without a task on the log the work has not begun.
    if path is None or log.document() is None or not path.exists():
        return None
    try:
        facts = json.loads(path.read_text())
        identity = facts.pop("log")
        config = RunConfig(**facts)
    except (AttributeError, KeyError, ValueError, TypeError) as error:
        raise MurkError(f"{path} is damaged: restore it from a copy, or begin with a new log") from error
    return config if identity == log.identity else None


def compare(log: Log, facts: RunConfig, ledger: str | Path) -> None:
    """Raise a UserError if a setting differs from the one with which work on a log was started."""
    config = noted(log, ledger)
    if config is None or config == facts:
        return
    name = next(field.name for field in fields(RunConfig) if getattr(config, field.name) != getattr(facts, field.name))
    if name == "ledger":
        difference = "another ledger"
    else:
        values = getattr(config, name), getattr(facts, name)
        before, now = (f"no --{name}" if value is None else f"--{name} {value}" for value in values)
        difference = f"{before}, not {now}"
    raise differs(log, difference, f"--{name}", seed=config.seed)


def differs(log: Log, found: str, options: str, *, seed: int | None) -> UserError:
    """Return the error for settings other than those with which work on a log was started."""
    again = "to begin again, give another --log and --ledger"
    if seed is None:
        again = "what its people spent stays spent. For another task, give another --log and the same ledger"
    return UserError(f"{log.url} was started with {found}: give the same {options} again to continue; {again}")


def older_copy(log: Log, ledger: Path) -> UserError:
    """Return the error for a ledger that released to a log before, and has no entry about it."""
    return UserError(
        f"the ledger {ledger} is an older copy: its people have released to {log.url}, and it does not say what they "
        "spent there. Put back its newest intact copy before anything else is released",
        code=LOST,
    )


def begun_with(log: Log, ledger: str | Path) -> str | None:
    """Return the identity of the ledger with which work on a log was started; None if unknown."""
    config = noted(log, ledger)
    return None if config is None else config.ledger


def check_kind(log: Log, carried: Task, simulated: bool) -> None:
    """Raise a UserError if a log carries releases of the other kind, real or simulated."""
    if carried.simulated != simulated:
        kind = "simulated" if carried.simulated else "real"
        raise UserError(
            f"{log.url} carries {kind} releases, and the kind is fixed when a log is started: "
            f"{'give its --seed' if carried.simulated else 'leave --seed out'}, or use another log"
        )


def hold(log: Log, owner: object, ledger: str | Path, task: str) -> Callable[[], object]:
    """Lock a log against other releasing processes until ``owner`` is deleted or the result is called.

    On a cluster this excludes only processes with the same ledger and a task of the same name. Raises UserError if
    another process holds the lock.
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
            f"another `murk run` or `murk produce` is working on {log.url}: wait for it to end, or use another log "
            "(`murk demo`: another --out)"
        ) from None
    return weakref.finalize(owner, os.close, handle)


def in_file(log: Log) -> Path | None:
    """Return the path of a log in a file; None for other logs."""
    scheme, _, path = log.url.partition(":///")
    return Path(path) if scheme == "sqlite" else None


def beside(log: Log, suffix: str, ledger: str | Path) -> Path | None:
    """Return the path of a small file that belongs to a log; None before the log's streams exist."""
    if (path := in_file(log)) is not None:
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


NOTE, LEDGER, SIMULATED = ".ledgers.json", ".ledger.db", ".simulated.ledger.db"
_log = logging.getLogger(__name__)
_SUFFIXES = {".gz", ".csv", ".jsonl", ".ndjson", ".parquet"}


@dataclass(frozen=True)
class Noted:
    """A ledger in which a file's people have accounts: its last path (relative to the file's folder) and identity."""

    path: str
    identity: str


@dataclass(frozen=True)
class _Contents:
    """A ledger's identity, real tasks, and the digests of the files that people released from."""

    identity: str
    tasks: frozenset[str]
    digests: frozenset[str]
    key: NameKey | None

    def knows(self, digest: str) -> bool:
        return self.key is not None and self.key.source(digest) in self.digests


def default_ledger(source: str | Path | Records, task: str, *, simulated: bool) -> Path:
    """Return the path of the ledger of a file's people if none was named.

    That is ``TASK.ledger.db`` if it exists; else the ledger in which these people have accounts; else a new ledger
    beside the file. Raises UserError if the records are in memory, the file cannot be read, its people have accounts in
    several ledgers or in a missing one, or the folder of a new one cannot be written.
    """
    before = Path(f"{task}{LEDGER}")
    if simulated:
        # That ledger may hold people's real accounts, which a simulation must not spend.
        seen = _inspect(before)
        return Path(f"{task}{SIMULATED}") if seen is not None and seen.tasks else before
    records = open_records(source)
    if records.path is None:
        raise UserError(
            f"{records} has no file in whose folder the ledger of its people would be: name a ledger, the same one "
            "for every task that asks them"
        )
    source = records.path
    readable(source)
    seen = _inspect(before)
    if seen is None:
        # Opening a lost or damaged ledger fails, whereas a new one would let everyone spend again.
        parts = [before, Path(f"{before}-wal"), Path(f"{before}-shm")]
        notes = before.parent.glob(f"{glob.escape(before.name)}.*{SUFFIX}")
        if any(part.exists() for part in (*parts, *notes)):
            return before
    elif seen.tasks:
        return before
    folder, stem = source.resolve().parent, Path(source.name)
    while stem.suffix in _SUFFIXES:
        stem = stem.with_suffix("")
    beside = folder / f"{stem}{LEDGER}"
    noted = [folder / each.path for each in _listed(source)]
    if not noted and not beside.exists():
        digest = survey(source).digest
        _check_undamaged(folder, Path.cwd())
        noted = [path for path, one in _ledgers_in(folder, Path.cwd()) if one.knows(digest)]
    if len(noted) > 1:
        # An interrupted run continues with its ledger.
        begun = [path for path in noted if (one := _inspect(path)) is not None and task in one.tasks]
        noted = begun if len(begun) == 1 else noted
    if len(noted) > 1:
        raise UserError(
            f"the people of {source} have accounts in several ledgers ({', '.join(map(str, noted))}): none "
            "of them knows what was spent in another. Choose one with --ledger"
        )
    if noted and not noted[0].exists():
        raise UserError(
            f"the people of {source} have accounts in the ledger {noted[0]}, which is missing: put it back, or give "
            "its new path with --ledger"
        )
    if not noted and not beside.exists() and not os.access(folder, os.W_OK):
        raise UserError(
            f"the default ledger of the people of {source} is in the file's folder, which cannot be written: name a "
            "ledger with --ledger, the same one for every task"
        )
    return _relative_to_cwd(noted[0] if noted else beside)


def check_recognised(source: FileSource, ledger: Ledger, *, capped: bool) -> tuple[str, ...]:
    """Raise a UserError if people could spend a cap over all tasks (``capped``) twice; without a cap return a warning.

    Call it before the people of ``source`` first release to a real task.
    """
    before = ledger.strangers(source.digest, source.people)
    if not before:
        return ()
    if capped or ledger.promises():
        raise unrecognised(ledger.path, str(source.records), source.people, before)
    if source.people != "row" or set(before) != {"row"}:
        words = describe(ledger.path, str(source.records), source.people, before)
        both = "Sums over all tasks are those of one account, and a person may have several."
        return (f"{words} {both} {remedy(source.people, before)}",)
    words = (
        f"people have released before (ledger {ledger.path}), from other records than {source.records}, or from these "
        "before they were changed or sorted. Where each row is a person, nobody can be recognised in other records, so "
        "all are taken for new people with nothing spent. Name people by a column (--person)"
    )
    return (words,)


def register(source: FileSource, ledger: Ledger) -> tuple[str, ...]:
    """Add a ledger to a file's list, and return a warning for each other ledger in which its people have accounts."""
    path, own_path = source.path, ledger.path.resolve()
    with nullcontext() if path is None else _locked(path.resolve().parent):
        folders = [Path.cwd(), own_path.parent]
        noted = {} if path is None else {each.identity: each for each in _listed(path)}
        others = {}
        if path is not None:
            folders.append(path.resolve().parent)
            others = {identity: folders[-1] / one.path for identity, one in noted.items()}
        for found, seen in _ledgers_in(*folders):
            if seen.knows(source.digest):
                others.setdefault(seen.identity, found)
        others.pop(ledger.identity, None)
        if path is not None:
            # A path in the file's folder is relative to it.
            mine = own_path.name if own_path.parent == folders[-1] else str(own_path)
            _write_list(path, {**noted, ledger.identity: Noted(mine, ledger.identity)}.values())
    return tuple(
        f"the people of {source.records} have accounts in another ledger, too ({other}): "
        f"{ledger.path} does not count what they spent there, so they may spend it again. To count it, give "
        f"--ledger {other}"
        for other in map(_relative_to_cwd, others.values())
    )


def _list_path(source: Path) -> Path:
    real = source.resolve()
    return real.with_name(real.name + NOTE)


def _listed(source: Path) -> Sequence[Noted]:
    note = _list_path(source)
    try:
        return [Noted(each["path"], each["identity"]) for each in json.loads(note.read_text())["ledgers"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise MurkError(
            f"{note} cannot be read: it lists the ledgers of the people of {source}. Restore it from a copy"
        ) from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a file's folder; the list of ledgers cannot be locked, since each write replaces it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            _log.info("%s cannot be locked (%s): run one command at a time", folder, error.strerror)
        yield
    finally:
        os.close(handle)


def _write_list(source: Path, noted: Iterable[Noted]) -> None:
    note, text = _list_path(source), json.dumps({"ledgers": [asdict(each) for each in noted]}, indent=2) + "\n"
    if note.exists() and note.read_text() == text:
        return
    # The list of ledgers cannot be written in a read-only folder, so nothing is listed there.
    if os.access(note.parent, os.W_OK):
        write_durably(note, text)


def _relative_to_cwd(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _candidates(*folders: Path) -> list[Path]:
    return sorted({path.resolve() for folder in folders for path in folder.glob(f"*{LEDGER}")})


def _ledgers_in(*folders: Path) -> list[tuple[Path, _Contents]]:
    return [(path, seen) for path in _candidates(*folders) if (seen := _inspect(path)) is not None]


def _check_undamaged(*folders: Path) -> None:
    """Refuse a damaged ledger in a folder that is searched for a file's people, since it may be theirs."""
    for path in _candidates(*folders):
        try:
            seen = _read_contents(path)
            damaged = path.stat().st_size == 0 or (seen is not None and bool(seen.digests) and seen.key is None)
        except sqlite3.Error:
            damaged = True
        if damaged:
            raise UserError(
                f"{path} cannot be read, and may hold the accounts of these people. If so, restore it and its key "
                f"({key_path(path).name}) from a copy; if not, move it away, or name the right ledger with --ledger"
            )


def _inspect(path: Path) -> _Contents | None:
    """Inspect a ledger without changing it; None if there is none, or it cannot be read."""
    try:
        return _read_contents(path) if path.is_file() else None
    except sqlite3.Error:
        # Opening the ledger reports the damage.
        return None


def _read_contents(path: Path) -> _Contents | None:
    """Inspect a ledger; None if the file is another kind of database."""
    address = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=5.0)) as connection:
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            return None
        real = "simulated IS NOT 1"
        [identity] = connection.execute("SELECT value FROM meta WHERE key = 'identity'").fetchone()
        digests = connection.execute(
            "SELECT DISTINCT digest FROM runs JOIN sources ON sources.number = source "
            f"JOIN tasks ON tasks.number = task WHERE {real}"
        ).fetchall()
        tasks = connection.execute(f"SELECT name FROM tasks WHERE {real}").fetchall()
        meta = dict(connection.execute("SELECT key, value FROM meta WHERE key = 'key'"))
        names, hashed = (frozenset(text for (text,) in rows) for rows in (tasks, digests))
        return _Contents(identity, names, hashed, _key(path, meta))


def _key(path: Path, meta: Mapping[str, Any]) -> NameKey | None:
    """Return the key of a ledger's digests (without a secret before the first digest); None if the key is lost."""
    if "key" not in meta:
        return NameKey(None)
    try:
        return read_key(path, meta["key"])
    except UserError:
        return None
