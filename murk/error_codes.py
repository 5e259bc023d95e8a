"""Every error code: what has happened, and what to do about it.

A code stays what it is for good: a new situation gets a new one, and one that is no longer used is not given again.
An error that names none has the first code of the part of Murk that raised it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType


@dataclass(frozen=True, slots=True)
class Code:
    """A situation that an error is about.

    Parameters
    ----------
    code
        ``MURK-AREA-NUMBER``.
    what
        What has happened.
    remedy
        What to do.
    """

    code: str
    what: str
    remedy: str

    @property
    def area(self) -> str:
        """The part of Murk that it is about."""
        return self.code.split("-")[1]


AREAS = {
    "CLI": "the command line",
    "CONF": "settings from a file and the environment",
    "TASK": "task files and tasks",
    "DATA": "files of people, and what they hold",
    "LEDGER": "people's accounts",
    "FILE": "files of Murk's own: ledgers, logs in a file",
    "LOG": "logs of every kind",
    "KAFKA": "a Kafka cluster",
    "STATE": "what learners have committed",
    "PRIVACY": "guarantees, mechanisms and noise",
    "LEARN": "learners, and models that devices read",
    "MONITOR": "the monitor, and results",
    "AUDIT": "the audit",
    "FAULT": "faults of Murk itself",
}
"""Areas of codes, in the order of their page."""

_GENERAL = "Read the message: it names the value or the place, and the remedy."

CODES = {
    code.code: code
    for code in (
        Code(
            "MURK-CLI-001",
            "A command, an option or its value is not one that there is.",
            "`murk COMMAND --help` lists them.",
        ),
        Code("MURK-CLI-002", "What was asked for cannot be done, or not in this combination.", _GENERAL),
        Code("MURK-CLI-003", "An optional package is not installed.", "Install the extra that the message names."),
        Code(
            "MURK-CONF-001",
            "The configuration file cannot be read, or is not TOML.",
            "Fix the line that the message names; `murk config` shows what is read.",
        ),
        Code(
            "MURK-CONF-002",
            "There is no setting of this name, in the file or among the variables `MURK_...`.",
            "Take the name that the message offers; `murk config --all` lists all.",
        ),
        Code(
            "MURK-CONF-003",
            "A setting's value is not one that it can have.",
            "Use one of the values that the message names.",
        ),
        Code(
            "MURK-CONF-004",
            "What must be asked for at each command is set in a file or in the environment.",
            "Remove it there, and give the option at the command.",
        ),
        Code("MURK-TASK-001", "A task is not right: a value, a combination, or what it asks for.", _GENERAL),
        Code(
            "MURK-TASK-002",
            "A task file cannot be read, or is not YAML of the kind that tasks are.",
            "Fix the line that the message names.",
        ),
        Code(
            "MURK-TASK-003",
            "The log carries another task, or the same one with other partitions.",
            "Use the task as it was announced, or another log.",
        ),
        Code(
            "MURK-DATA-001",
            "A file of people does not fit the task, or cannot be read.",
            "Fix the row or the column that the message names.",
        ),
        Code("MURK-LEDGER-001", "An account or its ledger does not allow what was asked.", _GENERAL),
        Code(
            "MURK-LEDGER-002",
            "A ledger is lost, empty or damaged; nothing was spent or sent.",
            "Put back the newest intact copy ([recover](recover.md#a-ledger-is-lost)), and no older or new one.",
        ),
        Code(
            "MURK-LEDGER-003",
            "The ledger is another one than was used here before.",
            "Use the path of the one that was used before.",
        ),
        Code(
            "MURK-LEDGER-004",
            "A ledger was written by another version of Murk.",
            "Use the version that wrote it, or a later one.",
        ),
        Code(
            "MURK-LEDGER-005",
            "The key under which a ledger names people is lost, damaged or another's; nothing was spent or sent.",
            "Put back any copy of it ([recover](recover.md#the-key-of-a-ledger-is-lost)).",
        ),
        Code(
            "MURK-FILE-001",
            "A file cannot be opened, read or written.",
            "Check the path, its permissions and its disk.",
        ),
        Code(
            "MURK-FILE-002",
            "A file is not what it should be: of something else, or damaged.",
            "Name the right file, or restore it from a copy.",
        ),
        Code(
            "MURK-FILE-003",
            "A file was written by another version of Murk.",
            "Use the version that wrote it, or a later one.",
        ),
        Code("MURK-FILE-004", "The disk is full, or fails.", "Make room, and start again: nothing is lost."),
        Code(
            "MURK-FILE-005", "Another process keeps a file locked, or has replaced it.", "Let it end, and start again."
        ),
        Code("MURK-LOG-001", "A log does not do what was asked of it.", _GENERAL),
        Code(
            "MURK-LOG-002",
            "The log cannot be reached at the moment.",
            "Is the broker running, is this its address? What waits goes on by itself.",
        ),
        Code(
            "MURK-LOG-003",
            "The log carries no task yet.",
            "Announce one: `murk topics` on Kafka, or `murk run` and `murk produce`; `--wait` waits for it.",
        ),
        Code(
            "MURK-LOG-004",
            "There is no log at this address.",
            "Check it; `murk topics TASK --log URL` creates one on Kafka.",
        ),
        Code(
            "MURK-LOG-005",
            "Another worker has taken the chain over.",
            "Nothing, if another one runs: nothing was lost or counted twice.",
        ),
        Code(
            "MURK-LOG-006",
            "The log is not the one that was learned from: deleted, made again, or an older copy.",
            "Bring the right one back, or begin with a new one ([recover](recover.md#a-topic-was-deleted)).",
        ),
        Code(
            "MURK-LOG-007",
            "Messages were removed before they were learned.",
            "Restore the log from a copy, or begin with a new one and a longer retention.",
        ),
        Code("MURK-LOG-008", "A log's address is none.", "Write `sqlite:///PATH` or `kafka://HOST:PORT[/NAME]`."),
        Code(
            "MURK-LOG-009",
            "Nobody learns from the log, and devices wait for a model.",
            "Start `murk learn`, and the same command again: it carries on where it stood.",
        ),
        Code(
            "MURK-KAFKA-001",
            "Topics or settings of a cluster do not fit.",
            "`murk topics TASK --log URL --check` says what does not.",
        ),
        Code(
            "MURK-KAFKA-002",
            "The broker does not let this user at what the message names.",
            "Give it the [rights](deploy.md#rights).",
        ),
        Code(
            "MURK-KAFKA-003",
            "User name, password, mechanism or certificate are not accepted.",
            "Check [the settings](deploy.md#encryption-and-passwords).",
        ),
        Code(
            "MURK-STATE-001",
            "A chain's state is damaged or does not belong to the log.",
            "Restore the log from a copy ([recover](recover.md#states-are-lost)).",
        ),
        Code(
            "MURK-STATE-002",
            "A chain's state was written by another version of Murk.",
            "Start the version that wrote it ([upgrades](deploy.md#upgrades)).",
        ),
        Code("MURK-PRIVACY-001", "A guarantee, a mechanism or a budget is not one, or cannot be had.", _GENERAL),
        Code("MURK-LEARN-001", "A learner cannot learn this, or was asked for what it does not have.", _GENERAL),
        Code(
            "MURK-LEARN-002",
            "A model on the log is none that an honest learner publishes; nothing was computed from a record.",
            "See who may write to the topic of models.",
        ),
        Code("MURK-MONITOR-001", "A monitor or a result cannot be made as asked.", _GENERAL),
        Code("MURK-AUDIT-001", "An audit cannot be made as asked.", _GENERAL),
        Code(
            "MURK-FAULT-001",
            "Something that Murk did not foresee.",
            "Report it, with the type and the place that the message names.",
        ),
    )
}
"""All codes, by code."""

GENERAL = {
    "murk.cli": "MURK-CLI-002",
    "murk.cli.configuration": "MURK-CONF-001",
    "murk.stream.task": "MURK-TASK-001",
    "murk.stream.task.yaml": "MURK-TASK-002",
    "murk.stream.task.change": "MURK-TASK-003",
    "murk.stream.task.data.containers": "MURK-DATA-001",
    "murk.stream": "MURK-LOG-001",
    "murk.stream.log.kafka": "MURK-KAFKA-001",
    "murk.stream.log.kafka.connection.settings": "MURK-KAFKA-003",
    "murk.stream.messages.state": "MURK-STATE-001",
    "murk.producers": "MURK-DATA-001",
    "murk.producers.ledger": "MURK-LEDGER-001",
    "murk._sqlite": "MURK-FILE-001",
    "murk.privacy": "MURK-PRIVACY-001",
    "murk.learners": "MURK-LEARN-001",
    "murk.monitoring": "MURK-MONITOR-001",
    "murk.audit": "MURK-AUDIT-001",
    "murk.dossier": "MURK-AUDIT-001",
    "murk.demo": "MURK-MONITOR-001",
    "reproductions": "MURK-CLI-002",
}
"""The code of errors that name none, by the module that raised them or a package around it."""


def code_of(trace: TracebackType | None) -> str:
    """Return the code of an error that names none: that of the innermost module of Murk in its traceback."""
    module = ""
    while trace is not None:
        name = trace.tb_frame.f_globals.get("__name__", "")
        module = name if name.partition(".")[0] == "murk" else module
        trace = trace.tb_next
    return general(module)


def general(module: str) -> str:
    """Return the code of errors of a module that name none.

    Examples
    --------
    >>> general("murk.stream.task.data.columns"), general("murk.stream.worker.pool"), general("elsewhere")
    ('MURK-TASK-001', 'MURK-LOG-001', 'MURK-FAULT-001')
    """
    while module:
        if module in GENERAL:
            return GENERAL[module]
        module = module.rpartition(".")[0]
    return "MURK-FAULT-001"
