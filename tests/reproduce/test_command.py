"""`python -m reproductions`: the list, the table, and what goes wrong."""

import json

import pytest
from click.testing import CliRunner

from murk.cli import main
from reproductions import catalogue
from reproductions.__main__ import command
from reproductions.experiment import Experiment, Paper
from tests.reproduce import made_up


def run(*arguments):
    found = CliRunner().invoke(command, [*map(str, arguments)])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def ended(*arguments):
    """The status that the whole program ends with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["reproductions", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main(command, "python -m reproductions")
    return int(end.value.code)


@pytest.fixture
def made_up_paper(monkeypatch):
    def put(*functions):
        made = [Experiment(id=f"009/{each}", title=each, module=made_up.__name__, function=each) for each in functions]
        paper = Paper(number="009", protocol="x", citation="Nobody", experiments=made)
        monkeypatch.setattr(catalogue, "PAPERS", (paper,))

    return put


def test_the_list_names_every_figure():
    found = json.loads(run("--json").output)
    assert [paper["number"] for paper in found["papers"]] == ["000", "002", "003", "004"]
    assert "python -m reproductions ID" in run().output


def test_a_table_says_what_was_published_and_what_is_found(made_up_paper, tmp_path):
    made_up_paper("good", "failing")
    found = run("009/good", "--out", tmp_path)
    for words in ("as published, here", "it is so", "Seen.", "good.png", "all 1 checks hold"):
        assert words in found.output
    found = run("all", "--out", tmp_path, "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["failed"] == ["009/failing"]
    assert "A check failed in 009/failing." in run("009/failing", "--out", tmp_path).output


def test_what_could_not_be_made_is_said_beside_what_was(made_up_paper, tmp_path):
    made_up_paper("good", "mistaken")
    found = run("all", "--out", tmp_path)
    assert found.exit_code == 2
    assert "Not made: 009/mistaken: rows=0: give at least 1" in found.output
    assert "1 reproduced; all 1 checks hold." in found.output
    with pytest.raises(ValueError, match="rows=0"):
        run("009/mistaken", "--out", tmp_path)


@pytest.mark.parametrize(
    ("function", "words"), [("killed", "009/killed: its process ended"), ("full_disk", "or where Numba keeps")]
)
def test_what_could_not_be_made_ends_with_2_alone_and_among_others(made_up_paper, tmp_path, function, words, capfd):
    made_up_paper("good", function)
    assert ended("all", "--out", tmp_path) == 2
    assert f"Not made: {words if function == 'killed' else tmp_path}" in capfd.readouterr().out
    assert ended(f"009/{function}", "--out", tmp_path) == 2
    said = capfd.readouterr().err
    assert words in " ".join(said.split())
    assert "Traceback" not in said


def test_a_file_that_is_not_there_and_a_place_that_cannot_be_written_end_with_2(made_up_paper, tmp_path, capfd):
    made_up_paper("good", "with_file", "failing")
    missing, taken = tmp_path / "none.csv", tmp_path / "taken"
    (taken / "009").parent.mkdir()
    (taken / "009").write_text("a file where a folder should be")
    for which, place, path in (
        ("009/with_file", ["--data", missing, "--out", tmp_path], missing),
        ("009/good", ["--out", taken], taken / "009"),
        ("all", ["--out", taken], taken / "009"),
    ):
        assert ended(which, *place) == 2
        said = capfd.readouterr().err.replace("\n", "")
        assert str(path) in said
        assert "[MURK-FILE-001]" in said
    assert ended("009/good", "--data", taken / "009", "--out", tmp_path) == 2
    assert "[MURK-CLI-002]" in capfd.readouterr().err
    # A check that fails is another thing.
    assert ended("all", "--out", tmp_path) == 1


def test_mistakes_are_said_in_a_line(made_up_paper, tmp_path):
    made_up_paper("good", "with_file")
    with pytest.raises(ValueError, match="did you mean 009/good"):
        run("009/god")
    with pytest.raises(ValueError, match="give one ID"):
        run("all", "--data", tmp_path / "x.csv")
