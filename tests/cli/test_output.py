"""What goes to standard output, what to standard error, and what the exit status says."""

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.harness import LEDGER, LOG, ROOT, TASK, WORD, Done, finish, murk, refused, run, start, world

PEOPLE = 1200  # enough for intervals
KEYS = {
    "task",
    "people",
    "releases",
    "refusals",
    "duplicates",
    "dead_letters",
    "coefficients",
    "confidence_intervals",
    "guarantee",
    "simulated",
    "seconds",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    task = TASK + "learner: {intervals: random-scaling}\n"
    folder = world(tmp_path_factory.mktemp("finished"), rows=PEOPLE, task=task)
    return folder, run(folder)


def test_one_object_on_standard_output(finished: tuple[Path, Done]) -> None:
    _folder, done = finished
    assert done.err == ""
    found = done.json
    assert found.keys() >= KEYS
    assert (found["task"], found["people"], found["releases"], found["refusals"]) == ("third-child", PEOPLE, PEOPLE, 0)
    assert (found["duplicates"], found["dead_letters"], found["simulated"]) == (0, {}, True)
    assert found["guarantee"] == {"gdp": {"mu": 1.0}}
    assert found["coefficients"].keys() == found["confidence_intervals"].keys() == {"same_sex", "age", "intercept"}
    for name, (low, high) in found["confidence_intervals"].items():
        assert low < found["coefficients"][name] < high


def test_progress_goes_to_standard_error(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    done = finish(start("run", "task.yaml", "--source", "people.csv", "--seed", 1, folder=folder))
    assert done.status == 0
    assert "third-child: 1,200 of 1,200" in done.err
    assert "1,200 of 1,200" not in done.out
    assert "SIMULATED: the noise was drawn from a seed, so nobody's privacy was protected." in done.out
    assert "0 refused (budget spent), 0 duplicates, 0 dead letters" in done.out


def test_every_view_as_json(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    for command in (["status", "--log", LOG], ["ledger", LEDGER], ["dead-letters", "--log", LOG]):
        done = murk(*command, "--json", folder=folder)
        assert done.err == ""
        assert isinstance(json.loads(done.out), dict)


def test_before_anything_was_learned_widths_are_unknown(folder: Path) -> None:
    world(folder, rows=30)
    done = murk("produce", "task.yaml", "--source", "people.csv", "--patience", 0, "--json", folder=folder)
    refused(done, "no learner has read", "the same command again", status=1)
    found = murk("status", "--log", LOG, "--json", folder=folder).json
    assert (found["releases"], found["lag"], found["simulated"]) == (0, 1, False)
    assert found["confidence_intervals"]["age"] == [None, None]
    plain = murk("status", "--log", LOG, folder=folder)
    assert plain.status == 0
    assert "1 messages on the log wait to be learned" in plain.out


def test_effects_beyond_any_float(folder: Path) -> None:
    """A feature with a range of a thousandth has an odds ratio per unit that no float holds."""
    world(folder, rows=60, task=TASK.replace("low: 21, high: 35", "low: 21, high: 21.001"))
    assert murk("run", "task.yaml", "--source", "people.csv", "--seed", 1, folder=folder).status == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["Usage: murk", "Commands"]),
        (["walk"], ["No such command"]),
        (["run"], ["Missing argument 'TASK'"]),
        (["run", "task.yaml"], ["Missing option '--source'"]),
        (["run", "task.yaml", "--source", "people.csv", "--seed", "-1"], ["--seed", "is not in the range"]),
        (["run", "task.yaml", "--source", "people.csv", "--block", "0"], ["--block", "is not in the range"]),
        (["status"], ["Missing option '--log'"]),
        (["status", "--log", "third-child.db"], ["sqlite:///PATH"]),
        (["status", "--log", f"kafka://user:{WORD}@host:9092"], ["contains credentials"]),
        (["learn", "--log", "sqlite:///nowhere.db"], ["there is no log at nowhere.db"]),
        (["ledger", "nowhere.db"], ["there is no ledger at nowhere.db"]),
        (["run", "task.yaml", "--source", "people.csv", "--log", "sqlite:///no/log.db"], ["directory no"]),
        (["run", "task.yaml", "--source", "people.csv", "--level", "loud"], ["no level 'loud'", "choose one of"]),
    ],
)
def test_mistakes_on_the_command_line(folder: Path, arguments: list[str], words: list[str]) -> None:
    world(folder, rows=30)
    done = murk(*arguments, folder=folder)
    assert (done.status, done.out) == (2, "")
    for word in words:
        assert word in done.err
    assert not (folder / "nowhere.db").exists()


def strange(folder: Path) -> list[str]:
    """A run whose feature has a name that markup, terminals and old encodings stumble over."""
    world(folder, rows=60, task=TASK.replace("name: same_sex", 'name: "[/red]:boom:\u00e9"'))
    text = (folder / "people.csv").read_text()
    (folder / "people.csv").write_text(text.replace("same_sex", "[/red]:boom:\u00e9"))
    return [sys.executable, "-m", "murk", "run", "task.yaml", "--source", "people.csv", "--seed", "1"]


def test_names_that_an_encoding_does_not_have(folder: Path) -> None:
    command = strange(folder)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert "[/red]:boom:\\xe9: yes against no" in done.stdout
    done = subprocess.run([*command, "--json"], cwd=folder, env=environment, capture_output=True, encoding="utf-8")
    assert "[/red]:boom:\u00e9" in json.loads(done.stdout)["coefficients"]


def test_a_terminal(folder: Path) -> None:
    """A bar on a terminal, none of it on standard output."""
    here, there = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(strange(folder), cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=there)
    os.close(there)
    seen = b""
    # The end of a terminal's other side is an error, not an end.
    with contextlib.suppress(OSError):
        while text := os.read(here, 4096):
            seen += text
    os.close(here)
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, seen
    assert b"60/60" in seen
    assert "[/red]:boom:\u00e9".encode() in seen
    assert b"60/60" not in out
    assert b"\x1b" not in out


def test_a_reader_that_has_gone(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    for form in ("", "--json"):
        command = f"{sys.executable} -m murk status --log {LOG} {form} | true"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.stderr == ""


def test_help_imports_nothing_heavy() -> None:
    for command in (["--help"], ["run", "--help"], ["--version"]):
        script = (
            "import sys; from murk.cli import main; sys.argv[1:] = "
            f"{command}\ntry:\n main()\nfinally:\n"
            " print(sorted({'numpy', 'river', 'numba', 'pydantic', 'scipy', 'rich', 'yaml'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "[]"
    assert "Learn TASK from a file of people" in murk("run", "--help", folder=ROOT).out
