"""A task of organisations' sketches, small enough that a window takes no time."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from murk import Task
from murk.privacy.noise import SimulatedNoise
from murk.producers import Ledger, OrganisationProducer, Policy
from murk.producers.organisation import window_device_for
from murk.protocols.summaries.device import SketchDevice
from murk.stream import open_log
from murk.stream.log.interface import Log, Message
from murk.stream.wire.codec import WireRules, decode
from murk.stream.wire.releases import SketchRelease
from tests.producers.world import NOW

TEXT = """
name: weeks
features:
  - {name: age, low: 20, high: 40}
  - {name: same_sex, categories: ["no", "yes"]}
target: {name: weeks, kind: real, low: 0, high: 52}
protocol: summaries
privacy:
  guarantee: {approx: {epsilon: 1.0, delta: 1.0e-6}}
  levels: {strict: {approx: {epsilon: 0.5, delta: 1.0e-6}}}
"""
RECORD = {"age": 28, "same_sex": "yes", "weeks": 13}
WINDOW = 10


def make_task(sketch: str = f"rows: 8, window: {WINDOW}", *more: str, windows: int = 3, simulated: bool = True) -> Task:
    """The task, with a cap for so many windows of an organisation."""
    cap = f"  per_person: {{approx: {{epsilon: {windows}.0, delta: {windows}.0e-6}}}}\n"
    text = TEXT.replace("privacy:\n", f"privacy:\n{cap}") + f"summaries: {{{sketch}}}\n" + "\n".join(more)
    return Task.parse(text).with_simulated(simulated)


@cache
def device_of(task: Task) -> SketchDevice:
    """The task's device; how much noise it takes is found out once."""
    return window_device_for(task)


class SketchWorld:
    """A folder with a log, a ledger and an organisation, each made when it is first asked for."""

    def __init__(self, folder: Path, task: Task, policy: Policy | None = None) -> None:
        self.folder, self.task, self.policy = folder, task, policy
        self.now = NOW
        self.device = device_of(task)
        self._open = ExitStack()
        self.log: Log = self._open.enter_context(open_log(f"sqlite:///{folder}/log.db"))
        if self.log.document() is None:
            self.log.register_task(task.document())
        self.ledger = self._open.enter_context(Ledger(folder / "ledger.db"))
        for database in (self.log._database, self.ledger._file):  # type: ignore[attr-defined]
            # What a killed process has written stays; only a power failure would take it. It is faster.
            database._connection.execute("PRAGMA synchronous = OFF")
        self.producer = self.produce()

    def produce(self, log: Log | None = None, organisation: str = "clinic", **options: Any) -> OrganisationProducer:
        """Make a producer of an organisation, on another log where one is given."""
        options.setdefault("noise", SimulatedNoise(7) if self.task.simulated else None)
        return OrganisationProducer(
            self.task,
            log or self.log,
            self.ledger,
            organisation=organisation,
            policy=self.policy,
            clock=lambda: self.now,
            device=self.device,
            **options,
        )

    def messages(self, partition: int = 0) -> list[Message]:
        """All that stands on a partition."""
        return self.log.read(partition, self.log.begin(partition), 1_000_000) if self.log.end(partition) else []

    def releases(self, partition: int = 0) -> list[SketchRelease]:
        """The same, checked as a worker checks it, and found plausible by a learner."""
        engine = self.device.engine()
        rules = WireRules(
            self.task.hash,
            self.task.simulated,
            (self.device.dimension,),
            {level: mechanism.magnitude for level, mechanism in self.device.mechanisms.items()},
            self.task.log.partitions,
            kind="sketch",
        )
        found = []
        for message in self.messages(partition):
            release = decode(message.value, rules)
            assert isinstance(release, SketchRelease)
            engine.admit(release)
            found.append(release)
        return found

    def released(self, organisation: str = "clinic") -> int:
        """Windows that an organisation's account has paid for."""
        tasks = self.ledger.account(organisation).tasks
        return sum(level.released for task in tasks for level in task.levels)

    def __enter__(self) -> SketchWorld:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()


def coded(count: int, start: int = 0) -> tuple[Any, Any]:
    """Coded records without chance."""
    steps = np.arange(start, start + count)
    x = np.column_stack([np.sin(steps), np.where(steps % 2, 1.0, -1.0), np.ones(count)])
    return x, np.cos(steps) / 2


def write_records(path: Path, count: int) -> Path:
    """A CSV of so many records of two clinics, which take turns unevenly."""
    lines = ["age,same_sex,weeks,clinic"]
    for row in range(count):
        clinic = ("north", "south")[row * row % 7 < 3]
        lines.append(f"{20 + row % 21},{('no', 'yes')[row % 2]},{row * 11 % 53},{clinic}")
    path.write_text("\n".join(lines) + "\n")
    return path
