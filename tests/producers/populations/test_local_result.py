"""`murk.run`: the command's own path, from a file or a frame to a result."""

import json
import os
import subprocess
import sys

import pandas as pd
import pytest

import murk
from murk import Task
from murk.errors import UserError
from murk.privacy import GaussianDP
from murk.producers import Ledger
from murk.results.report import report_log
from murk.stream import open_log
from tests.cli.harness import ANY_PROTOCOL, TASK, people
from tests.cli.harness import run as command

N = 150
HASTE = {"seconds", "ledger", "together", "together_words"}
"""What two runs of the same need not have in common: where they lie, and how long they took."""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.yaml").write_text(TASK)
    people(tmp_path / "people.csv", N)


def test_a_run_has_the_numbers_of_the_commands_json(tmp_path):
    told = command(tmp_path).json
    found = json.loads(murk.run("task.yaml", "people.csv", seed=1).to_json())
    assert found.keys() == told.keys()
    assert {key: found[key] for key in found.keys() - HASTE} == {key: told[key] for key in told.keys() - HASTE}
    # Bit for bit the same was learned.
    assert found["state_digest"] == told["state_digest"]
    other = murk.run("task.yaml", "people.csv", seed=2)
    assert other.report["state_digest"] != told["state_digest"]


def test_a_frame_and_its_rows_come_to_the_same_as_the_file():
    frame = pd.read_csv("people.csv")
    file = murk.run("task.yaml", "people.csv", seed=1)
    for source in (frame, frame.to_dict("records")):
        found = murk.run(Task.load("task.yaml"), source, seed=1)
        assert found.report["coefficients"] == file.report["coefficients"]
        assert found.history["releases"] == file.history["releases"]


def test_a_simulation_leaves_nothing_behind_unless_it_is_told_where():
    before = sorted(os.listdir())
    murk.run("task.yaml", "people.csv", seed=1)
    assert sorted(os.listdir()) == before
    murk.run("task.yaml", "people.csv", seed=1, log="sqlite:///kept.db")
    assert {"kept.db", "third-child.ledger.db"} <= set(os.listdir())


def test_real_noise_is_paid_for_once_however_often_it_is_called():
    first = murk.run("task.yaml", "people.csv", lifetime=GaussianDP(2.0))
    again = murk.run("task.yaml", "people.csv", lifetime=GaussianDP(2.0))
    assert first.n_releases == again.n_releases == N
    assert first.report["state_digest"] == again.report["state_digest"]
    assert not first.simulated
    with Ledger("people.ledger.db") as ledger:
        assert ledger.totals().releases == N


def test_people_in_memory_need_a_ledger_where_noise_is_real():
    frame = pd.read_csv("people.csv")
    with pytest.raises(UserError, match="ledger"):
        murk.run("task.yaml", frame)
    assert not [name for name in os.listdir() if name.endswith(".db")]
    assert murk.run("task.yaml", frame, ledger="accounts.db").n_releases == N


def test_nobodys_features_become_public_without_agreement():
    with open("task.yaml", "a") as task:
        task.write("public: {set_aside: 100}\n")
    with pytest.raises(UserError, match=r"of 100 people become public.*publish=True"):
        murk.run("task.yaml", "people.csv")
    with pytest.raises(UserError, match=r"of 100 people become public.*publish=100"):
        murk.run("task.yaml", "people.csv", publish=99)
    found = murk.run("task.yaml", "people.csv", publish=100)
    assert found.n_releases == N - 100
    assert "are public with this task" in str(found)


def test_why_it_is_useless_is_told_from_the_log_alone():
    with open("task.yaml", "w") as task:
        task.write(ANY_PROTOCOL)
    found = murk.run("task.yaml", "people.csv", seed=1, log="sqlite:///kept.db")
    assert f"{N} people at mu = 1 are too few" in found.diagnosis
    assert found.diagnosis in " ".join(str(found).split())
    os.remove("people.csv")
    with open_log("sqlite:///kept.db", create=False) as log:
        again = report_log(Task.from_document(log.document()), log)
    assert again["diagnosis"]["words"] == found.diagnosis


def test_progress_is_told_in_rows():
    told = []
    murk.run("task.yaml", "people.csv", seed=1, block=100, progress=lambda done, of: told.append((done, of)))
    assert told[-1] == (N, N)
    assert len(told) > 1


def test_importing_murk_loads_nothing_heavy():
    code = (
        "import murk, sys; print([m for m in ('numpy', 'click', 'pydantic', 'river') if m in sys.modules], dir(murk))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[] ")
    assert "'run'" in done.stdout
    assert "'Result'" in done.stdout


def test_arguments_in_the_wrong_place_are_named():
    frame, text = pd.read_csv("people.csv"), TASK
    task = Task.parse(text)
    for first, second, words in (
        (frame, task, "murk.run\\(task, people\\) takes the task first"),
        (frame, "task.yaml", "takes the task first"),
        ("people.csv", task, "takes the task first"),
        (frame, "people.csv", "task= is a DataFrame: give a Task"),
        (text, "people.csv", "task= is the text of a task: give Task.parse"),
        (task, frame["age"], "a Series is one column"),
    ):
        with pytest.raises(UserError, match=words):
            murk.run(first, second, seed=1)
