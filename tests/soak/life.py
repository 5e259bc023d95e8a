"""One life of a log: devices, learners and a monitor (and a broker) killed at random moments, and what is left."""

import json
import random
import shutil
import sqlite3
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from murk import Task
from murk.stream import open_log
from murk.stream.log.interface import UnreachableError
from tests.cli.harness import LEDGER, accounts, query
from tests.services.faults.world import as_if_undisturbed, caught_up, messages_of
from tests.services.services import eventually
from tests.soak.people import LOG, Case, ids_of, undisturbed
from tests.stream.harness import hostile

WEIGHTS = {
    "file": {"device": 45, "learner": 40, "monitor": 15},
    "kafka": {"device": 38, "learner": 40, "monitor": 12, "broker": 10},
}
"""How often each is killed."""
PAUSE = {"file": 0.3, "kafka": 0.6}
"""Mean seconds between two kills, besides what it takes until something is done again."""
IDLE = 2.0
"""Seconds after which the next kill comes although nothing was done since the last one."""
FREEZE, STRANGER = 0.06, 0.15
"""Chance, with each kill, that a process is frozen for a while; that a stranger writes on the log."""
LIMIT = 300.0
"""Seconds after which what should have happened counts as never happening."""
# Decided by the message alone, so that each of it is a dead letter, however often it is there. (A level that no task
# of the tests has, one of these tasks has.)
JUNK = {"malformed", "schema", "wrong-task", "dimension", "magnitude"}
AWAY = ("cannot be reached", "does not answer", "went away")


@dataclass
class Result:
    """What a life came to; violations are sentences."""

    kills: Counter[str] = field(default_factory=Counter)
    at_work: int = 0
    freezes: int = 0
    released: int = 0
    refused: int = 0
    learned: int = 0
    lost: int = 0
    doubled: int = 0
    duplicates: int = 0
    dead: int = 0
    hostile: int = 0
    partitions: int = 0
    identical: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)


