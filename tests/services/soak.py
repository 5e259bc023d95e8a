"""The long campaign: `make soak`, or ``MURK_SOAK=30 python -m tests.services.soak`` for 30 minutes (10 by default).

One life after another, of one protocol after another: a new log, two or three learners that join, leave, are killed
and frozen while messages arrive, and the broker killed or frozen under them. Each life ends with the comparison with
one undisturbed process.
"""

import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from deploy.broker import Broker
from tests.protocols import PROTOCOLS, SKETCH
from tests.services.faults.campaign import Arrivals, Campaign
from tests.services.faults.nursery import Nursery
from tests.services.faults.world import as_if_undisturbed, caught_up, disturbed, new_log, stock

KILLS = 20
"""Kills of a life."""
STRIKE_EVERY = 4
"""Kills of learners between two strikes at the broker, or at a learner that freezes."""
FROZEN = (3.0, 20.0)
"""Seconds: shorter than a client waits for one answer, and longer."""

BEGAN = time.monotonic()


def say(*words):
    print(f"{time.monotonic() - BEGAN:7.1f} s ", *words, flush=True)  # noqa: T201 - what it is for


class Strikes:
    """What happens to the broker and to learners besides, in turn, so that each of it does."""

    def __init__(self, broker, seed, tell):
        self._broker = broker
        self._rng = random.Random(seed)
        self._tell = tell
        self._kills = 0
        self._turn = seed

    def between(self, learners):
        """Called after each kill."""
        self._kills += 1
        if self._kills % STRIKE_EVERY:
            return
        [self._kill, self._freeze, self._freeze_learner][self._turn % 3](learners)
        self._turn += 1

    def _kill(self, learners):
        absent = self._rng.uniform(0.0, 3.0)
        self._broker.kill()
        time.sleep(absent)
        self._broker.start()
        self._tell("broker killed", f"for {absent:.1f} s")

    def _freeze(self, learners):
        frozen = self._rng.choice(FROZEN)
        self._broker.freeze()
        time.sleep(frozen)
        self._broker.thaw()
        self._tell("broker frozen", f"for {frozen:.0f} s")

    def _freeze_learner(self, learners):
        if not learners:
            return
        sleeper, frozen = self._rng.choice(learners), self._rng.uniform(1.0, 6.0)
        sleeper.freeze()
        time.sleep(frozen)
        sleeper.thaw()
        self._tell("learner frozen", f"{sleeper.pid}, for {frozen:.1f} s")


def life(broker, folder, seed, counts):
    """One log from its beginning to the comparison."""
    protocol, partitions = PROTOCOLS[seed % 4], (4, 2)[seed // 4 % 2]
    task, released = stock(partitions, protocol.rows(1000 if protocol is SKETCH else 3000), protocol)
    messages = [disturbed(task, values, f"{seed} {number}") for number, values in enumerate(released)]
    url = new_log(broker, task)
    arrivals = Arrivals(url, messages)

    def tell(what, which):
        counts[what] += 1
        say(f"life {seed}, {arrivals.sent:,} of {sum(map(len, messages)):,} messages there: {what} ({which})")

    say(f"life {seed}: {protocol}, {partitions} chains, {url.rpartition('/')[2]}")
    with Nursery(folder / f"life-{seed}", [protocol], MURK_KAFKA_SESSION_TIMEOUT_MS="1500") as nursery:
        campaign = Campaign(url, nursery, arrivals, partitions, seed, tell)
        strikes = Strikes(broker, seed, tell)
        try:
            campaign.fight(KILLS, lambda: strikes.between(campaign.learners))
            arrivals.finish()
            caught_up(url, *campaign.learners)
            campaign.end()
        finally:
            arrivals.close()
            campaign.close()
    found = as_if_undisturbed(url, task)
    assert [counters["learned"] for _, counters in found] == [len(values) for values in released]
    shutil.rmtree(folder / f"life-{seed}")
    for chain, (_, counters) in enumerate(found):
        dead = sum(counters["dead"].values())
        there = counters["learned"] + counters["duplicates"] + dead
        counts["messages"] += there
        say(
            f"life {seed}, chain {chain}: {there:,} messages = {counters['learned']:,} learned + "
            f"{counters['duplicates']:,} duplicates + {dead:,} dead letters; state bit-identical to that of one "
            "undisturbed process"
        )


def main():
    minutes, first = float(os.environ.get("MURK_SOAK", "10")), int(os.environ.get("MURK_SOAK_SEED", "1"))
    seed, counts = first, Counter()
    folder = Path(tempfile.mkdtemp(prefix="murk-soak-"))
    with Broker(folder / "kafka") as broker:
        while seed == first or time.monotonic() - BEGAN < 60 * minutes:
            try:
                life(broker, folder, seed, counts)
            except BaseException:
                say(f"life {seed} failed; what its processes printed is in {folder}")
                say(broker.said())
                raise
            seed += 1
        broker.kill()
    shutil.rmtree(folder)
    messages = counts.pop("messages")
    say(f"{seed - first} lives, {messages:,} messages: nothing lost, nothing doubled, every chain bit-identical")
    say(", ".join(f"{kind} {count} times" for kind, count in sorted(counts.items())))


if __name__ == "__main__":
    sys.exit(main())
