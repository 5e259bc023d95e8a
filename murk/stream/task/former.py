"""What earlier versions filled in where a task file says nothing: logs that were begun so go on."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from murk.privacy.mechanisms import BEST
from murk.stream.task.checks import FORMER_OBJECTIVE
from murk.stream.task.learner import PublicBlock
from murk.stream.task.registry import BLOCKS, FORMER_PROTOCOL, FORMER_SET_ASIDE, PROTOCOLS


def former_defaults(task: Any, carried: Any, by_rule: Set[str]) -> dict[str, Any]:
    """What of a task is to be as in the one that a log carries, where its file left it to the rules.

    Parameters
    ----------
    task
        A `Task`, as its file is read now.
    carried
        The one that a log carries.
    by_rule
        What the file left to the rules: "protocol", "release", "method", "objective", "delays", "models",
        "effects".
    """
    changes: dict[str, Any] = {}
    for name in BLOCKS:
        own, former = getattr(task, name), getattr(carried, name)
        kept = {} if own is None or former is None else PROTOCOLS[name].former_settings(former, by_rule)
        if kept:
            changes[name] = own.model_dump(mode="json") | kept
    if "protocol" in by_rule and carried.protocol == FORMER_PROTOCOL != task.protocol:
        changes |= {"protocol": FORMER_PROTOCOL, task.protocol: None}
    same = "protocol" in changes or task.protocol == carried.protocol
    logistic = carried.objective == FORMER_OBJECTIVE and task.target.kind == "binary"
    if same and logistic and "objective" in by_rule:
        changes["objective"] = FORMER_OBJECTIVE
    if "delays" in by_rule and carried.learner.delays is None:
        changes["learner"] = task.learner.model_dump(mode="json") | {"delays": None}
    sample = PublicBlock(set_aside=FORMER_SET_ASIDE)
    if task.protocol == "moments" and task.public is None and carried.public == sample:
        changes["public"] = sample.model_dump(mode="json")
    if task.privacy.mechanism == BEST and carried.privacy.mechanism is None:
        changes["privacy"] = task.privacy.model_dump(mode="json", by_alias=True) | {"mechanism": None}
    return changes
