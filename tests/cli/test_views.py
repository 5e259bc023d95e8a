"""`murk ledger`, `murk status` and `murk dead-letters`: what they tell, and the way out."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from murk.cli.options import open_existing
from murk.cli.status import command
from murk.learners.problem import problem_for
from murk.stream import Worker
from murk.stream.log import Checkpoint
from murk.stream.sqlite_log import SqliteLog
from tests.cli.harness import LEDGER, LOG, ROWS, TASK, murk, query, refused, run, totals, world

PAID_TWICE = TASK.replace("mu: 1.0}}", "mu: 1.0}}, per_person: {gdp: {mu: 1.5}}")


def named(folder: Path, records: int, names: int) -> None:
    """Records of a few people in turn, named by a column."""
    lines = [f"{ROWS[0]},who", *(f"{row},w{at % names}" for at, row in enumerate(ROWS[1 : records + 1]))]
    (folder / "people.csv").write_text("\n".join(lines) + "\n")


def test_a_row_of_a_file(folder: Path) -> None:
    world(folder, rows=50)
    assert run(folder).status == 0
    own = murk("ledger", LEDGER, "--person", 50, "--source", "people.csv", "--json", folder=folder).json
    [task] = own["tasks"]
    [level] = task["levels"]
    assert (task["task"], level["level"], level["mechanism"]) == ("third-child", "default", "gaussian")
    assert (level["released"], level["sent"], level["queued"], level["refused"]) == (1, 1, 0, 0)
    assert level["guarantee"] == {"gdp": {"mu": 1.0}}
    # What was spent is what the lattice promises, which is never more.
    assert 0.99999 < own["guarantee"]["gdp"]["mu"] <= 1.0
    plain = murk("ledger", LEDGER, "--person", 50, "--source", "people.csv", folder=folder)
    assert "1 released (1 sent, 0 waiting" in plain.out
    assert "mu = 1" in plain.out
    nobody = murk("ledger", LEDGER, "--person", 51, "--source", "people.csv", "--json", folder=folder).json
    assert nobody["tasks"] == []
    for wrong in ("0", "-1", "x", "\u00b2"):
        done = murk("ledger", LEDGER, f"--person={wrong}", "--source", "people.csv", folder=folder)
        refused(done, "is no row", "counted from 1")


def test_totals_and_a_name(folder: Path) -> None:
    world(folder, task=PAID_TWICE)
    named(folder, records=60, names=20)
    found = run(folder, "--person", "who").json
    assert (found["people"], found["records"]) == (20, 60)
    assert (found["releases"], found["refusals"]) == (40, 20)
    everybody = totals(folder)
    assert (everybody["people"], everybody["releases"], everybody["refused"]) == (20, 40, 20)
    assert everybody["levels"] == [{"task": "third-child", "level": "default", "releases": 40}]
    assert "40 releases paid for, 20 refused" in murk("ledger", LEDGER, folder=folder).out
    own = murk("ledger", LEDGER, "--person", "w7", "--json", folder=folder).json
    assert own["tasks"][0]["levels"][0]["released"] == 2
    assert own["tasks"][0]["levels"][0]["refused"] == 1
    # Two releases of mu = 1 each.
    assert 0.99999 < own["guarantee"]["gdp"]["mu"] / 2**0.5 <= 1.0


def test_one_ledger_for_two_tasks(folder: Path) -> None:
    """Each task has its own cap; a person sees all that she was asked for in one place."""
    world(folder)
    named(folder, records=40, names=20)
    assert run(folder, "--person", "who").json["refusals"] == 20
    (folder / "other.yaml").write_text(TASK.replace("name: third-child", "name: other").replace("mu: 1.0", "mu: 0.5"))
    command = ["run", "other.yaml", "--source", "people.csv", "--seed", 1, "--json", "--person", "who"]
    found = murk(*command, "--ledger", LEDGER, folder=folder).json
    assert (found["people"], found["releases"], found["refusals"]) == (20, 20, 20)
    assert found["by_level"] == {"default": 20}
    everybody = totals(folder)
    assert (everybody["people"], everybody["releases"], everybody["refused"]) == (20, 40, 40)
    own = murk("ledger", LEDGER, "--person", "w7", "--json", folder=folder).json
    assert [task["task"] for task in own["tasks"]] == ["third-child", "other"]
    assert 0.99999 < own["guarantee"]["gdp"]["mu"] / 1.25**0.5 <= 1.0


def test_withdrawing(folder: Path) -> None:
    """Who withdraws releases nothing more, what waits of hers is not sent, and nothing is refunded."""
    world(folder, task=PAID_TWICE)
    named(folder, records=400, names=200)
    command = ["produce", "task.yaml", "--source", "people.csv", "--seed", 1, "--person", "who", "--patience", 0]
    assert murk(*command, folder=folder).status == 1
    # Her release waits in the outbox: it was paid for, and nothing has heard yet that the log has it.
    done = murk("ledger", LEDGER, "--person", "w3", "--withdraw", "--json", folder=folder).json
    assert done["withdrawn"] is True
    refused(murk("ledger", LEDGER, "--withdraw", folder=folder), "--withdraw needs --person")
    found = run(folder, "--person", "who").json
    assert (found["releases"], found["refusals"], found["duplicates"]) == (398, 2, 0)
    assert totals(folder)["withdrawn"] == 1
    own = murk("ledger", LEDGER, "--person", "w3", "--json", folder=folder).json
    assert sum(level["released"] for task in own["tasks"] for level in task["levels"]) == 0
    assert any("withdrawn" in line for line in own["words"])
    assert query(folder / LEDGER, "SELECT * FROM debits WHERE person = 'w3'") == []


def test_withdrawing_what_waits(folder: Path) -> None:
    world(folder, task=PAID_TWICE)
    named(folder, records=400, names=200)
    command = ["produce", "task.yaml", "--source", "people.csv", "--seed", 1, "--person", "who", "--patience", 0]
    assert murk(*command, folder=folder).status == 1
    assert totals(folder)["queued"] == 1
    done = murk("ledger", LEDGER, "--person", "w0", "--withdraw", folder=folder)
    assert "1 release(s) that waited in the outbox will not be sent" in done.out
    found = run(folder, "--person", "who").json
    # The log had it all the same: what was sent cannot be taken back, and is not sent again.
    assert (found["releases"], found["refusals"], found["duplicates"]) == (399, 1, 0)


def test_status_and_dead_letters(folder: Path) -> None:
    world(folder, rows=60)
    found = run(folder).json
    status = murk("status", "--log", LOG, "--json", folder=folder).json
    assert (status["chains"], status["lag"]) == (1, 0)
    for key in ("releases", "coefficients", "confidence_intervals", "state_digest", "levels", "simulated"):
        assert status[key] == found[key]
    plain = murk("status", "--log", LOG, folder=folder)
    assert "third-child: 60 releases learned" in plain.out
    assert murk("dead-letters", "--log", LOG, folder=folder).out == "third-child: no dead letters\n"


def test_a_lag_is_never_below_zero(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release arrives and is learned just as the state is read: it is in neither figure, or in both."""
    world(folder, rows=60)
    assert run(folder).status == 0
    url = f"sqlite:///{folder}/third-child.db"
    log, task = open_existing(url)
    read = SqliteLog.checkpoint

    def busy(self: SqliteLog, chain: int) -> Checkpoint:
        monkeypatch.setattr(SqliteLog, "checkpoint", read)
        log.append([(chain, b"not a release")] * 3)
        with Worker(log, task, problem_for(task).engine(), chain) as worker:
            worker.step()
        return read(self, chain)

    with log:
        monkeypatch.setattr(SqliteLog, "checkpoint", busy)
        done = CliRunner().invoke(command, ["--log", url, "--json"])
        found = json.loads(done.output)
        assert (found["lag"], found["dead_letters"]) == (0, {"malformed": 3})
        log.append([(0, b"nor this")])
        assert json.loads(CliRunner().invoke(command, ["--log", url, "--json"]).output)["lag"] == 1
