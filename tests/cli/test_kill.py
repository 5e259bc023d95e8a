"""`kill -9` at random moments of a seeded run, which the same command then carries on: nothing shows at the end."""

import os
import random
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import ROWS, TASK, finish, people, query, start, traces

# Murk's own promise is 50; more of them in the long campaign.
KILLS = int(os.environ.get("MURK_KILLS", "50"))
ROWS_ALONE, ROWS_SHARED = 20_000, 8_000
PARTS = {-1, 0, 1, 2, 3}

ALONE = TASK.replace("mu: 1.0}}", "mu: 1.0}}, levels: {strict: {gdp: {mu: 0.5}}}") + "public: {set_aside: 1000}\n"
# Two chains; and people with several records each, of which the cap allows two.
SHARED = TASK.replace("mu: 1.0}}", "mu: 1.0}}, per_person: {gdp: {mu: 1.5}}") + "log: {partitions: 2}\n"


@dataclass
class Campaign:
    """A command that is killed again and again, in one folder after another, until enough kills have hit it."""

    base: Path
    task: str
    options: tuple[object, ...]
    seed: int
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

    def measure(self) -> None:
        """Run without interruption: what must come out, when work begins, and how long it takes."""
        # Compiled kernels come from numba's cache from the second process on.
        finish(start(*self.command, folder=self.folder("first")))
        folder = self.folder("whole")
        began = time.monotonic()
        process = start(*self.command, folder=folder)
        while not (folder / "third-child.db").exists():
            time.sleep(0.002)
        self.before = time.monotonic() - began
        done = finish(process)
        self.whole = time.monotonic() - began
        self.expected = self.outcome(folder, done.json)

    def outcome(self, folder: Path, found: dict[str, Any]) -> tuple[Any, ...]:
        del found["seconds"]
        return found, traces(folder)

    def life(self, number: int, kills: int) -> None:
        """Kill one run at most so many times, then let it end and look at what it has left."""
        folder = self.folder(f"life-{number}")
        moments = random.Random(f"{self.seed} {number}")
        for kill in range(kills):
            before = self.written(folder)
            process = start(*self.command, folder=folder)
            if kill == 0 and number % 2:
                # While log, accounts and notes are made, or a little before.
                time.sleep(moments.uniform(0.8, 1.1) * self.before)
            else:
                while process.poll() is None and self.written(folder) == before:
                    time.sleep(0.001)
                time.sleep(moments.uniform(0.0, (self.whole - self.before) / 4))
            process.kill()
            process.communicate()
            if process.returncode == 0:
                break
            self.struck.append(self.progress(folder))
        done = finish(start(*self.command, folder=folder))
        assert self.outcome(folder, done.json) == self.expected, f"{self.seed} {number}"
        shutil.rmtree(folder)

    @staticmethod
    def written(folder: Path) -> int:
        """When the log was last written to: the first thing that work does."""
        try:
            return (folder / "third-child.db-wal").stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def progress(self, folder: Path) -> int:
        """How many rows had been worked on; -1 where the ledger did not know the file yet."""
        copies = self.base / f"{folder.name}-copy"
        copies.mkdir()
        for path in folder.glob("third-child.ledger.db*"):
            shutil.copy(path, copies)
        known = (copies / "third-child.ledger.db").exists()
        rows = query(copies / "third-child.ledger.db", "SELECT next_row FROM runs") if known else []
        shutil.rmtree(copies)
        return int(rows[0][0]) if rows else -1

    def fight(self, kills: int) -> None:
        """Kill so often; where it is often, until every part of the file was at work when a kill came."""
        self.measure()
        number = 0
        while len(self.struck) < kills or (kills >= KILLS and self.parts < PARTS and len(self.struck) < 4 * kills):
            self.life(number, 15)
            number += 1

    @property
    def parts(self) -> set[int]:
        """What was at work when the kills came: a quarter of the file, or -1 for the beginning."""
        rows = self.expected[1]["runs"][0][0]
        return {min(3, strike * 4 // rows) for strike in self.struck}


@pytest.fixture
def campaigns(folder: Path) -> list[Campaign]:
    alone, shared = folder / "alone", folder / "shared"
    alone.mkdir()
    shared.mkdir()
    people(alone / "people.csv", ROWS_ALONE)
    names = random.Random(2)
    lines = [f"{ROWS[0]},who", *(f"{row},w{names.randrange(3000)}" for row in ROWS[1 : ROWS_SHARED + 1])]
    (shared / "people.csv").write_text("\n".join(lines) + "\n")
    return [
        Campaign(alone, ALONE, ("--level", "lot"), seed=1),
        Campaign(shared, SHARED, ("--person", "who"), seed=2),
    ]


def test_a_killed_run_ends_as_if_it_had_not_been(campaigns: list[Campaign]) -> None:
    alone, shared = campaigns
    with ThreadPoolExecutor(2) as both:
        for outcome in (both.submit(alone.fight, KILLS), both.submit(shared.fight, KILLS // 5)):
            outcome.result()
    for campaign, rows in ((alone, ROWS_ALONE), (shared, ROWS_SHARED)):
        found, left = campaign.expected
        assert (found["duplicates"], found["dead_letters"], left["outbox"]) == (0, {}, [])
        released = [row[3] for row in left["spending"]]
        assert found["releases"] == sum(released) == len(left["debits"]) == len(set(left["messages"]))
        assert len(left["messages"]) == len(set(left["messages"]))
        assert found["refusals"] == sum(row[4] for row in left["spending"])
        assert found["releases"] + found["refusals"] + found["set_aside"] == rows
    assert alone.parts >= PARTS, alone.struck
    assert alone.expected[0]["set_aside"] == 1000
    # A person's third record is refused.
    assert max(row[3] for row in shared.expected[1]["spending"]) == 2
    assert shared.expected[0]["refusals"] > 0
