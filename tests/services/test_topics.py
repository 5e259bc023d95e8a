"""`murk topics`: makes a task's topics, says what does not fit, fixes what settings can fix."""

import json
import uuid
from contextlib import contextmanager

import pytest
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from deploy.broker import Broker
from murk import Task
from murk.stream import open_log
from murk.stream.log.interface import truncate_time
from murk.stream.log.kafka.topics import Names, topics_command
from murk.stream.wire.codec import MAX_MESSAGE
from tests.cli import harness
from tests.services.clients import KafkaAdminClient, KafkaConsumer
from tests.services.services import eventually, require_kafka

TASK = harness.TASK + "log: {partitions: 2, retention: 10d}\nexpiry: 5d\n"
SIZE = str(MAX_MESSAGE + 16384)
LARGE = "8404992"
WEEK = 7 * 24 * 3600 * 1000


@contextmanager
def admin(broker):
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        yield client
    finally:
        client.close()


def configs(client, topic):
    answer = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    [found] = [one for kind in answer.values() for one in kind.values()]
    return {key: entry["value"] if isinstance(entry, dict) else entry for key, entry in found.items()}


def alter(client, topic, **values):
    values = {key.replace("_", "."): value for key, value in values.items()}
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=values)])
    eventually(lambda: configs(client, topic).items() >= values.items())


def delete(client, *topics):
    """Delete topics, and wait until they are gone."""
    client.delete_topics(list(topics), timeout_ms=30_000)
    eventually(lambda: not set(topics) & set(client.list_topics()))


@pytest.fixture
def folder(tmp_path):
    return harness.world(tmp_path, rows=20, task=TASK)


@pytest.fixture
def place(broker):
    """The URL of a log that is not there yet, and the names of its topics."""
    name = f"t{uuid.uuid4().hex[:12]}"
    return f"{broker.url}/{name}", Names(name)


def topics(folder, url, *more, task="task.yaml"):
    return harness.murk("topics", task, "--log", url, *more, folder=folder)


def test_creates_what_the_task_asks_for_and_a_second_time_nothing(broker, folder, place):
    url, names = place
    found = topics(folder, url, "--replication", 1, "--json").json
    assert found == {
        "task": "third-child", "log": url, "created": sorted(names.all), "problems": [], "announced": True,
        "simulated": False, "warnings": [found["warnings"][0]],
    }  # fmt: skip
    assert "one copy" in found["warnings"][0]
    with admin(broker) as client:
        for topic in client.describe_topics(list(names.all)):
            assert len(topic["partitions"]) == 2
            assert all(len(part["replica_nodes"]) == 1 for part in topic["partitions"])
        have = {topic: configs(client, topic) for topic in names.all}
    for topic in (names.models, names.states):
        assert have[topic]["cleanup.policy"] == "compact"
    for topic in (names.releases, names.dead):
        assert have[topic]["cleanup.policy"] == "delete"
        assert have[topic]["retention.ms"] == str(10 * 24 * 3600 * 1000)
    assert have[names.releases]["message.timestamp.type"] == "LogAppendTime"
    assert have[names.states].pop("max.message.bytes") == LARGE
    assert {one["max.message.bytes"] for one in have.values() if "max.message.bytes" in one} == {SIZE}

    again = topics(folder, url, "--json").json
    assert (again["created"], again["problems"], again["announced"]) == ([], [], True)
    checked = topics(folder, url, "--check")
    assert checked.status == 0
    assert "the topics fit the task 'third-child'" in checked.out
    assert "caution: one copy" in checked.out
    assert "--replication 3" in checked.out


def test_several_at_once_make_one_log(folder, place):
    url, _ = place
    runs = [harness.start("topics", "task.yaml", "--log", url, "--json", folder=folder) for _ in range(3)]
    found = [harness.finish(run).json for run in runs]
    assert all(one["problems"] == [] and one["announced"] for one in found)
    with open_log(url, create=False) as log:
        assert log.partitions == 2


