"""`murk ledger`, `murk status` and `murk dead-letters`: what they tell, and the way out."""

import gc
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from murk import Task
from murk.cli.commands.ledger import command as ledger_command
from murk.cli.commands.produce import command as produce_command
from murk.cli.commands.status import command
from murk.cli.options import open_existing
from murk.producers import Ledger
from murk.protocols.device import device_for
from murk.stream import Worker
from murk.stream.log.interface import Checkpoint
from murk.stream.log.sqlite import SqliteLog
from tests.cli.harness import ACCOUNTS, LEDGER, LOG, ROWS, TASK, murk, query, refused, run, totals, world

PAID_TWICE = TASK.replace("mu: 1.0}}", "mu: 1.0}}, per_person: {gdp: {mu: 1.5}}")


def today() -> str:
    """The day as the ledger notes it. (A test that runs over midnight fails, once in a lifetime.)"""
    return datetime.now(UTC).date().isoformat()


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
    assert "1 answer, randomized by whoever holds the file of records" in plain.out
    assert "third-child, a simulation: its noise can be recomputed and protects nobody" in plain.out
    assert "Kept private" not in plain.out
    assert f"on {today()}" in plain.out
    [receipt] = level["receipts"]
    assert 1 <= receipt <= 50
    assert f"No. {receipt} in this ledger" in plain.out
    details = murk("ledger", LEDGER, "--person", 50, "--source", "people.csv", "--details", folder=folder)
    assert "1 released (1 sent, 0 waiting" in details.out
    assert (level["first"], level["last"]) == (today(), today())
    assert task["caps"][0]["cap"] == {"gdp": {"mu": 1.0}}
    assert "mu = 1 spent of at most mu = 1" in " ".join(plain.out.split())
    for nobody in (["51", "--source", "people.csv"], ["w50"]):
        refused(
            murk("ledger", LEDGER, "--person", *nobody, folder=folder),
            "Nothing was ever released by this ledger under this name",
        )
    for wrong in ("0", "-1", "x", "\u00b2"):
        done = murk("ledger", LEDGER, f"--person={wrong}", "--source", "people.csv", folder=folder)
        refused(done, "is not a row", "counted from 1")


def test_totals_and_a_name(folder: Path) -> None:
    world(folder, task=PAID_TWICE)
    named(folder, records=60, names=20)
    found = run(folder, "--person", "who").json
    assert (found["people"], found["records"]) == (20, 60)
    assert (found["releases"], found["refusals"]) == (20, 0)
    everybody = totals(folder)
    assert (everybody["people"], everybody["releases"], everybody["refused"]) == (20, 20, 0)
    assert everybody["levels"] == [{"task": "third-child", "level": "default", "releases": 20}]
    assert "20 releases paid for, 0 refused" in murk("ledger", LEDGER, folder=folder).out
    own = murk("ledger", LEDGER, "--person", "w7", "--json", folder=folder).json
    assert own["tasks"][0]["levels"][0]["released"] == 1
    assert 0.99999 < own["guarantee"]["gdp"]["mu"] <= 1.0
    check = ["run", "task.yaml", "--source", "people.csv", "--check", "--person", "who"]
    assert "20 people with 60 rows (most: 3), all as the task" in murk(*check, folder=folder).out


def test_one_ledger_for_two_tasks(folder: Path) -> None:
    """Each task has its own cap; a person sees all that they were asked for in one place."""
    world(folder)
    named(folder, records=40, names=20)
    assert run(folder, "--person", "who").json["refusals"] == 0
    (folder / "other.yaml").write_text(TASK.replace("name: third-child", "name: other").replace("mu: 1.0", "mu: 0.5"))
    command = ["run", "other.yaml", "--source", "people.csv", "--seed", 1, "--json", "--person", "who"]
    found = murk(*command, "--ledger", LEDGER, folder=folder).json
    assert (found["people"], found["releases"], found["refusals"]) == (20, 20, 0)
    assert found["by_level"] == {"default": 20}
    everybody = totals(folder)
    assert (everybody["people"], everybody["releases"], everybody["refused"]) == (20, 40, 0)
    own = murk("ledger", LEDGER, "--person", "w7", "--json", folder=folder).json
    assert [task["task"] for task in own["tasks"]] == ["third-child", "other"]
    assert 0.99999 < own["guarantee"]["gdp"]["mu"] / 1.25**0.5 <= 1.0


