"""``python -m tests.soak.crowds [--kills N] [--log file|beside|kafka] [--seed S]``: gateway, shuffler, learner, broker.

Devices send over HTTP, and again until they have an answer, while processes are killed (SIGKILL) at random moments. At
the end everything that was acknowledged has been released once or waits for its crowd, each crowd was appended whole,
the learner has learned each release once, and the order within crowds says nothing of the order of arrival. ``beside``
is gateway and shuffler in one process.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import random
import re
import shutil
import tempfile
import threading
import time
import uuid
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.stats import chi2

from deploy.broker import Broker
from deploy.broker.ports import number, reserve
from murk.shuffler.store import Store
from murk.stream import open_log
from tests.gateway.devices import Client, release, wire
from tests.in_memory import use_memory
from tests.services.faults.nursery import Nursery
from tests.services.faults.world import as_if_undisturbed, states
from tests.services.services import eventually
from tests.shuffler.crowds import Watch, make_task, numbers, waiting

CROWD = 200
KINDS = {
    "file": {"gateway": 40, "shuffler": 40, "learner": 20},
    "beside": {"gateway": 75, "learner": 25},
    "kafka": {"gateway": 30, "shuffler": 40, "learner": 20, "broker": 10},
}
"""How often each is killed."""
PARTS = 5
FALSE_ALARM = 1e-6
LIMIT = 300.0
MOST = 5_000  # releases of a life: devices of these answer without a model, which later learners refuse as stale
SENT = re.compile(r"crowd (\d+) of (\d+) releases")


@dataclass
class Fought:
    """What a life came to; violations are sentences."""

    kills: Counter = field(default_factory=Counter)
    sent: int = 0
    acknowledged: int = 0
    released: int = 0
    crowds: int = 0
    waiting: int = 0
    duplicates: int = 0
    learned: int = 0
    ordered: int = 0  # crowds in the statistic
    statistic: float = 0.0
    seconds: float = 0.0
    violations: list = field(default_factory=list)


def statistic(crowds) -> float:
    """Pearson's statistic of fifths of the arrival against fifths of the place, of crowds of different sizes.

    Margins are fixed in each crowd, so for uniform permutations it has about (PARTS - 1)^2 degrees of freedom after
    the factor (n - 1) / n.
    """
    table, expected, factor = np.zeros((PARTS, PARTS)), np.zeros((PARTS, PARTS)), 0.0
    for people in crowds:
        n = len(people)
        part = np.arange(n) * PARTS // n
        arrival = np.argsort(np.argsort(people))
        np.add.at(table, (part[arrival], part), 1)
        sizes = np.bincount(part, minlength=PARTS)
        expected += np.outer(sizes, sizes) / n
        factor += (n - 1) / n / len(crowds)
    return float(((table - expected) ** 2 / expected).sum() * factor)


def threshold() -> float:
    """A correct shuffler is above it with probability `FALSE_ALARM`."""
    return float(chi2.isf(FALSE_ALARM, (PARTS - 1) ** 2))


class Senders:
    """Threads of devices, each of which sends a number until it is acknowledged."""

    def __init__(self, of, address: str, threads: int = 3) -> None:
        self.of, self.address = of, address
        self.sent: set[int] = set()
        self.acknowledged: set[int] = set()
        self._numbers = itertools.count()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._send, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        people: list[int] = []
        messages: list[bytes] = []
        while people or not self._ended.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException), Client(self.address) as client:
                while people or not self._ended.is_set():
                    if not people:
                        people = [next(self._numbers) for _ in range(8)]
                        messages = [wire(release(self.of, payload=[one], item=one % 16)) for one in people]
                        self.sent.update(people)
                    status = client.post(*messages, name=self.of.name).status
                    if status == 202:
                        self.acknowledged.update(people)
                        people = []
                    time.sleep(0.05)
            time.sleep(0.05)

    def end(self) -> None:
        """Send no new ones, and wait until all are acknowledged."""
        self._ended.set()
        for thread in self._threads:
            thread.join(LIMIT)
        assert self.sent == self.acknowledged, "not everything was acknowledged in the end"


class CrowdLife:
    """An input log and a log, on a file or on a broker, between devices and a learner that are killed often."""

    def __init__(self, kind, broker, base, nursery, seed: str) -> None:
        self.kind, self.broker, self.nursery = kind, broker, nursery
        self.rng = random.Random(seed)
        self.folder = base / f"crowds-{uuid.uuid4().hex[:8]}"
        self.folder.mkdir()
        self.task = make_task(crowd=CROWD, duplicates=500_000)
        name = f"c{uuid.uuid4().hex[:12]}"
        self.input_log, self.log = (
            (f"sqlite:///{self.folder}/in.db", f"sqlite:///{self.folder}/out.db")
            if broker is None
            else (f"{broker.url}/{name}-in", f"{broker.url}/{name}")
        )
        for url in (self.input_log, self.log):
            with open_log(url) as log:
                log.register_task(self.task.document())
        self.port = reserve()
        self.children = {}
        self.shufflers = []
        self.watch = Watch(None, CROWD)
        self.result = Fought()

    def run(self, kills: int) -> Fought:
        """Kill so often, let everything end, and look at what is left; the folder is kept if something is wrong."""
        began = time.monotonic()
        senders = None
        try:
            for name in sorted(KINDS[self.kind].keys() - {"broker"}, reverse=True):
                self._start(name)
            senders = Senders(self.task, f"http://127.0.0.1:{number(self.port)}")
            while self.result.kills.total() < kills and len(senders.acknowledged) < MOST:
                self._strike(senders)
            self._end(senders)
            self._audit(senders)
        except AssertionError as error:
            self.result.violations.append(f"{self.kind}, {self.folder}: {error}"[:2_000])
        finally:
            if senders is not None:
                senders._ended.set()
            for child in self.children.values():
                child.kill()
            self.port.close()
        if not self.result.violations:
            shutil.rmtree(self.folder)
        self.result.seconds = time.monotonic() - began
        return self.result

    def _start(self, name: str) -> None:
        store = ("--store", self.folder / "store")
        commands = {
            "gateway": ["gateway", "--log", self.input_log, "--port", number(self.port), "--rate", 0, "--wait", "-v"],
            "shuffler": ["shuffle", "--from", self.input_log, "--to", self.log, *store, "--wait", "--patience", LIMIT,
                         "--json"],
            "learner": ["learn", "--log", self.log, "--json", "--wait", "--name", "learner"],
        }  # fmt: skip
        if self.kind == "beside":
            commands["gateway"] += ["--shuffle", self.log, *store]
        self.children[name] = child = self.nursery.murk(*commands[name], folder=self.folder)
        if name == "shuffler" or (name, self.kind) == ("gateway", "beside"):
            self.shufflers.append(child)

    def _strike(self, senders: Senders) -> None:
        """Kill something once people are being answered again, and start it again."""
        before, deadline = len(senders.acknowledged), time.monotonic() + LIMIT
        while len(senders.acknowledged) < before + 40:
            assert time.monotonic() < deadline, "nobody is answered any more"
            self._alive()
            time.sleep(0.02)
        time.sleep(self.rng.expovariate(1 / 0.3))
        self._alive()
        weights = KINDS[self.kind]
        kind = self.rng.choices(list(weights), weights.values())[0]
        if kind == "broker":
            self.broker.kill()
            time.sleep(self.rng.uniform(0.0, 1.5))
            self.broker.start()
        else:
            assert self.children[kind].kill() == -9, f"the {kind} had just ended by itself"
            if kind == "shuffler" or self.kind == "beside":
                self._look()
            if self.rng.random() < 0.2:
                time.sleep(self.rng.uniform(0.0, 1.0))
            self._start(kind)
        self.result.kills[kind] += 1

    def _alive(self) -> None:
        for name, child in self.children.items():
            assert child.status is None, f"the {name} ended by itself with {child.status}: {child.err[-1_500:]}"

    def _look(self) -> None:
        """Note how long the log is while nobody appends to it; on Kafka its end counts transactions, too."""
        if self.broker is None:
            with open_log(self.log, create=False) as self.watch.log:
                self.watch.look()

    def _end(self, senders: Senders) -> None:
        senders.end()
        self._alive()
        for name in ("gateway", "shuffler"):
            if name in self.children:
                child = self.children.pop(name)
                # 130: it had not begun yet.
                assert child.stop() in (0, 130), f"{name}: {child.err[-1_500:]}"
        arguments = (
            "--from",
            self.input_log,
            "--to",
            self.log,
            "--store",
            self.folder / "store",
            "--idle",
            2,
            "--json",
        )
        last = self.nursery.murk("shuffle", *arguments, folder=self.folder)
        assert last.wait() == 0, last.err
        self.shufflers.append(last)
        self.totals = json.loads(last.out)
        self._look()
        # Not by its lag: on Kafka the end of a log is behind the record that ends a transaction.
        eventually(lambda: self._alive() or self._learned() >= self.totals["released"], LIMIT, every=0.5)
        learner = self.children.pop("learner")
        assert learner.stop() == 0, learner.err

    def _learned(self) -> int:
        with open_log(self.log, create=False) as log:
            return sum(counters["learned"] for _, counters in states(log))

    def _audit(self, senders: Senders) -> None:
        result = self.result
        with open_log(self.log, create=False) as log:
            released, mark = numbers(log), log.crowd_mark()
        with contextlib.closing(Store(self.folder / "store")) as store:
            waits = waiting(store, self.task)
        everyone = released + waits
        result.sent, result.acknowledged = len(senders.sent), len(senders.acknowledged)
        result.released, result.waiting, result.crowds = len(released), len(waits), mark.crowds
        result.duplicates = self.totals["duplicates"]
        assert len(set(everyone)) == len(everyone), "a release came twice"
        assert set(everyone) == senders.sent, f"{len(senders.sent - set(everyone))} releases are lost"
        assert (self.totals["released"], self.totals["crowds"]) == (len(released), mark.crowds)
        assert (self.totals["dropped"], self.totals["refused"]) == (0, {})
        found = as_if_undisturbed(self.log, self.task)
        result.learned = sum(counters["learned"] for _, counters in found)
        assert result.learned == len(released), "not everything was learned once"
        self._audit_order(released)

    def _audit_order(self, released) -> None:
        """Cut the log into crowds and compare their order with that of arrival."""
        crowds = self._crowds_on_kafka() if self.broker is not None else self._crowds_on_file(released)
        for people in crowds:
            assert len(people) >= CROWD, f"a crowd has {len(people)} releases"
        assert len(crowds) >= 0.9 * self.result.crowds, f"of {self.result.crowds} crowds {len(crowds)} are known"
        self.result.ordered, self.result.statistic = len(crowds), statistic(crowds)
        assert self.result.statistic < threshold(), f"places depend on arrival: {self.result.statistic:.0f}"
        # The twin: what the same statistic is of crowds whose first quarter is in the order of arrival.
        spoiled = [sorted(people[: len(people) // 4]) + people[len(people) // 4 :] for people in crowds]
        # Each crowd adds a noncentrality of about 15.5: of ten it stays below the threshold with probability below
        # 1e-7. Lives of fewer crowds show the other checks only.
        if len(crowds) >= 10:
            assert statistic(spoiled) > threshold()

    def _crowds_on_kafka(self):
        """A transaction ends with a record of its own, so that offsets leave a gap between crowds."""
        crowds, expected, offset = [], -1, 0
        with open_log(self.log, create=False) as log:
            while messages := log.read(0, offset, 10_000):
                for each in messages:
                    if each.offset != expected:
                        crowds.append([])
                    crowds[-1].append(json.loads(each.value)["payload"][0])
                    expected = each.offset + 1
                offset = messages[-1].offset + 1
        assert len(crowds) == self.result.crowds
        return crowds

    def _crowds_on_file(self, released):
        """As far as shufflers have said how large they were; one that was killed before is known by the log's end."""
        sizes = {int(crowd): int(size) for child in self.shufflers for crowd, size in SENT.findall(child.err)}
        crowds, end = [], 0
        for crowd in range(1, self.result.crowds + 1):
            begin, end = end, end + sizes[crowd] if end is not None and crowd in sizes else self.watch.sizes.get(crowd)
            if begin is not None and end is not None:
                crowds.append(released[begin:end])
        return crowds


