"""Estimates on a real broker: their topic, their transaction, and a neighbour that reads them, as the page has it."""

import json
import re
import subprocess
import sys
import uuid
from contextlib import closing

from kafka import TopicPartition

from murk.stream import open_log
from murk.stream.log.kafka.topics import Names, topics_command
from tests.cli.harness import ANY_PROTOCOL, ROOT, murk, world
from tests.services.clients import KafkaAdminClient, KafkaConsumer, KafkaProducer
from tests.services.test_topics import configs

TASK = ANY_PROTOCOL + "protocol: examples\n"


def neighbour(broker, topic):
    """What the page's code prints of a topic."""
    page = (ROOT / "docs" / "deploy.md").read_text()
    [code] = re.findall(r"^```python kafka estimates\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    code = f"SERVERS = {broker.bootstrap!r}\n" + code.replace("murk-third-child-estimates", topic)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_neighbour_reads_what_learners_publish(broker, tmp_path):
    folder = world(tmp_path, rows=60, task=TASK)
    name = f"e{uuid.uuid4().hex[:12]}"
    url, topic = f"{broker.url}/{name}", Names(name).estimates
    learn = ["learn", "--log", url, "--idle", 3, "--estimates", 0.05, "--json"]
    murk("topics", "task.yaml", "--log", url, "--simulated", folder=folder)
    produce = ["produce", "task.yaml", "--source", "people.csv", "--log", url, "--seed", 1, "--json"]
    assert murk(*produce, folder=folder).json["releases"] == 60

    # Without the topic nothing is published, and nothing goes wrong.
    assert murk(*learn, folder=folder).json["releases"] == 60
    with open_log(url, create=False) as log:
        assert not log.takes_estimates
        assert log.estimate() is None
    missing = murk("topics", "task.yaml", "--log", url, "--simulated", "--check", "--estimates", folder=folder)
    told = f"{topic} is missing: create it with `{topics_command(url)} --estimates`\n"
    assert (missing.status, missing.err) == (1, told)

    # On a log that has been learned from it may come later.
    made = murk("topics", "task.yaml", "--log", url, "--simulated", "--estimates", "--json", folder=folder).json
    assert (made["created"], made["problems"]) == ([topic], [])
    # Whether it is simulated, a check takes from the log's task.
    assert murk("topics", "task.yaml", "--log", url, "--check", "--json", folder=folder).json["simulated"] is True
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        assert configs(admin, topic)["cleanup.policy"] == "compact"
        assert len(admin.describe_topics([topic])[0]["partitions"]) == 1
    learned = murk(*learn, folder=folder).json

    title, *lines = neighbour(broker, topic)
    assert title == "third-child 60"
    with open_log(url, create=False) as log:
        message = json.loads(log.estimate())
    known = {key: one for key, one in message["coefficients"].items() if one["learned"]}
    assert [line.split()[0] for line in lines] == list(known)
    assert {key: one["value"] for key, one in message["coefficients"].items()} == learned["coefficients"]

    # It is written under its key, within a transaction: its mark takes an offset of its own.
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    with closing(consumer):
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        records = []
        while not records:
            records = consumer.poll(timeout_ms=1000).get(place, [])
        assert {record.key for record in records} == {b"estimate"}
        assert consumer.end_offsets([place])[place] >= 2 * len(records)


def test_a_neighbour_reads_to_the_end_past_what_one_poll_returns(broker):
    topic = Names(f"e{uuid.uuid4().hex[:12]}").estimates
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
        admin.wait_for_topics([topic], timeout_ms=60_000)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        for count in range(1201):
            producer.send(topic, json.dumps({"name": "x", "releases": count, "coefficients": {}}).encode())
        producer.flush()
    assert neighbour(broker, topic) == ["x 1200"]


def test_a_topic_of_estimates_has_one_partition(broker, tmp_path):
    folder = world(tmp_path, rows=5, task=TASK)
    name = f"e{uuid.uuid4().hex[:12]}"
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        admin.create_topics({Names(name).estimates: {"num_partitions": 2, "replication_factor": 1}})
        admin.wait_for_topics([Names(name).estimates], timeout_ms=60_000)
    done = murk("topics", "task.yaml", "--log", f"{broker.url}/{name}", "--simulated", folder=folder)
    assert done.status == 1
    assert "-estimates has 2 partitions and needs 1" in done.err
