"""What the benchmark on Kafka measures with: a log filled beforehand, clocks of several processes."""

import os
import signal
import sys
import time
from pathlib import Path

from kafka import KafkaProducer

from benchmarks.feed import Feed
from deploy.broker.process import end, spawn
from murk import Task
from murk.protocols.gradients.kernels import newest_published
from murk.stream import open_log
from murk.stream.log.kafka.topics import Names

TICK = os.sysconf("SC_CLK_TCK")


def task(partitions=1, name="bench"):
    """Ten numbers a release, and nothing that expires or is removed while it is measured."""
    return Task.parse(
        f"name: {name}\nfeatures: ["
        + ", ".join(f"{{name: x{i}, low: -1, high: 1}}" for i in range(9))
        + "]\ntarget: {name: y, kind: binary, positive: 'yes'}\n"
        f"privacy: {{guarantee: {{gdp: {{mu: 1.0}}}}}}\nprotocol: gradients\nlog: {{partitions: {partitions}}}\n"
    ).with_simulated(True)


def releases(feed, count, partition=0):
    """Releases as a partition gets them whose devices read its newest model once in 1% of its count."""
    made = []
    while len(made) < count:
        version = newest_published(len(made), feed.task.max_staleness.floor)
        made += feed.block(version, min(max(1, len(made) // 100), count - len(made)), partition)
    return made


def filled(url, task, messages):
    """Open a new log and put messages on it."""
    log = open_log(url)
    log.register_task(task.document())
    for start in range(0, len(messages), 5000):
        log.append(messages[start : start + 5000])
    return log


def filled_singly(broker, name, task, messages):
    """The same with each message in a batch of its own, as devices send them; all are of one partition."""
    log = filled(f"{broker.url}/{name}", task, [])
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, batch_size=0, enable_idempotence=False)
    for start in range(0, len(messages), 2000):
        for partition, value in messages[start : start + 2000]:
            producer.send(Names(name).releases, value, partition=partition)
        producer.flush()
    producer.close()
    return log


def feed_for(partitions=1, name="bench"):
    return Feed(task(partitions, name))


class Clock:
    """Wall and CPU seconds of this process since it was made."""

    def __init__(self):
        self.wall, self.cpu = -time.perf_counter(), -time.process_time()

    def stop(self):
        self.wall += time.perf_counter()
        self.cpu += time.process_time()
        return self


def cpu(process):
    """CPU seconds that a process, given by its number, has used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def busy():
    """CPU seconds that all processes of this machine have used so far."""
    user, nice, system = (int(part) for part in Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / TICK


class Learner:
    """``murk learn`` as a process of its own, with the settings of its users."""

    def __init__(self, url, output):
        self._output = output
        self._child = spawn([sys.executable, "-m", "murk", "learn", "--json", "--log", url], output)
        self.pid = self._child.pid

    def hold(self):
        self._child.send_signal(signal.SIGSTOP)

    def go_on(self):
        self._child.send_signal(signal.SIGCONT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self._child, 30)
        if self._child.returncode:
            sys.exit(f"a learner ended with {self._child.returncode}: {self._output.read_text()[-2000:]}")
