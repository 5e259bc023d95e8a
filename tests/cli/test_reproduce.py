"""`murk reproduce`: the list, the table, and what goes wrong."""

import json

import pytest
from click.testing import CliRunner

from murk.cli import cli
from murk.reproduce import catalogue
from murk.reproduce.experiment import Experiment, Paper
from tests.reproduce import made_up


def run(*arguments):
    found = CliRunner().invoke(cli, ["reproduce", *map(str, arguments)])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


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
    assert "murk reproduce ID" in run().output


def test_a_table_says_what_was_published_and_what_is_found(made_up_paper, tmp_path):
    made_up_paper("good", "failing")
    found = run("009/good", "--out", tmp_path)
    for words in ("as published, here", "it is so", "Seen.", "good.png", "all of 1 checks hold"):
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
    assert "1 made again; all of 1 checks hold." in found.output
    with pytest.raises(ValueError, match="rows=0"):
        run("009/mistaken", "--out", tmp_path)


def test_mistakes_are_said_in_a_line(made_up_paper, tmp_path):
    made_up_paper("good", "with_file")
    with pytest.raises(ValueError, match="the nearest is 009/good"):
        run("009/god")
    with pytest.raises(ValueError, match="name one"):
        run("all", "--data", tmp_path / "x.csv")
