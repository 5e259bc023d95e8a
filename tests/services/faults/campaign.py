"""Learners that are killed at random moments while messages keep arriving."""

import random
import threading
import time

from kafka import TopicPartition
from kafka.errors import KafkaError

from murk.stream import open_log
from murk.stream.log.interface import UnreachableError
from murk.stream.log.kafka.connection.clients import Clients
from murk.stream.log.kafka.connection.network import Address
from murk.stream.log.kafka.connection.settings import Settings
from tests.services.faults.world import names
from tests.services.services import eventually

PAUSE = 0.04
"""Seconds between the messages that arrive together."""


class Arrivals:
    """Sends messages to all partitions, a few at a time, and never more than the given share of them.

    As devices do it: what was not confirmed is sent again.
    """

    def __init__(self, url, partitions):
        self._url = url
        self._partitions = partitions
        self._sent = [0] * len(partitions)
        self._share = 0.0
        self._error = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def sent(self):
        """How many have arrived."""
        return sum(self._sent)

    def allow(self, share):
        """Let this share of all messages arrive."""
        assert self._error is None, repr(self._error)
        self._share = max(self._share, share)

    def finish(self):
        """Let all arrive, and wait for it."""
        self.allow(1.0)
        eventually(self.is_done, 180)
        self.close()

    def is_done(self):
        """Whether all that may arrive has arrived."""
        assert self._error is None, repr(self._error)
        return all(
            sent == int(self._share * len(values)) for sent, values in zip(self._sent, self._partitions, strict=True)
        )

    def close(self):
        self._closing.set()
        self._thread.join()

    def _run(self):
        try:
            with open_log(self._url, create=False) as log:
                while not self._closing.wait(PAUSE):
                    self._send(log)
        except Exception as error:  # noqa: BLE001 - told where it is waited for
            self._error = error

    def _send(self, log):
        batch, sent = [], list(self._sent)
        for number, values in enumerate(self._partitions):
            first, most = sent[number], int(self._share * len(values))
            # Few at a time: what is sent again stays within the window for duplicates.
            some = values[first : min(most, first + (50 if self._share == 1.0 else 4))]
            batch += [(number, value) for value in some]
            sent[number] += len(some)
        try:
            log.append(batch)
        except UnreachableError:
            # The broker is away: the same ones again, in a moment.
            return
        self._sent = sent


class Campaign:
    """Two or three learners of one log, killed, stopped and replaced again and again.

    ``stopped`` counts those that left in peace; ``tell`` is called with what has happened, and to whom.
    """

    def __init__(self, url, nursery, arrivals, partitions, seed, tell=lambda what, which: None):
        self._url = url
        self._nursery = nursery
        self._arrivals = arrivals
        self._tell = tell
        self._rng = random.Random(seed)
        self._states = [TopicPartition(names(url).states, number) for number in range(partitions)]
        self._consumer = Clients(Address.parse(url), Settings.read(), url).reader(committed=False)
        self.learners = []
        self.stopped = 0
        self._seen = 0

    def fight(self, kills, between=lambda: None):
        """Kill so often, each time while learners write states."""
        for kill in range(kills):
            while len(self.learners) < 2:
                self._join()
            if self._rng.random() < 0.3:
                self._join()
            self._arrivals.allow((kill + 1) / (kills + 1))
            before = self._written()
            eventually(lambda before=before: self._written() > before or self._healthy(), 180, every=0.05)
            time.sleep(self._rng.uniform(0.0, 0.5))
            victim = self._victim()
            victim.kill()
            self._tell("learner killed", f"{victim.pid}, kill {kill + 1} of {kills}")
            if len(self.learners) > 2 or self._rng.random() < 0.15:
                # One leaves as an operator lets it, while the dead one's partitions are shared out.
                leaver = self._victim()
                assert leaver.stop() == 0, leaver.err
                self.stopped += 1
                self._tell("learner left", leaver.pid)
            between()
        while len(self.learners) < 2:
            self._join()

    def end(self):
        """Stop all; none has complained."""
        for learner in self.learners:
            assert learner.stop() == 0, learner.err
        for child in self._nursery.children:
            assert child.status in (0, -9), child.err
            assert "murk:" not in child.err.replace("murk: waiting:", ""), child.err

    def close(self):
        self._consumer.close()

    def _join(self):
        self.learners.append(self._nursery.learner(self._url, "--wait"))
        self._tell("learner joined", self.learners[-1].pid)

    def _victim(self):
        return self.learners.pop(self._rng.randrange(len(self.learners)))

    def _written(self):
        try:
            self._seen = sum(self._consumer.end_offsets(self._states, timeout_ms=2_000).values())
        except KafkaError:
            # The broker is away, or was a moment ago.
            time.sleep(0.1)
        return self._seen

    def _healthy(self):
        self._arrivals.allow(0.0)
        for learner in self.learners:
            assert learner.status is None, f"{learner.status}: {learner.err}"
        return False
