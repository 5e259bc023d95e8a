"""The HTTP gateway in front of a Kafka cluster: what it acknowledges is there, whatever happens to it or the broker."""

import json
import random
import secrets
import time
from contextlib import suppress
from pathlib import Path

import pytest

from deploy.broker import Broker
from murk import Task
from murk.errors import UserError
from murk.protocols.device import device_for
from murk.stream import Worker, open_log
from murk.stream.log.kafka.topics import Names, Topics
from tests.cli.harness import finish
from tests.gateway.devices import TASK, Client, honest, release, stored, wire
from tests.gateway.test_command import Load, begun
from tests.services.services import eventually
from tests.services.test_topics import admin, delete


def recreated(operator: object, url: str, of: Task) -> None:
    """Delete a log's topics, and create them again for a task, as an operator does."""

    def is_announced() -> bool:
        delete(operator, *Names(of.name).all)
        Topics(operator, url, Names(of.name)).create(of)
        # If what was being sent went to the new topic, no task is announced there.
        with suppress(UserError), open_log(url) as log:
            log.register_task(of.document())
            return True
        return False

    eventually(is_announced)


def announced(servers: str, **keys: object) -> tuple[Task, str]:
    name = f"gateway-{secrets.token_hex(4)}"
    lines = [line for line in TASK.replace("third-child", name, 1).splitlines() if line.partition(":")[0] not in keys]
    of = Task.parse("\n".join([*lines, *(f"{key}: {json.dumps(value)}" for key, value in keys.items())]))
    with open_log(servers, name=name) as log:
        log.register_task(of.document())
    return of, f"{servers}/{name}"


@pytest.mark.parametrize("protocol", ["scores", "gradients"])
def test_a_worker_learns_what_was_posted(tmp_path: Path, broker: Broker, protocol: str) -> None:
    of, url = announced(broker.url, protocol=protocol, log={"partitions": 2})
    messages = honest(of, 6)
    process, address = begun(url, tmp_path)
    with Client(address) as client, open_log(url, create=False) as log:
        base = f"/v1/tasks/{of.name}"
        assert client.get(base).body == of.document()
        assert client.post(*messages, name=of.name).json == {"accepted": 6, "refused": []}
        assert client.post(messages[0], name=of.name).status == 202
        workers = [Worker(log, of, device_for(of).engine(), partition, look=0.0) for partition in range(2)]
        for worker in workers:
            while worker.step().read:
                pass
        assert sum(worker.counters.learned for worker in workers) == 6
        partition = int(json.loads(messages[0])["partition"])
        newest = log.model(0 if protocol == "scores" else partition)
        eventually(lambda: client.get(f"{base}/model?partition={partition}").body == newest)
        for worker in workers:
            worker.close()
        # Not a second time: the gateway remembers the bytes.
        assert sum(log.ends()) == 6
    process.terminate()
    assert finish(process).status == 0


def test_nothing_acknowledged_is_lost_when_it_is_killed(tmp_path: Path, broker: Broker) -> None:
    of, url = announced(broker.url)
    draw, acknowledged = random.Random(), []
    for _ in range(3):
        process, address = begun(url, tmp_path)
        load = Load(of, address, name=of.name)
        eventually(lambda load=load: load.acknowledged)
        time.sleep(draw.uniform(0.0, 0.3))
        process.kill()
        load.end()
        process.wait()
        acknowledged += load.acknowledged
    assert set(acknowledged) <= set(stored(url))


def test_a_broker_that_is_away_is_503_and_comes_back(tmp_path: Path, own_broker: Broker) -> None:
    of, url = announced(own_broker.url)
    process, address = begun(url, tmp_path)
    with Client(address) as client:
        first, second = wire(release(of)), wire(release(of))
        assert client.post(first, name=of.name).status == 202
        own_broker.freeze()
        answer = client.post(second, name=of.name)
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert client.get("/healthz").status == 503
        # The task is known all the same.
        assert client.get(f"/v1/tasks/{of.name}").body == of.document()
        own_broker.thaw()
        eventually(lambda: client.post(second, name=of.name).status == 202)
        eventually(lambda: client.get("/healthz").status == 200)
    process.terminate()
    assert finish(process).status == 0
    assert {first, second} <= set(stored(url))