class Life:
    """A log of its own, in a file or on a broker's topics.

    Parameters
    ----------
    case
        What is run.
    broker
        The broker; None for a log in a file.
    base
        Where folders are made.
    nursery
        Starts processes.
    seed
        Of the schedule.
    tell
        Called with what has happened.
    """

    def __init__(self, case: Case, broker, base: Path, nursery, seed: str, tell: Callable[[str], None]) -> None:
        self.case, self.broker, self.nursery, self.tell = case, broker, nursery, tell
        self.kind = "file" if broker is None else "kafka"
        self.rng = random.Random(seed)
        self.reference = undisturbed(case, base, nursery)
        self.folder = base / f"life-{uuid.uuid4().hex[:8]}"
        case.write(self.folder)
        if broker is None:
            self.url = f"sqlite:///{self.folder}/{LOG}"
        else:
            self.url = f"{broker.url}/s{uuid.uuid4().hex[:12]}"
        self.result = Result()
        self.junk = 0
        self.seen = 0
        self.done = False
        self.children = {}
        self._written = None

    def run(self, kills: int) -> Result:
        """Fight so many kills, and look at what is left; it is kept where something is wrong with it."""
        began = time.monotonic()
        self.fight(kills)
        if not self.result.violations:
            self.audit()
        if not self.result.violations:
            shutil.rmtree(self.folder)
        self.result.seconds = time.monotonic() - began
        return self.result

    def fight(self, kills: int) -> None:
        """Kill so often, or until everything is released, and let it end."""
        try:
            self._begin()
            for _ in range(kills):
                self._wait_for_work()
                if self.done:
                    break
                self._strike()
            self._end()
        except AssertionError as error:
            self._violate(f"{error}"[:2000])
        finally:
            for child in self.children.values():
                child.kill()

    # Processes

    def _begin(self) -> None:
        if self.broker is not None:
            made = self.nursery.murk("topics", "task.yaml", "--log", self.url, "--simulated", folder=self.folder)
            assert made.wait() == 0, made.err
        learners = ["learner"] if self.broker is None else ["learner 0", "learner 1"]
        for name in ["device", *learners, "monitor"]:
            self._start(name)

    def _start(self, name: str) -> None:
        kind = name.partition(" ")[0]
        commands = {
            "device": [*self.case.command("produce", self.url), "--patience", 2 * LIMIT],
            # By its name a learner comes back to its partitions (on Kafka).
            "learner": ["learn", "--log", self.url, "--json", "--wait", "--name", name.replace(" ", "-")],
            "monitor": ["monitor", "task.yaml", "--log", self.url, "--port", 0, "--interval", 0.5, "--json", "--wait"],
        }
        self.children[name] = self.nursery.murk(*commands[kind], folder=self.folder)

    def _look(self) -> None:
        """Start again what has ended by itself, which only a device may do."""
        for name, child in list(self.children.items()):
            status = child.status
            if status is None or (name == "device" and self.done):
                continue
            if name == "device" and status == 0:
                self.done = True
            elif name == "device" and status == 1 and self.broker is not None and any(w in child.err for w in AWAY):
                # It found no broker and said so; anyone who runs it starts it again.
                self._start(name)
            else:
                raise AssertionError(f"a {name} ended by itself with status {status}: {child.out}{child.err}")

    # Kills

    def _wait_for_work(self) -> None:
        """Until something was written since the last kill, and then a random moment longer."""
        deadline = time.monotonic() + IDLE
        worked = False
        while not worked and time.monotonic() < deadline and not self.done:
            time.sleep(0.03)
            self._look()
            worked = self._writes() != self._written
        self.result.at_work += worked
        time.sleep(self.rng.expovariate(1.0 / PAUSE[self.kind]))
        self._look()

    def _writes(self) -> tuple[int, ...]:
        found = []
        for name in (f"{LEDGER}-wal", f"{LOG}-wal"):
            try:
                found.append((self.folder / name).stat().st_mtime_ns)
            except FileNotFoundError:
                found.append(0)
        return tuple(found)

    def _strike(self) -> None:
        weights = WEIGHTS[self.kind]
        kind = self.rng.choices(list(weights), weights.values())[0]
        self._look_at_monitor()
        if self.rng.random() < FREEZE:
            self._randomize()
        if kind == "broker":
            self.broker.kill()
            time.sleep(self.rng.uniform(0.0, 1.5))
            self.broker.start()
        else:
            name = self.rng.choice([name for name in self.children if name.startswith(kind)])
            child = self.children[name]
            if child.kill() != -9:
                # It had just ended by itself.
                self._look()
                return
            if kind == "device" and self.broker is None:
                self.check_debits()
            if self.rng.random() < 0.2:
                time.sleep(self.rng.uniform(0.0, 1.0))
            self._start(name)
        self.result.kills[kind] += 1
        if self.rng.random() < STRANGER:
            self._intrude()
        self._written = self._writes()

    def _randomize(self) -> None:
        names = [name for name in self.children if name != "monitor"] + (["broker"] if self.broker else [])
        name = self.rng.choice(names)
        frozen = self.broker if name == "broker" else self.children[name]
        frozen.freeze()
        time.sleep(self.rng.uniform(0.3, 3.0))
        frozen.thaw()
        self.result.freezes += 1

    def _intrude(self) -> None:
        """A stranger sends what no device does, and again what some device did."""
        try:
            with open_log(self.url, create=False) as log:
                document = log.document()
                if document is None:
                    return
                junk = [value for value, reason in hostile(Task.from_document(document)) if reason in JUNK]
                chosen = [self.rng.choice(junk) for _ in range(self.rng.randint(1, 3))]
                # All of it is of partition 0, whatever else is wrong with it.
                # Well within the window for duplicates.
                near = log.read(0, max(log.begin(0), log.end(0) - 50), 50)
                there = [one.value for one in near if ids_of([one.value], self.reference.ids)]
                # Counted before: whether what failed half-way has arrived is not known.
                self.junk += len(chosen)
                again = [self.rng.choice(there)] if there else []
                log.append([(0, value) for value in chosen + again])
        except UnreachableError:
            return

    # What must hold

    def _violate(self, what: str) -> None:
        self.result.violations.append(f"{self.case.protocol}, {self.kind}, {self.folder}: {what}")
        self.tell(f"VIOLATION: {self.result.violations[-1]}")

    def _debits(self) -> int:
        """How many debits there are in the ledger that a killed device has left; a copy is recovered."""
        copy = self.folder / "copy"
        copy.mkdir()
        try:
            for path in self.folder.glob(f"{LEDGER}*"):
                shutil.copy(path, copy)
            return query(copy / LEDGER, "SELECT count(*) FROM debits")[0][0] if (copy / LEDGER).exists() else 0
        except sqlite3.Error as error:
            raise AssertionError(f"a killed device's ledger cannot be read: {error}") from None
        finally:
            shutil.rmtree(copy)

    def check_debits(self) -> None:
        """Spend before release: at no moment is there a release on the log that nobody has paid for."""
        log_file = self.folder / LOG
        # A device that is killed while it creates the log leaves none, or an empty file.
        if not log_file.exists() or log_file.stat().st_size == 0:
            return
        with open_log(self.url, create=False) as log:
            if log.document() is None:
                return
        there = {one for values in messages_of(self.url) for one in ids_of(values, self.reference.ids)}
        paid = self._debits()
        if len(there) > paid:
            self._violate(f"{len(there)} releases on the log, and {paid} debits")

    def _status(self):
        """What the monitor shows; None while it does not."""
        child = self.children["monitor"]
        try:
            with urllib.request.urlopen(json.loads(child.out)["url"] + "/api/status", timeout=30) as answer:
                return json.load(answer)
        except (ValueError, OSError):
            return None

    def _look_at_monitor(self) -> None:
        """What a monitor has shown to be learned stays so, whoever is killed."""
        shown = self._status()
        if shown is None or not shown["healthy"]:
            return
        if shown["releases"] < self.seen:
            self._violate(f"a monitor shows {shown['releases']} releases, and {self.seen} before")
        self.seen = max(self.seen, shown["releases"])

    def _end(self) -> None:
        deadline = time.monotonic() + LIMIT
        while not self.done:
            assert time.monotonic() < deadline, f"not everything was released within {LIMIT} s"
            time.sleep(0.1)
            self._look()
        learners = [child for name, child in self.children.items() if name.startswith("learner")]
        caught_up(self.url, *learners, limit=LIMIT)
        since = time.time()
        self.shown = eventually(lambda: self._shown_since(since), LIMIT, every=0.25)
        for name, child in self.children.items():
            if name != "device":
                assert child.stop() == 0, f"{name}: {child.err}"

    def _shown_since(self, moment: float):
        """What the monitor shows, once it has read the log after a moment."""
        shown = self._status()
        return shown if shown and shown["healthy"] and shown["now"] > moment else None

    def audit(self) -> None:
        """Compare accounts, log and states with each other and with those of an undisturbed run."""
        result, reference = self.result, self.reference
        left = accounts(self.folder)
        if left["outbox"]:
            self._violate(f"{len(left['outbox'])} releases still in the outbox")
        for name in ("debits", "spending"):
            if left[name] != reference.accounts[name]:
                self._violate(f"{name} are not those of an undisturbed run")
        ids = [one for values in messages_of(self.url) for one in ids_of(values, reference.ids)]
        with open_log(self.url, create=False) as log:
            task = Task.from_document(log.document())
        result.partitions = task.log.partitions
        try:
            found = as_if_undisturbed(self.url, task)
        except AssertionError as error:
            self._violate(f"states are not those of a replay of the log from its beginning: {str(error)[:500]}")
            return
        learners = tuple(learner for learner, _ in found)
        if reference.learners is not None and learners != reference.learners:
            self._violate("states are not those of an undisturbed run")
        else:
            result.identical = len(found)
        counters = [each for _, each in found]
        dead = sum((Counter(each["dead"]) for each in counters), Counter())
        result.released = len(left["debits"])
        result.refused = sum(row[4] for row in left["spending"])
        result.learned = sum(each["learned"] for each in counters)
        result.duplicates = sum(each["duplicates"] for each in counters)
        result.dead, result.hostile = dead.total(), self.junk
        result.lost = len(reference.ids - set(ids))
        result.doubled = max(0, result.learned - len(reference.ids))
        if result.lost or result.learned != len(reference.ids):
            self._violate(f"{result.lost} releases lost, {result.learned} learned of {len(reference.ids)}")
        if dead.total() > self.junk or dead.keys() - JUNK:
            self._violate(f"{dict(dead)} dead letters, and strangers sent {self.junk}")
        self._compare_monitor(dead)

    def _compare_monitor(self, dead: Counter[str]) -> None:
        shown, result = self.shown, self.result
        status = self.nursery.murk("status", "--log", self.url, "--json", folder=self.folder)
        assert status.wait() == 0, status.err
        told = json.loads(status.out)
        wanted = (result.learned, result.duplicates, dict(dead))
        for name, where in (("monitor", shown), ("status", told)):
            found = (where["releases"], where["duplicates"], where["dead_letters"])
            if found != wanted:
                self._violate(f"the {name} shows {found}, and it is {wanted}")
        estimate = shown["estimate"]
        if dict(zip(estimate["names"], estimate["values"], strict=True)) != told["coefficients"]:
            self._violate("the monitor's estimate is not the one that `murk status` gives")
