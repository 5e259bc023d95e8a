"""A run started again: with the same command it goes on or repeats its result, with another it is refused."""

import signal
import time
from pathlib import Path

import pytest

from tests.cli.harness import LOG, TASK, finish, murk, people, refused, run, start, totals, traces, world


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = world(tmp_path_factory.mktemp("finished"))
    people(folder / "others.csv", range(300, 600))
    assert run(folder).json["releases"] == 300
    return folder


def test_a_finished_run_repeats_its_result(finished: Path) -> None:
    before = traces(finished)
    again = [run(finished).json for _ in range(2)]
    for one in again:
        del one["seconds"]
    assert again[0] == again[1]
    assert again[0]["releases"] == 300
    assert traces(finished) == before
    assert murk("status", "--log", LOG, "--json", folder=finished).json["state_digest"] == again[0]["state_digest"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--seed", 2], ["--seed 1, not --seed 2", "give the same --seed again"]),
        (["--level", "lot"], ["--level default, not --level lot", "give the same --level"]),
        (["--person", "age"], ["no --person, not --person age", "give the same --person"]),
        (["--source", "others.csv"], ["another file", "give the same --source"]),
        (["--ledger", "nowhere.db"], ["there is no ledger at nowhere.db", "Nothing was spent"]),
        (["--log", "sqlite:///other.db"], ["release to the task 'third-child' on another log", "Use that log"]),
    ],
)
def test_what_differs_is_named(finished: Path, options: list[object], words: list[str]) -> None:
    before = traces(finished)
    refused(run(finished, *options), *words)
    assert traces(finished) == before
    assert not (finished / "nowhere.db").exists()


def test_real_and_simulated_do_not_mix(finished: Path) -> None:
    command = ["run", "task.yaml", "--source", "people.csv", "--json"]
    refused(murk(*command, folder=finished), "carries simulated releases", "--seed")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("low: 21", "low: 20"), ["features[1].low"]),
        (("mu: 1.0", "mu: 2.0"), ["privacy.guarantee"]),
        (("name: third-child\n", "name: third-child\npublic: {set_aside: 20}\n"), ["differs in: public"]),
        (("name: third-child\n", "name: third-child\nlog: {partitions: 2}\n"), ["partitions back to 1"]),
        (("name: third-child\n", "name: fourth-child\n"), ["differs in: name"]),
    ],
)
def test_a_changed_task_is_refused(finished: Path, change: tuple[str, str], words: list[str]) -> None:
    before = traces(finished)
    (finished / "changed.yaml").write_text(TASK.replace(*change))
    command = ["run", "changed.yaml", "--source", "people.csv", "--seed", 1, "--json", "--log", LOG]
    refused(murk(*command, "--ledger", "third-child.ledger.db", folder=finished), *words, "use another log")
    assert traces(finished) == before


def test_a_changed_retention_is_taken_over(finished: Path) -> None:
    before = run(finished).json
    (finished / "changed.yaml").write_text(TASK + "log: {retention: 30d}\n")
    command = ["run", "changed.yaml", "--source", "people.csv", "--seed", 1, "--json"]
    assert murk(*command, folder=finished).json["state_digest"] == before["state_digest"]


def test_a_lost_ledger_is_not_made_anew(folder: Path) -> None:
    world(folder, rows=40)
    assert run(folder).status == 0
    kept = (folder / "third-child.ledger.db").rename(folder / "kept.db")
    refused(run(folder), "its companion third-child.ledger.db.key is still there", "Nothing was spent")
    (folder / "third-child.ledger.db.key").rename(folder / "kept.db.key")
    refused(run(folder), "there is no ledger at third-child.ledger.db", "Nothing was spent")
    assert not (folder / "third-child.ledger.db").exists()
    assert run(folder, "--ledger", kept.name).json["releases"] == 40


def test_a_task_may_be_announced_before_its_people_begin(folder: Path) -> None:
    """By `murk topics`, as on a cluster; from the first release on, the log belongs to its file and ledger."""
    world(folder, rows=40)
    people(folder / "others.csv", range(300, 340))
    announced = murk("topics", "task.yaml", "--log", LOG, "--simulated", folder=folder)
    assert announced.status == 0, announced.err
    assert run(folder).json["releases"] == 40
    refused(run(folder, "--source", "others.csv"), "another file", "give the same --source")
    for left in ("third-child.db.run.json", "third-child.ledger.db", "third-child.ledger.db.key"):
        (folder / left).unlink()
    refused(run(folder), "there is no ledger at third-child.ledger.db", "Nothing was spent")
    refused(run(folder, "--source", "others.csv"), "there is no ledger")


def test_the_note_of_a_deleted_log_does_not_name_the_ledger_of_the_next(folder: Path) -> None:
    world(folder, rows=40)
    assert run(folder).json["releases"] == 40
    (folder / "third-child.db").unlink()
    assert murk("topics", "task.yaml", "--log", LOG, "--simulated", folder=folder).status == 0
    assert run(folder, "--ledger", "new.ledger.db").json["releases"] == 40
    # The new log is bound to its ledger as any other.
    refused(run(folder, "--ledger", "other.ledger.db"), "there is no ledger at other.ledger.db")


def test_two_runs_on_one_log(folder: Path) -> None:
    """The second is refused while the first is at work, and neither harms the other."""
    world(folder, rows=1200)
    first = start("run", "task.yaml", "--source", "people.csv", "--seed", 1, "--json", "--block", 1, folder=folder)
    while not (folder / "third-child.db.run.json").exists():
        time.sleep(0.005)
    # Held where it is, so that it is still at work however quick the machine is.
    first.send_signal(signal.SIGSTOP)
    try:
        for command in ("run", "produce"):
            second = murk(command, "task.yaml", "--source", "people.csv", "--seed", 1, "--json", folder=folder)
            refused(second, "another `murk run` or `murk produce` is working on", "wait for it to end, or use another")
    finally:
        first.send_signal(signal.SIGCONT)
    found = finish(first).json
    assert (found["releases"], found["duplicates"], found["dead_letters"]) == (1200, 0, {})
    assert totals(folder)["releases"] == 1200


def test_an_interrupted_run_says_how_to_go_on(folder: Path) -> None:
    # So many that the run is still at work when the signal comes, however busy the machine is.
    world(folder, rows=6000)
    process = start("run", "task.yaml", "--source", "people.csv", "--seed", 1, "--json", "--block", 1, folder=folder)
    while not (folder / "third-child.db.run.json").exists():
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert (done.status, done.out) == (130, "")
    assert "the same command resumes" in done.err
    assert run(folder).json["releases"] == 6000
