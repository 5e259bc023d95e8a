"""Releases and models, as anybody can put them on a log."""

import json
from collections.abc import Sequence
from random import Random

import numpy as np

from murk import Task
from murk.producers.producer import Models
from murk.protocols.device import device_for
from murk.stream.wire.admission import wire_rules
from murk.stream.wire.codec import RejectedError, WireRules, decode, encode
from murk.stream.wire.columns import Layout
from murk.stream.wire.packed import Packed
from murk.stream.wire.releases import ModelMessage, Release
from murk.stream.wire.state import Counters, StateMessage
from tests.fuzz.mutate import alter, crowd, spoil, written
from tests.fuzz.targets import FindingError, Target
from tests.protocols import BY_NAME
from tests.stream.harness import fields_of, message

# Any age will do, so that what is given to a learner is learned however many came before.
OLD = "max_staleness: {releases: 1000000}\n"
PARTITIONS = 2
NAMES = (
    "schema", "kind", "id", "task", "level", "partition", "payload", "time", "expires", "simulated", "version", "rows",
    "records", "spread", "parameters", "state", "offset", "query", "item",
    "model",
)  # fmt: skip


def task_of(kind: str, old: bool = False) -> Task:
    """The smallest task whose releases are of a kind, and may be ``old``."""
    more = OLD if old and kind == "gradient" else ""
    tasks = (Task.parse(protocol.text(f"{more}log: {{partitions: {PARTITIONS}}}\n")) for protocol in BY_NAME.values()
             if not more or protocol.name == "gradients")  # fmt: skip
    return next(task for task in tasks if task.release_kind == kind)


def mutator(honest: list[bytes]):
    """Makes of honest messages what is not: another content, another way to write it, other bytes."""

    def make(rng: Random) -> bytes:
        base = rng.choice(honest)
        way = rng.random()
        if way < 0.01:
            keyed, count = rng.random() < 0.4, rng.choice((10, 100, 101, 300))
            there = base.index(b"{" if keyed else b"[") + 1 if keyed or b"[" in base else 0
            return base[:there] + crowd(rng, count, keyed) + b"," * rng.randrange(2) + base[there:]
        if way < 0.6:
            return written(rng, alter(rng, json.loads(base), NAMES))
        if way < 0.95:
            return spoil(rng, base, honest)
        return spoil(rng, written(rng, alter(rng, json.loads(base), NAMES)), honest)

    return make


def received(data: bytes, rules: WireRules, layout: Layout) -> Release:
    """What `decode` takes a message for; what is read in compiled code as well must be the same."""
    columns = layout.read(Packed.of([data]))
    try:
        release = decode(data, rules)
    except RejectedError as refused:
        if columns is not None:
            raise FindingError(f"read, and decode refuses it: {refused}") from refused
        raise
    if columns is not None:
        (found,) = fields_of(columns)
        # Types, too: True is not 1.
        if repr(found) != repr({name: getattr(release, name) for name in found}) or encode(release) != data:
            raise FindingError(f"read as {found}, and decode says {release}")
    return release


def releases(kind: str) -> Target:
    """Any bytes where releases of a kind belong: decoded, admitted and learned as a worker does it."""
    task = task_of(kind, old=True)
    engine = device_for(task).engine()
    rules = wire_rules(task, engine.admission)
    layout = Layout(rules)

    def take(data: bytes) -> str:
        release = received(data, rules, layout)
        if release.partition != 0:
            raise RejectedError("partition", f"of partition {release.partition}, on partition 0")
        if release.expires < release.time:
            raise RejectedError("expired", "before it was made")
        engine.admit(release, 0)
        engine.learn_releases([release])
        return "accepted"

    def check() -> None:
        """Whatever was learned, the state is one that can be stored and taken up again, bit for bit."""
        state = StateMessage(
            task=task.hash, identity="0" * 32, partition=0, offset=engine.n_releases, last_id=None,
            counters=Counters(learned=engine.n_releases), learner=engine.state_dict(),
        ).encode()  # fmt: skip
        again = device_for(task).engine()
        again.load_state_dict(json.loads(state)["learner"])
        if again.state_dict() != engine.state_dict():
            raise FindingError("a state that is another one when it was stored and taken up again")

    honest = [message(task, number) for number in range(40)]
    # What is compiled at its first use is compiled here, where no time is taken.
    if take(honest[0]) != "accepted":
        raise FindingError("an honest release is not accepted")
    return Target(mutator(honest), take, check)


class _OneModel:
    """A log of which nothing is read but a model."""

    url = "sqlite:///hostile.db"
    message = b""
    partitions = 2

    def model(self, partition: int) -> bytes:
        return self.message

    def ends(self) -> Sequence[int]:
        return [self.end(partition) for partition in range(self.partitions)]

    def end(self, partition: int) -> int:
        return 10_000

    def cached_model(self, partition: int) -> tuple[bytes, int]:
        return self.model(partition), self.end(partition)


def models() -> Target:
    """Any bytes where a partition's newest model belongs: what a device checks before it looks at a record."""
    log, rng, honest = _OneModel(), np.random.default_rng(1), []
    gradients, scores = ((task, device_for(task)) for task in map(task_of, ("gradient", "score")))
    after = (0, *map(scores[1].next_published, (0, 3000, 6000)))
    for (task, device), versions in ((gradients, (0, 1, 2, 8, 64, 512, 4096)), (scores, after)):
        for version in versions:
            parameters = device.initial + 0.1 * rng.random(len(device.initial))
            if device is scores[1]:
                # What is asked is no real number: first a survey, later scores.
                parameters[-7:] = device.initial[-7:]
                if version >= 3000:
                    parameters[-3:] = 0.0, 0.0, 1.0
            honest.append(
                encode(ModelMessage(task=task.hash, partition=0, version=version, parameters=parameters.tolist()))
            )

    def take(data: bytes) -> str:
        log.message = data
        task, device = scores if scores[0].hash.encode() in data else gradients
        model = Models(log, task, device).newest(0)
        if not (np.isfinite(model.parameters).all() and model.parameters.shape == device.initial.shape):
            raise FindingError("a model that no gradient can be taken at")
        return "accepted"

    return Target(mutator(honest), take)
