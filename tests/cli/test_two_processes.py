"""`murk produce` and `murk learn` on one log: what is learned is what `murk run` learns."""

import signal
import time
from pathlib import Path

from murk.stream import open_log
from tests.cli.harness import (
    ANY_PROTOCOL,
    LOG,
    LOGGED,
    TASK,
    Done,
    finish,
    murk,
    query,
    refused,
    run,
    start,
    totals,
    traces,
    world,
)  # fmt: skip
from tests.cli.processes import Process

ROWS = 180
PRODUCE = ["produce", "task.yaml", "--source", "people.csv", "--seed", 1, "--json", "--patience", 600]
LEARN = ["learn", "--log", LOG, "--json"]
TWO_PARTITIONS = TASK + "log: {partitions: 2}\n"


def stop(learner: Process) -> Done:
    """Interrupt a learner; it tells what it has learned."""
    learner.send_signal(signal.SIGINT)
    return finish(learner)


def announced(folder: Path) -> bool:
    """Whether there is a log that carries a task: what a producer notes before that is no sign of it."""
    if not (folder / "third-child.db.run.json").exists():
        return False
    with open_log(f"sqlite:///{folder}/third-child.db", create=False) as log:
        return log.document() is not None


def learned(folder: Path) -> int:
    """How far the first partition has been learned."""
    with open_log(f"sqlite:///{folder}/third-child.db", create=False) as log:
        return log.checkpoint(0).offset


def round_(folder: Path) -> int:
    """How often the first partition has changed hands."""
    return int(query(folder / "third-child.db", "SELECT epoch FROM states WHERE partition = 0")[0][0])


def wait_until_learned(folder: Path, offset: int, process: Process) -> None:
    while learned(folder) < offset:
        assert process.poll() is None
        time.sleep(0.005)


def test_the_same_as_one_process(folder: Path) -> None:
    alone = run(world(folder / "alone", rows=ROWS, task=TWO_PARTITIONS)).json
    apart = world(folder / "apart", rows=ROWS, task=TWO_PARTITIONS)
    # The learner comes later: it needs a log that carries a task.
    producer = start(*PRODUCE, folder=apart)
    while not announced(apart):
        assert producer.poll() is None
        time.sleep(0.005)
    learner = start(*LEARN, folder=apart)
    sent, found = finish(producer).json, stop(learner).json
    assert (sent["releases"], sent["refusals"]) == (found["releases"], 0) == (ROWS, 0)
    assert found["state_digest"] == alone["state_digest"]
    assert (found["duplicates"], found["dead_letters"]) == (0, {})
    assert traces(apart) == traces(folder / "alone")


def test_a_learner_that_waits_for_producers(folder: Path) -> None:
    expected = run(world(folder / "alone", rows=ROWS)).json["state_digest"]
    apart = world(folder / "apart", rows=ROWS)
    refused(murk(*PRODUCE, "--patience", 0, folder=apart), "no learner has read", f"murk learn --log {LOG}", status=1)
    learner = start(*LEARN, folder=apart)
    wait_until_learned(apart, 1, learner)
    assert murk(*PRODUCE, folder=apart).json["releases"] == ROWS
    assert stop(learner).json["state_digest"] == expected


def test_killed_learners_and_producers(folder: Path) -> None:
    """Each is killed twice in the middle and started again by the same command."""
    expected = run(world(folder / "alone", rows=ROWS)).json["state_digest"]
    apart = world(folder / "apart", rows=ROWS)
    murk(*PRODUCE, "--patience", 0, folder=apart)
    learner, producer = start(*LEARN, folder=apart), start(*PRODUCE, folder=apart)
    for offset in (40, 110):
        wait_until_learned(apart, offset, learner)
        learner.kill()
        learner.communicate()
        learner = start(*LEARN, folder=apart)
        wait_until_learned(apart, offset + 30, learner)
        producer.kill()
        producer.communicate()
        producer = start(*PRODUCE, folder=apart)
    assert finish(producer).json["releases"] == ROWS
    found = stop(learner).json
    assert (found["releases"], found["duplicates"], found["dead_letters"]) == (ROWS, 0, {})
    assert found["state_digest"] == expected
    assert totals(apart)["queued"] == 0
    assert traces(apart) == traces(folder / "alone")