MISFITS = {
    "releases-policy": ("releases", {"cleanup_policy": "compact"}, "cleanup.policy=compact and needs delete"),
    "states-policy": ("states", {"cleanup_policy": "compact,delete"}, "cleanup.policy=compact,delete and needs"),
    "retention": ("releases", {"retention_ms": str(WEEK)}, f"retention.ms={WEEK} and needs at least {10 * WEEK // 7}"),
    "clock": (
        "releases", {"message_timestamp_type": "CreateTime"}, "message.timestamp.type=CreateTime and needs"
    ),
    "packing": ("releases", {"compression_type": "zstd"}, "compression.type=zstd and needs producer"),
    "size": ("states", {"max_message_bytes": "100000"}, f"max.message.bytes=100000 and needs at least {LARGE}"),
}  # fmt: skip


@pytest.fixture(scope="module")
def standing(broker, tmp_path_factory):
    folder = harness.world(tmp_path_factory.mktemp("misfit"), rows=2, task=TASK)
    url = f"{broker.url}/t{uuid.uuid4().hex[:12]}"
    assert topics(folder, url).status == 0
    return folder, url, Names(url.rpartition("/")[2])


@pytest.mark.parametrize("misfit", MISFITS)
def test_settings_that_do_not_fit_are_named_and_mended(broker, standing, misfit):
    folder, url, names = standing
    which, values, told = MISFITS[misfit]
    topic = getattr(names, which)
    with admin(broker) as client:
        fitting = {one: configs(client, one) for one in names.all}
        alter(client, topic, **values)
        before = {one: configs(client, one) for one in names.all}
        found = topics(folder, url, "--check")
        assert (found.status, found.out) == (1, "")
        assert found.err.startswith(f"{topic} has {told}")
        assert found.err.endswith(f": `{topics_command(url)}` sets it\n")
        assert found.err.count("\n") == 1
        assert {one: configs(client, one) for one in names.all} == before
        if misfit == "size":
            as_json = topics(folder, url, "--check", "--json")
            assert as_json.status == 1
            assert json.loads(as_json.out)["problems"] == [found.err.strip()]
        assert topics(folder, url).status == 0
        # Nothing misfits any more: `--check` comes to the same configuration.
        mended = {one: configs(client, one) for one in names.all}
        assert mended != before
        assert mended == fitting


@pytest.mark.parametrize("longer", [str(100 * WEEK), "-1"])
def test_a_longer_retention_is_the_operator_s_and_stays(broker, standing, longer):
    folder, url, names = standing
    with admin(broker) as client:
        alter(client, names.releases, retention_ms=longer)
        assert topics(folder, url, "--check").status == 0
        # Also where something else is fixed.
        alter(client, names.releases, message_timestamp_type="CreateTime")
        assert topics(folder, url).status == 0
        have = configs(client, names.releases)
    assert (have["retention.ms"], have["message.timestamp.type"]) == (longer, "LogAppendTime")


def test_a_missing_topic_is_named_and_made_again(broker, folder, place):
    url, names = place
    missing = topics(folder, url, "--check")
    assert (missing.status, missing.out) == (1, "")
    create = topics_command(url)
    assert missing.err.splitlines() == [f"{topic} is missing: create it with `{create}`" for topic in names.all]
    with admin(broker) as client:
        assert not set(names.all) & set(client.list_topics())


def test_a_wrong_number_of_partitions_cannot_be_mended(broker, folder, place):
    url, names = place
    with admin(broker) as client:
        client.create_topics({names.states: {"num_partitions": 3, "replication_factor": 1}}, wait_for_metadata=True)
    for more in ([], ["--check"]):
        found = topics(folder, url, *more)
        assert found.status == 1
        told = f"{names.states} has 3 partitions and the task asks for 2: set log.partitions to 3"
        assert told in found.err
    with open_log(url, create=False) as log:
        assert log.document() is None


