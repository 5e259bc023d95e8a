"""The log on Kafka against bare kafka-python, on a broker of its own: ``python -m benchmarks.kafka``."""

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from kafka import KafkaConsumer, TopicPartition

from benchmarks.kafka_sending import commit, cycle, sending
from benchmarks.on_kafka import Clock, Learner, busy, cpu, feed_for, filled, filled_singly, releases
from deploy.broker import Broker
from murk.cli.commands.learn import COLLECT
from murk.stream import Worker
from murk.stream.log.kafka.topics import Names
from murk.stream.wire.codec import WireRules
from murk.stream.wire.columns import Layout
from murk.stream.wire.packed import Packed
from murk.stream.worker.worker import LEARN

WARM = 20_000
KINDS = ("wall", "cpu")
JOIN_LIMIT = 60
median = statistics.median


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--releases", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=list(PARTS))
    chosen = parser.parse_args(argv)
    gc.set_threshold(*COLLECT)
    # With a shorter one, a learner that is held while its log is filled would leave the group; with a longer one,
    # it would hear late that another has joined: it asks ten times in this time.
    os.environ["MURK_KAFKA_SESSION_TIMEOUT_MS"] = "60000"
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "kafka") as broker:
        for name in chosen.only:
            before, start = busy(), time.perf_counter()
            PARTS[name](broker, chosen.releases, chosen.rounds, Path(folder))
            used = (busy() - before) / (time.perf_counter() - start)
            print(f"  (all processes of this machine: {used:.1f} of {os.cpu_count()} cores in use)\n", flush=True)


