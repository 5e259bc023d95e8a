"""Configuration of a deployment, read from its log and its ledger."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from murk._internal.atomic_files import exposure
from murk.errors import MurkError, UserError
from murk.producers import Ledger
from murk.producers.ledger.names import key_path
from murk.producers.ledger.statements import day_text
from murk.stream.log.interface import Log
from murk.task import Task

Role = Literal["log", "input log", "shuffled log"]
_DAY = 86_400
_UNKNOWN = "not known"


@dataclass(frozen=True)
class Store:
    """A kind of stored messages: releases, models, states or dead letters."""

    place: str
    kept: str  # retention in words
    settings: str  # settings as read
    # retention; infinite if the newest message stays for ever, None if it is unknown or not a time
    seconds: float | None = None
    later: int = 0  # seconds that a message may stay beyond its retention, because a broker deletes whole segments


@dataclass(frozen=True)
class Deployment:
    """Configuration of a log."""

    url: str
    kind: str  # "file" or "kafka"
    task: Task | None  # the task that the log carries, if any
    stores: Mapping[str, Store]  # by "releases", "models", "states", "dead" and "estimates"
    connection: str
    encrypted: bool | None = None  # None if there are no connections
    identified: bool | None = None  # whether clients are authenticated; None if there are no connections
    problems: tuple[str, ...] = ()  # sentences
    checked: tuple[str, ...] = ()  # sentences on settings that were checked and are correct
    role: Role = "log"
    identity: str = ""

    @property
    def is_input_log(self) -> bool:
        """Whether devices of a shuffled task send to the log, which only its shuffler may read."""
        return self.role == "input log"

    @property
    def is_shuffled(self) -> bool:
        """Whether a shuffler writes to the log."""
        return self.role == "shuffled log"


@dataclass(frozen=True)
class Accounts:
    """Sums of a ledger, without names."""

    path: str
    people: int
    releases: int
    withdrawn: int
    lifetime: tuple[str, ...]  # sentences on caps over all tasks and the largest spending
    capped: bool  # whether there is such a cap
    keyed: bool  # whether names are stored as keyed hashes
    tasks: Mapping[str, int] = field(default_factory=dict)  # number of releases by task
    problems: tuple[str, ...] = ()
    files: int = 0
    rows: int = 0  # number of people who are rows of a file
    counted: str = ""
    refused: int = 0
    identity: str = ""
    raised: tuple[str, ...] = ()  # sentences on caps that were raised
    closed: str = ""  # day on which all accounts were deleted

    @property
    def spent(self) -> tuple[str, ...]:
        """Return sentences on the total spending on all tasks, without their common first words."""
        return tuple(sentence.removeprefix("All tasks together: ") for sentence in self.lifetime)


def read_deployment(log: Log, task: Task) -> Deployment:
    """Read the configuration of a log, without changing it."""
    document = log.document()
    carried = None if document is None else Task.from_document(document, f"the task on {log.url}")
    role = _role(log, carried or task)
    if log.url.startswith("kafka:"):
        deployment = _kafka(log, carried, carried or task, role)
    else:
        deployment = (
            _input_log_file(log, carried) if role == "input log" else _file(log, carried, carried or task, role)
        )
    # Its streams may not exist yet.
    return replace(deployment, identity=log.identity) if carried is not None else deployment


def _role(log: Log, task: Task) -> Role:
    if task.shuffle is None:
        return "log"
    return "input log" if log.crowd_mark() is None else "shuffled log"


def _input_log_file(log: Log, carried: Task | None) -> Deployment:
    path = log.url.removeprefix("sqlite:///")
    store = f"{path}.store"  # where `murk shuffle` keeps it by default
    holds = {
        path: "the input log says who sent what, and when",
        store: "the shuffler's store says what people have sent",
    }
    present = [each for each in holds if Path(each).exists()]
    problems = [f"{exposed}: {holds[each]}. Run chmod 600 {each}" for each in present if (exposed := exposure(each))]
    private = [each for each in present if not exposure(each)]
    checked = (
        [f"Only the owner of {' and '.join(private)} can read what is there (mode 0600 or less)."] if private else []
    )
    stores = {
        "releases": Store(
            path,
            "until the shuffler has taken them in; then they are deleted and overwritten. In the shuffler's store they "
            "wait for their crowd",
            "the shuffler deletes them",
        ),
        "models": Store(path, "the newest alone", "one row"),
        "states": Store(path, "the newest alone: how far the shuffler has read", "one row a partition"),
    }
    how = "a file on this machine"
    return Deployment(
        log.url, "file", carried, stores, how, problems=tuple(problems), checked=tuple(checked), role="input log"
    )


def _file(log: Log, carried: Task | None, task: Task, role: Role) -> Deployment:
    path = log.url.removeprefix("sqlite:///")
    days = span(task.log.retention)
    readable = exposure(path)
    noise = "it shows releases, whose records their noise protects, and when each one came; chmod 600 makes it private"
    stores = {
        "releases": Store(
            path,
            f"{days} after they arrive, and until they are learned. The newest {task.duplicates:,} of each partition "
            "stay as long as the file exists, and up to 255 others as long as one that was appended together with them",
            f"log.retention = {days}, as the learner applies it",
            task.log.retention,
        ),
        "models": Store(path, "the newest alone", "one row a partition"),
        "states": Store(path, "the newest alone", "one row a partition"),
        "dead": Store(path, days, f"log.retention = {days}", task.log.retention),
    }
    problems = (f"{readable}: {noise}",) if readable else ()
    return Deployment(log.url, "file", carried, stores, "a file on this machine", problems=problems, role=role)


def _kafka(log: Log, carried: Task | None, task: Task, role: Role) -> Deployment:
    from murk.stream.log.kafka.connection.network import Address
    from murk.stream.log.kafka.connection.settings import Settings
    from murk.stream.log.kafka.log import TopicSetup

    settings = Settings.read(servers=Address.parse(log.url).servers)
    encrypted = settings.security_protocol.endswith("SSL")
    identified = settings.security_protocol.startswith("SASL") or settings.ssl_certificate_file is not None
    with TopicSetup(log.url, task) as setup:
        problems, stores = [], {}
        try:
            problems = setup.problems()
        except (UserError, MurkError) as error:
            problems = [f"whether the topics fit the task could not be read: {error}"]
        for kind, (topic, about) in setup.topics.retention_settings().items():
            if isinstance(about, str):
                stores[kind] = Store(topic, _UNKNOWN, f"could not be read: {about}")
                problems.append(f"the settings of {topic} could not be read: {about}")
            else:
                stores[kind] = store = _store(topic, about)
                if store.kept == _UNKNOWN:
                    problems.append(f"for how long {topic} keeps messages is not known: {store.settings}")
    how = f"{settings.security_protocol}, as this command was configured"
    return Deployment(log.url, "kafka", carried, stores, how, encrypted, identified, tuple(problems), role=role)


def _store(topic: str, about: Mapping[str, str]) -> Store:
    settings = ", ".join(f"{key}={value}" for key, value in about.items())
    policies = {word.strip() for word in about.get("cleanup.policy", "").split(",")}
    if not policies & {"compact", "delete"}:
        return Store(topic, _UNKNOWN, settings)
    compacted = "the newest of each partition, older ones until the broker compacts"
    if "delete" not in policies:
        return Store(topic, compacted, settings, math.inf)
    try:
        milliseconds = int(about.get("retention.ms", ""))
    except ValueError:
        return Store(topic, _UNKNOWN, settings)
    seconds = milliseconds / 1000 if milliseconds >= 0 else math.inf
    kept = f"{span(seconds)} after they arrive, then deleted by the broker" if math.isfinite(seconds) else ""
    segment = about.get("segment.ms", "")
    later = round(int(segment) / 1000) if kept and segment.isdigit() else 0
    if later:
        kept += f", a segment at a time: up to {span(later)} later"
    if "compact" in policies:
        return Store(topic, f"{compacted}; all {kept}" if kept else compacted, settings, seconds, later)
    return Store(topic, kept or "for ever: nothing deletes them", settings, seconds, later)


def read_accounts(path: str | Path) -> Accounts:
    """Read sums of a ledger, without changing it and without names."""
    path = Path(path)
    with Ledger(path, create=False) as ledger:
        totals = ledger.totals()
        tasks = Counter[str]()
        for (name, _), count in totals.levels.items():
            tasks[name] += count
        problems = []
        if (missing := ledger.names.missing()) is not None:
            problems.append(f"The key of names is missing or wrong: {missing} (the key lies beside the ledger)")
        problems += [f"{readable}: chmod 600" for file in (path, key_path(path)) if (readable := exposure(file))]
        return Accounts(
            str(path),
            totals.people,
            totals.releases,
            totals.withdrawn,
            tuple(ledger.describe_together()),
            bool(ledger.promises()),
            ledger.names.is_keyed,
            tasks,
            tuple(problems),
            totals.files,
            totals.rows,
            totals.counted,
            totals.refused,
            ledger.identity,
            tuple(f"{day_text(each.day)}, {each.describe()}" for each in ledger.changes() if each.is_raise),
            "" if ledger.closed_on is None else day_text(ledger.closed_on),
        )


def span(seconds: float) -> str:
    """Return a duration in words.

    >>> span(7 * 86_400), span(5400), span(86_400)
    ('7 days', '90 minutes', '1 day')
    """
    for unit, name in ((_DAY, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= unit and seconds % unit == 0:
            count = int(seconds // unit)
            return f"{count:,} {name}{'s' * (count != 1)}"
    return f"{seconds:,.0f} seconds"