@pytest.mark.parametrize("same", [True, False])
def test_topics_that_are_created_again_get_nothing_unnoticed(tmp_path: Path, broker: Broker, same: bool) -> None:
    """What is acknowledged is on the topics of the task it was released for, or was deleted with them."""
    of, url = announced(broker.url)
    other = of if same else Task.parse(TASK.replace("third-child", of.name, 1) + "expiry: 3d\n")
    process, address = begun(url, tmp_path)
    with Client(address) as client:
        load = Load(of, address, name=of.name)
        eventually(lambda: load.acknowledged)
        with admin(broker) as operator:
            recreated(operator, url, other)
        eventually(lambda: client.get(f"/v1/tasks/{of.name}").headers.get("murk-task-hash") == other.hash)
        eventually(lambda: client.get("/healthz").status == 200)
        load.end()
        late = wire(release(other))
        assert client.post(late, name=of.name).status == 202
        answers = {client.post(wire(release(of)), name=of.name).status}
    process.terminate()
    assert finish(process).status == 0
    assert answers == {202 if same else 409}
    there = stored(url)
    assert late in there
    # With another task on the topics, what they have of the old one was answered 503.
    assert same or not set(load.acknowledged) & set(there)


def test_a_topic_of_releases_that_is_created_again_alone_is_refused(tmp_path: Path, broker: Broker) -> None:
    of, url = announced(broker.url)
    process, address = begun(url, tmp_path)
    with Client(address) as client:
        assert client.post(wire(release(of)), name=of.name).status == 202
        with admin(broker) as operator:
            delete(operator, Names(of.name).releases)
            Topics(operator, url, Names(of.name)).create(of)
        for _ in range(3):
            answer = client.post(wire(release(of)), name=of.name)
            assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        eventually(lambda: client.get("/healthz").status == 503)
    process.terminate()
    done = finish(process)
    assert done.status == 0
    assert "was deleted and created again" in done.err


def test_one_gateway_serves_the_tasks_of_a_cluster(tmp_path: Path, own_broker: Broker) -> None:
    """Also one that is announced later; those of shuffled tasks only if their own input log is given."""
    (first, _), (second, _) = announced(own_broker.url), announced(own_broker.url, protocol="gradients")
    shuffled = {"shuffle": {"crowd": 1000}, "privacy": {"guarantee": {"pure": {"epsilon": 4.0}}}}
    hidden, hidden_url = announced(own_broker.url, **shuffled)
    process, address = begun(own_broker.url, tmp_path)
    try:
        with Client(address) as client:
            # Other tests have left tasks on the cluster.
            assert {each["name"] for each in client.get("/v1/tasks").json["tasks"]} >= {first.name, second.name}
            assert client.post(wire(release(first)), name=first.name).status == 202
            assert client.post(*honest(second, 2), name=second.name).status == 202
            assert client.get(f"/v1/tasks/{hidden.name}").status == 404
            late, _ = announced(own_broker.url)
            eventually(lambda: client.get(f"/v1/tasks/{late.name}").body == late.document())
            assert client.post(wire(release(late)), name=late.name).status == 202
        said = process.stderr.readline()
        assert hidden.name in said
        assert "input log as --log" in said
    finally:
        process.terminate()
        assert finish(process).status == 0
    for of, number in ((first, 1), (second, 2), (late, 1), (hidden, 0)):
        assert len(stored(f"{own_broker.url}/{of.name}")) == number
    process, address = begun(own_broker.url, tmp_path, "--log", hidden_url, "--task", hidden.name)
    try:
        with Client(address) as client:
            assert [each["name"] for each in client.get("/v1/tasks").json["tasks"]] == [hidden.name]
    finally:
        process.terminate()
        assert finish(process).status == 0
