"""A run killed at each of its writes in turn, from the first file it makes to the last one it closes."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import LEDGER, finish, world
from tests.cli.processes import Process
from tests.protocols import EXAMPLES, GRADIENTS, MOMENTS, SKETCH, Protocol

# Odd: beginnings and ends of writes take turns. Most writes are the same for all protocols, and with real noise.
STEP = int(os.environ.get("MURK_POINT_STEP", "51"))
FIRST = 2
# Of a sketch so many that some are amid a window.
STEPS = [(GRADIENTS, STEP), (SKETCH, 43)]
# These two release the same way: one with a seed, the other with real noise.
SEEDED, REAL = [*STEPS, (EXAMPLES, 4 * STEP + 3)], [*STEPS, (MOMENTS, 4 * STEP + 3)]
SET_ASIDE = MOMENTS.set_aside
RELEASES = 3


def ends(folder: Path, protocol: Protocol, first: int, step: int, *options: object) -> list[dict[str, Any]]:
    """What is left at the end when a run was killed at one point after another; first of one that never was."""
    more = "" if protocol.set_aside else f"public: {{set_aside: {SET_ASIDE}}}\n"
    world(folder, rows=SET_ASIDE + RELEASES * protocol.records, task=protocol.text(more))
    command = ["run", folder / "task.yaml", "--source", folder / "people.csv", "--json", *options]
    points = folder / "points"
    points.mkdir()
    done = finish(Process([str(one) for one in command], points, points=(first, step)))
    assert done.status == 0, done.err
    # What becomes public is said until it is, and what chance has made of these few rows; nothing else is.
    allowed = (" become public: ", " has the same value in all public rows")
    assert [line for line in done.err.splitlines() if not any(words in line for words in allowed)] == []
    found = [json.loads(line) for line in done.out.splitlines()]
    # That a window was lost is said; nothing else shows.
    lost = [end["found"].pop("windows_lost", 0) for end in found]
    assert lost[0] == 0
    assert max(lost) == (protocol is SKETCH)
    assert sum(len(end["points"]) for end in found) > 500 / step
    return found


@pytest.mark.parametrize(("protocol", "step"), SEEDED, ids=str)
def test_a_seeded_run_ends_the_same(folder: Path, protocol: Protocol, step: int) -> None:
    whole, *others = ends(folder, protocol, FIRST, step, "--seed", 1)
    for other in others:
        assert other["status"] == 0, other["points"]
        assert other["found"] == whole["found"], other["points"]
        assert other["traces"] == whole["traces"], other["points"]


@pytest.mark.parametrize(("protocol", "step"), REAL, ids=str)
def test_nobody_is_counted_twice_or_forgotten(folder: Path, protocol: Protocol, step: int) -> None:
    """With real noise no two runs are alike, but each is complete: the set aside stay aside, the others count once.

    Killed halfway between the points of the seeded one.
    """
    for end in ends(folder, protocol, FIRST + step // 2, step, "--make-public", SET_ASIDE, "--ledger", LEDGER):
        assert end["status"] == 0, end["points"]
        found, left = end["found"], end["traces"]
        assert (found["releases"], found["set_aside"]) == (RELEASES, SET_ASIDE), end["points"]
        assert (found["duplicates"], found["dead_letters"], left["outbox"]) == (0, {}, []), end["points"]
        assert len(left["debits"]) == len(left["messages"]) == RELEASES, end["points"]
        assert len({identifier for _, identifier in left["messages"]}) == RELEASES, end["points"]
