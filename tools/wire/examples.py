"""One example of everything on a log's topics, of the smallest task of docs/task-file.md."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from murk.cli.estimates import encode as encode_estimate
from murk.inference.estimate import Estimate
from murk.stream.wire.codec import RejectedError, WireRules, decode, encode
from murk.stream.wire.releases import (
    ExampleRelease,
    GradientRelease,
    GramRelease,
    ModelMessage,
    MomentRelease,
    NewtonRelease,
    ScoreRelease,
    SketchRelease,
    TargetRelease,
)
from murk.stream.wire.state import Counters, StateMessage
from murk.task.task import Task
from tools.task_file_text import MINIMAL

TASK: Final = Task.parse(MINIMAL + "protocol: gradients\nobjective: logistic\n")
SCORES: Final = Task.parse(f"{MINIMAL}protocol: scores\n")
EXAMPLES: Final = Task.parse(f"{MINIMAL}protocol: examples\n")
MOMENTS: Final = Task.parse(f"{MINIMAL}protocol: moments\n")
TARGET: Final = Task.parse(
    "name: weight\nfeatures: []\ntarget: {name: color, kind: classes, classes: [red, green, blue]}\n"
    "privacy: {guarantee: {pure: {epsilon: 1.0}}}\n"
)
_APPROX: Final = MINIMAL.replace("gdp: {mu: 1.0}", "approx: {epsilon: 1.0, delta: 1e-6}")
SKETCH: Final = Task.parse(f"{_APPROX}protocol: summaries\nsummaries: {{method: linear-mixing}}\n")
GRAM: Final = Task.parse(f"{_APPROX}protocol: summaries\n")
NEWTON: Final = Task.parse(f"{_APPROX}protocol: summaries\nsummaries: {{method: newton}}\n")
_DAY: Final = 86_400
# What two releases made by the code of the page came to: a test has a real learner take it over.
_LEARNER: Final = {
    "schema": 1,
    "settings": "3f5f455d56921708",
    "dimension": 3,
    "n_releases": 2,
    "sums": "/r4CidvlxD/+vgKJ2+XEP/6+Aonb5cQ/AAAAAAAAFEA=",
    "delays": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEA=",
    "rows": {
        "iterate": "Trf7u1Ho3j/44xgYg1jhv1pea2yICKi/",
        "average": "hJqYcI142z+/rCwsNIncv0U9djZMbZe/",
        "scaling_a": "z/OT3YAY7D8vODtpK1ztPwaC7u2DKWE/",
        "scaling_b": "+fzy3F+9AECRSBtbxhABwLusexuuH7e/",
        "mean_at": "un01JckIyD+OkScoYmHGv48ipL6GZ0M/",
        "mean_gradient": "Yu8Se5fY67+n4TYNt2nwP/xw4IcDP7w/",
    },
    "published": {
        "versions": [0, 1, 2],
        "iterates": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAun01JckI2D+OkScoYmHWv48ipL6GZ1M/Trf7u1Ho3j/44xgYg1jhv1pea2yICKi/",
    },
}
ESTIMATE: Final = Estimate(
    names=TASK.coding.names,
    values=np.array([0.421875, 0.0625, -0.375]),
    method="plug-in",
    spread=np.array([0.015625, 0.0078125, 0.0078125]),
    note="95% intervals held the truth in 95% of runs",
    partitions=1,
    n_releases=254_654,
)
_LAST: Final = "98a40c9a8c0d2b84fab6746aed768c8b"
_OTHER: Final = "0f1d359716fbcdb098e18a76d7561cc1"


@dataclass(frozen=True)
class Example:
    """One record as it stands on a topic; bytes are shown as UTF-8 text."""

    topic: str
    partition: int
    key: str | None
    value: bytes
    headers: dict[str, str] = field(default_factory=dict)


def rules(task: Task, magnitude: int) -> WireRules:
    """What the worker of a task with one level asks of a release, where it has three coefficients."""
    return WireRules(task.hash, task.simulated, lengths=(3,), magnitudes={"default": magnitude})


def examples(magnitude: int) -> dict[str, Example]:
    """Return an example by kind; ``magnitude`` is what payloads of the task's level stay below."""
    name = TASK.name
    release = encode(
        GradientRelease(
            id=_LAST,
            task=TASK.hash,
            level="default",
            partition=0,
            version=1,
            payload=[-262_757, 470_645, 117_745],
            time=20_778 * _DAY,
            expires=20_785 * _DAY,
        )
    )
    when: Any = {"time": 20_778 * _DAY, "expires": 20_785 * _DAY}
    score = ScoreRelease(
        id=_LAST, task=SCORES.hash, level="default", partition=0, version=3706, query="score", item=0,
        payload=[-1_040_221, 733_019, 288_450], **when,
    )  # fmt: skip
    example = ExampleRelease(
        id=_LAST, task=EXAMPLES.hash, level="default", partition=0,
        payload=[
            -406_925, 1_640_110, 302_511, -877_204, 418_466, -1_190_733, 560_012, 971_880, -633_547, 1_204_391,
        ],
        **when,
    )  # fmt: skip
    moments = [518_003, -1_904_381, 76_044, 2_250_107, -419_876, 903_471, 312_268, -98_710, 1_188_254]
    moment = MomentRelease(id=_LAST, task=MOMENTS.hash, level="default", partition=0, payload=moments, **when)
    target = TargetRelease(id=_LAST, task=TARGET.hash, level="default", partition=0, payload=[0, 1, 0, 0], **when)
    sketch = SketchRelease(
        id=_LAST,
        task=SKETCH.hash,
        level="default",
        partition=0,
        rows=2,
        records=250_000,
        spread=9.25,
        payload=SketchRelease.packed([81_204_417, -30_229_116, 4_410_927, -9_117_302, 66_051_238, -20_008_731]),
        **when,
    )
    integers = [
        31_604_117_233, -8_120_456_019, 10_377_815, 5_001_232_764, 94_802_650_118, -1_204_466_320, 20_410_778_905,
        94_803_311_640, 9_650_312_477, 94_803_297_002,
    ]  # fmt: skip
    gram = GramRelease(
        id=_LAST,
        task=GRAM.hash,
        level="default",
        partition=0,
        records=250_000,
        payload=GramRelease.packed(integers),
        **when,
    )
    newton = NewtonRelease(
        id=_LAST,
        task=NEWTON.hash,
        level="default",
        partition=0,
        records=250_000,
        model=[0.4163018405914307, -0.5123305320739746, -0.0581216812133789],
        payload=NewtonRelease.packed([*integers, *(3 * number for number in integers)]),
        **when,
    )
    parameters = ModelMessage(
        task=TASK.hash,
        partition=0,
        version=2,
        parameters=[0.4829296432279663, -0.5420546980523104, -0.04694010089377505],
    )
    state = StateMessage(
        task=TASK.hash,
        identity="3cb56acdfc23deb615403839e6c11031",
        partition=0,
        offset=3,
        last_id=_LAST,
        counters=Counters(learned=2, dead={"magnitude": 1}, levels={"default": 2}, staleness=[2]),
        learner=_LEARNER,
    )
    loud = json.dumps({**json.loads(release), "id": _OTHER, "payload": [10**9, 0, 0]}, separators=(",", ":")).encode()
    return {
        "gradient": Example(f"murk-{name}-releases", 0, None, release),
        "score": Example(f"murk-{name}-releases", 0, None, encode(score)),
        "example": Example(f"murk-{name}-releases", 0, None, encode(example)),
        "moment": Example(f"murk-{name}-releases", 0, None, encode(moment)),
        "target": Example(f"murk-{name}-releases", 0, None, encode(target)),
        "sketch": Example(f"murk-{name}-releases", 0, None, encode(sketch)),
        "gram": Example(f"murk-{name}-releases", 0, None, encode(gram)),
        "newton": Example(f"murk-{name}-releases", 0, None, encode(newton)),
        "model": Example(f"murk-{name}-models", 0, "0", encode(parameters)),
        "task": Example(f"murk-{name}-models", 0, "task", TASK.document()),
        "state": Example(f"murk-{name}-states", 0, "0", state.encode(), {"offset": "3", "owner": "learner-1"}),
        "estimate": Example(f"murk-{name}-estimates", 0, "estimate", encode_estimate(TASK, ESTIMATE, 254_654, 254_654)),
        "dead letter": Example(f"murk-{name}-dead-letters", 0, "0:2", loud, _why(loud, magnitude)),
    }


def _why(message: bytes, magnitude: int) -> dict[str, str]:
    try:
        decode(message, rules(TASK, magnitude))
    except RejectedError as rejected:
        return {"reason": rejected.reason, "detail": rejected.detail}
    raise AssertionError("the example of a dead letter is a good release")
