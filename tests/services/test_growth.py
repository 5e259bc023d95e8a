"""A log on a real broker gets more partitions while its learners run."""

import uuid

from murk.stream import open_log
from tests.cli.harness import ANY_PROTOCOL, finish, murk, start, world

TASK = ANY_PROTOCOL + "protocol: moments\nlog: {partitions: 2}\n"
IDLE = ["--idle", 5, "--json"]


def test_partitions_are_added_to_a_log_and_learned(broker, tmp_path):
    folder, url = world(tmp_path, rows=400, task=TASK), f"{broker.url}/g{uuid.uuid4().hex[:12]}"
    (folder / "model.yaml").write_text("name: by-age\nfeatures: [age]\n")
    head, *rows = (folder / "people.csv").read_text().splitlines(keepends=True)
    for name, half in ("first.csv", rows[:200]), ("second.csv", rows[200:]):
        (folder / name).write_text(head + "".join(half))
    topics = ["topics", "task.yaml", "--log", url, "--simulated", "--json"]
    assert murk(*topics, folder=folder).status == 0
    produce = ["produce", "task.yaml", "--seed", 1, "--log", url, "--source"]
    assert murk(*produce, "first.csv", folder=folder).status == 0
    assert murk("learn", "--log", url, *IDLE, folder=folder).status == 0
    assert murk("fit", "model.yaml", "--log", url, "--replay", "--json", folder=folder).json["releases"] == 200

    with start("learn", "--log", url, "--json", folder=folder) as learner:
        (folder / "task.yaml").write_text(TASK.replace("partitions: 2", "partitions: 5"))
        found = murk(*topics, folder=folder)
        assert (found.status, found.json["problems"]) == (0, [])
        assert murk(*produce, "second.csv", folder=folder).status == 0
        # It ends once the group gives it a partition that it does not know, or here.
        learner.terminate()
        finish(learner)
    assert murk("learn", "--log", url, *IDLE, folder=folder).status == 0
    with open_log(url, create=False) as log:
        assert log.partitions == 5
        assert sum(log.ends()) == 400
        assert all(log.ends())
        assert [log.checkpoint(each).offset for each in range(5)] == [*log.ends()]
    assert murk("fit", "model.yaml", "--log", url, "--replay", "--json", folder=folder).json["releases"] == 400

    (folder / "task.yaml").write_text(TASK.replace("partitions: 2", "partitions: 4"))
    assert "would be lost" in murk(*topics, folder=folder).err
