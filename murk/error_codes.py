"""Registry of error codes: what happened and what to do.

A code never changes its meaning and is never reused. An error without a code has the first code of its area.
"""

from dataclasses import dataclass
from types import TracebackType


@dataclass(frozen=True, slots=True)
class Code:
    """An error code (``MURK-AREA-NUMBER``) with what happened and what to do."""

    code: str
    what: str
    remedy: str

    @property
    def area(self) -> str:
        """Area of the code."""
        return self.code.split("-")[1]


AREAS = {
    "CLI": "the command line",
    "CONF": "settings from a file and the environment",
    "TASK": "task files and tasks",
    "DATA": "data files and their records",
    "LEDGER": "accounts of people and organisations",
    "FILE": "Murk's own files: ledgers and logs",
    "LOG": "logs of either kind",
    "KAFKA": "a Kafka cluster",
    "SHUFFLE": "the shuffler, its store and its logs",
    "STATE": "committed states of learners",
    "PRIVACY": "guarantees, mechanisms and noise",
    "LEARN": "learners, and models that devices read",
    "MONITOR": "the monitor, and results",
    "AUDIT": "the audit",
    "FAULT": "faults in Murk",
}
"""Areas of codes, in the order of the reference page."""

_GENERAL = "The message names the remedy."

_CODES = (
    Code("MURK-CLI-001", "A command, an option or a value of an option is invalid.",
         "`murk COMMAND --help` lists them."),
    Code("MURK-CLI-002", "The command cannot do this, or not with this combination of options.", _GENERAL),
    Code("MURK-CLI-003", "An optional package is not installed.", "Install the extra that the message names."),
    Code("MURK-CONF-001", "The configuration file cannot be read or is not TOML.",
         "Fix the line that the message names; `murk config` shows the settings in effect."),
    Code("MURK-CONF-002", "A key in the configuration file or a `MURK_...` variable is not a setting.",
         "Use the name that the message suggests; `murk config --all` lists all settings."),
    Code("MURK-CONF-003", "The value of a setting is invalid.", "Use a value that the message names."),
    Code("MURK-CONF-004", "A setting in the file or the environment is allowed only as an option of the command.",
         "Remove it there and pass the option to each command."),
    Code("MURK-TASK-001", "A task has an invalid value or combination of values.", _GENERAL),
    Code("MURK-TASK-002", "A task file cannot be read, is not YAML, or uses YAML that task files do not allow.",
         "Fix the line that the message names."),
    Code("MURK-TASK-003", "The log carries another task, or the same task with a different number of partitions.",
         "Use the task as it was announced, or another log."),
    Code("MURK-TASK-004", "A model asks for what the log's releases cannot serve.",
         "Choose among the columns and losses that the message names."),
    Code("MURK-DATA-001", "A data file cannot be read or does not fit the task.",
         "Fix the row or the column that the message names."),
    Code("MURK-LEDGER-001", "An account or its ledger does not allow the operation.", _GENERAL),
    Code("MURK-LEDGER-002", "A ledger is lost, empty or damaged; nothing was spent or sent.",
         "Restore the newest intact copy, never an older or a new one ([recover](recover.md#a-ledger-is-lost))."),
    Code("MURK-LEDGER-003", "The ledger differs from the one used for this log before.",
         "Use the path of the previous ledger."),
    Code("MURK-LEDGER-004", "A ledger was written by another version of Murk.", "Use that version or a later one."),
    Code("MURK-LEDGER-005",
         "The key of a ledger's names is lost, damaged or another ledger's; nothing was spent or sent.",
         "Restore any copy of the key ([recover](recover.md#the-key-of-a-ledger-is-lost))."),
    Code("MURK-FILE-001", "A file cannot be opened, read or written.", "Check the path, its permissions and its disk."),
    Code("MURK-FILE-002", "A file is of a different kind, or is damaged.",
         "Name the right file, or restore it from a copy."),
    Code("MURK-FILE-003", "A file was written by another version of Murk.", "Use that version or a later one."),
    Code("MURK-FILE-004", "The disk is full or fails.", "Free some space and start again: nothing is lost."),
    Code("MURK-FILE-005", "Another process has locked, deleted or replaced a file.",
         "Wait for it or stop it, then start again."),
    Code("MURK-LOG-001", "An operation on a log failed.", _GENERAL),
    Code("MURK-LOG-002", "The log cannot be reached.",
         "Check the broker and its address. Processes that wait resume by themselves."),
    Code("MURK-LOG-003", "The log carries no task yet.",
         "Announce one with `murk topics` (Kafka), `murk run` or `murk produce`, or wait for it with `--wait`."),
    Code("MURK-LOG-004", "There is no log at this URL.",
         "Check the URL; `murk topics TASK --log URL` creates a log on Kafka."),
    Code("MURK-LOG-005", "Another worker has taken over the chain.",
         "If another worker runs, do nothing: no release was lost or counted twice."),
    Code("MURK-LOG-006",
         "The log is not the one that was learned from: it was deleted, recreated or replaced by an older copy.",
         "Restore the right log, or begin with a new one ([recover](recover.md#a-topic-was-deleted))."),
    Code("MURK-LOG-007", "Messages were removed before they were learned.",
         "Restore the log from a copy, or begin with a new one and a longer retention."),
    Code("MURK-LOG-008", "The log URL is invalid.", "Write `sqlite:///PATH` or `kafka://HOST:PORT[/NAME]`."),
    Code("MURK-LOG-009", "Devices wait for a model, and no learner publishes one.",
         "Start `murk learn`, then the same command again: it resumes."),
    Code("MURK-KAFKA-001", "Topics or settings of the cluster do not fit the task.",
         "Run `murk topics TASK --log URL --check`, which lists the problems."),
    Code("MURK-KAFKA-002", "The broker denies this user access to a resource.",
         "Grant the [rights](deploy.md#rights)."),
    Code("MURK-KAFKA-003", "The broker rejects user name, password, mechanism or certificate.",
         "Check [the settings](deploy.md#encryption-and-passwords)."),
    Code("MURK-SHUFFLE-001", "An intake, a log and a store do not belong to one shuffler.", _GENERAL),
    Code("MURK-SHUFFLE-002", "No shuffler writes to the log of a shuffled task.",
         "Start `murk shuffle`; learn from its `--to`, and send to its `--from`."),
    Code("MURK-STATE-001", "A chain's state is damaged or does not belong to the log.",
         "Restore the log from a copy ([recover](recover.md#states-are-lost))."),
    Code("MURK-STATE-002", "A chain's state was written by another version of Murk.",
         "Start that version ([upgrades](deploy.md#upgrades))."),
    Code("MURK-PRIVACY-001", "A guarantee, a mechanism or a budget is invalid or cannot be met.", _GENERAL),
    Code("MURK-LEARN-001", "A learner does not support the operation, the data or the parameters.", _GENERAL),
    Code("MURK-LEARN-002",
         "The log carries a model that no honest learner publishes; nothing was computed from a record.",
         "Check who may write to the topic of models."),
    Code("MURK-MONITOR-001", "A monitor or a result has an invalid argument.", _GENERAL),
    Code("MURK-AUDIT-001", "An audit or a dossier has an invalid argument.", _GENERAL),
    Code("MURK-FAULT-001", "An unexpected exception: a fault in Murk.",
         "Report it with the type and the place that the message names."),
)  # fmt: skip

CODES = {code.code: code for code in _CODES}
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
    "murk.shuffler": "MURK-SHUFFLE-001",
    "murk.producers": "MURK-DATA-001",
    "murk.producers.ledger": "MURK-LEDGER-001",
    "murk._sqlite": "MURK-FILE-001",
    "murk.privacy": "MURK-PRIVACY-001",
    "murk.learners": "MURK-LEARN-001",
    "murk.planning": "MURK-LEARN-001",
    "murk.monitoring": "MURK-MONITOR-001",
    "murk.gateway": "MURK-LOG-001",
    "murk.audit": "MURK-AUDIT-001",
    "murk.dossier": "MURK-AUDIT-001",
    "murk.demo": "MURK-MONITOR-001",
    "reproductions": "MURK-CLI-002",
}
"""Code of an error that states none, by the module that raised it or a package that contains that module."""


def code_of(trace: TracebackType | None) -> str:
    """Return the general code for the innermost module of Murk in a traceback."""
    module = ""
    while trace is not None:
        name = trace.tb_frame.f_globals.get("__name__", "")
        module = name if name.partition(".")[0] in ("murk", "reproductions") else module
        trace = trace.tb_next
    return general(module)


def general(module: str) -> str:
    """Return the general code of a module.

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
