"""What a process does before it is searched: each returns what is public, and what has to live on until then."""

from __future__ import annotations

import contextlib
import tempfile
from typing import Any

import numpy as np

import murk.learners
import murk.learners.base
from murk import Task
from murk.privacy import ApproxDP, GaussianDP, PureDP
from murk.privacy.noise import SecureNoise, SimulatedNoise
from murk.producers import Ledger, Producer
from murk.protocols.device import device_for
from murk.stream import open_log
from murk.stream.wire.codec import encode
from murk.stream.wire.releases import ModelMessage
from tests.kernels import impatient

BUDGETS = {"gdp": GaussianDP(2.0), "pure": PureDP(3.0), "approx": ApproxDP(4.0, 1e-6)}


def learner(kind: str, settings: dict[str, Any]) -> Any:
    """A learner by name, whose guarantee is one of `BUDGETS`."""
    return getattr(murk.learners, kind)(**{**settings, "guarantee": BUDGETS[settings["guarantee"]]})


def learned(kind: str, settings: dict[str, Any], records: list[Any], many: int, compiled: bool) -> Any:
    """A learner learns records, one by one; or the last ``many`` at once."""
    if compiled:
        impatient()
    # What is looked at of the first records of a simulation is kept on purpose; with real noise, nothing is.
    murk.learners.base.StreamEstimator._surveyed = lambda *_: None
    model = learner(kind, settings)
    for x, y in records[: len(records) - many]:
        model.learn_one(x, y)
    if many:
        import pandas as pd

        rows = records[len(records) - many :]
        model.learn_many(pd.DataFrame([x for x, _ in rows]), pd.Series([y for _, y in rows]))
    return model.n_releases, model


class Interrupting:
    """Noise whose drawing ends in Ctrl-C, once a record's vector is there."""

    def __init__(self, seed: int | None) -> None:
        self._noise: Any = SecureNoise() if seed is None else SimulatedNoise(seed)
        self.simulated = self._noise.simulated
        self.armed = False

    def gaussian(self, records: Any, size: int) -> Any:
        """Gaussian noise, or Ctrl-C."""
        return self._drawn(self._noise.gaussian(records, size))

    def laplace(self, records: Any, size: int) -> Any:
        """Laplace noise, or Ctrl-C."""
        return self._drawn(self._noise.laplace(records, size))

    def words(self, records: Any, size: int, purpose: Any) -> Any:
        """Words."""
        return self._noise.words(records, size, purpose)

    def _drawn(self, noise: Any) -> Any:
        if self.armed:
            raise KeyboardInterrupt
        return noise


def released(
    document: str,
    records: list[Any],
    seed: int | None,
    many: int,
    compiled: bool,
    interrupted: bool = False,
    model: list[float] | None = None,
    several: bool = False,
) -> Any:
    """A device releases records, one by one; or the last ``many`` as a block. What is public is what the log has.

    With a ``model``, the log has it from the start. With ``several``, the block is of one person.
    """
    if compiled:
        impatient()
    task = Task.parse(document)
    if seed is not None:
        task = task.with_simulated(True)
    folder = tempfile.mkdtemp()
    log, ledger = open_log(f"sqlite:///{folder}/log.db"), Ledger(f"{folder}/ledger.db")
    log.register_task(task.document())
    if model is not None:
        log.publish(0, encode(ModelMessage(task=task.hash, partition=0, version=0, parameters=model)))
    noise: Any = Interrupting(seed) if interrupted else None if seed is None else SimulatedNoise(seed)
    producer = Producer(task, log, ledger, noise=noise)
    ledger.begin_run(task.hash, "a source", people="row")
    for number, record in enumerate(records[: len(records) - many]):
        if interrupted and number == len(records) - many - 1:
            noise.armed = True
        with contextlib.suppress(KeyboardInterrupt):
            producer.release(record, person=f"person {number}")
    if many:
        from murk.producers.blocks import Block

        rows = records[len(records) - many :]
        coded = task.coding.encode({name: [row[name] for row in rows] for name in rows[0]})
        people = [f"another {number}" for number in range(1 if several else many)]
        numbers = np.arange(len(people), dtype=np.int64)
        block = Block(
            "a source",
            numbers,
            coded.x,
            coded.y,
            people,
            ["default"] * len(people),
            coded.cells,
            clamped=int(coded.clamped.sum()),
            missing=0,
            positions=numbers,
            next_position=len(people),
            counts=np.array([many]) if several else None,
        )
        with contextlib.suppress(KeyboardInterrupt):
            producer.release_block(block)
        # The block is the program's own.
        coded.x.fill(0.0)
        coded.y.fill(0.0)
    messages = [each.value.decode() for each in log.read(0, 0, 10_000)]
    return messages, (producer, log, ledger)


def accumulated(document: str, rows: list[Any], seed: int | None, index: int) -> Any:
    """An organisation's window is filled and released."""
    impatient()
    device: Any = device_for(Task.parse(document))
    noise = SecureNoise() if seed is None else SimulatedNoise(seed)
    window = device.accumulator("default", noise, index)
    window.add_block(np.array(rows))
    made = window.release()
    return made.integers.tolist(), (window, device)


def careless(document: str, records: list[Any]) -> Any:
    """Vectors of records are computed as a forecast computes those of people that there are not."""
    task = Task.parse(document)
    device: Any = device_for(task)
    kept = []
    for record in records:
        coded = task.coding.encode_record(record)
        kept.append(device.vectors(coded.x[None, :], np.array([coded.y])))
    return len(kept), (kept, device)
