"""What strangers with a plain Kafka client put on the topics: counted by reason, and nothing stops."""

import json
import random
import uuid
from collections import Counter

import pytest

from murk import Task
from murk.stream import open_log
from murk.stream.wire.codec import MAX_MESSAGE
from tests.cli import harness
from tests.protocols import GRADIENTS, MOMENTS
from tests.services.faults.nursery import Nursery
from tests.services.faults.world import (
    alone,
    as_if_undisturbed,
    caught_up,
    folder_of,
    names,
    new_log,
    plain_producer,
    put,
    states,
    stock,
    task_text,
)
from tests.services.services import eventually
from tests.stream import by_hand
from tests.stream.harness import altered, hostile, message

PEOPLE = {"same_sex": "yes", "age": 28, "third_child": "no"}


def strange(task):
    """(message, key, headers, reason) of what no honest device sends."""
    good = message(task, 10**7)
    others = hostile(task)
    others += [
        (random.Random(2).randbytes(MAX_MESSAGE - 100), "too-large"),
        (b" " * (MAX_MESSAGE - len(good) - 100) + good, "too-large"),
        (b'{"a":"' + b"\\u0000" * 150_000 + b'"}', "too-large"),
        (b"[" * 900_000, "too-large"),
        (b"1" * 500, "malformed"),
        (b'{"x":' + b"9" * 400 + b"}", "schema"),
        (b"-" * 300, "malformed"),
        (altered(good, payload=None), "schema"),
        (altered(good, payload=[True, 1, 1]), "schema"),
        (altered(good, schema="1"), "schema"),
        (altered(good, kind="state"), "schema"),
        (good[:200].decode().encode("utf-16"), "malformed"),
        (b"\xef\xbb\xbf" + good, "malformed"),
    ]
    found = [(value, None, [], reason) for value, reason in others]
    # A tombstone is an empty message; whatever keys and headers say is nobody's business.
    found.append((None, b"0", [], "malformed"))
    found.append((b"{}", b"\xff" * 1000, [("offset", b"999999"), ("owner", b"me")], "schema"))
    return found


