"""Two domains of rights on a real broker: the input log, which the shuffler reads, and the log, which learners read."""

import json
import os
import time
import uuid
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from itertools import count, islice

import pytest
from kafka.errors import KafkaError, OffsetOutOfRangeError

from murk.errors import MurkError
from murk.stream import open_log
from murk.stream.log.interface import truncate_time
from murk.stream.log.kafka.topics import Names
from murk.stream.wire.packed import Packed
from tests.cli import harness
from tests.services.clients import KafkaProducer
from tests.services.fixtures import *  # noqa: F403
from tests.services.secure import PASSWORDS, RIGHTS, SHUFFLER_RIGHTS, right_names
from tests.services.test_security import Run, admin_sends, reads, writes
from tests.shuffler.crowds import drain, make_task, message, model, second, shuffler

CROWD, PEOPLE = 50, 120
TASK = """
name: crowds
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
protocol: examples
privacy: {guarantee: {pure: {epsilon: 1.0}}}
shuffle: {crowd: 50, honest: 1.0, promise: {delta: 0.01}}
log: {partitions: 1}
"""
ANALYST = ("learner", "reader")
"""Roles of whoever learns from the log."""
SENDERS = ("device", "gateway")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return harness.world(tmp_path_factory.mktemp("rights"), rows=PEOPLE, task=TASK)


@pytest.fixture(scope="module")
def users(secure_broker, folder):
    return {user: secure_broker.properties(folder / f"{user}.properties", user) for user in PASSWORDS}


@pytest.fixture(scope="module")
def domains(secure_broker, folder, users):
    """Names of input log and log, set up by their operators; people have released, and a crowd was forwarded."""
    name = f"r{uuid.uuid4().hex[:10]}"
    input_log = f"{name}-input"
    secure_broker.allow_task(name, "operator", *ANALYST)
    secure_broker.allow_task(input_log, "operator", *SENDERS)
    secure_broker.allow_shuffler(input_log, name)
    for each in (input_log, name):
        Run(folder, users["operator"], "topics", "task.yaml", "--log", f"{secure_broker.url}/{each}",
            "--estimates").good()  # fmt: skip
    Run(folder, users["gateway"], "produce", "task.yaml", "--source", "people.csv", "--log",
        f"{secure_broker.url}/{input_log}", "--ledger", "ledger.db").good()  # fmt: skip
    done = json.loads(shuffle(secure_broker, folder, users["shuffler"], input_log, name).good())
    assert (done["released"] + done["waiting"], done["dropped"]) == (PEOPLE, 0)
    assert done["crowds"] >= 1
    return input_log, name


def shuffle(broker, folder, properties, input_log, name, *more):
    urls = ("--from", f"{broker.url}/{input_log}", "--to", f"{broker.url}/{name}")
    return Run(folder, properties, "shuffle", *urls, "--idle", 3, "--json", *more)


@contextmanager
def as_user(properties):
    """Logs that this process opens have a user's credentials."""
    before = os.environ.get("MURK_KAFKA_CONFIG")
    os.environ["MURK_KAFKA_CONFIG"] = str(properties)
    try:
        yield
    finally:
        if before is None:
            del os.environ["MURK_KAFKA_CONFIG"]
        else:
            os.environ["MURK_KAFKA_CONFIG"] = before


def append_as_shuffler(url, mark):
    with open_log(url, create=False) as log:
        log.append_crowd([(0, Packed.of([b"{}"]))], mark)


def test_what_was_forwarded_is_learned(secure_broker, folder, users, domains):
    _, name = domains
    Run(folder, users["learner"], "learn", "--log", f"{secure_broker.url}/{name}", "--idle", 5).good()
    found = json.loads(Run(folder, users["reader"], "status", "--log", f"{secure_broker.url}/{name}", "--json").good())
    assert found["releases"] >= CROWD
    assert found["dead_letters"] == {}


@pytest.mark.parametrize("role", ["learner", "device", "gateway", "reader"])
def test_nobody_appends_behind_the_claim(secure_broker, users, domains, role):
    """Not in the shuffler's own way, with its mark and its transactional id, nor as plain messages."""
    _, name = domains
    with as_user(users["admin"]), open_log(f"{secure_broker.url}/{name}", create=False) as log:
        before, mark = log.end(0), log.crowd_mark()
    producer = KafkaProducer(
        **secure_broker.client(role), transactional_id=f"murk-{name}-shuffler", max_block_ms=5_000
    )  # fmt: skip
    try:
        with pytest.raises(KafkaError):
            producer.init_transactions()
    finally:
        producer.close()
    with as_user(users[role]), pytest.raises(MurkError):
        append_as_shuffler(f"{secure_broker.url}/{name}", mark._replace(crowds=mark.crowds + 1))
    with as_user(users["admin"]), open_log(f"{secure_broker.url}/{name}", create=False) as log:
        assert (log.end(0), log.crowd_mark()) == (before, mark)