def test_a_cap_over_all_tasks_and_one_ledger_for_them(folder: Path) -> None:
    """Real people's accounts lie with their file: two tasks add up, and no third fits under the cap."""
    world(folder, rows=40)
    for name in ("other", "third"):
        (folder / f"{name}.yaml").write_text(TASK.replace("name: third-child", f"name: {name}"))
    command = ["--source", "people.csv", "--lifetime", "gdp:1.5"]
    first = murk("run", "task.yaml", *command, folder=folder)
    assert "Accounts: people.ledger.db. All tasks together: mu = 1 of 1.5 at most for a person." in first.out
    assert "caution: people are rows of the file" in first.err
    second = murk("run", "other.yaml", *command, "--json", folder=folder).json
    assert (second["releases"], second["ledger"]) == (40, "people.ledger.db")
    assert second["together_words"] == ["All tasks together: mu = 1.415 of 1.5 at most for a person"]
    third = murk("run", "third.yaml", "--source", "people.csv", "--json", folder=folder).json
    assert (third["releases"], third["refusals"]) == (0, 40)
    plain = murk("ledger", ACCOUNTS, folder=folder)
    assert "All tasks together: mu = 1.415 of 1.5 at most for a person" in plain.out
    # Another ledger for the same people is a choice that is said, on standard error even for machines.
    (folder / "fourth.yaml").write_text(TASK.replace("name: third-child", "name: fourth"))
    other = murk("run", "fourth.yaml", "--source", "people.csv", "--ledger", "mine.db", "--json", folder=folder)
    assert other.json["releases"] == 40
    assert "caution: the people of people.csv have accounts in another ledger, too (people.ledger.db)" in other.err


@pytest.mark.parametrize("wrong", ["mu:2", "gdp", "gdp:x", "gdp:1,2", "approx:1", "gdp:-1"])
def test_a_lifetime_that_is_no_guarantee(folder: Path, wrong: str) -> None:
    world(folder, rows=5)
    done = run(folder, "--lifetime", wrong)
    assert done.status == 2
    assert "guarantee" in done.err
    assert not (folder / LEDGER).exists()


