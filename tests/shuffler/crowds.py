"""Tasks with small crowds, releases that show where they end up, and what a shuffler is run on."""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from murk.protocols.device import device_for
from murk.shuffler.shuffler import Shuffler
from murk.shuffler.store import Store
from murk.stream.log.interface import Log
from murk.stream.log.open import open_log
from murk.stream.log.sqlite import SqliteLog
from murk.stream.wire.admission import wire_rules
from murk.stream.wire.codec import encode
from murk.stream.wire.columns import Layout
from murk.stream.wire.releases import ModelMessage, ScoreRelease
from murk.task.task import Task

CROWD = 50
NOW = 1_700_006_400
DAY = 86_400
TASK = """
name: crowds
features: [{{name: age, low: 21, high: 35}}]
target: {{name: third_child, kind: binary, positive: "yes", negative: "no"}}
protocol: {protocol}
privacy: {{guarantee: {{pure: {{epsilon: 1.0}}}}, levels: {{open: {{pure: {{epsilon: 1.5}}}}}}}}
shuffle: {{crowd: {crowd}, honest: 1.0, promise: {{delta: 0.01}}, patience: 1h}}
duplicates: {duplicates}
log: {{partitions: {partitions}}}
"""


def make_task(crowd: int = CROWD, partitions: int = 1, duplicates: int = 1_000, protocol: str = "scores") -> Task:
    return Task.parse(TASK.format(crowd=crowd, partitions=partitions, duplicates=duplicates, protocol=protocol))


def message(
    task: Task, number: int, *, level: str = "default", version: int = 0, partition: int = 0, **more: Any
) -> bytes:
    """An honest release, whose payload is its number: the shuffler leaves nothing else of it."""
    identifier = hashlib.sha256(f"{number}".encode()).hexdigest()[:32]
    asked = {"query": "above", "item": number % 16}
    fields = {"time": NOW, "expires": NOW + 7 * DAY, "payload": [number], **asked} | more
    return encode(
        ScoreRelease(id=identifier, task=task.hash, level=level, partition=partition, version=version, **fields)
    )


def second(task: Task, first: int = 0) -> int:
    """The second version at which a model is published, or the one after another."""
    later: int = _device(task.document()).next_published(first)
    return later


def spoilt(task: Task, number: int) -> bytes:
    """A message that no learner admits."""
    honest = message(task, 10_000 + number)
    bad = honest[:-1], honest.replace(task.hash.encode(), b"f" * 64), message(task, 10_000 + number, version=7)
    return bad[number % 3]


@contextmanager
def logs(folder: Path, task: Task, clock: Callable[[], float] = lambda: NOW) -> Iterator[tuple[SqliteLog, SqliteLog]]:
    """An input log and a log of releases."""
    with SqliteLog(folder / "input.db", clock=clock) as input_log, SqliteLog(folder / "log.db", clock=clock) as log:
        for each in (input_log, log):
            each.register_task(task.document())
        yield input_log, log


@cache
def _device(document: bytes) -> Any:
    return device_for(Task.from_document(document))


def model(task: Task, version: int, origin: float = 0.0) -> bytes:
    """A model that devices take; another one for each origin, of which 0 is that of the model of version 0."""
    initial = _device(task.document()).initial.tolist()
    return encode(ModelMessage(task=task.hash, partition=0, version=version, parameters=[origin, *initial[1:]]))


def shuffler(folder: Path, input_log: Log, log: Log, task: Task, *, store: str = "store", **more: Any) -> Shuffler:
    more = {"clock": lambda: NOW} | more
    return Shuffler(input_log, log, task, _device(task.document()), Store(folder / store), **more)


def drain(one: Shuffler) -> int:
    """Step until there is nothing to do; the number of releases forwarded."""
    released = 0
    while not (step := one.step()).idle:
        released += step.released
    return released


def released(log: Log) -> list[dict[str, Any]]:
    """All releases of a log, partition by partition, with their partition and the time of their append."""
    found = []
    for partition in range(log.partitions):
        offset = 0
        while messages := log.read(partition, offset, 10_000):
            found += [json.loads(each.value) | {"partition": partition, "appended": each.time} for each in messages]
            offset = messages[-1].offset + 1
    return found


def numbers(log: Log) -> list[int]:
    """The numbers of the releases of a log, in its order."""
    return [each["payload"][0] for each in released(log)]


def waiting(store: Store, task: Task) -> list[int]:
    """The numbers of the releases that wait in a store, in its order."""
    layout = Layout(wire_rules(task, _device(task.document()).engine().admission))
    found = [packed for crowd in store.open_crowds() for _, packed in store.messages(crowd, layout, 0, 0)]
    return [json.loads(each)["payload"][0] for packed in found for each in packed.values()]


class Watch:
    """What a log of releases has at each number of crowds: the same whenever it is looked at, and never less."""

    def __init__(self, log: Log, crowd: int) -> None:
        self.log, self.crowd = log, crowd
        self.sizes: dict[int, int] = {}

    def look(self) -> None:
        mark, total = self.log.crowd_mark(), sum(self.log.ends())
        # The shuffler works on meanwhile: a mark and ends of the same moment, as no crowd left between two readings.
        while mark != (mark := self.log.crowd_mark()):
            total = sum(self.log.ends())
        if mark is None:
            return
        assert self.sizes.setdefault(mark.crowds, total) == total
        (*_, (before, less)) = [(0, 0), *sorted((k, v) for k, v in self.sizes.items() if k < mark.crowds)]
        assert total - less >= self.crowd * (mark.crowds - before)
        assert mark.crowds == max(self.sizes)


def run(source: str, target: str, folder: str) -> None:
    """As a process: shuffle what is on the input log, in small batches, and say so."""
    with open_log(source, create=False) as input_log, open_log(target, create=False) as log:
        task = Task.from_document(input_log.document() or b"")
        with shuffler(Path(folder), input_log, log, task, batch=16, clock=time.time) as one:
            print("ready", flush=True)  # noqa: T201 - the parent reads it
            while not one.step().idle:
                pass


def main() -> None:
    """The function that is named first, with the rest as its arguments."""
    globals()[sys.argv[1]](*sys.argv[2:])