def worked(broker, count, rounds, singly=False):
    """Clocks of iterating all messages, of a worker after its first ones, and of its parts: one triple a round."""
    feed = feed_for()
    messages = releases(feed, count)
    warm = min(WARM, count // 5)
    for turn in range(rounds + 1):
        name = f"{'single' if singly else 'worker'}{turn}"
        url = f"{broker.url}/{name}"
        with filled_singly(broker, name, feed.task, messages) if singly else filled(url, feed.task, messages) as log:
            loop, (ours, parts) = _iterate(broker, Names(name).releases, count), _work(log, feed, warm)
        if turn == 0:
            continue  # compiles, and warms the broker up
        rules = WireRules(
            feed.task.hash,
            True,
            (feed.device.dimension,),
            {level: m.magnitude for level, m in feed.device.mechanisms.items()},
        )
        layout, values = Layout(rules), [message for _, message in messages[warm:]]
        clock = Clock()
        for at in range(0, len(values), LEARN):
            assert layout.read(Packed.of(values[at : at + LEARN])) is not None
        yield loop, ours, {**parts, "decode and check": clock.stop()}


def each(found, kind, count):
    """Median seconds of a message iterated and of one in the worker, and of their ratios; ``kind`` is wall or cpu."""
    rest = count - min(WARM, count // 5)
    pairs = [(getattr(loop, kind) / count, getattr(ours, kind) / rest) for loop, ours, _ in found]
    loops, own = zip(*pairs, strict=True)
    return median(loops), median(own), median(a / b for a, b in pairs)


def single(broker, count, rounds, folder):
    """The same with each message in a batch of its own, as the broker stores what devices send one by one."""
    worker(broker, count, rounds, folder, singly=True)


def worker(broker, count, rounds, folder, singly=False):
    """The worker against a loop that iterates kafka-python over the same messages."""
    found = list(worked(broker, count, rounds, singly))
    stored = "in batches of one" if singly else "in large batches"
    print(f"the worker, {count:,} releases {stored}, median of {rounds} pairs, us a release:")
    for kind in KINDS:
        loop, ours, ratio = each(found, kind, count)
        print(f"  {kind:4s}  iterating {1e6 * loop:6.2f}   worker {1e6 * ours:6.2f}   ratio {ratio:5.2f}")
    print("  of the worker's time (wall, cpu):")
    rest = count - min(WARM, count // 5)
    for name in found[0][2]:
        wall, spent = (1e6 * median(getattr(parts[name], kind) / rest for _, _, parts in found) for kind in KINDS)
        print(f"    {name:18s} {wall:6.2f} {spent:6.2f}")
    print("    the rest: duplicates, admission, counting, the state as JSON")


def _iterate(broker, topic, count):
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    # The first message stands for connecting.
    next(consumer)
    clock = Clock()
    for seen, _ in enumerate(consumer, 2):
        if seen == count:
            break
    clock.stop()
    consumer.close()
    return clock


def _work(log, feed, warm):
    engine = feed.device.engine()
    with Worker(log, feed.task, engine) as worker:
        while engine.n_releases < warm:
            worker.step(warm - engine.n_releases)
        parts = {
            "read from Kafka": _watched(log, "read"),
            "learn": _watched(engine, "learn_releases"),
            "commit": _watched(worker._ownership, "commit"),
            "publish models": _watched(worker._ownership, "publish_uncommitted"),
        }
        clock = Clock()
        while worker.step().read:
            pass
        clock.stop()
        assert not worker.counters.dead, worker.counters
    for part in parts.values():
        part.wall, part.cpu = part.spent
    return clock, parts


def _watched(owner, name):
    """Measure a method of an object from now on."""
    method, sum_ = getattr(owner, name), Clock()
    sum_.spent = [0.0, 0.0]

    def measured(*arguments):
        clock = Clock()
        try:
            return method(*arguments)
        finally:
            clock.stop()
            sum_.spent[0] += clock.wall
            sum_.spent[1] += clock.cpu

    setattr(owner, name, measured)
    return sum_


def learners(broker, count, rounds, folder):
    """Two processes of ``murk learn`` on two partitions against one on both."""
    feed = feed_for(2, "learners")
    messages = [
        one
        for pair in zip(*(releases(feed, count // 2, partition) for partition in (0, 1)), strict=True)
        for one in pair
    ]
    found = {1: [], 2: []}
    for turn in range(rounds):
        for many in (1, 2):
            found[many].append(_share(broker, feed.task, messages, many, f"learners{turn}-{many}", folder))
    print(f"learners, {len(messages):,} releases on two partitions, median of {rounds} turns:")
    for many, runs in found.items():
        rate, ours, theirs = (median(run[i] for run in runs) for i in range(3))
        print(
            f"  {many} of them: {rate:8,.0f} releases a second; cores in use: learners {ours:.2f}, broker {theirs:.2f}"
        )
        print(f"     CPU a release: learners {1e6 * ours / rate:.1f} us, broker {1e6 * theirs / rate:.1f} us")
    print(f"  two against one: {median(b[0] / a[0] for a, b in zip(*found.values(), strict=True)):.2f} times as fast")


def _share(broker, task, messages, many, name, folder):
    """Releases a second, and cores used by the learners and by the broker, while they work a filled log off."""
    with ExitStack() as stack:
        log = stack.enter_context(filled(f"{broker.url}/{name}", task, []))
        crew = [stack.enter_context(Learner(f"{broker.url}/{name}", folder / f"{name}-{i}.log")) for i in range(many)]
        # A partition's owner is known from its first commit on: they get a little to learn until all have joined.
        sent, deadline = 0, time.monotonic() + JOIN_LIMIT
        while len(set(log.owners().values())) < many or len(log.owners()) < 2:
            log.append(messages[sent : sent + 20])
            sent += 20
            time.sleep(0.2)
            if time.monotonic() > deadline:
                sys.exit(f"{name}: the partitions are still not shared after {JOIN_LIMIT} s: {dict(log.owners())}")
        _settle(log)
        for learner in crew:
            learner.hold()
        for start in range(sent, len(messages), 5000):
            log.append(messages[start : start + 5000])
        wall = -time.perf_counter()
        ours, theirs = -sum(cpu(learner.pid) for learner in crew), -cpu(broker.pid)
        for learner in crew:
            learner.go_on()
        _settle(log)
        wall += time.perf_counter()
        ours, theirs = ours + sum(cpu(learner.pid) for learner in crew), theirs + cpu(broker.pid)
        return (len(messages) - sent) / wall, ours / wall, theirs / wall


def _settle(log):
    """Wait until all is learned that is on the log."""
    ends = [log.end(partition) for partition in (0, 1)]
    while any(log.checkpoint(partition).offset < end for partition, end in enumerate(ends)):
        time.sleep(0.02)


PARTS = {"worker": worker, "single": single, "learners": learners, "sending": sending, "cycle": cycle, "commit": commit}

if __name__ == "__main__":
    main(sys.argv[1:])
