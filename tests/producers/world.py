"""A small task with its log and ledger, and noise that is simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from murk import Task
from murk.populations import FileSource
from murk.privacy.noise import SimulatedNoise
from murk.producers import Ledger, Policy, Producer
from murk.protocols.device import device_for
from murk.stream import open_log
from murk.stream.log.interface import Log, Message, PartitionStatus
from murk.stream.wire.codec import encode
from murk.stream.wire.releases import ModelMessage

TEXT = """
name: third-child
features:
  - {name: age, low: 21, high: 35}
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: origin, categories: [EWR, JFK, LGA]}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
privacy:
  guarantee: {gdp: {mu: 1.0}}
  levels: {strict: {gdp: {mu: 0.5}}, open: {gdp: {mu: 2.0}}}
"""

RECORD = {"age": 28, "same_sex": "yes", "origin": "JFK", "third_child": "no"}
NOW = 1_700_049_599.0
SECRET = "s3cr3t"


def make_task(*more: str, simulated: bool = True, text: str = TEXT) -> Task:
    """The task with further lines: of gradients, where they name no protocol."""
    named = any(line.startswith("protocol:") for line in more)
    return Task.parse("\n".join([text, *more, *([] if named else ["protocol: gradients"])])).with_simulated(simulated)


def paid_task(mu: float, *more: str, simulated: bool = True) -> Task:
    """The task with a cap of its own per person."""
    text = TEXT.replace("privacy:\n", f"privacy:\n  per_person: {{gdp: {{mu: {mu}}}}}\n")
    return make_task(*more, simulated=simulated, text=text)


class World:
    """A folder with a log, a ledger and a producer, each made when it is first asked for."""

    def __init__(self, folder: Path, task: Task, seed: int = 7, policy: Policy | None = None) -> None:
        self.folder = folder
        self.task = task
        self.seed = seed
        self.policy = policy
        self.now = NOW
        self._open = ExitStack()
        self.log: Log = self._open.enter_context(open_log(f"sqlite:///{folder}/log.db"))
        if self.log.document() is None:
            self.log.register_task(task.document())
        self.ledger = self._open.enter_context(Ledger(folder / "ledger.db"))
        for database in (self.log._database, self.ledger._file):  # type: ignore[attr-defined]
            # What a killed process has written stays; only a power failure would take it. It is faster.
            database._connection.execute("PRAGMA synchronous = OFF")
        self.producer = self.produce()

    def produce(self, log: Log | None = None) -> Producer:
        """Make a producer, on another log where one is given."""
        return Producer(
            self.task,
            log or self.log,
            self.ledger,
            noise=SimulatedNoise(self.seed) if self.task.simulated else None,
            policy=self.policy,
            clock=lambda: self.now,
        )

    def messages(self, partition: int = 0) -> list[Message]:
        """All that stands on a partition."""
        return self.log.read(partition, self.log.begin(partition), 1_000_000) if self.log.end(partition) else []

    def publish(self, parameters: Sequence[float], version: int = 0, partition: int = 0, **other: Any) -> None:
        """Put a model on the log, as a learner would."""
        message = ModelMessage(task=self.task.hash, partition=partition, version=version, parameters=list(parameters))
        self.log.publish(partition, encode(message.model_copy(update=other)))

    def __enter__(self) -> World:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()


class Wrapped:
    """A log whose methods can be replaced; everything else is the log's own."""

    def __init__(self, log: Log, **methods: Callable[..., Any]) -> None:
        self._log = log
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def status(self, partition: int) -> PartitionStatus:
        # What is made of others is made of those that were replaced.
        return Log.status(self, partition)  # type: ignore[arg-type]


class Untouchable(Mapping[str, Any]):
    """A record that nobody may look at."""

    def __getitem__(self, key: str) -> Any:
        raise AssertionError("the record was looked at")

    def get(self, key: str, default: Any = None) -> Any:
        raise AssertionError("the record was looked at")

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("the record was looked at")

    def __len__(self) -> int:
        raise AssertionError("the record was looked at")


def write_people(path: Path, count: int, header: str = "age,same_sex,origin,third_child,who,level") -> Path:
    """A CSV of ``count`` people, two rows for each name, without chance."""
    lines = [header]
    for row in range(count):
        lines.append(
            f"{21 + row % 15},{('no', 'yes')[row % 2]},{('EWR', 'JFK', 'LGA')[row % 3]},"
            f"{('yes', 'no')[row // 2 % 2]},person-{row // 2},{('default', 'strict', 'open')[row % 3]}"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def run_blocks(world: World, source: FileSource, producer: Producer | None = None) -> None:
    """What a run does with a file: blocks that grow with the rows done, each at a model of its own."""
    producer = producer or world.producer
    run = producer.begin(source)
    producer.flush()
    done = [run.next_row]
    for block in source.blocks(run.next_row, lambda: max(1, min(40, done[-1] // 5)), excluded=run.excluded):
        learn(world)
        producer.release_block(block)
        done.append(block.next_position)


def learn(world: World) -> None:
    """Publish a model that depends on what is stored in the log, as a learner's would."""
    version = world.log.end(0)
    angles = version + np.arange(device_for(world.task).dimension)
    world.publish((np.sin(angles) / 4).tolist(), version=version)
