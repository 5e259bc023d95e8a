"""Messages for a log on Kafka, and what one process that is never disturbed learns from the same messages."""

import json
import random
import tempfile
import uuid
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from murk import Task
from murk.protocols.device import device_for
from murk.protocols.scores.engine import PartitionState, SharedScoreEngine
from murk.protocols.scores.sums import Round
from murk.stream import open_log
from murk.stream.log.interface import UnreachableError
from murk.stream.log.kafka.topics import Names
from murk.stream.wire.packed import Packed
from murk.stream.wire.state import Counters, decode_state
from murk.stream.worker.worker import Worker
from tests.cli import harness
from tests.protocols import GRADIENTS
from tests.services.clients import KafkaProducer
from tests.services.faults.nursery import Nursery
from tests.services.services import eventually
from tests.stream.harness import hostile, read_all

LIMITS = "duplicates: 300\nexpiry: 365d\nlog: {{partitions: {}, retention: 400d}}\n"


def task_text(partitions, protocol=GRADIENTS, privacy=""):
    """A task whose releases last longer than any test."""
    return protocol.text(LIMITS.format(partitions), privacy)


def folder_of(place, rows, partitions=2, protocol=GRADIENTS):
    """A folder with the task and so many people."""
    return harness.world(Path(place), rows=protocol.people(rows), task=task_text(partitions, protocol))


@cache
def stock(partitions=2, rows=2200, protocol=GRADIENTS):
    """A task, and what its people have released, by partition: from a simulated run on a log in a file."""
    with tempfile.TemporaryDirectory() as place, Nursery(place, [protocol]) as nursery:
        folder = folder_of(place, rows, partitions, protocol)
        run = nursery.murk("run", "task.yaml", "--source", "people.csv", "--seed", 1, "--json")
        assert run.wait() == 0, run.err
        assert json.loads(run.out)["releases"] == protocol.releases(rows)
        with open_log(f"sqlite:///{folder}/third-child.db") as log:
            task = Task.from_document(log.document())
            return task, [read_all(log, number) for number in range(partitions)]


def disturbed(task, messages, seed):
    """The same with duplicates and with what no honest device sends, all of it in its place at random."""
    rng, found = random.Random(seed), []
    # Those reasons that do not hang on the task or on the partition.
    why = {"malformed", "schema", "wrong-task", "level", "dimension", "magnitude", "expired", "future"}
    junk = [value for value, reason in hostile(task) if reason in why]
    for value in messages:
        found.append(value)
        while rng.random() < 0.15:
            # Well within the window for duplicates, also where a client sends a batch twice.
            found.append(found[-rng.randint(1, min(len(found), task.duplicates // 2))])
        while rng.random() < 0.1:
            found.append(rng.choice(junk))
    return found


def new_log(broker, task):
    """The URL of a new log that carries the task."""
    url = f"{broker.url}/f{uuid.uuid4().hex[:12]}"
    with open_log(url) as log:
        log.register_task(task.document())
    return url


def names(url):
    return Names(url.rpartition("/")[2])


def plain_producer(broker, **settings):
    """A client that knows nothing of Murk; one request at a time keeps the order."""
    return KafkaProducer(
        bootstrap_servers=broker.bootstrap, acks="all", enable_idempotence=False,
        max_in_flight_requests_per_connection=1, allow_auto_create_topics=False, **settings,
    )  # fmt: skip


@contextmanager
def putting(broker, url):
    """A function that sends messages to a partition as anybody could: ``put(messages, partition)``."""
    producer = plain_producer(broker)

    def put(messages, partition=0):
        for answer in [producer.send(names(url).releases, one, partition=partition) for one in messages]:
            answer.get(timeout=60)

    try:
        yield put
    finally:
        producer.close()


def put(broker, url, messages, partition=0):
    """The same, once."""
    with putting(broker, url) as send:
        send(messages, partition)


def messages_of(url):
    """All that is on a log, by partition."""
    with open_log(url, create=False) as log:
        return _messages(log)


def _messages(log):
    return [read_all(log, number) for number in range(log.partitions)]


def alone(task, partitions, known=None):
    """What one process learns from the same messages in the same order: (learner's state, counters) by partition.

    Where partitions share models, at those of ``known``, the first partition's state: when one was made is no message's
    to say.
    """
    with tempfile.TemporaryDirectory() as place, open_log(f"sqlite:///{place}/log.db") as log:
        log.register_task(task.document())
        messages = [(number, value) for number, values in enumerate(partitions) for value in values]
        if task.shuffle is None:
            log.append(messages)
        else:
            mark = log.claim("0" * 32)
            log.append_crowd(
                [(number, Packed.of(values)) for number, values in enumerate(partitions)], mark._replace(crowds=1)
            )
        for number in range(len(partitions)):
            with Worker(log, task, engine_at(task, number, known), number) as worker:
                worker._sharing = None
                while worker.step().read:
                    pass
        return states(log)


def engine_at(task, partition, known):
    """A learner that has learned nothing, and knows the models that its partition's people answered at."""
    engine = device_for(task).engine()
    if isinstance(engine, SharedScoreEngine) and known is not None:
        first = engine.another()
        first.load_state_dict(known)
        engine.admission.hear(first.state_dict())
        if partition == 0:
            engine.now = PartitionState(0, tuple(Round(round_.start, round_.model) for round_ in first.now.rounds))
    return engine


def states(log):
    """(learner's state, counters) by partition, as plain data that is equal only where it is the same bit for bit."""
    found = []
    for number in range(log.partitions):
        state = log.checkpoint(number).state
        # A partition on which nothing arrived has none, unless devices waited for its first iterate.
        message = None if state is None else decode_state(state, log.url)
        learner = None if message is None else message.learner
        counters = Counters() if message is None else message.counters
        found.append((json.dumps(learner, sort_keys=True), counters.model_dump()))
    return found


def offsets(log):
    return [log.checkpoint(number).offset for number in range(log.partitions)]


def seen(url, look, limit=180.0, every=0.25):
    """Call a function of the log until what it returns is true, and return that; a broker may be away meanwhile.

    The log is opened once, and anew when the broker was away: to open it takes a hundred times what looking does.
    """
    opened = []
    with ExitStack() as stack:

        def looked():
            try:
                if not opened:
                    opened.append(stack.enter_context(open_log(url, create=False)))
                return look(opened[0])
            except UnreachableError:
                opened.clear()
                stack.close()
                return False

        return eventually(looked, limit, every)


def caught_up(url, *children, limit=180.0):
    """Wait until learners have read all that is on a log; the children that are given must be alive meanwhile."""

    def look(log):
        for child in children:
            assert child.status is None, child.err
        return offsets(log) == [log.end(number) for number in range(log.partitions)]

    seen(url, look, limit)


def as_if_undisturbed(url, task):
    """The log's states are those of one process, and every message was counted once."""
    with open_log(url, create=False) as log:
        there, found = _messages(log), states(log)
        dead = [list(log.dead_letters(number)) for number in range(log.partitions)]
    assert found == alone(task, there, json.loads(found[0][0]))
    for (_, counters), values, letters in zip(found, there, dead, strict=True):
        assert counters["learned"] + counters["duplicates"] + sum(counters["dead"].values()) == len(values)
        assert len(letters) == sum(counters["dead"].values())
        reasons = {reason: sum(one.reason == reason for one in letters) for reason in counters["dead"]}
        assert reasons == counters["dead"]
    return found
