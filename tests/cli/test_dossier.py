"""`murk dossier` as a command: a page and an object, of the task that a log carries, and refusals with a remedy."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from murk import Task
from murk.cli.commands.dossier import command
from murk.stream import open_log
from tests.dossier.test_example import TASKS
from tests.test_files import small_files


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(command, [*map(str, arguments)])
    return (0 if done.exception is None else 1), f"{done.output}{done.exception or ''}"


def test_of_a_file_and_of_a_log(tmp_path: Path) -> None:
    task, out = tmp_path / "task.yaml", tmp_path / "page.html"
    task.write_text("name: sleep\n" + TASKS["examples"])
    status, said = run(task, "--draws", 100, "--out", out)
    assert status == 0, said
    assert "to be settled before anyone signs" in said
    page = out.read_text()
    assert Task.load(task).hash in page
    assert "run when this dossier was made" in page
    url = f"sqlite:///{tmp_path}/sleep.db"
    with open_log(url) as log:
        log.register_task(Task.load(task).document())
    before = Path(tmp_path / "sleep.db").read_bytes()
    status, said = run(task, "--draws", 0, "--out", out, "--log", url, "--json")
    found = json.loads(said)
    assert found["task_hash"] == Task.load(task).hash
    assert url in out.read_text()
    assert not any("--log" in one for one in found["to_settle"])
    assert Path(tmp_path / "sleep.db").read_bytes() == before


def test_a_page_that_cannot_be_written_is_said_before_the_work_and_leaves_the_former_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, out = tmp_path / "task.yaml", tmp_path / "page.html"
    task.write_text("name: sleep\n" + TASKS["scores"])
    out.write_text("the former one")
    monkeypatch.setattr("murk.dossier.page.page_of", lambda dossier: "x" * 3_000_000)
    with small_files(2_000_000):
        status, said = run(task, "--draws", 0, "--out", out)
    assert (status, "page.html" in said) == (1, True)
    assert out.read_text() == "the former one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "task.yaml"]

    monkeypatch.setattr("murk.dossier.example.example_of", lambda task: pytest.fail("worked for nothing"))
    status, said = run(task, "--out", tmp_path / "nowhere" / "page.html")
    assert (status, "nowhere" in said) == (1, True)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    task, out = tmp_path / "task.yaml", tmp_path / "page.html"
    task.write_text("name: sleep\n" + TASKS["examples"])
    url = f"sqlite:///{tmp_path}/sleep.db"
    with open_log(url) as log:
        log.register_task(Task.load(task).with_simulated(True).document())
    command_line = [task, "--out", out, "--log", url]
    for arguments, words in (
        ([*command_line, "--draws", 0], "carries simulated releases: add --simulated"),
        ([task, "--out", out, "--draws", 3], "is too few for an audit"),
        ([task, "--out", out, "--ledger", tmp_path / "no.db"], "there is no ledger at"),
        ([task, "--out", out, "--audit", tmp_path / "no.json"], "cannot be read"),
    ):
        status, said = run(*arguments)
        assert status == 1
        assert words in said
        assert not out.exists()
    task.write_text("name: sleep\n" + TASKS["examples"].replace("90", "99"))
    status, said = run(*command_line, "--draws", 0, "--simulated")
    assert status == 1
    assert "differs in: features[0].high" in said


def test_the_input_log_of_a_shuffled_task(tmp_path: Path) -> None:
    task, out = tmp_path / "task.yaml", tmp_path / "page.html"
    task.write_text("name: sleep\n" + TASKS["shuffled"])
    url = f"sqlite:///{tmp_path}/intake.db"
    with open_log(url) as log:
        log.register_task(Task.load(task).document())
    status, said = run(task, "--draws", 0, "--out", out, "--intake", url, "--json")
    assert status == 0, said
    found = json.loads(said)
    assert not any("was not read (--intake)" in one for one in found["to_settle"])
    [section] = [one for one in found["sections"] if one["key"] == "retention"]
    assert "releases on the input log" in json.dumps(section)
    task.write_text("name: sleep\n" + TASKS["scores"])
    status, said = run(task, "--draws", 0, "--out", out, "--intake", url)
    assert (status, "--intake is for shuffled tasks" in said) == (1, True)


def test_no_web_page_releases_an_organisations_windows(tmp_path: Path) -> None:
    task = tmp_path / "task.yaml"
    task.write_text("name: sleep\n" + TASKS["summaries"])
    status, said = run(task, "--draws", 0, "--web", "--out", tmp_path / "page.html")
    assert (status, "--web is for people" in said) == (1, True)
