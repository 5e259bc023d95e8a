"""What a device, a population and a commit take on Kafka, beside bare kafka-python."""

import statistics
import time

import numpy as np
from kafka import KafkaProducer

from benchmarks.on_kafka import Clock, Learner, feed_for, filled, releases
from murk.populations.file_source import FileSource
from murk.populations.people import wait_for_models
from murk.privacy.noise import SimulatedNoise
from murk.producers import Ledger, Producer
from murk.protocols.device import device_for
from murk.stream.log.kafka.topics import Names
from murk.stream.wire.codec import encode
from murk.stream.wire.releases import ModelMessage

median = statistics.median
BLOCK, EACH, WARM = 1000, 100, 50_000
STATE = 13_000
"""Bytes of the state of ten coefficients, with its remembered iterates."""


def sent(broker, rounds, folder):
    """Clocks of each turn of each way to send, and the bytes of a release: bare sends are of the same messages."""
    task = feed_for(name="sending").task
    # At its best: with the batches it makes by default, blocks would take it three times as long.
    bare = KafkaProducer(
        bootstrap_servers=broker.bootstrap, acks="all", enable_idempotence=False, batch_size=256 * 1024
    )
    source = people(folder / "people.csv", task, WARM + (rounds + 1) * 2 * BLOCK)
    sizes = iter([WARM])
    blocks = source.blocks(0, lambda: next(sizes, BLOCK))
    seconds = {name: [] for name in ("release", "bare, one by one", "release_block", "append", "bare, in blocks")}
    with (
        filled(f"{broker.url}/sending", task, []) as log,
        filled(f"{broker.url}/sending-bare", task, []),
        Ledger(folder / "ledger.db") as ledger,
    ):
        topic = Names("sending-bare").releases
        producer = Producer(task, log, ledger, noise=SimulatedNoise(1), device=device_for(task))
        producer.begin(source)
        # So many that every kernel is compiled from here on.
        producer.release_block(next(blocks))
        record = {**{f"x{i}": 0.5 for i in range(9)}, "y": "yes"}
        made = 0

        def release():
            nonlocal made
            for _ in range(EACH):
                made += 1
                receipt = producer.release(record, person=f"p{made}")
                assert receipt.delivery == "sent", receipt

        def one_by_one(messages):
            for message in messages:
                bare.send(topic, message).get()

        def in_blocks(messages):
            for message in messages:
                bare.send(topic, message)
            bare.flush()

        for turn in range(rounds + 1):
            end = log.end(0)
            times = [timed(release)]
            messages = [message.value for message in log.read(0, end, EACH)]
            times.append(timed(one_by_one, messages))
            block = next(blocks)
            end = log.end(0)
            times.append(timed(producer.release_block, block))
            messages = [message.value for message in log.read(0, end, BLOCK)]
            assert len(messages) == BLOCK
            times.append(timed(log.append, [(0, message) for message in messages]))
            times.append(timed(in_blocks, messages))
            if turn:
                for spent, took in zip(seconds.values(), times, strict=True):
                    spent.append(took)
    bare.close()
    return seconds, len(messages[0])


def sending(broker, count, rounds, folder):
    """Producer.release and release_block against bare sends of as many bytes, confirmed as often."""
    seconds, size = sent(broker, rounds, folder)
    print(f"sending releases of {size} bytes, acks=all, median of {rounds} turns, all of a process's threads:")
    for kind in ("wall", "cpu"):
        one, bare_one, block, append, bare_block = (of(kind, clocks) for clocks in seconds.values())
        row(f"one by one, {kind}, ms", 1e3 / EACH, {"Producer.release": one}, bare_one)
        ours = {"Producer.release_block": block, "log.append": append}
        row(f"blocks of {BLOCK:,}, {kind}, us", 1e6 / BLOCK, ours, bare_block)


def of(kind, clocks):
    return [getattr(clock, kind) for clock in clocks]


