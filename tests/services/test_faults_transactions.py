"""A transaction that its dead owner left open holds nobody up, and neither does a stranger's that never ends."""

import threading
import time
import uuid
from contextlib import closing

import pytest
from kafka import TopicPartition

from murk.protocols.device import device_for
from murk.stream import open_log
from murk.stream.log.interface import DeadLetter, UnreachableError
from murk.stream.log.kafka import transactions
from murk.stream.log.kafka.connection.clients import TRANSACTION_MS
from murk.stream.worker.worker import Worker
from tests.services.clients import KafkaProducer
from tests.services.faults.nursery import Nursery
from tests.services.faults.world import as_if_undisturbed, caught_up, names, new_log, put, stock


def die_in_transaction():
    """In a child: own partition 0, write to all topics of a commit, and hang before it is over."""
    import sys

    from murk.stream.log.kafka.transactions import OFFSET

    [url] = sys.argv[1:]
    with open_log(url, create=False) as log:
        owner = log.acquire(0)
        producer, place = owner._producer, names(url)
        producer.begin_transaction()
        producer.send(place.dead, b"x", key=b"0:0", partition=0).get(30)
        producer.send(place.models, b"x", key=b"0", partition=0).get(30)
        producer.send(place.states, b"x", key=b"0", partition=0, headers=[(OFFSET, b"7")]).get(30)
        print("open", flush=True)  # noqa: T201 - the parent waits for it
        time.sleep(600)


@pytest.fixture
def left_open(broker, tmp_path):
    """A log of which a partition's owner died in a transaction."""
    task, released = stock(2, 1000)
    url = new_log(broker, task)
    put(broker, url, released[0][:300], 0)
    put(broker, url, released[1][:300], 1)
    with open_log(url, create=False) as log:
        for partition in range(2):
            with Worker(log, task, device_for(task).engine(), partition) as worker:
                worker.step(100)
    with Nursery(tmp_path / "children", MURK_KAFKA_SESSION_TIMEOUT_MS="1000") as nursery:
        owner = nursery.call("tests.services.test_faults_transactions:die_in_transaction", url)
        owner.said("open")
        owner.kill()
        yield url, task, nursery


@pytest.mark.parametrize("arrived", [True, False])
def test_whoever_heard_nothing_of_a_task_that_they_announced_looks_again(broker, monkeypatch, arrived):
    """No answer to a commit says nothing of what became of it; no answer twice is an error."""
    task, put_document, calls = stock(2, 1000)[0], transactions.put_document, []

    def unheard(*what):
        calls.append(what)
        if arrived or len(calls) == 2:
            put_document(*what)
        if len(calls) == 1:
            raise UnreachableError("no answer")

    monkeypatch.setattr(transactions, "put_document", unheard)
    with open_log(f"{broker.url}/f{uuid.uuid4().hex[:12]}") as log:
        log.register_task(task.document())
        assert log.document() == task.document()
        assert len(calls) == (1 if arrived else 2)

    def never(*what):
        raise UnreachableError("no answer")

    monkeypatch.setattr(transactions, "put_document", never)
    with open_log(f"{broker.url}/f{uuid.uuid4().hex[:12]}") as log:
        with pytest.raises(UnreachableError, match="no answer"):
            log.register_task(task.document())
        assert log.document() is None


def test_a_transaction_that_the_broker_refused_in_part_is_not_taken_for_committed(broker):
    """As after a broker that was killed: it does not know the number that a batch follows upon."""
    url = new_log(broker, stock(2, 1000)[0])
    one, two = DeadLetter(0, 1, "schema", "one", b"x"), DeadLetter(0, 2, "schema", "two", b"x")
    with open_log(url, create=False) as log:
        owner = log.acquire(0)
        owner.commit(b"one", 2, [one])
        owner._producer._transaction_manager._sequence_numbers[TopicPartition(names(url).states, 0)] += 5
        # Anyone who learns owns the partition again, and does not end.
        with pytest.raises(UnreachableError, match="internal error"):
            owner.commit(b"two", 3, [two])
        owner.close()
        successor = log.acquire(0)
        with closing(successor):
            assert successor.load() == (b"one", 2)
            assert list(log.dead_letters(0)) == [one]
            successor.commit(b"two", 3, [two])
        assert list(log.dead_letters(0)) == [one, two]


@pytest.mark.slow
def test_the_next_owner_ends_it(left_open):
    url, task, nursery = left_open
    learner = nursery.learner(url)
    caught_up(url, learner)
    assert learner.stop() == 0, learner.err
    found = as_if_undisturbed(url, task)
    assert all(counters["learned"] > 100 and counters["dead"] == {} for _, counters in found)


@pytest.mark.slow
def test_readers_see_what_was_committed_before(left_open):
    url, _, nursery = left_open
    # `murk monitor` and `murk produce` read the same topics at once; none of them stands still.
    together = []

    def look():
        with open_log(url, create=False) as log:
            together.append((log.checkpoint(0).offset, log.model(0) is not None))

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert together == [(100, True)] * 3
    with open_log(url, create=False) as log:
        begun = time.monotonic()
        seen = (
            [log.checkpoint(partition).offset for partition in range(2)],
            log.model(0) is not None,
            list(log.dead_letters()),
        )
        # They do not wait for the transaction to run out: if one had, this would not be so.
        if time.monotonic() - begun < TRANSACTION_MS / 1000:
            assert seen == ([100, 100], True, [])
    status = nursery.murk("status", "--log", url, "--json")
    assert status.wait() == 0, status.err
    assert '"releases": 200' in status.out


@pytest.mark.slow
def test_a_stranger_s_transaction_does_not_hold_up_the_stream(broker, tmp_path):
    task, released = stock(2, 1000)
    url = new_log(broker, task)
    stranger = KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        transactional_id=f"stranger-{names(url).log}",
        transaction_timeout_ms=600_000,
    )
    try:
        stranger.init_transactions()
        stranger.begin_transaction()
        stranger.send(names(url).releases, b"mine for ever", partition=0).get(30)
        for partition in range(2):
            put(broker, url, released[partition][:300], partition)
        with Nursery(tmp_path / "children", MURK_KAFKA_SESSION_TIMEOUT_MS="1000") as nursery:
            learner = nursery.learner(url)
            caught_up(url, learner)
            # What it takes back has been read and counted, like everything that ever was stored in the log.
            stranger.abort_transaction()
            put(broker, url, released[0][300:400], 0)
            caught_up(url, learner)
            assert learner.stop() == 0, learner.err
    finally:
        stranger.close()
    with open_log(url, create=False) as log:
        assert [letter.reason for letter in log.dead_letters()] == ["malformed"]
    [_, (_, counters)] = as_if_undisturbed(url, task)
    assert counters["learned"] == 300
