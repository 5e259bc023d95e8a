"""`kill -9` at random moments of a seeded run, which the same command then carries on: nothing shows at the end.

Over all protocols, each with something more: levels, records set aside, people with several records, partitions,
organisations.
"""

import os
import random
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import ROWS, Done, clean, people, query, traces
from tests.protocols import EXAMPLES, GRADIENTS, NEWTON, ONCE, SCORES, SKETCH, Protocol
from tests.services.faults.nursery import Child, Nursery

# Most of them hit gradients. A thousand: tests/soak.
KILLS = int(os.environ.get("MURK_KILLS", "6"))
PARTS = {-1, 0, 1, 2, 3}

LEVELS = ", levels: {strict: {gdp: {mu: 0.5}}}"
GRID = ", levels: {from: 0.5, to: 2}"
# Room for two answers: all records of a person are one.
TWO = ", per_person: {gdp: {mu: 1.5}}"
PARTITIONS = "log: {partitions: 2}\n"


@dataclass
class Campaign:
    """A command that is killed again and again, in one folder after another, until enough kills have hit it."""

    base: Path
    nursery: Nursery
    task: str
    options: tuple[object, ...]
    seed: int
    windows: bool
    lost: int = 0
    before: float = 0.0
    whole: float = 0.0
    expected: tuple[Any, ...] = ()
    struck: list[int] = field(default_factory=list)

    @property
    def command(self) -> list[object]:
        return ["run", "task.yaml", "--source", self.base / "people.csv", "--seed", 7, "--json", *self.options]

    def folder(self, name: str) -> Path:
        made = self.base / name
        made.mkdir()
        (made / "task.yaml").write_text(self.task)
        return made

    def start(self, folder: Path) -> Child:
        return self.nursery.murk(*self.command, folder=folder)

    def measure(self) -> None:
        """Run without interruption: what must come out, when work begins, and how long it takes."""
        folder = self.folder("whole")
        began = time.monotonic()
        process = self.start(folder)
        while not (folder / "third-child.db").exists():
            time.sleep(0.002)
        self.before = time.monotonic() - began
        process.wait()
        self.whole = time.monotonic() - began
        self.expected = self.outcome(folder, process)
        assert self.lost == 0

    def outcome(self, folder: Path, process: Child) -> tuple[Any, ...]:
        found = clean(Done(process.wait(), process.out, process.err)).json
        del found["seconds"]
        # A window that a process died in, of which nothing shows but that this is said.
        self.lost += found.pop("windows_lost", 0)
        return found, traces(folder)

    def life(self, number: int, kills: int) -> None:
        """Kill one run at most so many times, then let it end and look at what it has left."""
        folder = self.folder(f"life-{number}")
        moments = random.Random(f"{self.seed} {number}")
        for kill in range(kills):
            before = self.written(folder)
            process = self.start(folder)
            if kill == 0 and number % 2:
                # While log, accounts and notes are made, or a little before.
                time.sleep(moments.uniform(0.8, 1.5) * self.before)
            else:
                while process.status is None and self.written(folder) == before:
                    time.sleep(0.001)
                time.sleep(moments.uniform(0.0, (self.whole - self.before) / 4))
            if process.kill() == 0:
                if kill == 0:
                    self.hurry()
                break
            self.struck.append(self.progress(folder))
        assert self.outcome(folder, self.start(folder)) == self.expected, f"{self.seed} {number}"
        shutil.rmtree(folder)

    def hurry(self) -> None:
        """Wait for less: a run is over sooner than the one that was measured, which had to compile, say."""
        self.whole = (self.before + self.whole) / 2

    @staticmethod
    def written(folder: Path) -> int:
        """When the log was last written to: the first thing that work does."""
        try:
            return (folder / "third-child.db-wal").stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def progress(self, folder: Path) -> int:
        """How many releases had been paid for; -1 where the ledger did not know the file yet."""
        copies = self.base / f"{folder.name}-copy"
        copies.mkdir()
        for path in folder.glob("third-child.ledger.db*"):
            shutil.copy(path, copies)
        known = (copies / "third-child.ledger.db").exists()
        paid = "SELECT (SELECT count(*) FROM debits) FROM runs"
        rows = query(copies / "third-child.ledger.db", paid) if known else []
        shutil.rmtree(copies)
        return int(rows[0][0]) if rows else -1

    def aim(self, part: int) -> None:
        """Kill one run while a part of the file is at work: it is frozen to be looked at, and cannot go past it."""
        folder = self.folder(f"part-{part}-{len(self.struck)}")
        process = self.start(folder)
        while process.status is None:
            process.freeze()
            if self.part(self.progress(folder)) >= part:
                if process.kill() != 0:
                    self.struck.append(self.progress(folder))
            else:
                process.thaw()
                time.sleep((self.whole - self.before) / 50)
        if process.status == 0:
            self.hurry()
        assert self.outcome(folder, self.start(folder)) == self.expected, f"{self.seed} part {part}"
        shutil.rmtree(folder)

    def fight(self, kills: int) -> None:
        """Kill so often; where it is often, then in each part of the file that was never at work when a kill came."""
        self.measure()
        number = 0
        # Most of the time some windows are open, and any kill alone may come while none is.
        while len(self.struck) < kills or (self.windows and kills > 1 and not self.lost and number < 20):
            self.life(number, min(15, kills))
            number += 1
        if kills >= KILLS:
            for part in sorted(PARTS - self.parts):
                # One that got past it all the same, while nobody looked, is followed by another.
                for _ in range(20):
                    if part not in self.parts:
                        self.aim(part)
        assert len(self.struck) >= kills > 0

    @property
    def parts(self) -> set[int]:
        """What was at work when the kills came."""
        return {self.part(paid) for paid in self.struck}

    def part(self, paid: int) -> int:
        """A quarter of the releases, by how many are paid for, or -1 for the beginning."""
        return min(3, paid * 4 // self.expected[0]["releases"])


@dataclass(frozen=True)
class Case:
    """What is run and killed: ``groups`` gives a record one of so many names, of a person or of an organisation."""

    protocol: Protocol
    kills: int
    rows: int
    more: str = ""
    privacy: str = ""
    options: tuple[object, ...] = ()
    groups: int = 0

    @property
    def task(self) -> str:
        return self.protocol.text(self.more, self.privacy).replace("window: 20", "window: 20, organisation: who")

    def write(self, folder: Path) -> None:
        if not self.groups:
            people(folder / "people.csv", self.protocol.people(self.rows))
            return
        names = random.Random(2)
        lines = [f"{row},w{names.randrange(self.groups)}" for row in ROWS[1 : self.rows + 1]]
        (folder / "people.csv").write_text("\n".join([f"{ROWS[0]},who", *lines]) + "\n")


WHO = ("--person", "who")
FEW = max(2, KILLS // 5)
CASES = {
    "gradients": Case(GRADIENTS, KILLS, 3_500, "public: {set_aside: 1000}\n", LEVELS, ("--level", "lot")),
    "gradients, partitions": Case(GRADIENTS, FEW, 2_500, PARTITIONS, TWO, WHO, 1_000),
    # Both partitions together end their first round.
    "scores": Case(SCORES, FEW // 2, 8_000, PARTITIONS, GRID, ("--level", "lot")),
    "examples": Case(EXAMPLES, FEW, 4_000, PARTITIONS, TWO, WHO, 1_500),
    "scores, once": Case(ONCE, FEW // 2, 3_000, PARTITIONS, LEVELS, ("--level", "lot")),
    "summaries": Case(SKETCH, FEW + 1, 3_000, PARTITIONS, "", (), 3),
    "sketch by Newton steps": Case(NEWTON, FEW // 2, 1_000, PARTITIONS, "", (), 3),
}


@pytest.mark.parametrize("name", CASES)
def test_a_killed_run_ends_as_if_it_had_not_been(folder: Path, name: str) -> None:
    case = CASES[name]
    case.write(folder)
    with Nursery(folder / "children", [case.protocol]) as nursery:
        campaign = Campaign(folder, nursery, case.task, case.options, len(name), case.protocol in (SKETCH, NEWTON))
        campaign.fight(case.kills)
    found, left = campaign.expected
    assert (found["duplicates"], found["dead_letters"], left["outbox"]) == (0, {}, [])
    # Of partitions that share models the first one's is of all.
    assert all(counts for counts, _ in (left["histories"][:1] if case.protocol == SCORES else left["histories"]))
    released = [row[3] for row in left["spending"]]
    assert found["releases"] == sum(released) == len(left["debits"]) == len(left["messages"])
    assert len(left["messages"]) == len(set(left["messages"]))
    assert found["refusals"] == sum(row[4] for row in left["spending"])
    if case.protocol in (SKETCH, NEWTON):
        assert found["records_learned"] == found["records_released"] == case.rows - found["records_left_out"]
        assert (len(released), found["refusals"]) == (case.groups, 0)
        if case.kills > 1:
            assert campaign.lost > 0
    else:
        assert (found["releases"], found["refusals"]) == (found["people"] - found["set_aside"], 0)
    if case.kills == KILLS:
        assert campaign.parts >= PARTS, campaign.struck
        assert found["set_aside"] == 1000
    if case.options == WHO:
        # However often it was killed, everybody answered once.
        assert set(released) == {1}
        assert 0.8 * case.groups < found["people"] == len(released) < found["records"] == case.rows
