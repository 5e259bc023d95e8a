"""Codes are unique, listed and given; exit statuses are those of the page; a shell completes."""

import ast
import json
import pickle
import re
import shutil
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

import murk as package
from murk.cli import Status
from murk.errors import MurkError, UserError
from murk.privacy import GaussianDP
from murk.stream.log.interface import FencedError, UnreachableError, not_an_input_log, without_task
from tests.cli.harness import LOG, ROOT, TASK, Done, finish, murk, refused, start, world
from tests.services.services import missing

SOURCES = sorted(Path(package.__file__).parent.rglob("*.py"))
PAGE = (ROOT / "docs" / "errors.md").read_text()
# Code, what has happened and what to do.
CODES = re.findall(r"^\| `(MURK-[A-Z]+-\d{3})` \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
AREAS = [area for area, _ in groupby(code.split("-")[1] for code, *_ in CODES)]


def test_every_code_is_on_the_page_once_and_beside_its_area():
    assert (
        len({code for code, *_ in CODES}) == len({what for _, what, _ in CODES}) == len(CODES) == PAGE.count("| `MURK")
    )
    assert len(set(AREAS)) == len(AREAS)
    assert all(what.endswith(".") and remedy.endswith(".") for _, what, remedy in CODES)


def test_every_code_that_is_raised_is_registered_and_every_registered_one_is_raised():
    texts = (path.read_text() for path in SOURCES)
    raised = {code for text in texts for code in re.findall(r'"(MURK-[A-Z]+-\d{3})"', text)}
    assert raised == {code for code, *_ in CODES}


def test_every_error_that_is_made_has_a_code_stated_beside_it():
    """By itself, or in its module: wherever a file moves, its codes stay."""
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        made = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)]
        silent = [
            each.lineno
            for each in made
            if each.func.id in ("UserError", "MurkError") and not any(word.arg == "code" for word in each.keywords)
        ]
        stated = any(
            isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "_ERROR_CODE" for each in tree.body
        )
        assert stated or not silent or path.name == "errors.py", (path, silent)


def test_the_code_is_said_or_that_of_who_raised_it():
    assert UserError("x", code="MURK-LOG-003").code == "MURK-LOG-003"
    assert str(UserError("x", code="MURK-LOG-003")) == "x"
    with pytest.raises(UserError) as caught:
        GaussianDP(-1.0)
    assert caught.value.code == "MURK-PRIVACY-001"
    # Neither where an error is raised decides, nor whether it is.
    error = not_an_input_log("sqlite:///x.db")
    assert error.code == "MURK-SHUFFLE-001"
    assert without_task("sqlite:///x.db").code == "MURK-LOG-003"
    assert MurkError("by nobody").code == "MURK-FAULT-001"
    assert pickle.loads(pickle.dumps(UserError("x", code="MURK-LOG-003"))).code == "MURK-LOG-003"
    assert (UnreachableError("x").code, FencedError("x").code) == ("MURK-LOG-002", "MURK-LOG-005")


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (["status", "--log", "sqlite:///nowhere.db"], 2, "MURK-LOG-004"),
        (["status", "--log", "nowhere"], 2, "MURK-LOG-008"),
        (["status", "--log", "sqlite:///people.csv"], 2, "MURK-FILE-002"),
        (["status", "--log", "sqlite:///empty-log.db"], 2, "MURK-LOG-003"),
        (["run", "nowhere.yaml", "--source", "people.csv"], 2, "MURK-TASK-002"),
        (["run", "people.csv", "--source", "people.csv"], 2, "MURK-TASK-002"),
        (["run", "task.yaml", "--source", "nowhere.csv"], 2, "MURK-DATA-001"),
        (["ledger", "nowhere.db"], 2, "MURK-LEDGER-002"),
        (["audit"], 2, "MURK-CLI-002"),
        (["monitor", "task.yaml", "--log", LOG, "--port", "0", "--reference", "nowhere"], 2, "MURK-MONITOR-001"),
    ],
)  # fmt: skip
def test_messages_end_with_their_code(folder, arguments, status, code):
    world(folder, rows=5)
    from murk.stream import open_log

    open_log(f"sqlite:///{folder}/empty-log.db").close()
    done = murk(*arguments, folder=folder)
    refused(done, code, status=status)
    assert done.err.rstrip("\n").endswith(f" [{code}]")


def test_wrong_usage_has_a_code(folder):
    done = murk("learn", "--nonsense", folder=folder)
    assert (done.status, done.out) == (Status.MISTAKE, "")
    assert "No such option '--nonsense'. [MURK-CLI-001]" in done.err


def test_as_json_the_code_is_a_key(folder):
    done = murk("learn", "--log", "sqlite:///nowhere.db", "--log-json", folder=folder)
    said = json.loads(done.err.splitlines()[-1])
    assert (said["level"], said["code"]) == ("error", "MURK-LOG-004")
    assert "[MURK" not in said["message"]


def test_exit_statuses_are_those_of_the_page(folder):
    world(folder, rows=30, task=TASK)
    found: dict[int, Done] = {}
    found[Status.DONE] = murk("run", "task.yaml", "--source", "people.csv", "--seed", 1, "--json", folder=folder)
    waits = ["produce", "task.yaml", "--source", "people.csv", "--log", "sqlite:///nobody-learns.db", "--patience", 0]
    found[Status.FAULT] = murk(*waits, folder=folder)
    found[Status.MISTAKE] = murk("status", "--log", "sqlite:///nowhere.db", folder=folder)
    process = start("learn", "--log", "sqlite:///nowhere.db", "--wait", folder=folder)
    assert "waiting" in process.stderr.readline()
    process.terminate()
    found[Status.STOPPED] = finish(process)
    assert {status: done.status for status, done in found.items()} == {status: status for status in found}
    assert [int(one) for one in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)] == [*Status]
    # Learners run until they are stopped: that is their end.
    process = start("learn", "--log", LOG, "-v", folder=folder)
    assert "taken over" in process.stderr.readline()
    process.terminate()
    assert finish(process).status == Status.DONE


# Completion


def complete(*words: str) -> list[str]:
    environment = {"_MURK_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "murk"], cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_a_shell_completes_commands_and_options():
    assert complete("murk", "le") == ["learn", "ledger"]
    assert {"--metrics-port", "--metrics-host"} == set(complete("murk", "learn", "--metrics"))


def test_the_page_s_line_teaches_bash(tmp_path):
    if shutil.which("bash") is None:
        missing("bash is missing")
    [line] = re.findall(
        r'^    (eval "\$\(_MURK_COMPLETE=bash_source murk\)")$', (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE
    )
    (tmp_path / "murk").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m murk "$@"\n')
    (tmp_path / "murk").chmod(0o755)
    script = f"PATH={tmp_path}:$PATH; {line}; complete -p murk"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip().endswith(" murk")