def test_a_second_shuffler_is_refused_whatever_its_rights(secure_broker, folder, users, domains):
    """With the first one's credentials and another store; its own store goes on."""
    input_log, name = domains
    shuffle(secure_broker, folder, users["shuffler"], input_log, name, "--store", "another").refused("another shuffler")
    again = json.loads(shuffle(secure_broker, folder, users["shuffler"], input_log, name).good())
    assert again["released"] + again["waiting"] == PEOPLE


@pytest.mark.parametrize("role", ["learner", "gateway"])
def test_others_cannot_shuffle(secure_broker, folder, users, domains, role):
    """Told in one line which right is missing."""
    input_log, name = domains
    run = shuffle(secure_broker, folder, users[role], input_log, name, "--store", f"of-{role}", "--replace")
    run.refused("access to")


@pytest.fixture(scope="module")
def lacking(secure_broker, folder, users):
    """What the shuffler is told with all rights but one, and with a crowd and a model to forward."""
    name = f"l{uuid.uuid4().hex[:10]}"
    input_log = f"{name}-input"
    secure_broker.allow_shuffler(input_log, name)
    with ExitStack() as stack:
        task, persons = make_task(), count()
        with as_user(users["admin"]):
            theirs, log = (stack.enter_context(open_log(f"{secure_broker.url}/{each}")) for each in (input_log, name))
        for each in (theirs, log):
            each.register_task(task.document())

        def run():
            today = truncate_time(time.time(), task.granularity)
            same = {"time": today, "expires": today + task.expiry}
            theirs.append([(0, message(task, person, **same)) for person in islice(persons, CROWD)])
            with as_user(users["shuffler"]), ExitStack() as logs:
                own = [logs.enter_context(open_log(f"{secure_broker.url}/{each}")) for each in (input_log, name)]
                with shuffler(folder, *own, task, store="lacking.store", clock=time.time) as one:
                    drain(one)
                    return one.totals

        def without(right, operation):
            [resource] = right_names(right, name, 1, input_log)
            if (right.resource, operation) == ("murk-INPUT-models", "WRITE"):
                log.publish(0, model(task, second(task)))
            secure_broker.forbid("shuffler", right.kind, resource, operation)
            try:
                with pytest.raises(MurkError) as refused:
                    run()
            finally:
                secure_broker.allow("shuffler", right.kind, resource, operation)
            return resource, f"{refused.value}"

        yield without
        # The twin: with all of them it goes on, and everything was released once.
        totals = run()
        assert (totals.dropped, totals.refused, totals.duplicates) == (0, {}, 0)
        assert totals.released % CROWD == totals.waiting == 0


@pytest.mark.parametrize(
    ("right", "operation"),
    [
        pytest.param(right, operation, id=f"{right.resource}-{operation}")
        for right in SHUFFLER_RIGHTS
        for operation in right.operations
    ],
)
def test_a_shuffler_is_told_which_right_it_lacks(lacking, right, operation):
    """Of the rights that the page lists none is without need."""
    resource, told = lacking(right, operation)
    assert "docs/deploy.md" in told
    if right.kind == "TOPIC":
        assert "access to the topic" in told
        assert resource in told
    else:
        assert "access to the transactional id" in told


def can_read(broker, role, topic):
    """The same as `reads`, on a topic whose beginning may have been deleted, as only who may read is told."""
    try:
        return reads(broker, role, topic)
    except OffsetOutOfRangeError:
        return True


def test_nobody_can_do_more(secure_broker, domains):
    """Last, as it spoils both logs: each topic of both domains, read and written by each role.

    That is what the tables give, and nothing else.
    """
    input_log, name = domains
    may = defaultdict(set)
    for role in (*ANALYST, *SENDERS):
        for right in RIGHTS:
            if right.role == role:
                of = name if role in ANALYST else input_log
                may[role] |= {(each, one) for each in right_names(right, of, 1) for one in right.operations}
    for right in SHUFFLER_RIGHTS:
        may["shuffler"] |= {
            (each, operation) for each in right_names(right, name, 1, input_log) for operation in right.operations
        }
    # What the tables say about the promise itself.
    for role in ANALYST:
        assert not any(resource.startswith(f"murk-{input_log}") for resource, _ in may[role])
        assert (Names(name).releases, "WRITE") not in may[role]
    for topic in ("states", "dead-letters", "estimates", "releases"):
        assert (f"murk-{name}-{topic}", "READ") not in may["shuffler"]
    topics = [topic for each in (input_log, name) for topic in Names(each).all]
    for topic in topics:
        # Junk that anybody who may read finds; a learner counts it, and a shuffler never reads its own log.
        admin_sends(secure_broker, topic, b"there is something to read")
    for role in ("device", "learner", "reader", "shuffler"):
        for topic in topics:
            assert can_read(secure_broker, role, topic) == ((topic, "READ") in may[role]), (role, topic)
            if (topic, "WRITE") not in may[role]:
                assert not writes(secure_broker, role, topic), (role, topic)