def test_partitions_that_share_models_whoever_is_killed(folder: Path) -> None:
    """Two models are made, of what both partitions have learned, by the learner of the first; each is killed twice."""
    rows, task = 6_500, ANY_PROTOCOL + "log: {partitions: 2}\n"
    expected = run(world(folder / "alone", rows=rows, task=task)).json
    apart = world(folder / "apart", rows=rows, task=task)
    murk(*PRODUCE, "--patience", 0, folder=apart)
    learners = {partition: start(*LEARN, "--partition", partition, folder=apart) for partition in range(2)}
    producer = start(*PRODUCE, folder=apart)
    for number, offset in enumerate((100, 1_400, 1_500, 2_900)):
        wait_until_learned(apart, offset, learners[0])
        killed = learners[number % 2]
        killed.kill()
        killed.communicate()
        learners[number % 2] = start(*LEARN, "--partition", number % 2, folder=apart)
    assert finish(producer).json["releases"] == rows
    with open_log(f"sqlite:///{apart}/third-child.db", create=False) as log:
        while any(log.status(partition).lag for partition in range(2)):
            assert [each.poll() for each in learners.values()] == [None, None]
            time.sleep(0.01)
    found = [stop(learner).json for learner in learners.values()][-1]
    assert (found["releases"], found["duplicates"], found["dead_letters"]) == (rows, 0, {})
    assert found["state_digest"] == expected["state_digest"]
    assert traces(apart) == traces(folder / "alone")


def test_of_two_learners_the_older_is_fenced(folder: Path) -> None:
    world(folder, rows=ROWS)
    murk(*PRODUCE, "--patience", 0, folder=folder)
    older = start(*LEARN, folder=folder)
    wait_until_learned(folder, 1, older)
    before, newer = round_(folder), start(*LEARN, folder=folder)
    while round_(folder) == before:
        assert newer.poll() is None
        time.sleep(0.005)
    # Only now is there anything to learn: a worker is told that it was fenced when it commits.
    producer = start(*PRODUCE, folder=folder)
    refused(finish(older), "another worker has taken over partition 0", "Run one worker for each partition", status=1)
    assert finish(producer).json["releases"] == ROWS
    found = stop(newer).json
    assert (found["releases"], found["duplicates"], found["dead_letters"]) == (ROWS, 0, {})


def test_one_learner_for_each_partition(folder: Path) -> None:
    expected = run(world(folder / "alone", rows=ROWS, task=TWO_PARTITIONS)).json
    apart = world(folder / "apart", rows=ROWS, task=TWO_PARTITIONS)
    murk(*PRODUCE, "--patience", 0, folder=apart)
    refused(murk(*LEARN, "--partition", 2, folder=apart), "--partition 2", "the partitions 0 to 1")
    learners = [start(*LEARN, "--partition", partition, folder=apart) for partition in range(2)]
    assert murk(*PRODUCE, folder=apart).json["releases"] == ROWS
    for learner in learners:
        # Each tells what both have learned.
        found = stop(learner).json
        for key in ("state_digest", "releases", "coefficients", "confidence_intervals"):
            assert found[key] == expected[key]


def test_an_interrupted_learner_tells_its_result(folder: Path) -> None:
    world(folder, rows=ROWS)
    murk(*PRODUCE, "--patience", 0, folder=folder)
    learner = start(*LEARN, folder=folder)
    wait_until_learned(folder, 1, learner)
    done = stop(learner)
    assert done.json["releases"] == 1
    assert [line for line in done.err.splitlines() if not LOGGED.match(line)] == ["stopped"]
