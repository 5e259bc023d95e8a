"""What was to be reached, and what is: one table, each row with its own command: ``python -m benchmarks``."""

import concurrent.futures
import gc
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

OFTEN = 3
"""Turns of most rows: fewer than their own commands take."""
RELEASES = 100_000
MEMORY = 10**6
"""Releases over which memory is looked at here."""
FLAT = 0.02
"""Of the memory after half of the releases: what the other half may add, and count as flat."""
RELEASE_GOAL = 460 / 3
"""Microseconds: a third of what a release took beyond SQLite's commit before."""


class Row(NamedTuple):
    """One line of the table; ``reached`` is None where nothing was measured."""

    what: str
    measured: str
    goal: str
    reached: bool | None
    command: str

    def __str__(self) -> str:
        reached = "" if self.reached is None else "yes" if self.reached else "no"
        return f"| {self.what} | {self.measured} | {self.goal} | {reached} | `python -m benchmarks.{self.command}` |"


def ratio(what: str, found: float, goal: float, command: str) -> Row:
    return Row(what, f"{found:.2f}", f"{goal:g}", found >= goal, command)


def at_most(what: str, found: float, goal: float, unit: str, command: str) -> Row:
    return Row(what, f"{found:,.1f} {unit}", f"{goal:.0f} {unit}", found <= goal, command)


def one_record() -> Iterator[Row]:
    from benchmarks.speed import learning

    for what, _, _, found, goal in learning():
        yield ratio(what, found, goal, "speed")


def many_records() -> Iterator[Row]:
    from benchmarks.many import compared

    for what, _, _, found in compared(300_000, OFTEN):
        yield ratio(f"learn_many of {what} / a bare compiled loop", found, 0.9, "many")


def embedded() -> Iterator[Row]:
    from benchmarks.worker import learned

    yield at_most("the worker on the embedded log, a release, CPU", learned(2 * RELEASES), 6.0, "us", "worker")


def device() -> Iterator[Row]:
    from benchmarks.release import WARM, measured, median_beyond

    for protocol in ("scores", "gradients"):
        beyond = median_beyond(*measured(protocol, OFTEN, WARM))
        what = f"Producer.release of {protocol}, CPU beyond a bare commit"
        yield at_most(what, beyond, RELEASE_GOAL, "us", "release")


def demonstration() -> Iterator[Row]:
    from benchmarks.start import demonstrated

    yield at_most("murk run of the demonstration, warm, CPU", demonstrated()[0], 10.0, "s", "start --demo")


def memory() -> Iterator[Row]:
    from benchmarks.memory import rows

    found = {done: held for done, held, *_ in rows("gradients", MEMORY)}
    (half, before), (all_, after) = list(found.items())[-2:]
    yield Row(
        f"memory of a worker, from {half:,} to {all_:,} releases",
        f"{before:.0f} to {after:.0f} MiB",
        "flat",
        after <= (1.0 + FLAT) * before,
        "memory --monitor --releases 100000000",
    )


def kafka() -> Iterator[Row]:
    worker, block = (
        "the worker on Kafka / iterating kafka-python, CPU",
        "release_block of 1,000 to Kafka / bare sends, CPU",
    )
    if shutil.which("java") is None:
        for what, goal, only in ((worker, 0.75, "worker"), (block, 0.8, "sending")):
            yield Row(what, "not measured: needs Java", f"{goal:g}", None, f"kafka --only {only}")
        return
    from benchmarks.kafka import each, worked
    from benchmarks.kafka_sending import of, ratio_of, sent
    from deploy.broker import Broker
    from murk.cli.commands.learn import COLLECT

    gc.set_threshold(*COLLECT)
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "kafka") as broker:
        _, _, found = each(list(worked(broker, RELEASES, OFTEN)), "cpu", RELEASES)
        yield ratio(worker, found, 0.75, "kafka --only worker")
        clocks, _ = sent(broker, OFTEN, Path(folder))
        found = ratio_of(of("cpu", clocks["bare, in blocks"]), of("cpu", clocks["release_block"]))
        yield ratio(block, found, 0.8, "kafka --only sending")


PARTS = {
    part.__name__: part for part in (one_record, many_records, kafka, embedded, device, demonstration, memory)
}  # fmt: skip


def part(name: str) -> list[Row]:
    """All rows of one part."""
    return list(PARTS[name]())


def main() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    print("| what | measured | goal | reached | by itself, and with more turns |\n|---|---|---|---|---|", flush=True)
    fresh = multiprocessing.get_context("spawn")
    # A process for each: what one has left in memory and in Python's collector is not the next one's.
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=fresh, max_tasks_per_child=1) as processes:
        for found in processes.map(part, PARTS):
            print(*found, sep="\n", flush=True)
