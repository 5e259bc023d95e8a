"""The protocols in one table: what the tests of faults run over, each with the smallest task that means something."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from murk.privacy.noise import SimulatedNoise
from murk.producers.producer import randomize_records
from murk.protocols.device import device_for
from murk.stream.wire.releases import SketchRelease, query_fields
from murk.task.task import Task
from tests.cli.harness import ANY_PROTOCOL, HEADER, ROWS

PRIVACY = "guarantee: {gdp: {mu: 1.0}}"
COLUMNS = """\
  - {name: age, low: 21, high: 35}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
"""
HONEST = 256
"""Contents of honest releases that are made of each protocol."""


@dataclass(frozen=True)
class Protocol:
    """How the tests' task is with a protocol.

    Parameters
    ----------
    name
        As in the task.
    block
        What the task says besides.
    privacy
        What its ``privacy`` block says.
    cap
        What that block says so that somebody may release many times.
    records
        Records that make one release.
    set_aside
        Records that are public and release nothing.
    columns
        The second feature and the target.
    ages
        Of the people, where not all take part.
    title
        What it is called where that is not ``name``.
    """

    name: str
    block: str
    privacy: str = PRIVACY
    cap: str = ", per_person: {gdp: {mu: 100.0}}"
    records: int = 1
    set_aside: int = 0
    columns: str = COLUMNS
    ages: tuple[str, ...] = ()
    title: str = ""

    def people(self, count: int) -> Sequence[int]:
        """The first so many people of those that the task is for, by their place in the file of all."""
        if not self.ages:
            return range(count)
        place = HEADER.index("age")
        return [*islice((at for at, row in enumerate(ROWS[1:]) if row.split(",")[place] in self.ages), count)]

    def text(self, more: str = "", privacy: str = "") -> str:
        """The task, with more lines and with more in its ``privacy`` block."""
        common = ANY_PROTOCOL.replace(PRIVACY, self.privacy + privacy).replace(COLUMNS, self.columns)
        return common + self.block + more

    def releases(self, rows: int) -> int:
        """How many releases so many records make."""
        return (rows - self.set_aside) // self.records

    def rows(self, releases: int) -> int:
        """How many records so many releases take."""
        return releases * self.records + self.set_aside

    def __str__(self) -> str:
        return self.title or self.name


GRADIENTS = Protocol("gradients", "protocol: gradients\n")
SCORES = Protocol("scores", "protocol: scores\n")
OWN_MODELS = Protocol("scores", "protocol: scores\nscores: {models: per-partition}\n")
"""Scores of partitions that each make their own models: a function of its partition alone."""
AGES = ("33", "34", "35")
CLASSES = Protocol(
    "scores",
    "protocol: scores\npublic: {set_aside: 500}\n",
    set_aside=500,
    columns=f"""\
  - {{name: weeks_worked, low: 0, high: 52}}
target: {{name: age, kind: classes, classes: {[*AGES]}}}
""",
    ages=AGES,
)
"""Of classes. It is not in the table below, whose contents are of lengths that go by the protocol's name."""
EXAMPLES = Protocol("examples", "protocol: examples\n")
MOMENTS = Protocol("moments", "protocol: moments\nmoments: {release: joint}\npublic: {set_aside: 10}\n", set_aside=10)
ONCE = Protocol("scores", "protocol: scores\nscores: {interactive: false}\npublic: {set_aside: 500}\n", set_aside=500)
"""Scores without rounds; as of several classes, it is not in the table below."""
SKETCH = Protocol(
    "summaries",
    # Small windows, so that few people make many releases; any number of them fits under the cap.
    "protocol: summaries\nsummaries: {rows: 8, window: 20}\n",
    "guarantee: {approx: {epsilon: 1.0, delta: 1.0e-6}}, per_person: {approx: {epsilon: 1.0e+5, delta: 0.5}}",
    "",
    records=20,
)
GRAM = Protocol(
    "summaries", "protocol: summaries\nsummaries: {method: moments, window: 20}\n", SKETCH.privacy, "", records=20,
    title="sketch of moments",
)  # fmt: skip
NEWTON = Protocol(
    "summaries", "protocol: summaries\nsummaries: {method: newton, first: 8, window: 20}\n", SKETCH.privacy, "",
    records=20,
    title="Newton steps",
)  # fmt: skip
PROTOCOLS = (GRADIENTS, SCORES, EXAMPLES, MOMENTS, SKETCH)
OTHERS = (EXAMPLES, MOMENTS, SKETCH)
"""Those whose releases are of no model."""
BY_NAME = {str(protocol): protocol for protocol in (*PROTOCOLS, GRAM, NEWTON)}


def title_of(task: Task) -> str:
    """The name here of what a task's people or organisations release."""
    return {"gram": str(GRAM), "newton": str(NEWTON)}.get(task.release_kind, task.protocol)


@cache
def contents(name: str) -> tuple[dict[str, Any], ...]:
    """What honest releases of the protocol's task hold: payloads of its own mechanism, from made-up records."""
    device = device_for(Task.parse(BY_NAME[name].text()).with_simulated(True))
    mechanism: Any = device.mechanisms["default"]
    noise, rng = SimulatedNoise(1), np.random.default_rng(1)
    rows = BY_NAME[name].records
    X = np.column_stack([rng.choice([-1.0, 1.0], HONEST * rows), rng.uniform(-1.0, 1.0, HONEST * rows)])
    X, y = np.column_stack([X, np.ones(len(X))]), rng.choice([0.0, 1.0], HONEST * rows)
    if BY_NAME[name].name == "summaries":
        return tuple(_window(device, X[start : start + rows], y[start : start + rows], start, noise)
                     for start in range(0, len(X), rows))  # fmt: skip
    theta = device.initial if device.interactive else None  # type: ignore[attr-defined]
    if name == "scores":
        at = np.arange(HONEST)
        payloads, queries = randomize_records(device, X, y, [0] * HONEST, {0: theta}, ["default"] * HONEST, noise, at)  # type: ignore[arg-type]
        return tuple(
            {"version": 0, **query_fields(query), "payload": payload}
            for query, payload in zip(queries or (), payloads, strict=True)
        )
    vectors = device.vectors(X, y, theta)  # type: ignore[attr-defined]
    return tuple({"payload": one} for one in mechanism.randomize(vectors, noise, np.arange(HONEST)).tolist())


def _window(device: Any, X: Any, y: Any, window: int, noise: SimulatedNoise) -> dict[str, Any]:
    accumulator = device.accumulator("default", noise, window)
    accumulator.add_block(device.records(X, y))
    made = accumulator.release()
    found = {"payload": SketchRelease.packed(made.integers), "records": made.records}
    if device.kind == "newton":
        return {**found, "model": made.model.tolist()}
    return found if device.rows is None else {**found, "rows": made.rows, "spread": made.spread}