def test_more_copies_than_brokers(broker, folder, place):
    url, names = place
    found = topics(folder, url, "--replication", 3)
    harness.refused(found, "too few brokers for 3 copies of a partition", "--replication")
    with admin(broker) as client:
        assert not set(names.all) & set(client.list_topics())


def test_a_task_that_no_message_can_hold_makes_nothing(broker, folder, place):
    url, names = place
    rows = "\n".join(f"no,{21 + number * 14 / 60000:.12f}" for number in range(60000))
    (folder / "public.csv").write_text(f"same_sex,age\n{rows}\n")
    (folder / "large.yaml").write_text(TASK + "public: {path: public.csv}\n")
    harness.refused(topics(folder, url, task="large.yaml"), "public")
    with admin(broker) as client:
        assert not set(names.all) & set(client.list_topics())


def test_covariates_from_the_people_are_announced_by_whoever_lets_them_produce(folder, place):
    url, _ = place
    (folder / "aside.yaml").write_text(
        TASK + "public: {set_aside: 14}\n"
    )  # more than say no, so that both are among them
    found = topics(folder, url, task="aside.yaml")
    assert "announced by `murk produce`" in found.out
    assert topics(folder, url, "--json", task="aside.yaml").json["announced"] is False
    learner = harness.start("learn", "--log", url, "--wait", "--json", folder=folder)
    produce = ["produce", "aside.yaml", "--source", "people.csv", "--log", url, "--ledger", "aside.db", "--json"]
    harness.refused(harness.murk(*produce, folder=folder), "14 people become public", "pass --make-public 14")
    try:
        made = harness.murk(*produce, "--make-public", 14, folder=folder)
        assert made.json["set_aside"] == 14
        assert topics(folder, url, "--json", task="aside.yaml").json["announced"] is True
    finally:
        learner.terminate()
        assert harness.finish(learner).status == 0


def test_a_public_file_is_published_when_that_is_agreed_to(folder, place):
    url, _ = place
    (folder / "public.csv").write_text("same_sex,age\nno,21\nyes,35\nno,30\n")
    (folder / "task.yaml").write_text(TASK + "public: {file: public.csv}\n")
    harness.refused(topics(folder, url), "of 3 people become public", "public.csv", "pass --make-public 3")
    assert topics(folder, url, "--check", "--json").json["announced"] is False
    assert topics(folder, url, "--make-public", 3, "--json").json["announced"] is True
    # It is public now.
    assert topics(folder, url).err == ""


def test_a_log_of_another_task(folder, place):
    url, _ = place
    assert topics(folder, url).status == 0
    (folder / "other.yaml").write_text(TASK.replace("high: 35", "high: 36"))
    for more in ([], ["--check"]):
        harness.refused(topics(folder, url, *more, task="other.yaml"), "already carries the task", "features")


def test_a_log_in_a_file_gets_its_task(folder):
    done = topics(folder, "sqlite:///x.db", "--json")
    assert done.json["announced"]
    assert done.json["created"] == []
    assert (folder / "x.db").exists()


@pytest.fixture(scope="module")
def careless(tmp_path_factory):
    """A broker that makes a topic of every name it hears."""
    require_kafka()

    class Careless(Broker):
        def settings(self, log):
            return super().settings(log) | {"auto.create.topics.enable": "true"}

    with Careless(tmp_path_factory.mktemp("careless")) as broker:
        yield broker