def test_withdrawing_asks(folder: Path) -> None:
    with Ledger(folder / "ledger.db") as ledger:
        ledger.bind("a" * 32, "7" * 64, name="demo")
        ledger.withdraw("ann", task_hash="7" * 64)
    command = [str(folder / "ledger.db"), "--person", "ann", "--withdraw"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("murk.cli.commands.ledger.terminal", lambda: True)
        for answer, withdrawn in (("n\n", False), ("y\n", True)):
            done = CliRunner().invoke(ledger_command, command, input=answer)
            assert "Withdraw from every task, now and later?" in done.output
            with Ledger(folder / "ledger.db") as ledger:
                assert ledger.account("ann").withdrawn is withdrawn
        assert f"Withdrawn from every task, now and later, on {today()}" in done.output
        # Who was never asked may say so beforehand, after being asked whether the name is right.
        done = CliRunner().invoke(ledger_command, [*command[:2], "bob", "--withdraw"], input="y\n")
        assert "check its spelling" in done.output
    with Ledger(folder / "ledger.db") as ledger:
        assert ledger.account("bob").withdrawn


def test_withdrawing(folder: Path) -> None:
    """Who withdraws releases nothing more, what waits of theirs is not sent, and nothing is refunded."""
    world(folder, task=PAID_TWICE)
    named(folder, records=400, names=200)
    command = ["produce", "task.yaml", "--source", "people.csv", "--seed", 1, "--person", "who", "--patience", 0]
    assert murk(*command, folder=folder).status == 1
    withdraw = ["ledger", LEDGER, "--withdraw", "--person"]
    refused(murk(*withdraw, "w3", folder=folder), "--withdraw asks for confirmation", "no terminal", "--yes")
    refused(murk("ledger", LEDGER, "--withdraw", folder=folder), "--withdraw requires --person")
    assert totals(folder)["withdrawn"] == 0
    refused(murk(*withdraw, "w3", "--yes", folder=folder), "nobody withdrew", "capitals count", "--new")
    assert totals(folder)["withdrawn"] == 0
    done = murk(*withdraw, "w3", "--yes", "--new", "--json", folder=folder).json
    assert (done["withdrawn"], done["withdrawn_on"], done["receipt"]["date"]) == (True, today(), today())
    # Who was never asked may say so beforehand; a machine that misspelt a name can tell.
    assert done["receipt"]["known"] is False
    found = run(folder, "--person", "who").json
    assert (found["releases"], found["refusals"], found["duplicates"]) == (199, 1, 0)
    assert totals(folder)["withdrawn"] == 1
    own = murk("ledger", LEDGER, "--person", "w3", "--json", folder=folder).json
    assert sum(level["released"] for task in own["tasks"] for level in task["levels"]) == 0
    assert any("withdrawn" in line for line in own["words"])
    with Ledger(folder / LEDGER) as ledger:
        names = ledger.names.reading()
    debits = [person for (person,) in query(folder / LEDGER, "SELECT person FROM debits")]
    assert names.person("w4") in debits
    assert names.person("w3") not in debits


def test_withdrawing_what_waits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world(folder, task=PAID_TWICE)
    named(folder, records=400, names=200)
    # So that w0 is the first.
    order = ["--person", "who", "--order", "file"]
    command = ["task.yaml", "--source", "people.csv", "--seed", "1", *order, "--patience", "0"]

    def killed(*arguments: object) -> None:
        raise SystemExit(137)

    with monkeypatch.context() as patch:
        # Paid for and sent, and its process ended before it heard so.
        patch.chdir(folder)
        patch.setattr(Ledger, "confirm", killed)
        assert CliRunner().invoke(produce_command, command).exit_code == 137
        # With the error its lock on the log goes.
        gc.collect()
    assert totals(folder)["queued"] == 1
    withdraw = ["ledger", LEDGER, "--person", "w0", "--withdraw", "--yes", "--task"]
    refused(murk(*withdraw, "fourth-child", folder=folder), "knows no task of the name 'fourth-child'", "third-child")
    done = murk(*withdraw, "third-child", folder=folder)
    words = f"Withdrawn from every task named 'third-child', now and later, on {today()}. 1 release(s) that waited in"
    assert words in done.out
    assert "a release that was just being sent may have arrived" in " ".join(done.out.split())
    assert "1 deleted before the log confirmed it, which may have been sent" in " ".join(done.out.split())
    assert f"On {today()}. You no longer take part in this task." in done.out
    found = run(folder, *order).json
    # The log had it all the same: what was sent cannot be taken back, and is not sent again.
    assert (found["releases"], found["refusals"], found["duplicates"]) == (200, 0, 0)


def test_status_and_dead_letters(folder: Path) -> None:
    world(folder, rows=60)
    found = run(folder).json
    status = murk("status", "--log", LOG, "--json", folder=folder).json
    assert (status["partitions"], status["lag"]) == (1, 0)
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

    def busy(self: SqliteLog, partition: int) -> Checkpoint:
        monkeypatch.setattr(SqliteLog, "checkpoint", read)
        log.append([(partition, b"not a release")] * 3)
        with Worker(log, task, device_for(task).engine(), partition) as worker:
            worker.step()
        return read(self, partition)

    with log:
        monkeypatch.setattr(SqliteLog, "checkpoint", busy)
        done = CliRunner().invoke(command, ["--log", url, "--json"])
        found = json.loads(done.stdout)
        assert (found["lag"], found["dead_letters"]) == (0, {"malformed": 3})
        log.append([(0, b"nor this")])
        assert json.loads(CliRunner().invoke(command, ["--log", url, "--json"]).stdout)["lag"] == 1


def test_status_says_what_retention_has_removed_unread(folder: Path) -> None:
    """It waits to be learned no more."""
    with SqliteLog(folder / "third-child.db") as log:
        log.register_task(Task.parse(TASK).document())
        log.append([(0, b"{}")] * 50)
        log.discard(0, 10)
    found = murk("status", "--log", LOG, "--json", folder=folder).json
    assert (found["removed"], found["lag"]) == (10, 40)
    assert "retention has removed 10 messages" in murk("status", "--log", LOG, folder=folder).out
