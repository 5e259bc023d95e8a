"""A log is open to anyone who can reach it: hostile messages become dead letters, hostile models are refused."""

import json
import random
import signal
from pathlib import Path

from murk import Task
from murk.populations.people import Population, PopulationConfig, open_accounts
from murk.stream import open_log
from murk.stream.wire.codec import encode
from murk.stream.wire.releases import ModelMessage
from tests.cli.harness import LEDGER, LOG, TASK, finish, murk, query, refused, run, start, totals, world

PRODUCE = ["produce", "task.yaml", "--source", "people.csv", "--seed", 1, "--json", "--patience"]
ROWS = 200


def begun(folder: Path, rows: int = ROWS) -> bytes:
    """A log with one release that nobody has learned; gives the release."""
    world(folder, rows=rows)
    assert murk(*PRODUCE, 0, folder=folder).status == 1
    with open_log(f"sqlite:///{folder}/third-child.db") as log:
        return log.read(0, 0, 1)[0].value


def put(folder: Path, messages: list[bytes]) -> None:
    with open_log(f"sqlite:///{folder}/third-child.db") as log:
        log.append([(0, message) for message in messages])


def another(release: bytes, number: int, **changes: object) -> bytes:
    """A release with another id and other changes."""
    return json.dumps({**json.loads(release), "id": f"{number:032x}", **changes}, separators=(",", ":")).encode()


def test_whatever_stands_on_the_log(folder: Path) -> None:
    release = begun(folder)
    noise = random.Random(3)
    payload = json.loads(release)["payload"]
    hostile = {
        "malformed": [noise.randbytes(200), release[:60], b"[]", b"", b"[[" * 100],
        "schema": [
            b"{}",
            b'{"id":1e9999}',
            release.replace(b'"payload":[', b'"payload":[NaN,'),
            another(release, 1, payload=[0.5, 0, 0]),
            another(release, 2, schema=2),
            another(release, 3, version=-1),
            # Keys that a terminal or a table might take for orders.
            b'{"[/bold]":1,"[red]":":boom:"}',
            another(release, 4, **{"\u001b[2J[/]": 1}),
        ],
        "too-large": [b"x" * 900_000, b"[" * 100_000],
        "wrong-task": [another(release, 5, task="0" * 64)],
        "simulated": [another(release, 6, simulated=False)],
        "partition": [another(release, 7, partition=1)],
        "level": [another(release, 8, level="loud")],
        "dimension": [another(release, 9, payload=[*payload, 0])],
        "magnitude": [another(release, 10, payload=[2**40, 0, 0])],
        "future": [another(release, 11, version=10_000)],
        "expired": [another(release, 12, expires=86_400)],
    }
    put(folder, [message for messages in hostile.values() for message in messages] + [release, release])
    found = run(folder).json
    expected = {reason: len(messages) for reason, messages in hostile.items()}
    assert found["dead_letters"] == expected
    # The woman's own release, and both copies of it that a stranger sent.
    assert (found["releases"], found["refusals"], found["duplicates"]) == (ROWS, 0, 2)
    assert totals(folder)["releases"] == ROWS
    assert len(query(folder / LEDGER, "SELECT * FROM debits")) == ROWS

    listed = murk("dead-letters", "--log", LOG, "--json", folder=folder).json
    assert (listed["total"], listed["reasons"]) == (sum(expected.values()), expected)
    assert [letter["offset"] for letter in listed["dead_letters"]] == list(range(1, 21))
    for limit in (2, 100):
        plain = murk("dead-letters", "--log", LOG, "--limit", limit, folder=folder)
        assert plain.status == 0
        assert "\u001b" not in plain.out
        assert f"{sum(expected.values())} dead letters" in plain.out
        assert ("and 21 more" in plain.out) == (limit == 2)
    status = murk("status", "--log", LOG, "--json", folder=folder).json
    assert (status["lag"], status["dead_letters"]) == (0, expected)


