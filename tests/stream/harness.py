"""Tasks, hand-made releases and an honest small learner, for the tests of logs and workers.

A task of `make_task` is learned by sums that show every release lost, doubled or moved; one of `fault_task` has a
protocol of the table in tests/protocols.py, and its own learner.
"""

import hashlib
import json
import random
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from murk.inference.estimate import Estimate
from murk.protocols.device import Device, device_for
from murk.stream.log.interface import Log
from murk.stream.log.sqlite import SqliteLog, checksum
from murk.stream.wire.codec import RejectedError, encode
from murk.stream.wire.columns import Columns
from murk.stream.wire.releases import KINDS, GradientRelease, SketchRelease
from murk.stream.wire.state import Counters, StateMessage, decode_state
from murk.stream.worker.worker import Progress, Worker
from murk.task.task import Task
from tests.protocols import HONEST, Protocol, contents, title_of

ROOT = Path(__file__).parents[2]
DIMENSION = 3
FOREVER = 4_000_000_000
VERSIONED = ("gradients", "scores")
"""Protocols whose releases say of which version's model they are."""
MADE = ("sums", "other")
"""Names of the tasks that `SumLearner` learns."""

TASK = """
name: {name}
features: [{{name: age, low: {low}, high: 35}}]
target: {{name: third_child, kind: binary, positive: "yes", negative: "no"}}
privacy: {{guarantee: {{gdp: {{mu: 1.0}}}}}}
duplicates: {duplicates}
log: {{partitions: {partitions}, retention: {retention}}}
protocol: gradients
{more}"""


def make_task(
    *,
    name: str = "sums",
    low: int = 21,
    duplicates: int = 50,
    partitions: int = 2,
    retention: str = "8d",
    more: str = "",
) -> Task:
    return Task.parse(
        TASK.format(name=name, low=low, duplicates=duplicates, partitions=partitions, retention=retention, more=more)
    )


def fault_task(protocol: Protocol, duplicates: int = 50) -> Task:
    """The task of a protocol, on two partitions; releases may be of any version that there was."""
    stale = "max_staleness: {releases: 100000}\n" if protocol.name == "gradients" else ""
    return Task.parse(protocol.text(f"{stale}duplicates: {duplicates}\nlog: {{partitions: 2}}\n"))


def learner_for(task: Task) -> Any:
    """A new learner of the task."""
    return SumLearner(task) if task.name in MADE else _device(task.document()).engine()


@cache
def _device(document: bytes) -> Device:
    return device_for(Task.from_document(document))


def message(task: Task, number: int, **changes: Any) -> bytes:
    """A valid release whose id and payload follow from a number."""
    kind = KINDS[task.release_kind]
    fields: dict[str, Any] = {
        "id": hashlib.sha256(str(number).encode()).hexdigest()[:32],
        "task": task.hash,
        "level": "default",
        "partition": 0,
        "time": 1_700_006_400,
        "expires": FOREVER,
        "simulated": task.simulated,
    }
    if kind is GradientRelease:
        fields |= {"version": 0, "payload": [number % 1000, -(number % 777), 1]}
    else:
        fields |= contents(title_of(task))[number % HONEST]
    # A version is nothing that releases of the other kinds have.
    return encode(kind(**{key: value for key, value in {**fields, **changes}.items() if key in kind.model_fields}))


def altered(data: bytes, **changes: Any) -> bytes:
    """The same JSON with fields that no release could be made with."""
    return json.dumps({**json.loads(data), **changes}).encode()


@dataclass(frozen=True)
class Bound:
    """All of a mechanism that a worker looks at."""

    magnitude: int = 10_000


