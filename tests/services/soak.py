"""The long campaign: `make soak`, or ``MURK_SOAK=30 python -m tests.services.soak`` for 30 minutes (10 by default).

One life after another: a new log, two or three learners killed, stopped and replaced while messages arrive, and now
and then the broker killed or frozen under them. Each life ends with the comparison with one undisturbed process.
"""

import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from deploy.broker import Broker
from tests.services.faults.campaign import Arrivals, Campaign
from tests.services.faults.nursery import Nursery
from tests.services.faults.world import as_if_undisturbed, caught_up, disturbed, new_log, stock

KILLS = 20
"""Kills of a life."""


def say(*words):
    print(*words, flush=True)  # noqa: T201 - what it is for


def life(broker, folder, seed):
    """One log from its beginning to the comparison; how many kills, and how many messages."""
    rng = random.Random(seed)
    partitions = rng.choice([2, 4])
    task, released = stock(partitions)
    messages = [disturbed(task, values, f"{seed} {number}") for number, values in enumerate(released)]
    url = new_log(broker, task)
    arrivals = Arrivals(broker, url, messages)
    struck = []

    def tell(kill, written):
        what = ""
        if rng.random() < 0.1:
            what = rng.choice(["broker killed", "broker frozen"])
            struck.append(what)
            if what == "broker killed":
                broker.kill()
                time.sleep(rng.uniform(0.0, 3.0))
                broker.start()
            else:
                broker.freeze()
                time.sleep(rng.choice([3.0, 20.0]))
                broker.thaw()
        say(f"seed {seed}, {partitions} chains: kill {kill} of {KILLS}, {written} written", what)

    with Nursery(folder / f"life-{seed}", MURK_KAFKA_SESSION_TIMEOUT_MS="1500") as nursery:
        campaign = Campaign(broker, url, nursery, arrivals, partitions, seed)
        try:
            campaign.fight(KILLS, tell)
            arrivals.finish()
            caught_up(url, *campaign.learners)
            campaign.end()
        finally:
            arrivals.close()
            campaign.close()
    found = as_if_undisturbed(url, task)
    assert [counters["learned"] for _, counters in found] == [len(values) for values in released]
    shutil.rmtree(folder / f"life-{seed}")
    return KILLS, len(struck), sum(map(len, messages))


def main():
    minutes, first = float(os.environ.get("MURK_SOAK", "10")), int(os.environ.get("MURK_SOAK_SEED", "1"))
    began, seed = time.monotonic(), first
    kills = strikes = messages = 0
    folder = Path(tempfile.mkdtemp(prefix="murk-soak-"))
    with Broker(folder / "kafka") as broker:
        while seed == first or time.monotonic() - began < 60 * minutes:
            try:
                more = life(broker, folder, seed)
            except BaseException:
                say(f"seed {seed} failed; what its processes printed is in {folder}")
                say(broker.said())
                raise
            kills, strikes, messages = kills + more[0], strikes + more[1], messages + more[2]
            say(f"seed {seed}: every release was learned once, as if by one undisturbed process")
            seed += 1
        broker.kill()
    shutil.rmtree(folder)
    say(
        f"{seed - first} lives, {kills} kills of learners, {strikes} of the broker (or freezes), {messages:,} "
        f"messages, {(time.monotonic() - began) / 60:.1f} minutes: nothing lost, nothing doubled"
    )


if __name__ == "__main__":
    sys.exit(main())