def test_hostile_bytes_change_nothing_that_is_learned(folder: Path) -> None:
    """Between any two runs or none, what counts is what people have released."""
    clean = run(world(folder / "clean", rows=ROWS)).json
    noise = random.Random(4)
    release = begun(folder / "attacked")
    put(folder / "attacked", [noise.randbytes(noise.randrange(300)) for _ in range(50)] + [release] * 50)
    found = run(folder / "attacked").json
    assert found["state_digest"] == clean["state_digest"]
    assert (found["duplicates"], found["dead_letters"]) == (50, {"malformed": 50})


def hostile_models(task: Task) -> dict[str, tuple[bytes, str]]:
    def model(version: int, *iterate: float) -> bytes:
        return encode(ModelMessage(task=task.hash, partition=0, version=version, parameters=list(iterate)))

    infinite = model(1, 0.0, 0.0, 0.0).replace(b"[0.0", b"[1e999")
    return {
        "infinite": (infinite, "schema"),
        "huge": (model(1, 1e300, 0.0, 0.0), "norm"),
        "outside": (model(1, 1e3, 0.0, 0.0), "norm"),
        "wrong size": (model(1, 0.1, 0.1), "2 coordinates, the task has 3"),
        "from the future": (model(1 << 40, 0.1, 0.1, 0.1), "more than the log has"),
        "garbage": (b"\xff" * 50, "malformed"),
        "another task's": (model(1, 0.1, 0.1, 0.1).replace(task.hash.encode(), b"0" * 64), "wrong-task"),
    }


def test_hostile_models(folder: Path) -> None:
    """Anyone who would compute at one refuses before a record is read; nobody is debited, and a learner fixes it."""
    begun(folder)
    learned = murk("learn", "--log", LOG, "--idle", 0.1, "--json", folder=folder).json
    assert learned["releases"] == 1
    url = f"sqlite:///{folder}/third-child.db"
    with open_log(url) as log:
        task = Task.from_document(log.document() or b"")
    before = totals(folder)
    for name, (message, words) in hostile_models(task).items():
        with open_log(url) as log:
            log.publish(0, message)
        done = murk(*PRODUCE, 0, folder=folder)
        assert (done.status, done.out) == (2, ""), name
        assert words in done.err, name
        assert totals(folder)["releases"] == before["releases"] == 1, name
    # A learner puts its own iterate in the place of any other.
    found = run(folder).json
    assert found["state_digest"] == run(world(folder / "clean", rows=ROWS)).json["state_digest"]


def test_a_hostile_model_before_anything_was_learned(folder: Path) -> None:
    world(folder, rows=20)
    with open_log(f"sqlite:///{folder}/third-child.db") as log, open_accounts(log, folder / LEDGER) as accounts:
        crowd = Population(Task.parse(TASK), PopulationConfig(folder / "people.csv", seed=1), log, accounts)
        crowd.close()
        log.publish(0, hostile_models(crowd.task)["huge"][0])
    done = murk(*PRODUCE, 0, folder=folder)
    refused(done, "norm")
    assert totals(folder)["releases"] == 0
    found = run(folder).json
    assert (found["releases"], found["dead_letters"]) == (20, {})


def test_hostile_bytes_while_it_runs(folder: Path) -> None:
    begun(folder)
    learner = start("learn", "--log", LOG, "--json", folder=folder)
    producer = start(*PRODUCE, 600, folder=folder)
    for _ in range(20):
        put(folder, [b"\x00" * 30])
    assert finish(producer).json["releases"] == ROWS
    while murk("status", "--log", LOG, "--json", folder=folder).json["lag"]:
        pass
    learner.send_signal(signal.SIGINT)
    found = finish(learner).json
    assert (found["releases"], found["duplicates"], found["dead_letters"]) == (ROWS, 0, {"malformed": 20})
    assert murk("ledger", LEDGER, "--json", folder=folder).json["queued"] == 0
