"""The broker that the other tests stand on."""

import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaError

from deploy.broker import Broker, BrokerError, server
from murk import Task
from murk.monitoring.tasks import TaskMonitors
from murk.stream.log.kafka.log import TopicSetup
from murk.stream.log.kafka.topics import Names
from tests.monitoring.test_tasks import EXAMPLES, again, make
from tests.services.clients import KafkaAdminClient, KafkaConsumer, KafkaProducer
from tests.services.services import eventually, require_kafka
from tests.services.test_topics import admin, delete


def make_topic(options, partitions=1, name=None):
    name = name or f"t-{uuid.uuid4().hex}"
    admin = KafkaAdminClient(**options)
    try:
        admin.create_topics({name: {"num_partitions": partitions, "replication_factor": 1}}, wait_for_metadata=True)
    finally:
        admin.close()
    return name


def send(options, topic, values):
    producer = KafkaProducer(**options, acks="all", enable_idempotence=False)
    try:
        for answer in [producer.send(topic, value, partition=0) for value in values]:
            answer.get(timeout=30)
    finally:
        producer.close()


def receive(options, topic, count):
    consumer = KafkaConsumer(**options, auto_offset_reset="earliest", enable_auto_commit=False)
    seen = []
    try:
        consumer.assign([TopicPartition(topic, 0)])

        def enough():
            for messages in consumer.poll(timeout_ms=200).values():
                seen.extend(message.value for message in messages)
            return len(seen) >= count

        eventually(enough)
    finally:
        consumer.close()
    return seen


def plain(broker):
    return {"bootstrap_servers": broker.bootstrap}


def test_what_is_sent_is_read(broker):
    topic = make_topic(plain(broker))
    sent = [b"%d" % i for i in range(1000)]
    send(plain(broker), topic, sent)
    assert receive(plain(broker), topic, 1000) == sent


def test_no_topic_is_made_by_accident(broker):
    producer = KafkaProducer(**plain(broker), max_block_ms=1000)
    with pytest.raises(KafkaError):
        producer.send("never-made", b"x").get(timeout=30)
    producer.close()
    admin = KafkaAdminClient(**plain(broker))
    assert "never-made" not in admin.list_topics()
    admin.close()


def test_stop_and_freeze_keep_data_and_port(own_broker):
    """As a kill does: see test_faults_broker.py."""
    topic = make_topic(plain(own_broker))
    send(plain(own_broker), topic, [b"before"])
    bootstrap = own_broker.bootstrap
    own_broker.stop()
    assert not own_broker.running
    own_broker.start()
    assert own_broker.bootstrap == bootstrap
    assert receive(plain(own_broker), topic, 1) == [b"before"]

    producer = KafkaProducer(**plain(own_broker), acks="all", enable_idempotence=False)
    producer.partitions_for(topic)  # asks the broker, as long as it answers
    own_broker.freeze()
    answer = producer.send(topic, b"frozen", partition=0)
    time.sleep(0.5)
    assert not answer.is_done
    assert own_broker.running
    own_broker.thaw()
    answer.get(timeout=30)
    producer.close()
    assert receive(plain(own_broker), topic, 2) == [b"before", b"frozen"]


def test_command_line_and_a_broker_dies_with_its_parent(tmp_path):
    require_kafka()
    script = textwrap.dedent(
        """
        import sys, threading
        from deploy.broker import Broker
        broker = Broker(sys.argv[1])
        # The thread that starts it ends; the broker must not.
        starter = threading.Thread(target=broker.start)
        starter.start()
        starter.join()
        print(broker.pid, flush=True)
        broker.wait()
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True)
    with parent:
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        # It keeps its folder, and leaves nothing beside it.
        assert not list(Path("/tmp").glob(f"hsperfdata_*/{pid}"))
        parent.kill()
    eventually(lambda: gone(pid))

    # The same folder once more, now from the command line; the killed broker left it usable.
    command = [sys.executable, "-m", "deploy.broker", "--port", "0", "--data", tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        first = child.stdout.readline()
        assert first.startswith("Kafka listens on kafka://127.0.0.1:"), first + child.stdout.read()
        port = first.rsplit(":", 1)[1].strip()
        taken = subprocess.run([*command[:4], port, *command[5:]], capture_output=True, text=True, check=False)
        assert taken.returncode == 1
        assert taken.stderr.startswith(f"Error: port {port} cannot be had")
        written = (tmp_path / "server.properties").read_text()
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (second.returncode, second.stdout) == (1, "")
        assert second.stderr.startswith(f"Error: another broker uses {tmp_path}")
        assert (tmp_path / "server.properties").read_text() == written
        child.send_signal(signal.SIGTERM)
        rest = child.stdout.read()
    assert f"murk demo --log kafka://127.0.0.1:{port}" in rest
    assert child.returncode == 0, rest


def gone(pid):
    try:
        # Without an init that collects it, a dead process stays listed as a zombie.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_folder_has_one_broker_and_the_second_writes_nothing(tmp_path, monkeypatch):
    def fetch():
        raise BrokerError("no jars")

    monkeypatch.setattr(server, "fetch", fetch)
    first, second = Broker(tmp_path / "kafka"), Broker(tmp_path / "kafka")
    try:
        with pytest.raises(BrokerError, match="no jars"):
            first.start()
        with pytest.raises(BrokerError, match=r"another broker uses .*kafka: stop it"):
            second.start()
        assert list((tmp_path / "kafka").iterdir()) == []
        first.close()
        with pytest.raises(BrokerError, match="no jars"):
            second.start()
    finally:
        first.close()
        second.close()


def test_missing_programs_are_named(tmp_path):
    command = [sys.executable, "-m", "deploy.broker", "--data", tmp_path / "data", "--port", "0"]
    environment = os.environ | {"PATH": str(tmp_path), "MURK_KAFKA_HOME": str(tmp_path / "none")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: java is not installed.")
    assert "Traceback" not in done.stderr


def test_a_monitor_finds_the_clusters_tasks_and_outlasts_one_that_is_deleted(own_broker):
    def announce(name):
        with TopicSetup(own_broker.url, Task.parse(EXAMPLES.replace("name: examples", f"name: {name}"))) as setup:
            setup.create()
            setup.register_task()

    def look():
        tasks._next_search = 0.0
        again(tasks)

    for name in ("kept", "lost"):
        announce(name)
    tasks = TaskMonitors([own_broker.url], make)
    assert tasks.search() == {}
    look()
    assert (list(tasks.monitors), tasks.trouble()) == (["kept", "lost"], {})
    announce("new")
    look()
    assert (list(tasks.monitors), tasks.trouble()) == (["kept", "lost", "new"], {})
    with admin(own_broker) as client:
        delete(client, *Names("lost").all)
    seen = tasks.monitors["kept"].snapshot.now
    look()
    assert tasks.trouble().keys() == {"lost"}
    assert f"there is no log at {own_broker.url}/lost any more" in tasks.trouble()["lost"]
    assert tasks.monitors["kept"].snapshot.now > seen
    tasks.close()