def campaign(kills: int, kinds, seed: int, tell):
    """Give the results of lives of each kind, as many as the kills need."""
    with ExitStack() as stack:
        base = Path(tempfile.mkdtemp(prefix="murk-crowds-"))
        broker = stack.enter_context(Broker(base / "kafka")) if "kafka" in kinds else None
        if broker is not None:
            stack.callback(broker.kill)
        nursery = stack.enter_context(Nursery(base / "children", ("scores",), MURK_KAFKA_SESSION_TIMEOUT_MS="1500"))
        found = []
        for place, kind in enumerate(kinds):
            left = kills // len(kinds) + (place < kills % len(kinds))
            while left > 0:
                life = CrowdLife(kind, broker if kind == "kafka" else None, base, nursery, f"{seed} {kind} {left}")
                found.append(life.run(left))
                tell(f"{kind}: {found[-1]}")
                left -= max(1, found[-1].kills.total())
        if not any(result.violations for result in found):
            stack.callback(shutil.rmtree, base, ignore_errors=True)
        return found


def say(words: str) -> None:
    print(words, flush=True)  # noqa: T201 - what it is for


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.crowds", description=__doc__)
    parser.add_argument("--kills", type=int, default=int(os.environ.get("MURK_SOAK_CROWD_KILLS", "500")), help="in all")
    parser.add_argument("--log", action="append", choices=list(KINDS), help="by default all")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    use_memory()
    found = campaign(options.kills, options.log or list(KINDS), options.seed, say)
    return int(any(result.violations for result in found))


if __name__ == "__main__":
    raise SystemExit(main())
