"""A log on a real broker gets more partitions while its learners run."""

import csv
import uuid

from murk.privacy.noise import SimulatedNoise
from murk.producers import Ledger, Producer
from murk.stream import open_log
from tests.cli.harness import ANY_PROTOCOL, finish, murk, start, world

TASK = ANY_PROTOCOL + "protocol: moments\nlog: {partitions: 2}\n"
IDLE = ["--idle", 5, "--json"]


def release(folder, url, people):
    """People of the file release, each once."""
    rows = list(csv.DictReader((folder / "people.csv").read_text().splitlines()))
    with open_log(url, create=False) as log, Ledger(folder / "ledger.db") as ledger:
        producer = Producer(log.registered_task(), log, ledger, noise=SimulatedNoise(1))
        for person in people:
            record = {name: float(value) if value.isdigit() else value for name, value in rows[person].items()}
            assert producer.release(record, person=f"{person}").outcome == "released"


def test_partitions_are_added_to_a_log_and_learned(broker, tmp_path):
    folder, url = world(tmp_path, rows=200, task=TASK), f"{broker.url}/g{uuid.uuid4().hex[:12]}"
    (folder / "model.yaml").write_text("name: by-age\nfeatures: [age]\n")
    topics = ["topics", "task.yaml", "--log", url, "--simulated", "--json"]
    fit = ["fit", "model.yaml", "--log", url, "--replay", "--json"]
    assert murk(*topics, folder=folder).status == 0
    release(folder, url, range(100))
    assert murk("learn", "--log", url, *IDLE, folder=folder).status == 0
    assert murk(*fit, folder=folder).json["releases"] == 100

    with start("learn", "--log", url, "--json", folder=folder) as learner:
        (folder / "task.yaml").write_text(TASK.replace("partitions: 2", "partitions: 5"))
        found = murk(*topics, folder=folder)
        assert (found.status, found.json["problems"]) == (0, [])
        release(folder, url, range(100, 200))
        # It ends once the group gives it a partition that it does not know, or here.
        learner.terminate()
        finish(learner)
    assert murk("learn", "--log", url, *IDLE, folder=folder).status == 0
    with open_log(url, create=False) as log:
        assert log.partitions == 5
        assert sum(log.ends()) == 200
        assert all(log.ends())
        assert [log.checkpoint(each).offset for each in range(5)] == [*log.ends()]
    assert murk(*fit, folder=folder).json["releases"] == 200

    (folder / "task.yaml").write_text(TASK.replace("partitions: 2", "partitions: 4"))
    assert "would be lost" in murk(*topics, folder=folder).err