@pytest.mark.slow
def test_all_kinds_of_junk_are_counted_and_nothing_stops(broker, tmp_path):
    protocol, count = GRADIENTS, 60
    task, released = stock(2, protocol.rows(2 * (count + 50)), protocol)
    url, released = new_log(broker, task), released[0][:count]
    assert len(released) == count
    junk = strange(task)
    producer = plain_producer(broker, max_request_size=2 * MAX_MESSAGE)
    sent = 0
    try:
        for number, value in enumerate(released):
            # An honest release may carry a key and headers, too.
            answers = [producer.send(names(url).releases, value, key=b"k", headers=[("h", b"")], partition=0)]
            for value, key, headers, _ in junk[number::count]:
                answers.append(producer.send(names(url).releases, value, key=key, headers=headers, partition=0))
            if number % 10 == 0:
                answers.append(producer.send(names(url).releases, released[number // 2], partition=0))
            for answer in answers:
                answer.get(timeout=60)
            sent += len(answers)
    finally:
        producer.close()
    with Nursery(tmp_path / "children", [protocol], MURK_KAFKA_SESSION_TIMEOUT_MS="1000") as nursery:
        learner = nursery.learner(url)
        caught_up(url, learner)
        assert learner.stop() == 0, learner.err
        assert "murk:" not in learner.err
        shown = nursery.murk("dead-letters", "--log", url, "--json")
        assert shown.wait() == 0, shown.err
        status = nursery.murk("status", "--log", url, "--json")
        assert status.wait() == 0, status.err
    found = json.loads(status.out)
    expected = Counter(reason for *_, reason in junk)
    assert found["dead_letters"] == expected
    assert (found["releases"], found["duplicates"]) == (count, count // 10)
    assert sent == found["releases"] + found["duplicates"] + sum(found["dead_letters"].values())
    # And nothing but the honest ones shows in what was learned.
    with open_log(url, create=False) as log:
        learned = states(log)[0][0]
    [(expected_state, _), _] = alone(task, [released, []])
    assert learned == expected_state


@pytest.mark.slow
def test_a_release_written_by_hand_is_learned(broker, tmp_path):
    task = Task.parse(task_text(2))
    url = new_log(broker, task)
    with Nursery(tmp_path / "children", MURK_KAFKA_SESSION_TIMEOUT_MS="1000") as nursery:
        learner = nursery.learner(url)
        with open_log(url, create=False) as log:
            for number in range(20):
                partition = number % 2
                put(broker, url, [by_hand.release(log.document(), log.model(partition), partition, PEOPLE)], partition)
        caught_up(url, learner)
        assert learner.stop() == 0, learner.err
        status = nursery.murk("status", "--log", url, "--json")
        assert status.wait() == 0, status.err
    found = json.loads(status.out)
    assert (found["releases"], found["dead_letters"]) == (20, {})


def write(broker, topic, value, key, headers=(), partition=0):
    producer = plain_producer(broker)
    try:
        producer.send(topic, value, key=key, headers=list(headers), partition=partition).get(timeout=60)
    finally:
        producer.close()


GARBAGE = {
    # As much as a message may hold.
    "bytes": b"\xff\xfe" + b"x" * 900_000,
    "bomb": b"[" * 10_000,
    "tombstone": None,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bytes", "tombstone"])
def test_garbage_among_models_and_states_is_refused_clearly(broker, tmp_path, kind):
    task = Task.parse(task_text(2))
    url = new_log(broker, task)
    folder = harness.world(tmp_path / "people", rows=20, task=task_text(2))
    topics = names(url)
    with Nursery(folder, MURK_KAFKA_SESSION_TIMEOUT_MS="1000") as nursery:
        learner = nursery.learner(url)
        with open_log(url, create=False) as log:
            document = log.document()
        for partition in range(2):
            put(broker, url, [by_hand.release(document, None, partition, PEOPLE)], partition)
        caught_up(url, learner)

        # A model that no learner has made: devices say so and release nothing. A removed one is as none.
        assert learner.stop() == 0, learner.err
        with open_log(url, create=False) as log:
            honest = log.model(0)
        # On both partitions: which one a woman draws first is chance.
        for partition in range(2):
            write(broker, topics.models, GARBAGE[kind], str(partition).encode(), partition=partition)
        write(broker, topics.models, b"whatever", b"another key \xff")
        people = nursery.murk("produce", "task.yaml", "--source", "people.csv", "--log", url, "--patience", 5)
        if kind != "tombstone":
            people.refused("model of partition", "nothing was released", status=2)
        people.kill()

        # A learner puts its own in its place.
        learner = nursery.learner(url)
        with open_log(url, create=False) as log:
            eventually(lambda: log.model(0) == honest)
        assert learner.status is None, learner.err
        assert learner.stop() == 0, learner.err
        write(broker, topics.states, GARBAGE[kind], b"0", [("offset", b"1")])
        again = nursery.learner(url)
        again.refused("partition 0")
        write(broker, topics.states, GARBAGE[kind], b"0")
        again = nursery.learner(url)
        again.refused("state")


@pytest.mark.slow
def test_garbage_where_nobody_reads_models_and_where_states_stand(broker, tmp_path):
    protocol = MOMENTS
    rows = protocol.rows(30)
    folder = folder_of(tmp_path / "people", rows, 2, protocol)
    url = f"{broker.url}/f{uuid.uuid4().hex[:12]}"
    with Nursery(folder, [protocol], MURK_KAFKA_SESSION_TIMEOUT_MS="1000") as nursery:
        topics = nursery.murk("topics", "task.yaml", "--log", url, "--simulated")
        assert topics.wait() == 0, topics.err
        for partition in range(2):
            write(broker, names(url).models, GARBAGE["bytes"], str(partition).encode(), partition=partition)
        learner = nursery.learner(url, "--wait")
        people = nursery.murk("produce", "task.yaml", "--source", "people.csv", "--log", url, "--seed", 1)
        assert people.wait() == 0, people.err
        caught_up(url, learner)
        write(broker, names(url).models, GARBAGE["bomb"], b"0")
        assert learner.stop() == 0, learner.err
        with open_log(url, create=False) as log:
            task = Task.from_document(log.document())
        found = as_if_undisturbed(url, task)
        assert sum(counters["learned"] for _, counters in found) == 30
        # A state that is well made, of a learner that is not.
        with open_log(url, create=False) as log:
            state = json.loads(log.checkpoint(0).state)
            offset = str(log.checkpoint(0).offset).encode()
        state["learner"] = {**state["learner"], "settings": "0" * 64, "moments": "0" * 64}
        write(broker, names(url).states, json.dumps(state).encode(), b"0", [("offset", offset)])
        nursery.learner(url).refused("learner")