def test_devices_and_learners_make_no_topics_even_where_they_could(careless, folder):
    told = "`murk topics TASK --log"
    url = careless.url
    produce = ("produce", "task.yaml", "--source", "people.csv", "--log")
    harness.refused(harness.murk(*produce, url, folder=folder), f"there is no log at {url}/third-child", told)
    harness.refused(harness.murk(*produce, f"{url}/x", folder=folder), "there is no log at", told)
    for command, place in (("learn", url), ("learn", f"{url}/x"), ("status", url), ("dead-letters", f"{url}/x")):
        harness.refused(harness.murk(command, "--log", place, folder=folder), "there is no log at", told)
    with admin(careless) as client:
        assert [topic for topic in client.list_topics() if topic.startswith("murk")] == []

        # Nor with the log there, and one of its topics gone.
        assert topics(folder, url).status == 0
        names = Names("third-child")
        delete(client, names.states)
        status = harness.murk("status", "--log", url, folder=folder)
        assert status.status != 0
        assert names.states not in client.list_topics()
        delete(client, *(one for one in names.all if one != names.states))

    # Without a name, the only log that is there; of several, none.
    for name in ("one", "two"):
        assert topics(folder, f"{url}/{name}").status == 0
        if name == "one":
            assert harness.murk("status", "--log", url, "--json", folder=folder).json["task"] == "third-child"
    found = harness.murk("status", "--log", url, folder=folder)
    harness.refused(found, "several logs: one, two", f"{url}/one")


def test_what_stands_on_the_wire_tells_nothing_of_the_device(broker, folder, place):
    url, names = place
    task = Task.load(folder / "task.yaml")
    with admin(broker) as client:
        assert topics(folder, url).status == 0
        # A topic like this shows the time that the device gave.
        alter(client, names.releases, message_timestamp_type="CreateTime")
    learner = harness.start("learn", "--log", url, "--json", folder=folder)
    try:
        made = harness.murk("produce", "task.yaml", "--source", "people.csv", "--log", url, folder=folder)
        assert made.status == 0, made.err
    finally:
        learner.terminate()
        assert harness.finish(learner).status == 0
    records = read(broker, names.releases)
    assert len(records) == 20
    for record in records:
        assert record.key is None
        assert record.headers == []
        # Truncated to the task's granularity, as the payload's.
        assert record.timestamp % 1000 == 0
        assert record.timestamp // 1000 == truncate_time(record.timestamp / 1000, task.granularity)
        assert record.timestamp // 1000 == json.loads(record.value)["time"]
    identities = [batch_identity(path) for path in batches(broker, names.releases)]
    found = [one for several in identities for one in several]
    assert found
    assert set(found) == {(-1, -1, -1)}
    # The learner's commits have an identity: the same reading sees it there.
    assert {one[0] for path in batches(broker, names.states) for one in batch_identity(path)} - {-1}


def read(broker, topic):
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    places = [TopicPartition(topic, number) for number in range(2)]
    seen = []
    try:
        consumer.assign(places)
        ends = sum(consumer.end_offsets(places).values())

        def enough():
            for found in consumer.poll(timeout_ms=200).values():
                seen.extend(found)
            return len(seen) >= ends

        eventually(enough)
    finally:
        consumer.close()
    return seen


def batches(broker, topic):
    return [path for path in (broker.folder / "log").glob(f"{topic}-*/*.log") if path.stat().st_size]


def batch_identity(path):
    """Producer id, its epoch and the first sequence number of every batch in a file of the broker's."""
    data, at, found = path.read_bytes(), 0, []
    while at + 61 <= len(data) and (length := int.from_bytes(data[at + 8 : at + 12])):
        found.append(
            tuple(
                int.from_bytes(data[at + start : at + end], signed=True)
                for start, end in ((43, 51), (51, 53), (53, 57))
            )
        )
        at += 12 + length
    return found


def test_a_topic_that_takes_less_than_a_batch_gets_all_of_it_all_the_same(broker, folder, place):
    url, names = place
    assert topics(folder, url).status == 0
    values = [b"%06d" % number * 50 for number in range(300)]
    with admin(broker) as client, open_log(url) as log:
        log.append([(0, b"before")])
        alter(client, names.releases, max_message_bytes="20000")
        for part in (values[:200], values[200:]):
            log.append([(0, value) for value in part])
        found = []
        while len(found) < log.end(0):
            found += [message.value for message in log.read(0, len(found), 1000)]
    assert found == [b"before", *values]
