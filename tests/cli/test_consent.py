"""Before anything of people becomes public it is said, and agreed to; afterwards every view says what is public."""

import json
from pathlib import Path

import pytest

from murk.stream import open_log
from tests.cli.harness import ACCOUNTS, ANY_PROTOCOL, LOG, murk, query, refused, run, world

MOMENTS = ANY_PROTOCOL + "protocol: moments\n"
ROWS = 60
# More than give one answer (31), or are of two ages, so that whoever is drawn covariates can be learned from.
DRAWN = 32
ASIDE = MOMENTS + f"public: {{set_aside: {DRAWN}}}\n"
WHAT = f"The features same_sex, age (without the target third_child) of {DRAWN} people"
REAL = ("task.yaml", "--source", "people.csv", "--json")


def untouched(folder: Path) -> bool:
    """Whether the log carries nothing and nobody has an account."""
    with open_log(f"sqlite:///{folder}/third-child.db", create=False) as log:
        assert log.document() is None
    assert query(folder / ACCOUNTS, "SELECT * FROM runs") == []
    return not (folder / "third-child.db.run.json").exists()


@pytest.mark.parametrize("command", ["run", "produce"])
def test_where_nobody_can_be_asked_nothing_is_published(folder: Path, command: str) -> None:
    world(folder, ROWS, ASIDE)
    asked = f"pass --make-public {DRAWN}"
    # Nobody agreed to more people than they knew of.
    for options in ([], ["--make-public", DRAWN - 1], ["--make-public", 1]):
        done = murk(command, *REAL, *options, folder=folder)
        refused(done, WHAT, "become public", "drawn at random from people.csv", asked)
        assert untouched(folder)
    done = murk(command, *REAL, "--make-public", DRAWN, folder=folder)
    assert done.json["set_aside"] == DRAWN
    assert done.err.startswith(f"{WHAT} become public: they are written to {LOG[:10]}")
    # What is public already is not asked about again.
    again = murk(command, *REAL, folder=folder)
    assert (again.status, again.err) == (0, "")


@pytest.mark.parametrize("answer", ["n\n", "\n", "y\n"])
def test_at_a_terminal_somebody_is_asked(folder: Path, answer: str) -> None:
    world(folder, ROWS, ASIDE)
    done = murk("run", "task.yaml", "--source", "people.csv", folder=folder, answer=answer)
    assert f"{WHAT} become public" in done.out
    assert "Publish them? [y/N]" in done.out
    if answer == "y\n":
        assert done.status == 0
        assert f"{ROWS - DRAWN} releases learned" in done.out
    else:
        assert done.status == 2
        assert "nothing was published or started" in done.out
        assert untouched(folder)


def test_a_simulation_says_it_and_does_not_ask(folder: Path) -> None:
    world(folder, ROWS, ASIDE)
    done = run(folder)
    assert done.json["releases"] == ROWS - DRAWN
    assert WHAT in done.err


def test_every_view_says_what_is_public(folder: Path) -> None:
    world(folder, ROWS, ASIDE)
    printed = murk("run", "task.yaml", "--source", "people.csv", "--seed", 1, folder=folder).out
    shown = murk("status", "--log", LOG, folder=folder).out
    for text in (printed, shown):
        assert f"{WHAT} are public with this task, as they are and under no guarantee." in " ".join(text.split())
    found = murk("status", "--log", LOG, "--json", folder=folder).json["public_sample"]
    assert (found["people"], found["features"], found["file"]) == (DRAWN, ["same_sex", "age"], None)


def test_people_in_a_public_file_are_a_caution_and_decide_nothing(folder: Path) -> None:
    """A task's author chooses the file that people are compared with; that both are one file is no finding."""
    world(folder, ROWS, MOMENTS + "public: {file: public.csv}\n")
    (folder / "public.csv").write_bytes((folder / "people.csv").read_bytes())
    refused(murk("run", *REAL, "--check", folder=folder), "public.csv holds people of people.csv")
    refused(
        murk("run", *REAL, folder=folder), "CAUTION: public.csv holds people of people.csv", f"--make-public {ROWS}"
    )
    done = murk("run", *REAL, "--make-public", ROWS, folder=folder)
    assert done.json["releases"] == ROWS
    assert "CAUTION: public.csv holds people" in done.err


def test_a_task_cannot_name_the_peoples_own_file_as_public(folder: Path) -> None:
    world(folder, ROWS, MOMENTS + "public: {file: people.csv}\n")
    refused(murk("run", *REAL, "--make-public", ROWS, folder=folder), "it is the people's own file")
    assert untouched(folder)


def test_where_nothing_becomes_public_nobody_is_asked(folder: Path) -> None:
    world(folder, ROWS, MOMENTS + "public: null\n")
    done = murk("run", *REAL, folder=folder)
    assert (done.json["releases"], done.json["set_aside"], done.json["public_sample"]) == (ROWS, 0, None)
    with open_log(f"sqlite:///{folder}/third-child.db", create=False) as log:
        document = json.loads(log.document() or b"")
    assert (document["public"], document["covariates"]) == (None, None)
