"""Task files that several tests use."""

import json
from typing import Any

from murk.task.task import Task

ANY_PROTOCOL = """\
name: third-child
features:
  - {name: age, low: 21, high: 35}
  - {name: same_sex, categories: [no, yes]}
  - {name: origin, categories: [EWR, JFK, LGA]}
target: {name: third_child, kind: binary, positive: yes, negative: no}
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""
LOGISTIC = ANY_PROTOCOL + "protocol: gradients\n"
GUARANTEE = "{guarantee: {gdp: {mu: 1.0}}}"
SOFTMAX = LOGISTIC.replace("kind: binary, positive: yes, negative: no", "kind: classes, classes: [none, one, more]")
HUBER = LOGISTIC.replace("kind: binary, positive: yes, negative: no", "kind: real, low: 0, high: 52")


def content(text: str = LOGISTIC) -> dict[str, Any]:
    """The resolved content of a task file, without what no file sets."""
    resolved: dict[str, Any] = json.loads(Task.parse(text).document())
    for key in ("schema", "simulated", "covariates"):
        del resolved[key]
    return resolved


def parse(data: dict[str, Any]) -> Task:
    """A task from the content of a file: JSON is YAML."""
    return Task.parse(json.dumps(data))
