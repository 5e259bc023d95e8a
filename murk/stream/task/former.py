"""Defaults of earlier versions; a log keeps the defaults of the version that began it.

Up to version 0.3, a file without ``protocol`` had gradients; binary targets had the logistic loss; moments without
``public`` set 1,000 records aside; organisations mixed their records; no mechanism was ``best``; steps did not depend
on a gradient's age; chains of scores had their own models, at the fitted coefficients; and examples and moments were
released jointly, later examples as directions.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from murk.privacy.mechanisms import BEST
from murk.stream.task.checks import FORMER_OBJECTIVE
from murk.stream.task.learner import PublicBlock
from murk.stream.task.registry import BLOCKS, FORMER_PROTOCOL, FORMER_SET_ASIDE, PROTOCOLS


def former_defaults(task: Any, carried: Any, by_rule: Set[str]) -> dict[str, Any]:
    """Return the log's values for keys that the task file leaves out and that earlier versions filled in differently.

    ``by_rule`` are the keys that the file leaves out, of "protocol", "release", "method", "objective", "delays",
    "models" and "effects".
    """
    changes: dict[str, Any] = {}
    for name in BLOCKS:
        block, former = getattr(task, name), getattr(carried, name)
        kept = {} if block is None or former is None else PROTOCOLS[name].former_settings(former, by_rule)
        if kept:
            changes[name] = block.model_dump(mode="json") | kept
    if "protocol" in by_rule and carried.protocol == FORMER_PROTOCOL != task.protocol:
        # The step settings of the log's task: the rules for the new default protocol filled in none.
        learner = carried.learner.model_dump(mode="json")
        changes |= {"protocol": FORMER_PROTOCOL, task.protocol: None, "learner": learner}
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