def row(title, scale, ours, peer):
    parts = [f"{name} {scale * median(own):.2f} (ratio {ratio_of(peer, own):.2f})" for name, own in ours.items()]
    print(f"  {title}: bare sends {scale * median(peer):.2f}, {', '.join(parts)}")


def cycle(broker, count, rounds, folder):
    """A simulated population whose learner is another process: the seconds of one block, and of its parts."""
    start, turns = min(20_000, count), 20 * rounds
    feed = feed_for(name="cycle")
    url = f"{broker.url}/cycle"
    size = start // 100
    source = people(folder / "crowd.csv", feed.task, turns * size)
    sent, learned, seen = [], [], []
    with (
        filled(url, feed.task, releases(feed, start)) as log,
        Ledger(folder / "crowd.db") as ledger,
        Learner(url, folder / "cycle.log"),
    ):
        producer = Producer(feed.task, log, ledger, noise=SimulatedNoise(1), device=feed.device)
        producer.begin(source)
        wait_for_models(log, feed.device, 120.0)
        for block in source.blocks(0, lambda: size):
            begun = time.perf_counter()
            producer.release_block(block)
            sent.append(time.perf_counter() - begun)
            end = log.end(0)
            while log.checkpoint(0).offset < end:
                time.sleep(0.001)
            learned.append(time.perf_counter() - begun)
            wait_for_models(log, feed.device, 120.0)
            seen.append(time.perf_counter() - begun)
    print(
        f"a simulated population, blocks of {size} releases, its learner elsewhere, median of {len(seen)} blocks, ms:"
    )
    late = sorted(seen)[9 * len(seen) // 10]
    print(f"  sent and booked after {1e3 * median(sent):.0f}, learned and committed after {1e3 * median(learned):.0f},")
    print(f"  the model seen after {1e3 * median(seen):.0f} (nine blocks in ten: within {1e3 * late:.0f})")


def commit(broker, count, rounds, folder):
    """One commit of state, offset and model, alone, against a bare transaction of the same bytes."""
    task = feed_for(name="commit").task
    names = Names("commit-bare")
    iterate = ModelMessage(task=task.hash, partition=0, version=0, parameters=[0.1] * 10)
    state, model = b"s" * STATE, encode(iterate)
    bare = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="bare")
    plain = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", enable_idempotence=False)
    with filled(f"{broker.url}/commit", task, []) as log, filled(f"{broker.url}/commit-bare", task, []):
        ownership = log.acquire(0)
        ownership.load()
        bare.init_transactions()

        def transaction():
            bare.begin_transaction()
            bare.send(names.models, model, key=b"0", partition=0)
            bare.send(names.states, state, key=b"0", partition=0)
            bare.commit_transaction()

        ours, peers, sends = [], [], []
        for turn in range(20 * rounds + 5):
            clocks = (timed(ownership.commit, state, turn, (), model), timed(transaction),
                      timed(lambda: plain.send(names.states, state, key=b"0", partition=0).get()))  # fmt: skip
            took = [clock.wall for clock in clocks]
            if turn >= 5:
                for spent, one in zip((ours, peers, sends), took, strict=True):
                    spent.append(one)
        ownership.close()
    bare.close()
    plain.close()
    print(f"a commit of {STATE + len(model):,} bytes alone, median of {len(ours)}, ms:")
    own, peer, send = (1e3 * median(spent) for spent in (ours, peers, sends))
    print(f"  {own:.1f}; a bare transaction {peer:.1f}, a bare send {send:.1f}")


def people(path, task, count):
    """A file of so many people."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, (count, 9)).round(3).tolist()
    names = [f"x{i}" for i in range(9)]
    lines = [",".join([*map(str, row), "yes" if row[0] > 0 else "no"]) for row in rows]
    path.write_text("\n".join([",".join([*names, "y"]), *lines, ""]))
    return FileSource(path, task, level="default")


def timed(function, *arguments):
    clock = Clock()
    function(*arguments)
    return clock.stop()


def ratio_of(peers, ours):
    """Median of how many times as fast ours is."""
    return median(peer / own for peer, own in zip(peers, ours, strict=True))
