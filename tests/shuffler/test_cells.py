"""Crowds of tasks with known columns are of one cell, which is sent as it is."""

import itertools
import json

import numpy as np
import pytest

import murk
from murk import Task
from murk.privacy import ApproxDP
from murk.protocols.univariate.device import TargetDevice
from murk.stream import open_log

CROWD, PEOPLE = 120, 2_400
TASK = """
name: cells
features:
  - {name: arm, categories: [control, treatment], known: true}
  - {name: platform, categories: [web, ios, rare], known: true}
target: {name: y, kind: binary, positive: "yes", negative: "no", missing_share: 0}
experiment:
  arm: arm
  control: control
  assigned: {by: server, shares: [0.5, 0.5]}
  METRICS
privacy: {guarantee: {pure: {epsilon: 3.0}}}
shuffle: {crowd: 120, honest: 1.0, promise: {delta: 1.0e-4}}
"""
METRIC = "metrics: [{name: amount, kind: real, low: 0, high: 9, missing_share: 0}]"


def run(tmp_path, metrics, cell_place):
    task, rng = Task.parse(TASK.replace("METRICS", metrics)), np.random.default_rng(1)
    people = [
        {
            "arm": ("control", "treatment")[int(rng.integers(2))],
            # Fewer than a crowd are of the last category.
            "platform": "rare" if number % 30 == 0 else ("web", "ios")[int(rng.integers(2))],
            "y": ("no", "yes")[int(rng.random() < 0.3)],
            "amount": float(rng.integers(10)),
        }
        for number in range(PEOPLE)
    ]
    url = f"sqlite:///{tmp_path / 'log.db'}"
    result = murk.run(task, people, log=url, ledger=tmp_path / "ledger.db", seed=3)
    with open_log(url) as log:
        payloads = [json.loads(each.value)["payload"] for each in log.read(0, 0, PEOPLE)]
    return task, result.report, [payload[cell_place] for payload in payloads]


@pytest.mark.parametrize(("metrics", "cell_place"), [("", 0), (METRIC, 1)])
def test_a_crowd_is_of_one_cell(tmp_path, metrics, cell_place):
    task, report, cells = run(tmp_path, metrics, cell_place)
    assert min(len(list(same)) for _, same in itertools.groupby(cells)) >= CROWD
    assert set(cells) == {0, 1, 4, 5}
    assert report["releases"] == len(cells) < PEOPLE * 0.97
    found = report["experiment"]
    assert sum(found["people"].values()) == len(cells)
    # Who waits for a crowd is not counted, so that counts say nothing about shares.
    assert found["sample_ratio"] is None
    [central] = [each["central"] for each in report["levels"].values()]
    assert ApproxDP(**central["guarantee"]["approx"]).epsilon < 3.0
    assert (
        "of one level, version and combination of known columns"
        in task.shuffle.promised(task.privacy.guarantee).describe()
    )


def test_cells_that_are_mixed_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(TargetDevice, "cell_place", None)
    _, _, cells = run(tmp_path, "", 0)
    assert min(len(list(same)) for _, same in itertools.groupby(cells)) < CROWD
    assert 2 in cells