class SumLearner:
    """Exact integer sums, and a digest of the ids in order: a release lost, doubled or moved changes both.

    A release older than ``patience`` versions is stale; the iterate is published at multiples of 8.
    """

    kind = "gradient"
    dimension = DIMENSION
    coefficients = DIMENSION
    publish_every = 10**9

    def __init__(self, task: Task, patience: int = 10**9) -> None:
        self.mechanisms: dict[str, Any] = {level: Bound() for level in task.privacy.levels}
        self.patience = patience
        self.n_releases = 0
        self.sums = [0] * DIMENSION
        self.digest = ""
        self.newest: tuple[int, list[float]] = (0, [0.0] * DIMENSION)

    def admit(self, release: GradientRelease, ahead: int) -> None:
        now = self.n_releases + ahead
        if release.version > now:
            raise RejectedError("future", f"version {release.version} of a partition that has learned {now}")
        if now - release.version > self.patience:
            raise RejectedError("stale", f"{now - release.version} versions old")

    def learn_releases(self, releases: Sequence[GradientRelease]) -> None:
        for release in releases:
            self.n_releases += 1
            self.sums = [a + b for a, b in zip(self.sums, release.payload, strict=True)]
            self.digest = hashlib.sha256((self.digest + release.id).encode()).hexdigest()
            if self.n_releases % 8 == 0:
                self.newest = (self.n_releases, [float(total) for total in self.sums])

    def published(self) -> tuple[int, list[float]]:
        return self.newest

    def estimate(self) -> Estimate:
        names, spread = tuple(map(str, range(DIMENSION))), np.full(DIMENSION, 1.0 / (1.0 + self.n_releases))
        return Estimate(names, np.array(self.sums, dtype=float), "sums", spread, "", 1, self.n_releases)

    def state_dict(self) -> dict[str, Any]:
        return {"n": self.n_releases, "sums": self.sums, "digest": self.digest, "newest": list(self.newest)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n_releases = state["n"]
        self.sums = state["sums"]
        self.digest = state["digest"]
        self.newest = (state["newest"][0], state["newest"][1])


def read_all(log: Log, partition: int = 0) -> list[bytes]:
    """The values of a partition from its beginning, however little one read gives."""
    offset, values = log.begin(partition), []
    while messages := log.read(partition, offset, 1000):
        values += [value for _, _, value in messages]
        offset = messages[-1].offset + 1
    return values


def put(log: SqliteLog, messages: Sequence[bytes], partition: int = 0) -> None:
    log.append([(partition, value) for value in messages])


def drain(worker: Worker) -> list[Progress]:
    steps = []
    while (progress := worker.step()).read:
        steps.append(progress)
    return steps


def learn(log: SqliteLog, task: Task | None = None, **settings: Any) -> StateMessage:
    """Learn all there is with a new worker, and give the state that then is stored in the log."""
    task = task or make_task()
    with Worker(log, task, learner_for(task), **settings) as worker:
        drain(worker)
    return state_of(log)


def state_of(log: SqliteLog, partition: int = 0) -> StateMessage:
    state = log.checkpoint(partition).state
    assert state is not None
    return decode_state(state, "a test")


def hostile(task: Task) -> list[tuple[bytes, str]]:
    """Messages that no honest device sends, each with the reason it must be given."""
    good = message(task, 10**6)
    other = make_task(name="other")
    found = [
        (b"", "malformed"),
        (b"\xff\xfe\x00", "malformed"),
        (random.Random(1).randbytes(200), "malformed"),
        (good[:-1], "malformed"),
        (b"[" * 400, "malformed"),
        (b"[]", "malformed"),
        (b"null", "malformed"),
        (b"x" * 100_000, "too-large"),
        (b'{"a":' * 150_000 + b"1", "too-large"),
        (altered(good, schema=2), "schema"),
        (altered(good, version=-1), "schema"),
        (altered(good, id="0"), "schema"),
        (altered(good, surprise=1), "schema"),
        (altered(good, task=other.hash), "wrong-task"),
        (message(task, 10**6, simulated=not task.simulated), "simulated"),
        (message(task, 10**6, partition=2), "partition"),
        (message(task, 10**6, level="strict"), "level"),
        (message(task, 10**6 + 1, partition=1), "partition"),
        (message(task, 10**6 + 2, expires=1_700_006_400), "expired"),
        (message(task, 10**6 + 4, expires=0, time=0), "expired"),
    ]
    if task.protocol in VERSIONED:
        found.append((message(task, 10**6 + 3, version=10**6), "future"))
    else:
        # A release has no version, whatever a stranger says.
        found.append((altered(good, version=0), "schema"))
    found += [(altered(good, kind=kind), "schema") for kind in (*KINDS, "model") if kind != task.release_kind]
    hostile_of = {"sketch": _hostile_sketches, "gram": _hostile_grams, "newton": _hostile_steps}.get(
        task.release_kind, _hostile_payloads
    )
    return found + hostile_of(task)


def bound(task: Task) -> int:
    """The largest integer that a release of the task may hold."""
    return int(learner_for(task).mechanisms["default"].magnitude)


def _hostile_payloads(task: Task) -> list[tuple[bytes, str]]:
    good = message(task, 10**6)
    first, *rest = json.loads(good)["payload"]
    far = bound(task) + 1
    payloads: list[tuple[Any, str]] = [
        *(([last, *rest], "schema") for last in (float("nan"), float("inf"), 2.5, 10**30, "1", None, [1])),
        ("x", "schema"),
        (SketchRelease.packed([first, *rest]), "schema"),
        ([], "dimension"),
        # Of an answer to a survey, which is one number, nothing else is left.
        *([(rest, "dimension")] if rest else []),
        ([first, *rest, 0], "dimension"),
        ([far, *rest], "magnitude"),
        ([*rest, -far], "magnitude"),
    ]
    return [(altered(good, payload=payload), reason) for payload, reason in payloads]


def _hostile_sketches(task: Task) -> list[tuple[bytes, str]]:
    sketch = contents("summaries")[0]
    integers = SketchRelease.model_construct(payload=sketch["payload"]).integers
    size, far = len(integers), bound(task) + 1
    block = task.summaries
    assert block is not None
    assert block.window is not None
    # More in one column than a window's records and their noise can make.
    long = integers.reshape(block.rows, -1) * [1000, 1, 1, 1]
    changes: list[tuple[dict[str, Any], str]] = [
        *(({"payload": text}, "schema") for text in ("!" * 32, "AAAA", "A" * 31, [1, 2], None, "\u2603" * 8)),
        ({"payload": SketchRelease.packed(integers[:-1])}, "dimension"),
        ({"payload": ""}, "dimension"),
        ({"payload": SketchRelease.packed([0] * (size + 1))}, "dimension"),
        ({"payload": SketchRelease.packed([far] * size)}, "magnitude"),
        ({"payload": SketchRelease.packed([-(2**63)] * size)}, "magnitude"),
        ({"payload": SketchRelease.packed(long)}, "magnitude"),
        ({"payload": SketchRelease.packed([0] * 2**16)}, "too-large"),
        ({"rows": block.rows + 1}, "dimension"),
        ({"rows": 1}, "dimension"),
        ({"rows": 0}, "schema"),
        ({"rows": 2**40}, "schema"),
        ({"records": block.window + 1}, "magnitude"),
        ({"records": 2**61}, "magnitude"),
        ({"records": -1}, "schema"),
        *(({"spread": spread}, "schema") for spread in (float("nan"), float("inf"), -1.0, "1")),
        *(({"spread": spread}, "magnitude") for spread in (0.0, 5e-324, 1e300, 1.7e308)),
    ]
    # Ids of their own: that of a sketch which only the learner refuses is taken all the same.
    return [(altered(message(task, 10**6 + 10 + i), **change), reason) for i, (change, reason) in enumerate(changes)]


def _hostile_grams(task: Task) -> list[tuple[bytes, str]]:
    made = contents(title_of(task))[0]
    integers = SketchRelease.model_construct(payload=made["payload"]).integers
    size, far = len(integers), bound(task) + 1
    assert task.summaries is not None
    assert task.summaries.window is not None
    diagonal = np.zeros(size, dtype=np.int64)
    diagonal[0] = -(2**30)
    changes: list[tuple[dict[str, Any], str]] = [
        *(({"payload": text}, "schema") for text in ("!" * 32, "AAAA", "A" * 31, [1, 2], None, "\u2603" * 8)),
        ({"payload": SketchRelease.packed(integers[:-1])}, "dimension"),
        ({"payload": ""}, "dimension"),
        ({"payload": SketchRelease.packed([0] * (size + 1))}, "dimension"),
        ({"payload": SketchRelease.packed([far] * size)}, "magnitude"),
        ({"payload": SketchRelease.packed([-(2**63)] * size)}, "magnitude"),
        # More than records and noise can make, and a sum of squares below zero.
        ({"payload": SketchRelease.packed(integers * 1000)}, "magnitude"),
        ({"payload": SketchRelease.packed(diagonal)}, "magnitude"),
        ({"payload": SketchRelease.packed([0] * 2**16)}, "too-large"),
        ({"rows": 8}, "schema"),
        ({"records": task.summaries.window + 1}, "magnitude"),
        ({"records": 2**61}, "magnitude"),
        ({"records": -1}, "schema"),
        ({"spread": 1.0}, "schema"),
    ]
    return [(altered(message(task, 10**6 + 10 + i), **change), reason) for i, (change, reason) in enumerate(changes)]


def _hostile_steps(task: Task) -> list[tuple[bytes, str]]:
    good = message(task, 10**6)
    model = json.loads(good)["model"]
    changes: list[tuple[dict[str, Any], str]] = [
        *(({"model": [bad, *model[1:]]}, "schema") for bad in (float("nan"), float("inf"), "1", None, True, [1.0])),
        *(({"model": bad}, "schema") for bad in (None, "AAAA", 1.0, {})),
        ({"model": model[1:]}, "dimension"),
        ({"model": []}, "dimension"),
        ({"model": [*model, 0.0]}, "dimension"),
        ({"model": [1e300, *model[1:]]}, "magnitude"),
        ({"model": [*model[1:], -1001.0]}, "magnitude"),
    ]
    own = [(altered(message(task, 10**6 + 40 + i), **change), reason) for i, (change, reason) in enumerate(changes)]
    return _hostile_grams(task) + own


def mixed(task: Task, seed: int, count: int) -> list[bytes]:
    """A stream of everything: most of it honest, with duplicates near and far, and all kinds of junk."""
    rng, bad = random.Random(seed), [value for value, _ in hostile(task) if len(value) < 1000]
    stream: list[bytes] = []
    for number in range(count):
        lot = rng.random()
        if lot < 0.15 and stream:
            stream.append(stream[max(0, len(stream) - rng.randint(1, 2 * task.duplicates))])
        elif lot < 0.3:
            stream.append(rng.choice(bad))
        else:
            # Models of gradients are published at every version so early, of scores only at 0.
            version = rng.randint(0, number) if task.protocol == "gradients" else 0
            stream.append(message(task, number, version=version, partition=rng.choice([0] * 9 + [1])))
    return stream


def sums(counters: Counters) -> dict[str, Any]:
    """What became of all messages, without how the learned ones are spread."""
    return counters.model_dump(include={"learned", "duplicates", "dead"})


def spoil(log: SqliteLog, sql: str, *values: object) -> None:
    log._database._connection.execute(sql, values)


def restate(connection: sqlite3.Connection) -> None:
    """Let the checksums fit what a test wrote, as if Murk had written it."""
    for partition, offset, state in connection.execute('SELECT partition, "offset", state FROM states').fetchall():
        row = checksum(state or b"", partition, offset), partition
        connection.execute('UPDATE states SET "check" = ? WHERE partition = ?', row)
    for partition, begin, end in connection.execute('SELECT "partition", begin, "end" FROM streams').fetchall():
        row = checksum(b"", partition, begin, end), partition
        connection.execute('UPDATE streams SET "check" = ? WHERE "partition" = ?', row)


def rewrite(log: SqliteLog, sql: str, *values: object) -> None:
    """Spoil a log so that its checksums do not show it."""
    spoil(log, sql, *values)
    restate(log._database._connection)


def fields_of(columns: Columns) -> list[dict[str, Any]]:
    """The fields of each release of columns that were read, as `decode` names them."""
    payloads = np.split(columns.integers, np.cumsum(columns.column("payload"))[:-1])
    names = set(columns.numbers) - {"id", "payload"}
    # What all messages of a task have in common is no column.
    common = {"schema_", "kind", "task", "simulated"}
    assert names == KINDS[columns.kind].model_fields.keys() - common - {"id", "payload"}
    values = {
        name: [columns.words[name][n] if name in columns.words else n for n in columns.column(name).tolist()]
        for name in names
    }
    return [
        {name: values[name][m] for name in names}
        | {"id": "{:016x}{:016x}".format(*columns.ids[m].tolist()), "payload": payloads[m].tolist()}
        for m in range(len(columns))
    ]
