"""What a life runs: a task, people or organisations in a file, and what an undisturbed run makes of them."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from murk.stream import open_log
from tests.cli.harness import LEDGER, ROWS, accounts, clean, traces
from tests.cli.harness import Done as Ended
from tests.protocols import EXAMPLES, GRADIENTS, MOMENTS, SCORES, SKETCH, Protocol
from tests.services.faults.world import LIMITS, states

PARTITIONS = 2
SEED = 7
LOG = "third-child.db"
LEVELS = ", levels: {strict: {gdp: {mu: 0.5}}}"
GRID = ", levels: {from: 0.5, to: 2}"
# Room for two answers: all records of a person are one.
TWO = ", per_person: {gdp: {mu: 1.5}}"


@dataclass(frozen=True)
class Case:
    """How many records of a protocol a life has, who they are of, and how many are taken at a time.

    Parameters
    ----------
    groups
        Names that the records are given, of people or of organisations; 0 where each row is a person.
    """

    protocol: Protocol
    rows: int
    block: int
    privacy: str = ""
    options: tuple[str, ...] = ()
    groups: int = 0

    @property
    def task(self) -> str:
        # However long a stranger's copy is held up, it is within the window for duplicates.
        text = self.protocol.text(LIMITS.format(PARTITIONS).replace("duplicates: 300\n", ""), self.privacy)
        return text.replace("window: 20", "window: 20, organisation: who")

    def write(self, folder: Path) -> None:
        """Write the task and its records."""
        folder.mkdir(parents=True)
        (folder / "task.yaml").write_text(self.task)
        names = random.Random(2)
        lines = [f"{row},w{names.randrange(self.groups or 1)}" for row in ROWS[1 : self.rows + 1]]
        (folder / "people.csv").write_text("\n".join([f"{ROWS[0]},who", *lines]) + "\n")

    def command(self, what: str, url: str) -> list[object]:
        """The options of `murk run` and `murk produce`."""
        return [
            what, "task.yaml", "--source", "people.csv", "--log", url, "--ledger", LEDGER, "--seed", SEED, "--json",
            "--make-public", 10_000, "--block", self.block, *self.options,
        ]  # fmt: skip


WHO = ("--person", "who")
# On a cluster every block takes its time, and every gradient waits for a model.
CASES = {
    "file": (
        Case(GRADIENTS, 2_400, 4, TWO, WHO, 900),
        Case(EXAMPLES, 9_000, 2, TWO, WHO, 3_600),
        Case(MOMENTS, 12_000, 2, GRID, ("--level", "lot")),
        Case(SKETCH, 36_000, 60, groups=3),
        Case(SCORES, 12_000, 2, LEVELS, ("--level", "lot")),
    ),
    "kafka": (
        Case(GRADIENTS, 600, 4, TWO, WHO, 225),
        Case(EXAMPLES, 3_000, 2, TWO, WHO, 1_200),
        Case(MOMENTS, 3_000, 2, GRID, ("--level", "lot")),
        Case(SKETCH, 16_000, 60, groups=3),
        Case(SCORES, 8_000, 2, LEVELS, ("--level", "lot")),
    ),
}


@dataclass(frozen=True)
class Undisturbed:
    """What one process that nobody kills makes of a case.

    Parameters
    ----------
    found
        What it prints.
    accounts
        All that is in its ledger.
    ids
        The releases that stand on its log, by partition in order.
    learners
        What was learned, by partition; None where that depends on how devices and learners took turns.
    """

    found: Mapping[str, object]
    accounts: Mapping[str, object]
    ids: frozenset[str]
    learners: tuple[str, ...] | None


@cache
def undisturbed(case: Case, base: Path, nursery) -> Undisturbed:
    """Run a case to its end in one process, once."""
    folder = base / f"undisturbed-{case.protocol}-{case.rows}"
    case.write(folder)
    done = nursery.murk(*case.command("run", f"sqlite:///{LOG}"), folder=folder)
    found = clean(Ended(done.wait(), done.out, done.err)).json
    assert found["dead_letters"] == {}
    left = traces(folder)
    ids = [identifier for _, identifier in left["messages"]]
    assert len(ids) == len(set(ids)) == found["releases"] == len(left["debits"])
    if case.protocol in (GRADIENTS, SCORES):
        learners = None
    else:
        with open_log(f"sqlite:///{folder}/{LOG}", create=False) as log:
            learners = tuple(learner for learner, _ in states(log))
    return Undisturbed(found, accounts(folder), frozenset(ids), learners)


def ids_of(messages: list[bytes], known: frozenset[str]) -> list[str]:
    """The ids of those messages that people have released, among whatever else there is."""
    found = []
    for message in messages:
        try:
            content = json.loads(message)
        except ValueError:
            continue
        if isinstance(content, dict) and content.get("id") in known:
            found.append(content["id"])
    return found
