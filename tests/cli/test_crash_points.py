"""A run killed at each of its writes in turn, from the first file it makes to the last one it closes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cli.harness import ROOT, TASK, world

STEP = int(os.environ.get("MURK_POINT_STEP", "5"))  # odd: beginnings and ends of writes take turns
SET_ASIDE = 10
RELEASES = 3


def ends(folder: Path, *seed: object) -> list[dict[str, Any]]:
    world(folder, rows=SET_ASIDE + RELEASES, task=TASK + f"public: {{set_aside: {SET_ASIDE}}}\n")
    command = ["run", folder / "task.yaml", "--source", folder / "people.csv", "--json", *seed]
    points = folder / "points"
    points.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.points", "2", str(STEP), *map(str, command)],
        cwd=points, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_seeded_run_ends_the_same(folder: Path) -> None:
    whole, *others = ends(folder, "--seed", 1)
    assert len(others) > 500 / STEP
    for other in others:
        assert other["status"] == 0, other["point"]
        assert other["found"] == whole["found"], other["point"]
        assert other["traces"] == whole["traces"], other["point"]


def test_nobody_is_counted_twice_or_forgotten(folder: Path) -> None:
    """With real noise no two runs are alike, but each is complete: the set aside stay aside, the others count once."""
    for end in ends(folder):
        assert end["status"] == 0, end["point"]
        found, left = end["found"], end["traces"]
        assert (found["releases"], found["set_aside"]) == (RELEASES, SET_ASIDE), end["point"]
        assert (found["duplicates"], found["dead_letters"], left["outbox"]) == (0, {}, []), end["point"]
        assert len(left["debits"]) == len(left["messages"]) == RELEASES, end["point"]
        assert len({identifier for _, identifier in left["messages"]}) == RELEASES, end["point"]
