"""States of learners, as they stand on a log or in a file, and the files that accounts and logs are kept in."""

import json
import shutil
import tempfile
from pathlib import Path
from random import Random

from murk import Task
from murk.monitoring.figures import Place, figures
from murk.monitoring.snapshot import Snapshot
from murk.producers import Ledger
from murk.protocols.device import device_for
from murk.stream import open_log
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.state import Counters, StateMessage, decode_state
from murk.stream.worker.worker import Worker
from tests.cli import harness
from tests.fuzz.mutate import alter, spoil, written
from tests.fuzz.targets import FindingError, Target
from tests.fuzz.wire import task_of
from tests.stream.harness import message

KINDS = ("gradient", "example", "moment", "sketch", "gram", "newton", "score")
LEARNED = 64


class _PartitionState:
    """A task, an honest state of its one partition, and a release to be learned next."""

    def __init__(self, kind: str) -> None:
        self.task = task_of(kind)
        self.device = device_for(self.task)
        engine = self.device.engine()
        releases = [self._decoded(number) for number in range(LEARNED)]
        for release in releases:
            engine.admit(release, 0)
            engine.learn_releases([release])
        self.next = self._decoded(LEARNED)
        self.state = StateMessage(
            task=self.task.hash, identity="0" * 32, partition=0, offset=LEARNED, last_id=releases[-1].id,
            counters=Counters(learned=LEARNED, levels={"default": LEARNED}), learner=engine.state_dict(),
        ).encode()  # fmt: skip

    def _decoded(self, number: int):
        from murk.stream.wire.releases import KINDS as MODELS

        data = message(self.task, number)
        return MODELS[json.loads(data)["kind"]].model_validate_json(data)

    def take(self, data: bytes) -> str:
        """Read it as a monitor does, and as a worker that goes on from it."""
        found = decode_state(data, "partition 0 of a log")
        shown = figures(self.task, self.device, [found], [Place(found.offset, found.offset)])
        body = Snapshot(
            task=self.task, url="sqlite:///log.db", started=0.0, now=1.0, figures=shown, read=True, problem=None,
            rate=0.0, grown=0.0, reference=None, history=(), pace={},
        ).body  # fmt: skip
        json.loads(body)
        engine = self.device.engine()
        engine.load_state_dict(found.learner)
        try:
            engine.admit(self.next, 0)
        except RejectedError:
            return "accepted"
        engine.learn_releases([self.next])
        found.model_copy(update={"learner": engine.state_dict()}).encode()
        return "accepted"


def states() -> Target:
    """Any bytes where a partition's state belongs, or a ledger's or a log's file; the first byte says which."""
    partitions = [_PartitionState(kind) for kind in KINDS]
    folder = Path(tempfile.mkdtemp())
    files = _files(folder / "honest")
    place = folder / "hostile"

    def make(rng: Random) -> bytes:
        if rng.random() < 0.01:
            number = rng.randrange(len(files))
            return bytes([len(partitions) + number]) + _overwritten(rng, files[number])
        number = rng.randrange(len(partitions))
        state = partitions[number].state
        if rng.random() < 0.75:
            return bytes([number]) + written(rng, alter(rng, json.loads(state), ("learner", "sums", "schema")))
        return bytes([number]) + spoil(rng, state, [partition.state for partition in partitions])

    def take(data: bytes) -> str:
        number, data = data[0], data[1:]
        if number < len(partitions):
            return partitions[number].take(data)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        (place / "file.db").write_bytes(data)
        return (_use_ledger, _use_log)[number - len(partitions)](place / "file.db")

    # What is compiled at its first use is compiled here, where no time is taken.
    for number, honest in enumerate([*(partition.state for partition in partitions), *files]):
        take(bytes([number]) + honest)
    return Target(make, take)


def _files(folder: Path) -> tuple[bytes, bytes]:
    """A ledger's and a log's file after a short run."""
    from click.testing import CliRunner

    from murk.cli import cli

    harness.world(folder, rows=30)
    ledger, log = folder / "ledger.db", folder / "log.db"
    done = CliRunner().invoke(
        cli,
        ["run", f"{folder}/task.yaml", "--source", f"{folder}/people.csv", "--log", f"sqlite:///{log}",
         "--ledger", str(ledger), "--seed", "1", "--json"],
        catch_exceptions=False,
    )  # fmt: skip
    if done.exit_code:
        raise FindingError(done.output)
    return ledger.read_bytes(), log.read_bytes()


def _overwritten(rng: Random, data: bytes) -> bytes:
    """What a bad disk or a bad copy makes of a file."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        size = rng.choice((1, 1, 4, 100, 4096))
        # Half of it near the beginning, where SQLite and Murk say what the file is.
        start = rng.randrange(4096 if rng.random() < 0.5 else len(found))
        found[start : start + size] = rng.choice((rng.randbytes(size), bytes(size), b"\xff" * size))
    return bytes(found[: rng.randrange(len(found))] if rng.random() < 0.2 else found)


def _use_ledger(path: Path) -> str:
    with Ledger(path, create=False) as ledger:
        ledger.totals()
        ledger.pending()
    return "accepted"


def _use_log(path: Path) -> str:
    with open_log(f"sqlite:///{path}", create=False) as log:
        task = Task.from_document(log.document() or b"")
        list(log.dead_letters())
        log.model(0)
        with Worker(log, task, device_for(task).engine()) as worker:
            while worker.step().read:
                pass
    return "accepted"
