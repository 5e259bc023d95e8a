"""Codes of errors; docs/errors.md tells for each what happened and what to do.

A code never changes its meaning and is never reused. An error without a code has the first code of its area.
"""

from types import TracebackType

GENERAL = {
    "murk.cli": "MURK-CLI-002",
    "murk.cli.configuration": "MURK-CONF-001",
    "murk.stream.task": "MURK-TASK-001",
    "murk.stream.task.yaml": "MURK-TASK-002",
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

    >>> general("murk.stream.task.data.coding"), general("murk.stream.worker.pool"), general("elsewhere")
    ('MURK-TASK-001', 'MURK-LOG-001', 'MURK-FAULT-001')
    """
    while module:
        if module in GENERAL:
            return GENERAL[module]
        module = module.rpartition(".")[0]
    return "MURK-FAULT-001"
