"""`murk dossier --log kafka://...`: retention as the broker has it, and what cannot be read is said."""

import json
import uuid

import pytest

from murk.stream.log.kafka.topics import Names
from tests.cli import harness
from tests.services.test_topics import TASK, admin, alter, delete

NOW = ["--draws", "0", "--json"]


@pytest.fixture
def place(broker, tmp_path):
    """A folder with a task that is announced, the URL of its log and the names of its topics."""
    name = f"t{uuid.uuid4().hex[:12]}"
    folder, url = harness.world(tmp_path, rows=2, task=TASK), f"{broker.url}/{name}"
    assert harness.murk("topics", "task.yaml", "--log", url, "--estimates", folder=folder).status == 0
    return folder, url, Names(name)


def test_retention_is_the_brokers(broker, place):
    folder, url, names = place
    before = harness.murk("dossier", "task.yaml", "--log", url, *NOW, folder=folder).json
    kept = {row[0]: row for row in rows(before, "retention")}
    # `murk topics` has made an eighth of the retention a segment, which is deleted as a whole.
    later = "a segment at a time: up to 30 hours later"
    assert kept["releases"][1] == f"10 days after they arrive, then deleted by the broker, {later}"
    assert kept["dead letters"][1].endswith(later)
    assert f"{names.releases}: cleanup.policy=delete, retention.ms=864000000" in kept["releases"][2]
    assert "copies=1" in kept["releases"][2]
    assert "older ones until the broker compacts" in kept["models"][1]
    assert kept["published estimates"][2].startswith(f"{names.estimates}: cleanup.policy=compact")
    settle = " ".join(before["to_settle"])
    assert "not encrypted" in settle
    assert "longer than the task asks for" not in settle
    with admin(broker) as client:
        alter(client, names.releases, retention_ms="-1")
        alter(client, names.dead, retention_ms=str(90 * 86_400_000))
        delete(client, names.states)
    after = harness.murk("dossier", "task.yaml", "--log", url, *NOW, folder=folder).json
    kept = {row[0]: row for row in rows(after, "retention")}
    assert kept["releases"][1] == "for ever: nothing deletes them"
    assert kept["dead letters"][1].startswith("90 days")
    assert kept["learners' states"][1] == "not known"
    settle = " ".join(after["to_settle"])
    assert "Releases are kept longer than the task asks for (for ever" in settle
    assert f"the settings of {names.states} could not be read: it is missing" in settle
    page = (folder / "third-child.dossier.html").read_text()
    assert "for ever: nothing deletes them" in page


def rows(found, key):
    [section] = [one for one in found["sections"] if one["key"] == key]
    [table] = [block for block in section["blocks"] if "rows" in block]
    return json.loads(json.dumps(table["rows"]))
