"""Task files with mistakes: each is named with its line, key and remedy, and nothing is begun."""

from pathlib import Path

import pytest

from tests.cli.harness import LOG, TASK, finish, murk, refused, run, start, world

PRIVACY = "{guarantee: {gdp: {mu: 1.0}}}"
MISTAKES = {
    "no bound": (("low: 21, ", ""), ["line 4", "features[1].low", "missing, and required", "bounds are public"]),
    "unknown key": (("privacy:", "privcy:"), ["line 6", "privcy", "did you mean 'privacy'?"]),
    "unknown guarantee": (("gdp:", "gpd:"), ["line 6", "did you mean 'gdp'?"]),
    "no budget": (("mu: 1.0", "mu: 0"), ["privacy.guarantee", "above 0"]),
    "too small a budget": (("mu: 1.0", "mu: 1.0e-12"), ["privacy.guarantee", "give a larger budget"]),
    "a budget that promises nothing": (("mu: 1.0", "mu: 1.0e+9"), ["privacy.guarantee", "the largest"]),
    "a mechanism that cannot": (
        (PRIVACY, "{guarantee: {pure: {epsilon: 1.0}}, mechanism: gaussian}"),
        ["privacy.mechanism", "'gaussian' cannot give", "laplace", "l2-ball"],
    ),
    "a cap below a release": (
        (PRIVACY, "{guarantee: {gdp: {mu: 1.0}}, per_person: {gdp: {mu: 0.5}}}"),
        ["privacy.per_person", "raise it, or drop the level"],
    ),
    "no protocol": (("protocol: gradients", "protocol: mixtures"), ["protocol", "is not a protocol"]),
    "not YAML": (("privacy:", "- privacy: ["), ["not readable as YAML", "line"]),
    "too many set aside": (
        ("privacy:", "public: {set_aside: 60}\nprivacy:"),
        ["public.set_aside is 60", "Set fewer aside"],
    ),
    "no public file": (("privacy:", "public: {file: no.csv}\nprivacy:"), ["no.csv", "check the path"]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_named_and_mended(folder: Path, mistake: str) -> None:
    change, words = MISTAKES[mistake]
    world(folder, rows=60, task=TASK.replace(*change))
    refused(run(folder), *words)
    # What is fixed is the task alone: the same command then begins.
    (folder / "task.yaml").write_text(TASK)
    if mistake in ("no bound", "too many set aside", "no public file"):
        assert run(folder).json["releases"] == 60
    else:
        assert not (folder / "third-child.db.run.json").exists()


CELLS = TASK.replace("gradients", "examples") + "examples: {release: cells, grid: 3}\n"
OF_CELLS = {
    "a cap below a release": (
        ("1.0}}}", "1.0}}, per_person: {gdp: {mu: 0.5}}}"),
        ["line 6: privacy.per_person", "raise it"],
    ),
    "no grid": ((", grid: 3", ""), ["line 4: features[1]", "grid: 5"]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", OF_CELLS)
@pytest.mark.parametrize("command", ["run", "produce"])
def test_a_task_of_cells_is_refused_by_its_line_before_anything_is_made(
    folder: Path, mistake: str, command: str
) -> None:
    change, words = OF_CELLS[mistake]
    world(folder, rows=60, task=CELLS.replace(*change))
    before = sorted(folder.iterdir())
    done = finish(start(command, "task.yaml", "--source", "people.csv", "--seed", 1, folder=folder))
    refused(done, "task.yaml", *words)
    assert "MURK-TASK-001" in done.err
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("command", ["run", "produce"])
def test_a_log_goes_on_whose_task_the_new_default_protocol_refuses(folder: Path, command: str) -> None:
    """That default is of new logs alone; so many levels and features are too large for it."""
    world(folder, rows=30)
    levels = ", ".join(f"l{number}: {{gdp: {{mu: {1 + number / 10}}}}}" for number in range(12))
    many = "".join(f"  - {{name: x{number}, low: 0, high: 1}}\n" for number in range(60))
    silent = TASK.replace("protocol: gradients\n", "").replace(PRIVACY, f"{PRIVACY[:-1]}, levels: {{{levels}}}}}")
    silent = silent.replace("target:", f"{many}target:")
    lines = (folder / "people.csv").read_text().splitlines()
    tails = [",".join(f"x{number}" for number in range(60)), *[",".join(["1"] * 60)] * (len(lines) - 1)]
    (folder / "people.csv").write_text("".join(f"{line},{tail}\n" for line, tail in zip(lines, tails, strict=True)))

    (folder / "task.yaml").write_text(silent)
    arguments = (command, "task.yaml", "--source", "people.csv", "--seed", 1, "--json")
    refused(murk(*arguments, folder=folder), "second moments", "protocol: gradients")
    assert not (folder / "third-child.db").exists()
    (folder / "task.yaml").write_text(silent + "protocol: gradients\n")
    assert run(folder, "--log", LOG).json["releases"] == 30


def test_every_mistake_at_once(folder: Path) -> None:
    """One line for each mistake."""
    world(folder, rows=5, task=TASK.replace("low: 21, ", "").replace("mu: 1.0", "mu: -1").replace("kind:", "knd:"))
    done = run(folder)
    assert (done.status, done.out, len(done.err.splitlines())) == (2, "", 3)


def test_no_task_file(folder: Path) -> None:
    world(folder, rows=5)
    (folder / "task.yaml").unlink()
    refused(run(folder), "task.yaml", "No such file", "give the path of a task file")
    (folder / "task.yaml").mkdir()
    refused(run(folder), "task.yaml", "Is a directory")
    (folder / "task.yaml").rmdir()
    (folder / "task.yaml").write_bytes(b"name: \xff\xfe")
    refused(run(folder), "task.yaml", "not UTF-8", "save it as UTF-8")


def test_a_second_task_under_the_same_name(folder: Path) -> None:
    world(folder, rows=60)
    assert run(folder).status == 0
    (folder / "task.yaml").write_text(TASK.replace("high: 35", "high: 36"))
    refused(run(folder), "third-child.db already carries the task 'third-child'", "features[1].high", "use another log")
    (folder / "task.yaml").write_text(TASK)
    assert run(folder).json["releases"] == 60
